#!/bin/sh
# prove.sh SENNIT: what the compiler writes is proved; what is done to it afterwards is found, with the ONNX node; and a
# plan that promises less memory than its executable holds is told so.
. "$(dirname "$0")/../dist/lib.sh"

"$sennit" compile "$models/gpt2/dynamo-21-raw-loss-dyn.onnx" --data "$models/gpt2/data" --batch 8 \
    --mesh pp=2,microbatches=4 -o gpt2 || fail "compile"
"$sennit" prove gpt2 >proved.txt || fail "the executable: $(cat proved.txt)"
grep -q '^2 rank classes' proved.txt || fail "not of two classes: $(cat proved.txt)"
"$sennit" prove gpt2.d/schedule.json >proved.txt || fail "its schedule.json"

# broken NAME SED WORDS: the schedule after an edit must be refused in these words.
broken() {
    sed "$2" gpt2.d/schedule.json >"$1.json"
    cmp -s "$1.json" gpt2.d/schedule.json && fail "$1: nothing to edit"
    if "$sennit" prove "$1.json" >"$1.txt" 2>&1; then fail "$1 is not found"; fi
    grep -q "E0511" "$1.txt" || fail "$1: $(cat "$1.txt")"
    grep -q "$3" "$1.txt" || fail "$1: $(cat "$1.txt")"
}
# The first send goes astray; what it carried comes from an ONNX node.
first=$(grep -n '"kind": "send"' gpt2.d/schedule.json | head -1 | cut -d: -f1)
broken channel "${first}s/\"channel\": [0-9]*/\"channel\": 77/" 'deadlock: nobody can go on.*recv #.* of stage1.forward ("node_'
broken count "${first}s/\"count\": [0-9]*/\"count\": 1/" 'mismatch: recv #.* of stage1.forward ("node_.*receives [0-9]* f32, but send'
broken slots 's/"slots": [2-9]/"slots": 1/' 'clobbered: .*holds the value of micro-batch'
broken micro_batch '/"name": "step"/,/"name": "eval"/s/"micro_batch": 2/"micro_batch": 1/' 'rank class 0'

if "$sennit" prove "$models/README.md" >other.txt 2>&1; then fail "a text is proved"; fi
grep -q E0510 other.txt || fail "a text: $(cat other.txt)"

sed 's/"version": 2,/"version": 2, "predicted": {"step_seconds": 1.0, "memory_bytes": 1000.0},/' gpt2.d/plan.json >plan.json
"$sennit" compile "$models/gpt2/dynamo-21-raw-loss-dyn.onnx" --data "$models/gpt2/data" --batch 8 --plan plan.json \
    -o small >promise.txt 2>&1 || fail "a modest plan: $(cat promise.txt)"
grep -q 'W0512' promise.txt || fail "nothing is said of the memory: $(cat promise.txt)"
echo "proofs hold, edits are found"
