#!/bin/bash
# commands.sh SENNIT: version, help, hints for typos, exit status 2 for wrong command lines, and the completion script.
set -u
sennit=$1
. "$(dirname "$0")/lib.sh"

expect 0 '^sennit [0-9]+\.[0-9]+\.[0-9]+$' "$sennit" --version
expect 0 '^  opt +runs passes' "$sennit" --help
expect 2 '^sennit COMMAND' "$sennit"
expect 2 "unknown command 'completino'; did you mean 'completion'" "$sennit" completino
expect 2 "unknown command 'frobnicate'" "$sennit" frobnicate
expect 0 '--dump-ir WHEN' "$sennit" opt --help
expect 2 'unknown option --pases; did you mean --passes' "$sennit" opt --pases=dce
expect 2 'unknown option -x' "$sennit" opt -x
expect 2 '--passes needs a value' "$sennit" opt --passes
expect 2 '--remarks takes no value' "$sennit" opt --remarks=yes
expect 2 "--pass-limit takes a whole number from 0 on, not 'two'" "$sennit" opt --pass-limit two
expect 2 "--pass-limit takes a whole number from 0 on, not '-1'" "$sennit" opt --pass-limit=-1
for option in --batch=99999999999999 --batch=16777217 --batch=0 --ranks=5000000000 --accumulate=-1; do
    expect 2 "${option%=*} takes a whole number from 1 to 16777216, not '${option#*=}'" "$sennit" compile model.onnx $option
done
expect 2 "--batch takes a whole number from 1 to 16777216" "$sennit" plan model.onnx --cluster local:2 --batch 99999999999999
expect 2 "unexpected argument 'b.sir'" "$sennit" opt a.sir b.sir
expect 2 "no completion for 'fish'" "$sennit" completion fish

# what would keep a model from training is news to `info`, with a code of its own
gpt2=$(dirname "$0")/../data/models/gpt2/dynamo-20-raw.onnx
expect 0 '^warning\[W0708\]: training would end with E0301: the model has no scalar output' "$sennit" info "$gpt2"
never W0708 "$sennit" info "$gpt2" --loss softmax_cross_entropy:logits,labels

# sizes that the model does not take: their names and values, not the model's fault
chargpt=$(dirname "$0")/../../samples/chargpt/model.onnx
expect 1 'E0202.*Gather: it looks up entry 64 of 64' "$sennit" compile "$chargpt" --loss softmax_cross_entropy:logits,labels \
    --batch 4 --dim seq=65 -o "$tree/x"
expect 1 'E0212.*--batch 4 and --dim batch=8 contradict' "$sennit" compile "$chargpt" --loss softmax_cross_entropy:logits,labels \
    --batch 4 --dim batch=8 --dim seq=16 -o "$tree/x"
expect 1 "E0208.*no symbolic dim 'foo'" "$sennit" compile "$chargpt" --loss softmax_cross_entropy:logits,labels --batch 4 \
    --dim seq=16 --dim foo=2 -o "$tree/x"
expect 1 '^  help: with seq=65, batch=4, which --dim, --batch' "$sennit" compile "$chargpt" \
    --loss softmax_cross_entropy:logits,labels --batch 4 --dim seq=65 -o "$tree/x"

# wherever the passes end, that is orderly: no program, a warning, and the text of what there is; or a whole program
compile_gpt2() {
    "$sennit" compile "$gpt2" --loss softmax_cross_entropy:logits,labels -o "$tree/x" "$@"
}
passes=$(compile_gpt2 --print-pipeline)
count=$(echo "$passes" | wc -l)
for mesh in dp=1 pp=2; do
    for pass in $(echo "$passes" | sort -u); do
        rm -rf "$tree"/x* "$tree/dumps"
        expected=W0703
        [ "$pass" = plan-memory ] && expected='^$'
        expect 0 "$expected" sh -c 'echo; "$@"' - "$sennit" compile "$gpt2" --loss softmax_cross_entropy:logits,labels \
            -o "$tree/x" --mesh $mesh --stop-after "$pass" --dump-ir "after=$pass" --dump-dir "$tree/dumps"
        grep -q '^sennit 1 ' "$tree"/dumps/*-"$pass".sir || { echo "$pass: no text" >&2; failures=1; }
        [ -e "$tree/x" ] && [ "$pass" != plan-memory ] && { echo "$pass: a program" >&2; failures=1; }
    done
done
for limit in $(seq 1 $((count - 1))); do expect 0 W0703 compile_gpt2 --mesh pp=2 --pass-limit "$limit"; done
# as it is where passes are left out
without() { echo "$passes" | grep -v "^$1\$" | paste -sd,; }
for pass in fuse plan-memory; do expect 0 W0703 compile_gpt2 --passes "$(without $pass)"; done
for pass in $(echo "$passes" | sort -u); do # `without` leaves out every run of it
    compile_gpt2 --passes "$(without "$pass")" >"$tree/output" 2>&1
    [ $? -le 1 ] || { echo "without $pass: $(cat "$tree/output")" >&2; failures=1; }
done

# every command that the help lists has a help of its own, with status 0
for command in $("$sennit" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    expect 0 "^sennit $command" "$sennit" "$command" --help
done

# the completion script completes commands and a command's own options
eval "$("$sennit" completion bash)"
complete_words() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _sennit
    echo "${COMPREPLY[*]}"
}
expect 0 '(^| )completion( |$)' complete_words sennit comp
expect 0 '^--dump-ir --dump-dir$' complete_words sennit opt --dump
expect 0 '(^| )--help( |$)' complete_words sennit opt --he
exit $failures
