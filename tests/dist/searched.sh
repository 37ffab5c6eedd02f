#!/bin/sh
# searched.sh SENNIT: plans that the search finds run and equal one rank. Where memory is short it cuts experts by
# itself; with an axis named by --mesh, its layouts are those of experts, of the sequence and of both.
. "$(dirname "$0")/lib.sh"

cat >small.json <<'END'
{"nodes": [{"devices": 4, "device": "cpu", "memory": "54 KiB"}],
 "links": [{"name": "memory", "devices": "all", "latency": "5 us", "bandwidth": "4 GB/s"}]}
END
moe=$models/moe/dynamo-21-raw-loss-dyn.onnx
gpt2=$models/gpt2/dynamo-21-raw-loss-dyn.onnx

# equals MODEL ARGUMENTS: the plan for a batch of 8 gives what one rank gives.
equals() {
    model=$1
    shift
    timeout 300 "$sennit" verify "$model" --data "$(dirname "$model")/data" --batch 8 --steps 2 \
        --optimizer adamw,eps=1e-4 "$@" >result.txt 2>&1 || fail "$(basename "$(dirname "$model")") $*: $(cat result.txt)"
}

"$sennit" plan "$moe" --batch 8 --cluster small.json -o plan.json >summary.txt 2>&1 || fail "no plan: $(cat summary.txt)"
grep -q ' ep=[24],' summary.txt || fail "experts are not cut: $(cat summary.txt)"
grep -q '"net.w1": "{ep' plan.json || fail "the plan does not say how experts are cut"
equals "$moe" --plan plan.json

for mesh in dp=2,ep=2 ep=2,tp=2 pp=1,ep=2,cp=2 ep=2,dp=1,tp=1,microbatches=2,zero=0; do
    ranks=$(echo "$mesh" | tr ',' '\n' | awk -F= 'BEGIN { n = 1 } $1 ~ /^(pp|dp|ep|cp|tp)$/ { n *= $2 } END { print n }')
    equals "$moe" --cluster "local:$ranks" --mesh "$mesh"
done
for mesh in tp=2,microbatches=1 cp=2,tp=2 pp=2,tp=2,microbatches=2 dp=2,tp=2,zero=1 dp=2,cp=2,zero=2 cp=2,zero=3; do
    ranks=$(echo "$mesh" | tr ',' '\n' | awk -F= 'BEGIN { n = 1 } $1 ~ /^(pp|dp|ep|cp|tp)$/ { n *= $2 } END { print n }')
    equals "$gpt2" --cluster "local:$ranks" --mesh "$mesh"
done
