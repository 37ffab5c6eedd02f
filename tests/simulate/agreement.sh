#!/bin/sh
# agreement.sh SENNIT: what the search promises of a plan against the replay of the instructions that it is lowered to,
# in seconds and in bytes of the fullest device: transformers on eight GPUs, and on clusters whose nodes or links differ,
# over a range of plans. Differences are
# printed; one above its limit fails. The models are samples/exporters/transformer.py's, without weights:
#     gpt3-175b --layers 4        llama3-8b --layers 4 --vocab 32000        mixtral-8x7b --layers 2 --vocab 32000
set -eu
sennit=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/cli/lib.sh"
cd "$tree"

# both FILE CLUSTER BATCH MESH OPTION...: plan.json and replay.json
both() {
    file=$1 machines=$2 batch=$3 mesh=$4
    shift 4
    "$sennit" plan "$file" --cluster "$machines" --batch "$batch" --mesh "$mesh" "$@" -o plan.json >plan.out 2>&1 &&
        "$sennit" simulate plan.json --json >replay.json 2>&1 && return
    echo "$0: $file $mesh fails" >&2
    failures=1
    return 1
}

cluster=dgx-a100:1
# agree MODEL BATCH MESH [LIMIT OF BYTES]
agree() {
    both "$root/tests/simulate/$1.onnx" "$cluster" "$2" "$3" || return 0
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

# What is computed again gathers parameters again under ZeRO-3; one program of the whole step keeps no sums of gradients.
agree gpt_layers 16 dp=8,microbatches=2,zero=3,remat=full
agree gpt_layers 16 dp=4,tp=2,microbatches=1
agree gpt_layers 16 pp=2,tp=4,microbatches=8,schedule=1f1b,remat=full
agree llama_layers 16 dp=2,tp=4,microbatches=1,zero=1

# Stages that lie on two nodes, or on the other kind of device; links so slow that messages decide.
cat >apart.json <<'END'
{"name": "8 + 4", "nodes": [{"count": 1, "devices": 8, "device": "h100-sxm"}, {"count": 1, "devices": 4, "device": "h100-sxm"}],
 "links": [{"name": "nvlink", "devices": "all", "latency": "4 us", "bandwidth": "130 GB/s"},
           {"name": "ethernet", "nodes": "all", "latency": "30 us", "bandwidth": "10 Gb/s", "shared": true}]}
END
cat >mixed.json <<'END'
{"name": "two kinds", "nodes": [{"count": 1, "devices": 8, "device": "h100-sxm"}, {"count": 1, "devices": 8, "device": "v100-sxm-32"}],
 "links": [{"name": "nvlink", "devices": "all", "latency": "4 us", "bandwidth": "130 GB/s"},
           {"name": "infiniband", "nodes": "all", "latency": "10 us", "bandwidth": "200 Gb/s", "shared": true}]}
END
cluster=apart.json
for mesh in pp=3,dp=2,tp=2,microbatches=8,schedule=1f1b dp=12,microbatches=1,zero=1 dp=3,tp=4,microbatches=4; do
    agree gpt_layers 48 $mesh
done
agree llama_layers 48 pp=2,dp=3,tp=2,microbatches=4,schedule=1f1b,zero=1
cluster=mixed.json
for mesh in pp=2,dp=8,microbatches=8,schedule=1f1b,zero=1 pp=4,tp=4,microbatches=16; do agree gpt_layers 64 $mesh; done
agree llama_layers 64 pp=2,dp=8,microbatches=8,schedule=1f1b,zero=1
cluster=dgx-a100:3
for mesh in pp=4,dp=6,microbatches=4,schedule=1f1b,zero=1 pp=6,dp=4,microbatches=6,schedule=1f1b; do
    agree gpt_layers 96 $mesh
done
cluster=$root/samples/clusters/pcie-workstations.json
for mesh in pp=4,tp=2,microbatches=8,schedule=1f1b pp=8,microbatches=16,schedule=zero-bubble \
    pp=4,dp=2,microbatches=8,schedule=interleaved,chunks=2; do
    for model in gpt_layers llama_layers; do agree $model 32 $mesh; done
done

# Experts over ep, and each of them over tp; rows of merged samples and tokens are cut by three axes.
cluster=dgx-a100:1
for mesh in dp=2,ep=2,tp=2,microbatches=2,zero=1 ep=4,tp=2,microbatches=2 dp=2,cp=2,tp=2,microbatches=2; do
    agree mixtral_layers 32 $mesh
done
agree gpt_layers 16 dp=2,cp=2,tp=2,microbatches=4

# Models so small that a step is latency: of launches, and of one collective for each parameter. ZeRO makes more of
# them, so that the order of its stages is the other way round than where memory counts.
first_number() { # KEY: its first value
    sed -n "s/.*\"$1\": \([-0-9.e]*\).*/\1/p" | head -1
}
# small FILE CLUSTER BATCH MESH OPTION...: appends the two predictions to the file `steps`
small() {
    both "$@" || return 0
    echo "${1#"$root/"} $4 $(sed -n '/"predicted"/,$p' plan.json | first_number step_seconds)" \
        "$(first_number step_seconds <replay.json)" | tee -a steps | awk '{
        printf "%-70s %+6.1f %% seconds\n", $1 " " $2, 100 * ($4 / $3 - 1)
        if ($4 > 1.1 * $3 || $4 < 0.9 * $3) exit 1 }' || failures=1
}
# By how long they take, ZeRO's stages are in the order of the replay; what is as good as equal has none.
all_zeros() { # as small; the mesh goes on with the stage
    rm -f steps
    model=$1 devices=$2 samples=$3 axes=$4
    shift 4
    for zero in 0 1 2 3; do small "$model" "$devices" "$samples" "$axes,zero=$zero" "$@"; done
    awk '{ planned[NR] = $3; replayed[NR] = $4 }
        END { for (i = 1; i <= NR; i++) for (j = 1; j <= NR; j++)
            if (replayed[i] < 0.98 * replayed[j] && planned[i] >= planned[j]) {
                print "zero=" i - 1 " and zero=" j - 1 " are in the wrong order"; bad = 1 }
            exit bad || NR < 4 }' steps || failures=1
}
models=$root/tests/data/models raw=dynamo-21-raw-loss-dyn.onnx
all_zeros "$models/mlp/$raw" dgx-a100:2 64 dp=16
all_zeros "$models/moe/$raw" dgx-a100:1 64 dp=8
all_zeros "$models/lenet/$raw" dgx-a100:1 64 dp=8,microbatches=2
gpt=$root/samples/chargpt/model.onnx loss=softmax_cross_entropy:logits,labels
all_zeros "$gpt" dgx-a100:1 64 pp=2,dp=4,microbatches=2 --loss $loss --dim seq=64
for remat in none full; do # what is computed again gathers all parameters again
    small "$gpt" dgx-a100:1 64 dp=8,zero=3,remat=$remat --loss $loss --dim seq=64
done
vit=${SENNIT_SHARED:-$root/../shared}/data/models/vit/$raw
if [ -f "$vit" ]; then all_zeros "$vit" dgx-a100:2 64 pp=2,dp=8; fi
t5=${SENNIT_SHARED:-$root/../shared}/data/models/t5/$raw
if [ -f "$t5" ]; then # what skips stages, and masks so large that they are folded for a micro-batch alone
    sed 's/10 Gb/1 Gb/' apart.json >slow.json
    for seq in 256 1024; do
        small "$t5" slow.json 48 pp=4,dp=3,microbatches=4,schedule=1f1b --dim s12=$seq --dim s11=$seq --dim s94=$seq
    done
fi
both "$models/mlp/$raw" dgx-a100:2 64 dp=16 # what the search takes
[ "$(first_number zero <plan.json)" = 0 ] || failures=1
exit $failures
