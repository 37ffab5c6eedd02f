#!/bin/sh
# command.sh SENNIT CHECK_TRACE: plans of the bundled character model simulated; figures that must agree with each other;
# the prediction and a run's measurement in one trace; a quick profile; mistakes of the user's.
set -eu
sennit=$1
check_trace=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/cli/lib.sh"
model=$root/samples/chargpt/model.onnx
cd "$tree"
what="--loss softmax_cross_entropy:logits,labels --dim seq=16"
head -c 4000 /dev/zero >tokens

good() { # good COMMAND…: it ends with status 0
    "$@" >"$tree/output" 2>&1 && return
    echo "$0: $*:" >&2
    head -20 "$tree/output" >&2
    failures=1
}
plan() { # plan FILE RANKS MESH
    good "$sennit" plan "$model" $what --cluster "local:$2" --batch 8 --mesh "$3" -o "$1"
}
value() { # value KEY < JSON: its first value
    sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*$/\1/p" | head -1
}

plan pipeline.json 2 pp=2,microbatches=4
plan mixed.json 4 pp=2,dp=2,microbatches=2
plan interleaved.json 2 pp=2,chunks=2,schedule=interleaved,microbatches=4
plan zero_bubble.json 2 pp=2,schedule=zero-bubble,microbatches=4
for plan in pipeline mixed interleaved zero_bubble; do
    expect 0 '^step .* ranks: ' "$sennit" simulate $plan.json --trace $plan.trace
    good "$check_trace" $plan.trace 'predicted rank 0 ' 'predicted rank 1 '
    expect 0 '^step .* ranks: ' "$sennit" simulate $plan.json --remarks
    "$sennit" simulate $plan.json --json >$plan.out
    # works + communicates + waits = the step
    awk -v step="$(value step_seconds <$plan.out)" '
        /"compute_seconds"/ && !inside { sum = 0 }
        /"phases"/ { inside = 1 } /"memory_bytes"/ { inside = 0 }
        /"(compute|exposed_communication|waiting)_seconds"/ && !inside { sub(/,/, "", $2); sum += $2
            if (/"waiting/ && (sum / step > 1.000001 || sum / step < 0.999999)) { print sum, step; exit 1 } }' $plan.out || {
        echo "$plan: the parts do not make up the step" >&2
        failures=1
    }
done
# the same again gives the same
"$sennit" simulate pipeline.json --json | cmp - pipeline.out || failures=1

good "$sennit" train "$model" $what --plan pipeline.json --data tokens --steps 4 --threads 1 --trace run.trace
good "$check_trace" run.trace
good "$sennit" simulate pipeline.json --trace both.trace --measured run.trace
good "$check_trace" both.trace 'predicted rank 0 ' 'measured rank 0 ' 'predicted rank 1 ' 'measured rank 1 '

# The report is one page of its own, with all parts.
good "$sennit" compile "$model" $what --plan mixed.json -o program
report=program.d/report.html
for part in '<h2>Plan' '<h2>Rank classes' '<h2>Timeline of a step' '<h2>Memory over a step' '<h2>Communication by layer' \
    'prefers-color-scheme:dark' 'rank 3' 'micro-batch 1' 'all_reduce'; do
    grep -q "$part" $report || { echo "$report: no $part" >&2; failures=1; }
done
if grep -qE '(src|href)=|url\(|<script' $report; then
    echo "$report: it needs other files" >&2
    failures=1
fi

good "$sennit" profile --quick -o profile.json pipeline.json
grep -q '"gemm ' profile.json || failures=1
expect 0 '^step ' "$sennit" simulate pipeline.json --profile profile.json
# the machine of an earlier profile with the instructions of another plan
good "$sennit" profile --reuse profile.json --quick -o other.json mixed.json
for p in profile other; do sed '/"instructions"/,$d' $p.json >$p.machine; done
good cmp profile.machine other.machine
grep -q '"gemm ' other.json || failures=1
if cmp -s profile.json other.json; then
    echo "profile --reuse measured nothing" >&2
    failures=1
fi
good "$sennit" plan "$model" $what --cluster local:2 --batch 8 --mesh pp=2,microbatches=4 --profile profile.json -o measured.json
expect 0 '^step ' "$sennit" simulate measured.json

expect 0 '^step ' "$sennit" simulate mixed.json --profile "$root/samples/profiles/sapphire-rapids-2-cores.json"

# A machine of other devices, many of them: one rank of each class stands for all.
good "$sennit" plan "$model" $what --cluster dgx-a100:64 --batch 2048 --mesh pp=2,dp=256,microbatches=4 -o large.json
expect 0 'one rank of each class' "$sennit" simulate large.json

expect 1 'E0405' "$sennit" simulate missing.json
echo '{' >broken.json
expect 1 'E0405.*line 2' "$sennit" simulate broken.json
plain() { # plain CODE PLAN: a plan that does not say what it was made from
    echo "$2" >plain.json
    expect 1 "$1" "$sennit" simulate plain.json
}
plain E0453 '{"version": 2, "mesh": {"pp": 2}}'
# what is wrong with the plan itself comes first
plain 'E0402.*not a plan of version' '{"version": 99, "mesh": {"dp": 2}}'
plain E0402 '{"version": 2}'
plain E0402 '[]'
plain "E0401.*'dp' is not usable" '{"version": 2, "mesh": {"dp": -2}}'
plain "E0401.*'dp' is not usable" '{"version": 2, "mesh": {"dp": 1e30}}'
plain 'E0403.*"zero" is not usable' '{"version": 2, "mesh": {"dp": 2}, "zero": 9}'
expect 1 'E0414' "$sennit" simulate pipeline.json --profile pipeline.json
expect 1 'E0829' "$sennit" simulate pipeline.json --measured run.trace
expect 1 'E0829' "$sennit" simulate pipeline.json --trace t --measured pipeline.json
expect 1 'E0830' "$sennit" simulate pipeline.json --trace "$tree/no/folder/t"
expect 1 'E0831' "$sennit" profile
expect 1 'E0414' "$sennit" profile --reuse pipeline.json -o no.json
exit $failures
