#!/bin/bash
# Two pipeline stages, by hand: the same losses as one, on any number of replicas; checkpoints that go from one plan to
# another; evaluations, predictions and a trace that gather from the stage that has them.
# Usage: pipeline.sh MAKE_PIPELINE RUNNER KERNELS SENNIT
set -u
make=$1 runner=$2 kernels=$3 sennit=$4
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
train() { # PROGRAM OPTIONS…: on as many ranks as its name says: pSTAGES_REPLICAS[_two]
    local program=$1 stages=${1:1:1} replicas=${1:3:1}
    shift
    "$here/mpirun.sh" $((stages * replicas)) "./$program" --data data --quiet "$@"
}
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1"; }
close() { # two logs, to 1e-5
    [ "$(losses "$1" | wc -l)" = "$(losses "$2" | wc -l)" ] || return 1
    paste <(losses "$1") <(losses "$2") | awk 'function far(a, b) { d = a - b; return (d < 0 ? -d : d) > 1e-5 * a }
        { if ($1 != $4 || far($2, $5) || far($3, $6)) { print; bad = 1 } } END { exit bad }'
}

for plan in "1 1 one" "1 2 one" "2 1 one" "2 2 one" "2 1 two" "2 2 two"; do
    set -- $plan
    name=p$1_$2
    [ "$3" = two ] && name=${name}_two
    "$make" "$runner" "$kernels" "$1" "$2" "$3" data "$name" || fail make
    "$sennit" prove "$name" > /dev/null || fail "$name is not sound"
done

train p1_1 --steps 20 --log one.jsonl || fail "one rank"
[ "$(losses one.jsonl | wc -l)" = 20 ] || fail "not 20 steps"
losses one.jsonl | awk 'NR == 1 { first = $2 } END { exit !($2 < first / 2) }' || fail "the loss does not fall"
for program in p1_2 p2_1 p2_2 p2_1_two p2_2_two; do
    train $program --steps 20 --log $program.jsonl || fail $program
    close one.jsonl $program.jsonl || fail "$program trains differently"
done

# A checkpoint of one plan goes on under the others, and under its own to the same bits.
train p2_2 --steps 10 --checkpoint ck --log first.jsonl || fail checkpoint
grep -q '"w0":' ck/step-10.safetensors && grep -q '"w1":' ck/step-10.safetensors || fail "a stage's tensors are missing"
grep -q 'w0.grad' ck/step-10.safetensors && fail "sums over micro-batches are saved"
tail -10 one.jsonl > last.jsonl
for program in p1_1 p1_2 p2_1 p2_2 p2_2_two; do
    train $program --steps 20 --resume ck --log resumed.jsonl || fail "resume under $program"
    close last.jsonl resumed.jsonl ||
        fail "$program goes on differently"
    [ $program = p2_2 ] && { diff <(losses p2_2.jsonl | tail -10) <(losses resumed.jsonl) || fail "other bits"; }
    rm resumed.jsonl
done

train p1_1 --steps 2 --eval-data data --eval-every 1 --log eval1.jsonl || fail eval
train p2_2 --steps 2 --eval-data data --eval-every 1 --log eval2.jsonl || fail "eval of stages"
paste <(grep -o 'eval_loss": [^,}]*' eval1.jsonl) <(grep -o 'eval_loss": [^,}]*' eval2.jsonl) |
    awk '{ d = $2 - $4; n++; if ((d < 0 ? -d : d) > 1e-5 * $2) exit 1 } END { exit n != 2 }' || fail "evaluations differ"
train p1_1 --predictions one.safetensors || fail predictions
train p2_2 --predictions two.safetensors || fail "predictions of stages"
cmp one.safetensors two.safetensors || fail "predictions depend on the plan"

# Ranks of two executables.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 1 ./p2_1 --data data --steps 1 --quiet \
    : -n 1 ./p2_1_two --data data --steps 1 --quiet > out 2>&1 && fail "ranks of different programs go on"
grep -q 'started from different programs' out || fail "nobody says that the programs differ: $(cat out)"

train p2_2_two --steps 2 --trace trace.json --log trace.jsonl || fail trace
python3 - << 'END' || fail "the trace is not what it should be"
import json
events = json.load(open("trace.json"))["traceEvents"]
names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
assert names == {"rank %d (pp=%d, dp=%d)" % (r, r // 2, r % 2) for r in range(4)}, names
spans = [e for e in events if e["ph"] == "X"]
assert {e["pid"] for e in spans} == {0, 1, 2, 3} and {e["tid"] for e in spans} == {0, 1}
assert any(e["name"] == "kernel /second/Gemm" and e["cat"] == "backward" for e in spans)
assert {e["args"]["micro_batch"] for e in spans} == {-1, 0, 1, 2} and {e["args"]["step"] for e in spans} == {1, 2}
for key in {(e["pid"], e["tid"]) for e in spans}:  # a stream does one thing at a time
    mine = sorted((e["ts"], e["dur"]) for e in spans if (e["pid"], e["tid"]) == key)
    assert all(a + d <= b + 0.002 for (a, d), (b, _) in zip(mine, mine[1:]))
sends = sorted(e["ts"] for e in spans if e["pid"] == 0 and e["name"] == "send /first/Mul")
assert len(sends) == 6 and all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans)
END
echo passed
