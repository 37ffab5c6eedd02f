#!/bin/sh
# plans.sh SENNIT [COUNT [FIRST]]: random plans (mesh, stages, micro-batches, schedule, ZeRO, rematerialisation) of the sample models as
# executables on 2 to 8 CPU ranks: losses, gradients and parameters after an AdamW step equal one rank's to 1e-5. Draws
# are numbered from FIRST; one is repeated with COUNT 1. Models beside those of the project: SENNIT_MODELS=folder.
# test_layouts.c draws layouts as well, without executables.
count=${2:-4} first=${3:-1}
. "$(dirname "$0")/lib.sh"

for folder in "$models" ${SENNIT_MODELS:+"$SENNIT_MODELS"}; do
    for file in "$folder"/*/dynamo-20-raw.onnx "$folder"/*/dynamo-21-raw-loss-dyn.onnx; do
        [ -f "$file" ] && echo "$file"
    done
done | sort -t/ -u -k"$(($(echo "$models" | tr -cd / | wc -c) + 2))" >models.txt

# draw SEED: "MODEL BATCH OUTLINE". A static export has its batch of 4 baked in, as one micro-batch; the others take
# two for each of dp. Every axis of a mesh has 2 to 4 ranks, 8 in all.
draw() {
    awk -v seed="$1" '
        function roll(n) { return int(rand() * n) }
        { file[NR] = $0 }
        END {
            srand(seed); for (i = 0; i < 8; i++) rand()
            model = file[1 + roll(NR)]
            n = split("pp dp tp cp ep", axes, " ")
            do {
                outline = ""; pp = dp = ranks = 1
                for (i = 1; i <= n; i++) {
                    size = roll(2) ? 1 : 2 + roll(3)
                    if (axes[i] == "dp" && model !~ /-dyn/ && size == 3) size = 4
                    if (axes[i] == "pp" && size > 2) size = 2
                    if (size == 1 || ranks * size > 8) continue
                    ranks *= size
                    if (axes[i] == "dp") dp = size
                    if (axes[i] == "pp") pp = size
                    outline = outline axes[i] "=" size ","
                }
            } while (ranks == 1)
            split("1f1b gpipe zero-bubble interleaved", schedule, " ")
            word = schedule[1 + roll(4)]
            micro = word == "interleaved" ? pp * (1 + roll(2)) : 1 + roll(4)
            outline = outline "microbatches=" micro ",zero=" roll(4)
            if (pp > 1) outline = outline ",schedule=" word (word == "interleaved" ? ",chunks=2" : "")
            split("none selective full", remat, " ")
            outline = outline ",remat=" remat[1 + roll(3)]
            print model, (model ~ /-dyn/ ? 2 * dp * micro : 0), outline
        }' models.txt
}

for seed in $(seq "$first" $((first + count - 1))); do
    draw "$seed" >drawn.txt
    read -r file batch outline <drawn.txt
    set -- "$file" --mesh "$outline" --steps 1 --optimizer adamw,eps=1e-4
    case $file in
    *loss*) set -- "$@" --batch "$batch" --data "$(dirname "$file")/data" ;;
    */moe/*) set -- "$@" --loss mse:logits,target ;;
    *) set -- "$@" --loss softmax_cross_entropy:logits,labels ;;
    esac
    "$sennit" verify "$@" >result.txt 2>&1 || fail "draw $seed: sennit verify $*
$(cat result.txt)"
    echo "$seed $(basename "$(dirname "$file")") $outline: $(sed -n 's/^\([a-z]*\) .*difference \([^ ]*\).*/\1 \2/p' result.txt | tr '\n' ' ')"
done
echo "$count random plans agree with one rank"
