#!/bin/sh
# plans.sh SENNIT [COUNT [FIRST]]: random plans (mesh, stages, micro-batches, schedule, ZeRO, rematerialisation; stages of
# equal work or that begin at random nodes; with and without clipping, which reads the norm) of the sample models as
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

# draw SEED: "MODEL BATCH OUTLINE STAGES UNEVEN CLIP". A static export has its batch of 4 baked in, as one micro-batch; the others take
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
                    if (size == 1 || ranks * size > 8) continue
                    ranks *= size
                    if (axes[i] == "dp") dp = size
                    if (axes[i] == "pp") pp = size
                    outline = outline axes[i] "=" size ","
                }
            } while (ranks == 1)
            split("1f1b gpipe zero-bubble interleaved", schedule, " ")
            word = schedule[1 + roll(4)]
            micro = 1 + roll(5)
            outline = outline "microbatches=" micro ",zero=" roll(4)
            if (pp > 1) outline = outline ",schedule=" word (word == "interleaved" ? ",chunks=2" : "")
            split("none selective full", remat, " ")
            outline = outline ",remat=" remat[1 + roll(3)]
            chunks = word == "interleaved" && pp > 1 ? 2 : 1
            print model, (model ~ /-dyn/ ? 2 * dp * micro : 0), outline, pp * chunks, roll(2), roll(2) / 2
        }' models.txt
}

# nodes ARGUMENTS: the ONNX nodes at which a stage may begin, in the order in which they run.
nodes() {
    "$sennit" compile "$@" --dump-ir=after=distribute --dump-dir nodes.d --stop-after distribute -o unused >nodes.log 2>&1 ||
        fail "no dump: $(cat nodes.log)"
    sed -n '/^func @micro/,/^}/p' nodes.d/*-distribute.sir | grep -v ' backward  *!\| iota\| constant\| reshape\| transpose' |
        sed -n 's/.*!"\([^"]*\)"$/\1/p' | awk '!seen[$0]++ && $0 != "loss"'
}

# uneven SEED STAGES OUTLINE: the outline as a plan whose stages begin at random nodes of nodes.txt.
uneven() {
    awk -v seed="$1" -v stages="$2" -v outline="$3" '
        { name[++n] = $0 }
        END {
            srand(seed); for (i = 0; i < 8; i++) rand()
            if (stages > n) exit 1
            while (taken < stages - 1) {
                i = 2 + int(rand() * (n - 1))
                if (!(i in first)) { first[i] = 1; taken++ }
            }
            printf "{\"version\": 2, \"stages\": [{\"first\": \"\"}"
            for (i = 2; i <= n; i++) if (i in first) printf ", {\"first\": \"%s\"}", name[i]
            printf "], \"mesh\": {"
            fields = split(outline, field, ",")
            for (i = 1; i <= fields; i++) {
                split(field[i], part, "=")
                value = part[2] ~ /^[0-9]+$/ ? part[2] : "\"" part[2] "\""
                if (part[1] ~ /^..$/) printf "%s\"%s\": %s", axes++ ? ", " : "", part[1], value
                else words = words sprintf(", \"%s\": %s", part[1], value)
            }
            printf "}%s}\n", words
        }' nodes.txt
}

tried=0
for seed in $(seq "$first" $((first + count - 1))); do
    draw "$seed" >drawn.txt
    read -r file batch outline stages uneven clip <drawn.txt
    set -- "$file" --steps 1 --optimizer adamw,eps=1e-4
    [ "$clip" = 0 ] || set -- "$@" --clip "$clip"
    case $file in
    *loss*) set -- "$@" --batch "$batch" --data "$(dirname "$file")/data" ;;
    */moe/*) set -- "$@" --loss mse:logits,target ;;
    *) set -- "$@" --loss softmax_cross_entropy:logits,labels ;;
    esac
    how="--mesh $outline"
    [ "$stages" = 1 ] || nodes "$@" $how >nodes.txt
    [ "$stages" = 1 ] || [ "$stages" -le "$(wc -l <nodes.txt)" ] || continue # more stages than nodes
    if [ "$uneven" = 1 ] && [ "$stages" -gt 1 ]; then
        uneven "$seed" "$stages" "$outline" >plan.json && how="--plan plan.json"
    fi
    # shellcheck disable=SC2086 # two words
    if ! timeout 300 "$sennit" verify "$@" $how >result.txt 2>&1; then
        grep -q E0421 result.txt && continue # a stage of constants alone
        [ "$how" = "--mesh $outline" ] || cat plan.json >>result.txt
        fail "draw $seed: sennit verify $* $how
$(cat result.txt)"
    fi
    tried=$((tried + 1))
    echo "$seed $(basename "$(dirname "$file")") $how ($outline): $(sed -n 's/^\([a-z]*\) .*difference \([^ ]*\).*/\1 \2/p' result.txt | tr '\n' ' ')"
done
[ "$tried" -gt 0 ] || fail "no plan was tried"
echo "$tried random plans agree with one rank"
