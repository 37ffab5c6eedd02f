#!/bin/sh
# A checkpoint is of the model, not of the plan: read and written again under any plan and number of ranks, its
# parameters and moments are the same bytes. So a run goes on under another plan to the same losses, and ends in the same
# exported ONNX file, to rounding.
. "$(dirname "$0")/lib.sh"

model=$models/gpt2/dynamo-21-raw-loss-dyn.onnx
train() { # STEPS LOG [OPTIONS]
    steps=$1 log=$2
    shift 2
    "$sennit" train "$model" --data "$models/gpt2/data" --steps "$steps" --seed 3 --batch 8 --no-shuffle \
        --optimizer adamw,lr=1e-3,eps=1e-4 --log "$log" --quiet "$@" || fail "$log"
}

train 8 whole.jsonl --ranks 1 --checkpoint whole --checkpoint-every 8
losses whole.jsonl | tail -n 4 >expected.txt
train 4 first.jsonl --mesh dp=2,tp=2,zero=3,microbatches=2 --checkpoint saved --checkpoint-every 4
losses whole.jsonl | head -n 4 >a.txt
losses first.jsonl >b.txt
same_numbers a.txt b.txt || fail "the first half: $(paste a.txt b.txt)"

# tensors FILE: their names, types and places, then their bytes; without the metadata, which tells of the plan.
tensors() {
    length=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    head -c $((8 + length)) "$1" | tail -c "$length" | sed 's/"__metadata__":{[^}]*}//'
    tail -c +$((9 + length)) "$1"
}

tensors saved/step-4.safetensors >tensors.saved
[ "$(grep -ac '\.weight\.v"' tensors.saved)" -gt 0 ] || fail "the checkpoint has no second moments"
n=0
for plan in "--ranks 1" "--mesh tp=4" "--mesh cp=2,zero=1" "--mesh dp=4,zero=2" \
    "--mesh pp=2,dp=2,microbatches=4" "--mesh pp=2,tp=2,zero=1,microbatches=2,schedule=zero-bubble"; do
    n=$((n + 1))
    # shellcheck disable=SC2086
    train 4 none.jsonl $plan --checkpoint again.$n --resume saved >none.txt
    tensors again.$n/step-4.safetensors | cmp - tensors.saved || fail "read and written with $plan, it differs"
    cp -r saved saved.$n
    # shellcheck disable=SC2086
    train 8 second.$n.jsonl $plan --checkpoint saved.$n --checkpoint-every 8 --resume saved.$n
    losses second.$n.jsonl >b.txt
    same_numbers expected.txt b.txt || fail "resumed with $plan: $(paste expected.txt b.txt)"
done

for folder in whole saved.2; do
    "$sennit" export $folder -o $folder.onnx >/dev/null || fail "export of $folder"
    model=$folder.onnx
    train 2 exported.$folder.jsonl --ranks 1
done
same_losses exported.saved.2.jsonl exported.whole.jsonl
echo "written on dp=2,tp=2 with ZeRO-3, resumed under $n other plans: the same losses"
