#!/bin/bash
# search.sh SENNIT: what the search takes a step for, from kernels that it joins as the lowering will, is what the replay
# of the programs says, within 7 %: on one rank, with micro-batches, over data, over stages, and on ranks that outnumber
# the cores.
set -u
sennit=$1
. "$(dirname "$0")/../cli/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
options="--loss softmax_cross_entropy:logits,labels --dim seq=64 --batch 32"

seconds() { # KEY: its first value
    sed -n "s/.*\"$1\": \([-0-9.e]*\).*/\1/p" "$tree/output" | head -1
}
agree() { # CLUSTER OPTION...
    "$sennit" plan "$root/samples/chargpt/model.onnx" $options --cluster "$@" --json -o "$tree/plan.json" >"$tree/output" 2>&1
    searched=$(seconds replayed_seconds)
    "$sennit" simulate "$tree/plan.json" --json >"$tree/output" 2>&1
    replayed=$(seconds step_seconds)
    echo "$*: searched $searched s, replayed $replayed s"
    awk -v s="$searched" -v r="$replayed" 'BEGIN { exit !(s > 0.93 * r && s < 1.07 * r && r > 0) }' || failures=1
}

agree local:1
agree local:1 --mesh=microbatches=4
agree local:2
agree local:2 --mesh=dp=2,zero=1
agree local:2 --mesh=pp=2,microbatches=4
agree local:2 --mesh=pp=2,microbatches=4,remat=full
agree local:4
agree local:4 --mesh=pp=4,microbatches=8
agree local:4 --mesh=pp=2,dp=2,microbatches=4
exit $failures
