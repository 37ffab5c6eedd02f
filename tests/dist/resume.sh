#!/bin/sh
# Killed with SIGKILL at some step and resumed on the same ranks, a run goes on to the same numbers, bit by bit.
. "$(dirname "$0")/lib.sh"

steps=400
"$sennit" compile "$models/gpt2/dynamo-20-raw.onnx" --data "$models/gpt2/data" --ranks 2 --steps $steps --seed 5 --quiet \
    --loss softmax_cross_entropy:logits,labels --optimizer adamw,lr=1e-3 -o gpt2 || fail "compile"

run() { # LOG [OPTIONS]
    log=$1
    shift
    mpirun --oversubscribe -n 2 ./gpt2 --log "$log" "$@"
}

run whole.jsonl || fail "the whole run"
[ "$(losses whole.jsonl | wc -l)" -eq $steps ] || fail "the whole run logged too little"

# Killed once the log shows a random number of steps.
stop=$(awk -v seed="$$" 'BEGIN { srand(seed); print 6 + int(rand() * 20) }')
(run killed.jsonl --checkpoint saved --checkpoint-every 5 >/dev/null 2>&1 || true) & # it is killed: that is no failure
for _ in $(seq 600); do
    [ -f killed.jsonl ] && [ "$(losses killed.jsonl | wc -l)" -ge "$stop" ] && break
    sleep 0.05
done
pkill -KILL -f "^./gpt2 --log killed" || fail "nothing was left to kill after $stop steps"
wait
ls saved/step-*.safetensors >/dev/null 2>&1 || fail "no checkpoint after $stop steps"

run resumed.jsonl --checkpoint saved --checkpoint-every 5 --resume saved || fail "the resumed run"
first=$(sed -n '1s/.*"step": *\([0-9]*\).*/\1/p' resumed.jsonl)
losses whole.jsonl | tail -n +"$first" >expected.txt
losses resumed.jsonl >found.txt
cmp expected.txt found.txt || fail "resumed at step $first after $stop: other losses"
run none.jsonl --resume saved | grep -q 'nothing to train' || fail "a resumed run with no step left says nothing"
echo "killed after $stop steps, resumed at $first: the same losses"
