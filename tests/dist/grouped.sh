#!/bin/sh
# grouped.sh SENNIT: attention whose query heads share key/value heads, with more ranks of tp than key/value heads: ranks
# hold the key/value head that their query heads read, and the gradients of what they share are summed over them. As one
# rank, by plans that say so and by those that are found, alone and with pipelines, micro-batches and ZeRO.
. "$(dirname "$0")/lib.sh"
grouped=$models/grouped

# equals KV ARGUMENTS: the model with so many key/value heads gives what one rank gives.
equals() {
    model=$grouped/kv$1.onnx
    shift
    timeout 300 "$sennit" verify "$model" --data "$grouped/data" --steps 2 --optimizer adamw,eps=1e-4 "$@" \
        >result.txt 2>&1 || fail "$(basename "$model") $*: $(cat result.txt)"
}

# stated NAME MESH QUERIES SHARED FIELDS: a plan that cuts all matrices over QUERIES, but keys and values over SHARED.
stated() {
    {
        printf '{"version": 2, "mesh": {%s}, %s "layouts": {' "$2" "$5"
        for h in 0 1; do
            for w in attn.k attn.v; do printf '"h.%s.%s.weight": "{-,%s}", ' $h $w "$4"; done
            for w in attn.q mlp.gate mlp.up; do printf '"h.%s.%s.weight": "{-,%s}", ' $h $w "$3"; done
            for w in attn.o mlp.down; do printf '"h.%s.%s.weight": "{%s,-}", ' $h $w "$3"; done
        done
        printf '"wte.weight": "{%s,-}", "lm_head.weight": "{-,%s}"}}\n' "$3" "$3"
    } >"$1"
}

stated shared.json '"tp": 2, "tp_q": 2' tp.tp_q tp ''
equals 2 --batch 4 --plan shared.json
# What the ranks of tp_q share is half of a key matrix, and no rank has more: the heads are not repeated.
"$sennit" compile "$grouped/kv2.onnx" --batch 4 --plan shared.json --dump-ir=after=localize --dump-dir dump -o unused \
    >log.txt 2>&1 || fail "no dump: $(cat log.txt)"
grep -q '= attention(.*f32\[4,1,8,4\]' dump/*-localize.sir || fail "a rank computes more than one of four query heads"
grep -q '^param @h.0.attn.k.weight : f32\[16,4\]' dump/*-localize.sir || fail "a rank holds more than one key head"

stated one.json '"tp": 4' tp - ''
equals 1 --batch 4 --plan one.json
stated deep.json '"pp": 2, "tp": 2, "tp_q": 2' tp.tp_q tp '"microbatches": 4,'
equals 2 --batch 8 --plan deep.json
for zero in 1 3; do
    stated wide.json '"dp": 2, "tp": 2, "tp_q": 2' tp.tp_q tp "\"zero\": $zero, \"microbatches\": 2,"
    equals 2 --batch 8 --plan wide.json
done

# The same from an outline alone, without a cluster.
"$sennit" compile "$grouped/kv2.onnx" --batch 4 --mesh tp=4 --dump-ir=after=localize --dump-dir outline -o unused \
    >log.txt 2>&1 || fail "no dump: $(cat log.txt)"
[ ! -s log.txt ] || fail "warnings: $(cat log.txt)"
grep -q '= attention(.*f32\[4,1,8,4\]' outline/*-localize.sir || fail "a rank computes more than one of four query heads"
grep -q '^param @h.0.attn.k.weight : f32\[16,4\]' outline/*-localize.sir || fail "a rank holds more than one key head"
for mesh in tp=4 tp=2,tp_q=2 pp=2,tp=4,microbatches=2; do equals 2 --batch 8 --mesh "$mesh"; done
for tp in 2 4; do equals 1 --batch 8 --mesh "tp=$tp"; done

# Found: tp is split in two axes where keys have fewer heads.
"$sennit" plan "$grouped/kv2.onnx" --batch 4 --cluster local:4 --mesh tp=4 -o found.json >log.txt 2>&1 ||
    fail "no plan: $(cat log.txt)"
tr -d ' \n' <found.json | grep -q '"mesh":{"tp":2,"tp_q":2}' || fail "tp is not split: $(cat found.json)"
for mesh in tp=4 pp=2,tp=4,microbatches=2 dp=2,tp=4,zero=2; do
    ranks=$(echo "$mesh" | tr ',' '\n' | awk -F= 'BEGIN { n = 1 } $1 ~ /^(pp|dp|tp)$/ { n *= $2 } END { print n }')
    equals 2 --batch 8 --cluster "local:$ranks" --mesh "$mesh"
done
for tp in 2 4; do equals 1 --batch 8 --cluster "local:$tp" --mesh "tp=$tp"; done
