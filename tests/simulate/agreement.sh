#!/bin/sh
# agreement.sh SENNIT: what the search promises of a plan against the replay of the instructions that it is lowered to,
# in seconds and in bytes of the fullest device: transformers on eight GPUs, over a range of plans. Differences are
# printed; one above its limit fails. The models are samples/exporters/transformer.py's, without weights:
#     gpt3-175b --layers 4        llama3-8b --layers 4 --vocab 32000
set -eu
sennit=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/cli/lib.sh"
cd "$tree"

# agree MODEL BATCH MESH [LIMIT OF BYTES]
agree() {
    "$sennit" plan "$root/tests/simulate/$1.onnx" --cluster dgx-a100:1 --batch "$2" --mesh "$3" -o plan.json >plan.out 2>&1 &&
        "$sennit" simulate plan.json --json >replay.json 2>&1 || {
        echo "$0: $1 $3 fails" >&2
        failures=1
        return 0
    }
    awk -v what="$1 $3" -v seconds_limit=0.04 -v bytes_limit="${4:-0.11}" '
        FNR == NR { if (/"predicted"/) inside = 1
            if (inside && /"step_seconds"/ && !step) { sub(/,/, "", $2); step = $2 }
            if (inside && /"memory_bytes"/ && !bytes) { sub(/,/, "", $2); bytes = $2 }
            next }
        /"step_seconds"/ && !replayed { sub(/,/, "", $2); replayed = $2 }
        /"peak_memory_bytes"/ { sub(/,/, "", $2); peak = $2 }
        END {
            time = replayed / step - 1; memory = peak / bytes - 1
            printf "%-70s %+6.1f %% seconds %+6.1f %% bytes\n", what, 100 * time, 100 * memory
            if (time > seconds_limit || time < -seconds_limit || memory > bytes_limit || memory < -bytes_limit) exit 1
        }' plan.json replay.json || failures=1
}

for mesh in pp=1,dp=1,tp=8,microbatches=4 pp=2,dp=1,tp=4,microbatches=4,schedule=1f1b; do
    agree gpt_layers 8 $mesh
done
for zero in 1 2 3; do agree gpt_layers 16 pp=1,dp=8,tp=1,microbatches=2,zero=$zero; done
for rest in schedule=1f1b,zero=1 schedule=1f1b,zero=1,remat=selective schedule=1f1b,zero=1,remat=full \
    schedule=interleaved,chunks=2,zero=1; do
    agree gpt_layers 16 pp=2,dp=2,tp=2,microbatches=4,$rest
done
for remat in none selective full; do # what waits for the pass of the weights' gradients
    agree gpt_layers 16 pp=2,dp=2,tp=2,microbatches=4,schedule=zero-bubble,zero=1,remat=$remat
    agree llama_layers 32 pp=4,dp=2,microbatches=8,schedule=zero-bubble,zero=1,remat=$remat
done
agree llama_layers 32 pp=4,dp=2,microbatches=16,schedule=zero-bubble
# Uneven stages: the first has the embedding, the last the logits.
agree gpt_layers 32 pp=4,dp=2,microbatches=8,schedule=interleaved,chunks=2,zero=1
for model in gpt_layers llama_layers; do agree $model 32 pp=4,dp=2,microbatches=8,schedule=1f1b,zero=1; done
agree gpt_layers 32 pp=8,microbatches=16,schedule=1f1b
# Queries of a part of the sequence: the causal mask is written out.
agree gpt_layers 16 dp=4,cp=2,microbatches=2
agree llama_layers 8 pp=2,dp=2,cp=2,microbatches=4,schedule=1f1b
for mesh in pp=2,dp=2,tp=2,microbatches=4,schedule=1f1b,zero=1 pp=1,dp=4,tp=2,microbatches=2,zero=2; do
    agree llama_layers 8 $mesh
done
exit $failures
