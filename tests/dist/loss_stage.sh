#!/bin/sh
# loss_stage.sh SENNIT: a last pipeline stage of the loss alone, which holds nothing that outlives a step, reports the
# loss of one rank.
. "$(dirname "$0")/lib.sh"

cat >plan.json <<'JSON'
{"version": 2, "stages": [{"first": ""}, {"first": "node_cross_entropy_loss"}], "mesh": {"pp": 2}, "microbatches": 4}
JSON
gpt2=$models/gpt2
"$sennit" verify "$gpt2/dynamo-21-raw-loss-dyn.onnx" --data "$gpt2/data" --batch 8 --steps 1 \
    --optimizer adamw,eps=1e-4 --plan plan.json >result.txt 2>&1 || fail "$(cat result.txt)"
grep -q '^losses .*difference 0 ' result.txt || fail "no losses were compared: $(cat result.txt)"
