#!/bin/bash
# plan.sh SENNIT: a plan is found, explains itself, runs and equals one rank; it is refused for another model, batch and
# cluster; what does not fit says by how much; bad input is diagnosed.
set -u
sennit=$1
. "$(dirname "$0")/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
model=$root/samples/chargpt/model.onnx
outline_of() { # what the text of a plan says of a mesh
    case $1 in
    microbatches=*) echo " ${1#*=} micro-batches" ;;
    pp=2,schedule=*) echo ' pp=2 .* interleaved in' ;;
    schedule=*) echo ", ${1#*=}" ;;
    *) echo " $1\>" ;;
    esac
}
options="--loss softmax_cross_entropy:logits,labels --dim seq=32"
plan=$tree/plan.json

# found, written, explained
expect 0 'no plan is faster than .* by the closed form .* plans priced' "$sennit" plan "$model" $options --cluster local:4 --batch 16 -o "$plan"
expect 0 '[GM]iB total' "$sennit" plan "$model" $options --cluster local:4 --batch 16
expect 0 '"step_seconds"' "$sennit" plan "$model" $options --cluster local:4 --batch 16 --json
expect 1 'cannot be written' sh -c '"$1" explain "$2" --json >/dev/full' - "$sennit" "$plan"
expect 1 'cannot be written' sh -c '"$1" plan --help >/dev/full' - "$sennit"
expect 0 'twice the memory' "$sennit" explain "$plan"
expect 0 'tp=4: ' "$sennit" explain "$plan"
expect 0 '"runners_up"' "$sennit" explain "$plan" --json
expect 0 'stage [0-9]*, block' "$sennit" explain "$plan" --node lm.transformer.h.1.attn.c_attn.weight
node=lm.transformer.h.1.attn.c_attn.weight
for field in "\"name\": \"$node\"" '"kind": "parameter"' '"stage": [0-9]+' '"block": [0-9]+' '"layout": ("\{.*\}"|null)' \
    '"block_forward_seconds": 0\.[0-9]+'; do
    expect 0 "^  $field,?\$" "$sennit" explain "$plan" --node $node --json
done
expect 1 "help: did you mean '$node'" "$sennit" explain "$plan" --node ${node%.weight}.weigth
expect 1 'E0447.*no node or parameter' "$sennit" explain "$plan" --node nothing
"$sennit" plan "$model" $options --cluster local:4 --batch 16 -o "$tree/again.json" >"$tree/output"
sed '/search_seconds/d' "$plan" >"$tree/a" && sed '/search_seconds/d' "$tree/again.json" | cmp -s - "$tree/a" || {
    echo "$0: planning twice gives two plans" >&2
    failures=1
}
# percentages of the step's parts add up, crowded hosts included; what a runner-up is told to take rises; no value of the
# plan's own is asked about; where no axis cuts matrices nothing is said of one
adds_up() {
    expect 0 'the step: ' "$sennit" explain "$1"
    sed -n 's/([^)]*)//; s/^  the step: //p' "$tree/output" | tr ',' '\n' |
        awk '{ sum += $1 } END { exit !(NR > 2 && sum > 99.7 && sum < 100.3) }' ||
        { echo "$1: parts of the step do not add up" >&2; failures=1; }
}
adds_up "$plan"
expect 0 'no plan is faster' "$sennit" plan "$model" $options --cluster local:64 --batch 64 -o "$tree/crowded.json"
adds_up "$tree/crowded.json"
expect 0 'waiting for cores that ranks share' "$sennit" explain "$tree/crowded.json"
for each in "$plan" "$tree/crowded.json"; do
    "$sennit" explain "$each" | sed -n '/^Runners-up/,/^Why not/s/.*% (\([0-9.]*\) \(us\|ms\|s\)\( replayed\)*).*/\1 \2 \3/p' |
        awk '{ s = $1 * ($2 == "us" ? 1e-6 : $2 == "ms" ? 1e-3 : 1); if ($3 == last && s < before) exit 1
               if ($3 != "" && NR > 1 && last == "") exit 1
               last = $3; before = s }' || { echo "$each: runners-up are out of order" >&2; failures=1; }
done
expect 0 'dp=2, .*, remat=full' "$sennit" plan "$model" $options --cluster local:2 --batch 16 --mesh dp=2,remat=full -o "$tree/pair.json"
never '^  dp=2: |the pipeline takes longer|rank of tp' "$sennit" explain "$tree/pair.json"
never 'rank of tp' "$sennit" explain "$tree/pair.json" --node node_add_7
never '_bytes": [0-9]*\.' "$sennit" plan "$model" $options --cluster local:4 --batch 16 --json
# an edited plan is not what its explanation tells of; an edited explanation is checked
edit() { # STATUS PATTERN SED
    sed "$3" "$plan" >"$tree/edited.json"
    expect "$1" "$2" "$sennit" explain "$tree/edited.json"
}
never 'W0446' "$sennit" explain "$plan"
edit 0 'W0446.*edited since it was explained \(batch\)' 's/"batch": 16/"batch": 32/'
edit 0 'W0446.*\(remat\)' '0,/^  "remat": "none"/s//  "remat": "full"/'
expect 0 '"edited": "remat"' "$sennit" explain "$tree/edited.json" --json
edit 1 'E0454.*explanation.s "step_seconds" is not usable' '/"explanation"/,$s/^    "step_seconds": /&-/'
edit 1 'E0454.*"step_seconds"' '/"explanation"/,$s/^    "step_seconds": .*,/    "step_seconds": "NaN",/'
edit 1 'E0454.*"lower_bound"' '/^    "lower_bound"/d'
edit 1 'E0454.*"stages\[0\].memory.optimizer"' 's/"optimizer": /&-/'
edit 1 'E0454.*"binding_stage"' 's/"binding_stage": .*,/"binding_stage": 99,/'
edit 1 'E0454.*"runners_up\[0\].outline"' '/"runners_up"/,$s/"outline": ".*"/"outline": 3/'
# planned with a profile, it is simulated with or without one
expect 0 'step ' "$sennit" plan "$model" $options --cluster local:2 --batch 16 -o "$tree/profiled.json" \
    --profile "$root/samples/profiles/sapphire-rapids-2-cores.json"
expect 0 '^step ' "$sennit" simulate "$tree/profiled.json"

# it runs, and equals one rank: the best plan, and one of every axis
expect 0 'losses' "$sennit" verify "$model" $options --plan "$plan" --steps 2
mesh=pp=2,tp=2,microbatches=2
expect 0 'pp=2 tp=2' "$sennit" plan "$model" $options --cluster local:4 --batch 8 --mesh $mesh -o "$tree/mesh.json"
expect 0 'losses' "$sennit" verify "$model" $options --plan "$tree/mesh.json" --steps 2

# a micro-batch of one sample, where broadcasts along the batch are none
expect 0 'pp=4' "$sennit" plan "$model" $options --cluster local:4 --batch 8 --mesh pp=4,microbatches=8 -o "$tree/single.json"
expect 0 '^step ' "$sennit" simulate "$tree/single.json"

# what --mesh does not name is searched
for mesh in pp=2 dp=2 tp=4 schedule=gpipe microbatches=8 zero=1 pp=2,schedule=interleaved; do
    expect 0 "$(outline_of $mesh)" "$sennit" plan "$model" $options --cluster local:4 --batch 48 --mesh $mesh
done
expect 0 'losses' "$sennit" verify "$model" $options --cluster local:2 --batch 12 --mesh zero=1 --steps 2
# a rank of several stages is the longest with all of them
longest() { # COUNT MARK MESH
    expect 0 "<- $2\$" "$sennit" plan "$model" $options --cluster local:4 --batch 16 --mesh "$3" -o "$tree/marked.json"
    [ "$(grep -c -- '<- longest' "$tree/output")" -eq "$1" ] || { echo "$3: not $1 marks" >&2; failures=1; }
}
longest 1 longest pp=2,dp=2,microbatches=4
longest 2 'longest rank' pp=2,dp=2,schedule=interleaved,chunks=2,microbatches=4
expect 0 '^  stages [01], [23], devices ' "$sennit" explain "$tree/marked.json"
# what ZeRO-3 moves with each micro-batch is part of the pipeline, and said
longest 1 longest dp=4,zero=3
expect 0 'forward and backward .* \(of it [0-9.]+ [mu]s parameters and gradients over dp with each micro-batch\), .* once a step ' "$sennit" explain "$tree/marked.json"
expect 0 'step: .*% forward and backward \(of it [1-9][0-9.]* % parameters and gradients over dp' "$sennit" explain "$tree/marked.json"
expect 0 'layout shared out by ZeRO-3' "$sennit" explain "$tree/marked.json" --node $node
expect 0 '"moved_seconds": 0\.' "$sennit" explain "$tree/marked.json" --json
# and what is in the way is said
fail() { # MESH CAUSE
    expect 1 "E0440.*no way to share a batch of 48 among 4 devices with $1: .*$2" \
        "$sennit" plan "$model" $options --cluster local:4 --batch 48 --mesh $1
}
fail pp=3 'axes do not multiply'
fail dp=4,microbatches=5 'micro-batches do not divide'
fail pp=2,microbatches=7 'micro-batches do not divide'
fail tp=4,zero=1 'ZeRO needs'
fail pp=4,schedule=interleaved,chunks=40 'schedule does not go'
# and what is possible
expect 1 'help: .*with dp=4 microbatches may be 1, 2, 3, 4, 6, 12$' "$sennit" plan "$model" $options --cluster local:4 --batch 48 --mesh dp=4,microbatches=5
expect 1 'help: .*the model has 8 blocks, so pp may be 1, 2, 4, 8$' "$sennit" plan "$model" $options --cluster local:16 --batch 16 --mesh pp=16
expect 1 'help: .*dp may be 1, 2$' "$sennit" plan "$model" $options --cluster local:4 --batch 6 --mesh dp=4
expect 1 'help: .*sizes that divide the devices: 1, 2, 4$' "$sennit" plan "$model" $options --cluster local:4 --batch 48 --mesh pp=3
# a model of a fixed batch: one micro-batch of 4 samples
fixed=("$root/tests/data/models/gpt2/dynamo-20-raw.onnx" --loss softmax_cross_entropy:logits,labels
    --cluster local:4 --batch 8)
expect 0 ' 2 micro-batches of 4' "$sennit" plan "${fixed[@]}" --mesh tp=4
expect 0 'pp=2 dp=2, 2 micro-batches of 2' "$sennit" plan "${fixed[@]}" --mesh pp=2,dp=2
expect 1 'E0440.*microbatches=4 and the model.s batch of 4: the model fixes' \
    "$sennit" plan "${fixed[@]}" --mesh microbatches=4
# A bound batch dim is a micro-batch's, as training takes it.
expect 1 'E0440.*microbatches=4 and the model.s batch of 64: the model fixes' \
    "$sennit" plan "$model" --loss softmax_cross_entropy:logits,labels --dim seq=64 --dim batch=64 --batch 64 \
    --cluster local:2 --mesh pp=2,microbatches=4
# trained, an update takes as many of them as there are micro-batches: said, unless --batch says it
fixed=("${fixed[@]:0:3}" -o "$tree/x")
expect 0 'W0212.*takes 8 samples: .*fixed at 4, .* 2 micro-batches' "$sennit" compile "${fixed[@]}" --mesh microbatches=2
expect 0 'help: --batch 8 ' "$sennit" compile "${fixed[@]}" --mesh microbatches=2
never W0212 "$sennit" compile "${fixed[@]}" --mesh microbatches=2 --batch 8
never W0212 "$sennit" compile "${fixed[@]}" --accumulate 2
expect 1 'E0212.*--batch 4: .*fixed at 4 for each micro-batch' "$sennit" compile "${fixed[@]}" --mesh microbatches=2 --batch 4
expect 1 'help: --batch 8 trains with 2 of these' "$sennit" compile "${fixed[@]}" --mesh microbatches=2 --batch 4
echo '{"version": 2, "mesh": {}, "microbatches": 2}' >"$tree/halves.json"
expect 0 'W0212.*takes 8 samples' "$sennit" compile "${fixed[@]}" --plan "$tree/halves.json"
echo '{"version": 2, "mesh": {}, "microbatches": 2, "batch": 4}' >"$tree/halves.json"
expect 1 "E0212.*plan's batch of 4 in 2 micro-batches: .*fixed at 4" "$sennit" compile "${fixed[@]}" --plan "$tree/halves.json"

# attention that no rank has a part of is said, of a rank count that does not divide its heads
heads=("$sennit" compile "${fixed[@]}" --mesh)
expect 0 'W0432.*tp=3 does not divide the 4 heads of this attention, and of 1 more' "${heads[@]}" tp=3
expect 0 'at: node_scaled_dot_product_attention$' "${heads[@]}" tp=3
expect 0 'help: choose a size of tp that divides 4 \(2, say\)' "${heads[@]}" tp=6
never . "${heads[@]}" tp=4
grouped=("$sennit" compile "$root/tests/data/models/grouped/kv2.onnx" --batch 4 -o "$tree/x" --mesh)
expect 0 'W0432.*tp=3 does not divide the 4 query heads and 2 key/value heads' "${grouped[@]}" tp=3
expect 0 'W0432.*t=4 does not divide' "${grouped[@]}" t=4
never . "${grouped[@]}" tp=4
# beside the program is the plan that it runs, the axis split in key heads and the queries that share one: it gives the
# same program again
expect 0 '"tp": 2' tr -d '\n' <"$tree/x.d/plan.json"
expect 0 '"tp_q": 2' cat "$tree/x.d/plan.json"
never . "${grouped[@]:0:3}" --batch 4 --plan "$tree/x.d/plan.json" -o "$tree/y"
grep -v 'hash\|path' "$tree/x.d/schedule.json" >"$tree/a"
grep -v 'hash\|path' "$tree/y.d/schedule.json" | cmp -s - "$tree/a" || { echo "the plan written gives another program" >&2; failures=1; }
expect 0 'W0430.*cp=3 splits nothing of this model: its 3 ranks all hold and compute the same' "${grouped[@]}" cp=3
expect 0 'help: leave cp out, .*cp cuts the sequence' "${grouped[@]}" cp=3
rm -rf "$tree"/x*

# refused
expect 1 'E0444.*a batch of 16' "$sennit" compile "$model" $options --plan "$plan" --batch 8 -o "$tree/x"
expect 1 'E0443.*another cluster' "$sennit" compile "$model" $options --plan "$plan" --cluster local:8 -o "$tree/x"
# what the plan was made with need not be said again; a contradiction is an error that names both
expect 0 'losses' "$sennit" verify "$model" --plan "$plan" --steps 2
head -c 4000 /dev/zero >"$tree/tokens"
expect 0 'trained|step' "$sennit" train "$model" --plan "$tree/mesh.json" --data "$tree/tokens" --steps 1 --threads 1
never 'error' "$sennit" compile "$model" $options --plan "$plan" --optimizer sgd,lr=0.1 -o "$tree/x"
again() { # PATTERN OPTION...
    expect 1 "E0455.*$1" "$sennit" compile "$model" --plan "$plan" -o "$tree/x" "${@:2}"
    expect 1 "E0455.*$1" "$sennit" simulate "$plan" "${@:2}"
}
again 'made with --dim seq=32, .* says --dim seq=16' --dim seq=16
again 'made with --loss softmax_cross_entropy:logits,labels, .* says --loss mse:logits,labels' --loss mse:logits,labels
sed 's/"--dim=seq=32"/"--dim=seq=16"/' "$plan" >"$tree/shapes.json"
expect 1 'E0442.*another model' "$sennit" compile "$model" --plan "$tree/shapes.json" -o "$tree/x"
sed 's/"--dim=seq=32"/32/' "$plan" >"$tree/shapes.json"
expect 1 'E0453.*"made_from" is not usable' "$sennit" compile "$model" --plan "$tree/shapes.json" -o "$tree/x"
echo '{"version": 2, "mesh": {"dp": 2}, "batch": 8}' >"$tree/old.json"
expect 1 'E0206' "$sennit" compile "$model" --plan "$tree/old.json" -o "$tree/x"
never 'error' "$sennit" compile "$model" $options --plan "$tree/old.json" -o "$tree/x"

expect 1 "E0407.*'pp=4' gives an axis twice" "$sennit" compile "$model" $options --batch 8 --mesh pp=2,pp=4 -o "$tree/x"
expect 1 "E0407.*'dp=2097152' makes the mesh too large" "$sennit" compile "$model" $options --batch 8 --mesh dp=2097152 \
    -o "$tree/x"

# a misspelt setting is no axis, nor is an option; what resembles an axis is asked about, any other name is fine
outline() { # STATUS PATTERN MESH
    expect "$1" "$2" "$sennit" compile "$model" $options --batch 8 -o "$tree/x" --mesh "$3"
}
outline 1 "E0407.*'microbatch=2' is no setting; did you mean microbatches\?" tp=2,microbatch=2
outline 1 "E0407.*'schedule=1F1B' names a value that it cannot have" pp=2,schedule=1F1B
outline 1 "E0407.*'zero=4' names a value" dp=2,zero=4
outline 1 "E0407.*'ranks=2' is no part of a mesh but an option" ranks=2
outline 0 "W0407.*'tpp' is taken for the name of an axis" tpp=2
outline 0 'help: did you mean tp\?' TP=2
for name in tp1 x model; do never W0407 "$sennit" compile "$model" $options --batch 8 -o "$tree/x" --mesh $name=2; done
for cluster in local:2 local:8; do
    expect 1 "E0406.*--ranks 4: the cluster has ${cluster#*:} devices" "$sennit" compile "$model" $options --batch 8 \
        --cluster $cluster --ranks 4 -o "$tree/x"
done
expect 1 'E0406.*--mesh is for 2 ranks, --ranks says 4' "$sennit" compile "$model" $options --batch 8 --mesh dp=2 --ranks 4 -o "$tree/x"
rm -rf "$tree"/x*

# stages run different programs: nothing is cut over pp
echo '{"version": 2, "mesh": {"pp": 2}, "layouts": {"lm.head.weight": "{pp,-}"}}' >"$tree/pipeline.json"
expect 1 'E0450.*not usable' "$sennit" compile "$model" $options --plan "$tree/pipeline.json" -o "$tree/x"

# what does not fit, and what is missing
cat >"$tree/small.json" <<'END'
{"name": "small", "nodes": [{"devices": 2, "device": "cpu", "memory": "3 MiB"}],
 "links": [{"name": "memory", "devices": "all", "latency": "5 us", "bandwidth": "4 GB/s"}]}
END
tight() { # tight STATUS PATTERN CLUSTER MESH: of each lever, what it saves, or would where --mesh rules it out
    expect "$1" "$2" "$sennit" plan "$model" $options --cluster "$tree/$3.json" --batch 64 --mesh "$4"
}
expect 1 'E0441.*needs .* more per device' "$sennit" plan "$model" $options --cluster "$tree/small.json" --batch 16
tight 1 'E0441.*remat saves .* there already; ZeRO saves .* there already' small dp=2
tight 1 'E0441.*--mesh keeps remat=none, another would save [0-9.]* [KM]iB; --mesh keeps zero=0, zero=3 would save [0-9.]* MiB$' \
    small dp=2,zero=0,remat=none
tight 1 'E0441.*more per device; --mesh keeps zero=1, zero=3 would save [0-9.]* MiB$' small dp=2,zero=1,remat=full
sed 's/"3 MiB"/"30 MiB"/' "$tree/small.json" >"$tree/middle.json"
tight 0 ' full ' middle dp=2,zero=0,microbatches=1
tight 0 ' full ' middle dp=2,zero=0,microbatches=1,remat=full
tight 1 'E0441.*--mesh keeps remat=none' middle dp=2,zero=0,microbatches=1,remat=none
# a plan of no cluster is held against the one that is named
echo '{"version": 2, "mesh": {"dp": 2}}' >"$tree/two.json"
expect 1 'E0517.*rank 0 .* needs .* has' "$sennit" compile "$model" $options --batch 16 --plan "$tree/two.json" \
    --cluster "$tree/small.json" -o "$tree/x"
sed "s|}}|}, \"made_from\": {\"options\": [\"--batch=16\", \"--cluster=$tree/small.json\"]}}|" "$tree/two.json" >"$tree/made.json"
expect 0 'W0517.*rank 0 .* needs .* has' "$sennit" simulate "$tree/made.json" "$model" $options
test -e "$tree/x" && echo "a program that does not fit was written" >&2 && failures=1
expect 1 'E0440.*no way to share a batch of 1 ' "$sennit" plan "$model" $options --cluster local:64 --batch 1 --mesh dp=64
expect 1 'E0448.*a plan is made for a cluster' "$sennit" plan "$model" $options --batch 8
expect 1 'E0448.*a plan is made for a batch' "$sennit" plan "$model" $options --cluster local:2
expect 1 'E0440.*do not divide the model' "$sennit" plan "$model" $options --cluster local:4 --batch 16 --mesh ep=4
: >"$tree/empty.json"
expect 1 'E0411.*line 1: ' "$sennit" plan "$model" $options --cluster "$tree/empty.json" --batch 8
echo '{"version": 2, "mesh": {"dp": 2}}' >"$tree/bare.json"
expect 1 'E0446.*no explanation' "$sennit" explain "$tree/bare.json"
echo '{"version": 2, "mesh": {"dp": 2}, "batch": 48, "microbatches": 5}' >"$tree/uneven.json"
expect 1 'E0451.*a batch of 48 does not divide into 5' "$sennit" compile "$model" $options --plan "$tree/uneven.json" \
    -o "$tree/x"
# what is misspelt has no effect, so it is refused
refuse() { # MESSAGE JSON
    echo "{\"version\": 2, \"mesh\": {\"dp\": 2}, $2}" >"$tree/keys.json"
    expect 1 "$1" "$sennit" compile "$model" $options --batch 8 --plan "$tree/keys.json" -o "$tree/x"
}
refuse 'E0403.*"microbatch" is no known key' '"microbatch": 2'
refuse 'known are version, model' '"microbatch": 2'
refuse "E0403.*stage 0's \"rematerialise\" is no known key" '"stages": [{"first": "", "rematerialise": "full"}]'
stages() { # MESSAGE JSON
    refuse "$1" "\"schedule\": \"interleaved\", \"chunks\": 2, \"stages\": $2"
}
stages "E0409.*stage 0's \"first\" is not usable" '[{"first": "/head"}, {"first": "/body"}]'
stages 'it is "" in the first stage' '[{"remat": "full"}, {"first": "/body"}]'
stages "E0409.*stage 1's \"first\" is not usable" '[{"first": ""}, {"first": ""}]'
stages 'it is the name of the ONNX node' '[{"first": ""}, {"first": 3}]'
stages "E0409.*stage 1's \"remat\" is not usable" '[{"first": ""}, {"first": "/body", "remat": "some"}]'
stages 'it is one of none, selective, full' '[{"first": "", "remat": 1}, {"first": "/body"}]'
refuse 'E0451.*a batch of 8 does not divide into 5 micro-batches' '"microbatches": 5, "batch": 8'
refuse 'E0451.*a batch of 8 does not divide into 3 micro-batches' '"microbatches": 3'
refuse 'E0403.*"batch" is not usable' '"batch": "x"'
refuse 'E0403.*"batch" is not usable' '"batch": 0'
refuse 'E0403.*"predicted" is not usable' '"predicted": 3'
refuse 'E0403.*predicted "step_seconds" is not usable' '"predicted": {"step_seconds": "fast"}'
refuse 'E0403.*"stages" is not usable' '"stages": {}'
refuse 'E0403.*"model" is not usable' '"model": "gpt"'
refuse 'E0403.*"model" is not usable' '"model": "0"'
refuse 'E0403.*"cluster" is not usable' '"cluster": "0000000000000000"'
refuse 'left out, the plan is for any model' '"model": "0"'
echo '{"version": 2, "mesh": {"dp": 2}, "explanation": {}}' >"$tree/hollow.json"
expect 1 'E0446.*no explanation' "$sennit" explain "$tree/hollow.json"
expect 1 'E0405.*read: unable to open' "$sennit" explain "$tree/missing.json"
exit $failures
