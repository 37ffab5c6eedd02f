#!/bin/sh
# 1, 2, 3 and 4 data-parallel ranks give the same losses: exports with symbolic dims on a batch of 12, exports with
# baked-in sizes (which are the global ones) on the ranks that divide their batch of 4. Dropout-free models.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"

run() { # MODEL RANKS LOG [OPTIONS]
    file=$1 count=$2 log=$3
    shift 3
    "$sennit" train "$models/$file.onnx" --data "$models/${file%/*}/data" --ranks "$count" --steps 5 --seed 3 \
        --optimizer adamw,lr=1e-3 --log "$log" --quiet "$@" || fail "$file on $count ranks"
}

for model in gpt2 lenet; do
    for ranks in 1 2 3 4; do
        run $model/dynamo-21-raw-loss-dyn $ranks $model.$ranks.jsonl --batch 12
        same_losses $model.$ranks.jsonl $model.1.jsonl
    done
    for ranks in 1 2 4; do
        run $model/dynamo-20-raw $ranks $model.s$ranks.jsonl --loss softmax_cross_entropy:logits,labels
        same_losses $model.s$ranks.jsonl $model.s1.jsonl
    done
done

# Gradients of two halves of a batch, added up, are those of the batch; on two ranks as well.
run gpt2/dynamo-21-raw-loss-dyn 1 whole.jsonl --batch 4 --no-shuffle
for ranks in 1 2; do
    "$sennit" train "$models/gpt2/dynamo-21-raw-loss-dyn.onnx" --data "$models/gpt2/data" --ranks $ranks --steps 5 --seed 3 \
        --optimizer adamw,lr=1e-3 --log halves.jsonl --quiet --batch 2 --accumulate 2 --no-shuffle || fail "accumulation on $ranks ranks"
    same_losses halves.jsonl whole.jsonl
    rm halves.jsonl
done

# A batch that the ranks do not divide is the user's error, and says so.
if "$sennit" train "$models/gpt2/dynamo-20-raw.onnx" --data "$models/gpt2/data" --ranks 3 --steps 1 \
    --loss softmax_cross_entropy:logits,labels 2>error.txt; then
    fail "3 ranks took a batch of 4"
fi
grep -q E0404 error.txt || fail "no word of the batch: $(cat error.txt)"

# The same comparison as a command.
"$sennit" verify "$models/mlp/dynamo-20-raw.onnx" --ranks 2 --loss softmax_cross_entropy:logits,labels >verify.txt ||
    fail "sennit verify: $(cat verify.txt)"
grep -q '^parameters' verify.txt || fail "sennit verify compared no parameters"

# A value and its gradient (skip.py) that a rank keeps for its other chunk, one after the other in the same slots.
for microbatches in 2 4; do
    "$sennit" verify "$here/skip.onnx" --batch $((2 * microbatches)) --loss softmax_cross_entropy:logits,labels \
        --mesh pp=2,microbatches=$microbatches,schedule=interleaved,chunks=2 >verify.txt 2>&1 ||
        fail "skip.onnx with $microbatches micro-batches: $(cat verify.txt)"
done

# A model that works on [sequence, batch] (sequence_first.py): what is gathered is cut along another dim than its first.
for ranks in 2 4; do
    "$sennit" verify "$here/sequence_first.onnx" --batch 8 --ranks $ranks --loss softmax_cross_entropy:logits,labels >verify.txt ||
        fail "sequence first on $ranks ranks: $(cat verify.txt)"
done
echo "same losses on 1, 2, 3 and 4 ranks"
