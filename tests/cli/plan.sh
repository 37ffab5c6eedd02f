#!/bin/bash
# plan.sh SENNIT: a plan is found, explains itself, runs and equals one rank; it is refused for another model, batch and
# cluster; what does not fit says by how much; bad input is diagnosed.
set -u
sennit=$1
. "$(dirname "$0")/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
model=$root/samples/chargpt/model.onnx
options="--loss softmax_cross_entropy:logits,labels --dim seq=32"
plan=$tree/plan.json

# found, written, explained
expect 0 'no plan is faster than .* plans priced' "$sennit" plan "$model" $options --cluster local:4 --batch 16 -o "$plan"
expect 0 '[GM]iB total' "$sennit" plan "$model" $options --cluster local:4 --batch 16
expect 0 '"step_seconds"' "$sennit" plan "$model" $options --cluster local:4 --batch 16 --json
expect 0 'twice the memory' "$sennit" explain "$plan"
expect 0 'tp=4: ' "$sennit" explain "$plan"
expect 0 '"runners_up"' "$sennit" explain "$plan" --json
expect 0 'stage 0, block' "$sennit" explain "$plan" --node lm.transformer.h.1.attn.c_attn.weight
expect 1 'E0447.*no node or parameter' "$sennit" explain "$plan" --node nothing
"$sennit" plan "$model" $options --cluster local:4 --batch 16 -o "$tree/again.json" >"$tree/output"
sed '/search_seconds/d' "$plan" >"$tree/a" && sed '/search_seconds/d' "$tree/again.json" | cmp -s - "$tree/a" || {
    echo "$0: planning twice gives two plans" >&2
    failures=1
}
# planned with a profile, it is simulated with or without one
expect 0 'step ' "$sennit" plan "$model" $options --cluster local:2 --batch 16 -o "$tree/profiled.json" \
    --profile "$root/samples/profiles/sapphire-rapids-2-cores.json"
expect 0 '^step ' "$sennit" simulate "$tree/profiled.json"

# it runs, and equals one rank: the best plan, and one of every axis
expect 0 'losses' "$sennit" verify "$model" $options --plan "$plan" --steps 2
mesh=pp=2,tp=2,microbatches=2
expect 0 'pp=2 dp=1 tp=2' "$sennit" plan "$model" $options --cluster local:4 --batch 8 --mesh $mesh -o "$tree/mesh.json"
expect 0 'losses' "$sennit" verify "$model" $options --plan "$tree/mesh.json" --steps 2

# refused
expect 1 'E0444.*a batch of 16' "$sennit" compile "$model" $options --plan "$plan" --batch 8 -o "$tree/x"
expect 1 'E0443.*another cluster' "$sennit" compile "$model" $options --plan "$plan" --cluster local:8 -o "$tree/x"
expect 1 'E0442.*another model' "$sennit" compile "$model" --loss softmax_cross_entropy:logits,labels --dim seq=16 \
    --plan "$plan" -o "$tree/x"

expect 1 "E0407.*'pp=4' gives an axis twice" "$sennit" compile "$model" $options --batch 8 --mesh pp=2,pp=4 -o "$tree/x"
expect 1 "E0407.*'dp=2097152' makes the mesh too large" "$sennit" compile "$model" $options --batch 8 --mesh dp=2097152 \
    -o "$tree/x"

# stages run different programs: nothing is cut over pp
echo '{"version": 2, "mesh": {"pp": 2}, "layouts": {"lm.head.weight": "{pp,-}"}}' >"$tree/pipeline.json"
expect 1 'E0450.*not usable' "$sennit" compile "$model" $options --plan "$tree/pipeline.json" -o "$tree/x"

# what does not fit, and what is missing
cat >"$tree/small.json" <<'END'
{"name": "small", "nodes": [{"devices": 2, "device": "cpu", "memory": "3 MiB"}],
 "links": [{"name": "memory", "devices": "all", "latency": "5 us", "bandwidth": "4 GB/s"}]}
END
expect 1 'E0441.*needs .* more per device' "$sennit" plan "$model" $options --cluster "$tree/small.json" --batch 16
expect 1 'E0440.*no way to share a batch of 1 ' "$sennit" plan "$model" $options --cluster local:64 --batch 1 --mesh dp=64
expect 1 'E0448.*a plan is made for a cluster' "$sennit" plan "$model" $options --batch 8
expect 1 'E0448.*a plan is made for a batch' "$sennit" plan "$model" $options --cluster local:2
expect 1 'E0440.*not .ep.' "$sennit" plan "$model" $options --cluster local:4 --batch 16 --mesh ep=4
: >"$tree/empty.json"
expect 1 'E0411.*line 1: ' "$sennit" plan "$model" $options --cluster "$tree/empty.json" --batch 8
echo '{"version": 2, "mesh": {"dp": 2}}' >"$tree/bare.json"
expect 1 'E0446.*no explanation' "$sennit" explain "$tree/bare.json"
expect 1 'E0405.*read: unable to open' "$sennit" explain "$tree/missing.json"
exit $failures
