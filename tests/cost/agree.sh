#!/bin/sh
# agree.sh SENNIT AGREE SOURCE: the search prices a transformer's graph, the closed forms of published steps the same
# transformer's shape. For plans of every kind the two must say the same step, within 10 %, and the same memory, within
# what they model differently: the closed forms keep GELU's result and gather a cut input again for its weight's
# gradient (Megatron-LM), and hold the shards of ZeRO-3 in f32 and whole layers of gathered parameters (FSDP), of which
# sennit gathers one at a time (simulate/agreement has the bytes); the search's working
# memory is twice the largest value, and its blocks are halves of a layer: under full rematerialisation it keeps what
# enters each, the closed forms what enters a layer. That shows where the search leaves the sequence whole.
set -eu
sennit=$1
agree=$2
source=$3
tree=$(mktemp -d)
trap 'rm -r "$tree"' EXIT
failed=0

# hold MODEL SHAPE CLUSTER BATCH MESH MEMORY [SECONDS]: the memories, and the steps, are at most that many per cent apart.
hold() {
    "$sennit" plan "$source/tests/data/cost/$1.onnx" --cluster "$3" --batch "$4" --mesh "$5" -o "$tree/plan.json" \
        >"$tree/out" 2>&1 || { cat "$tree/out" >&2; exit 1; }
    "$agree" "$2" "$3" "$tree/plan.json" "${7:-10}" "$6" || failed=1
}
gpt() {
    hold gpt3-8-layers gpt,8,12288,96,96,49152,51200,2048 "$@"
}
llama() {
    hold llama3-70b-8-layers llama,8,8192,64,8,28672,128256,8192 "$@"
}

gpt dgx-a100:4 64 pp=2,dp=2,tp=8,microbatches=32,schedule=1f1b,zero=0,remat=none 12
gpt dgx-a100:4 64 pp=2,dp=2,tp=8,microbatches=32,schedule=1f1b,zero=1,remat=selective 12
# Under full rematerialisation the closed forms repeat the collective that ends each half of a layer (Megatron-LM), whose
# result is kept here; simulate/agreement holds the search to what it is lowered to.
gpt dgx-a100:4 64 pp=2,dp=2,tp=8,microbatches=32,schedule=1f1b,zero=1,remat=full 12 20
gpt dgx-a100:8 64 pp=8,dp=1,tp=8,microbatches=64,schedule=1f1b,remat=none 12
gpt dgx-a100:4 64 pp=4,dp=1,tp=8,microbatches=32,schedule=interleaved,chunks=2,remat=full 12 15
gpt dgx-a100:4 64 pp=1,dp=4,tp=8,microbatches=8,zero=2,remat=none 12
gpt dgx-a100:4 64 pp=1,dp=4,tp=8,microbatches=8,zero=3,remat=none 30
gpt dgx-a100:4 64 pp=1,dp=32,tp=1,microbatches=2,zero=3,remat=full 50
gpt dgx-h100:4 64 pp=2,dp=4,tp=4,microbatches=8,schedule=1f1b,zero=1,remat=none 12
llama dgx-h100:4 32 pp=2,dp=2,tp=8,microbatches=8,schedule=1f1b,zero=1,remat=none 12
llama dgx-h100:4 32 pp=1,dp=4,tp=8,microbatches=8,zero=1,remat=full 20
llama dgx-h100:8 32 pp=2,dp=2,cp=2,tp=8,microbatches=8,schedule=1f1b,zero=1,remat=none 12
llama dgx-h100:4 64 pp=1,dp=32,tp=1,microbatches=2,zero=3,remat=full 50
exit $failed
