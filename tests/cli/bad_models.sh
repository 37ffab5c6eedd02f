#!/bin/bash
# bad_models.sh SENNIT: damaged and hostile model files end in a diagnostic with status 1, and an export that fails
# leaves nothing behind.
set -u
sennit=$1
. "$(dirname "$0")/lib.sh"
models=$(cd "$(dirname "$0")/../data/models" && pwd)
mlp=$models/mlp/legacy-17.onnx
data=$models/mlp/data
size=$(stat -c %s "$mlp")
compile() { "$sennit" compile "$1" --data "$data" --loss softmax_cross_entropy:logits,labels -o "$tree/program"; }

expect 1 'error\[E0100\]' compile "$tree/absent.onnx"
expect 1 'error\[E0100\].*not a regular file' compile "$tree"
mkfifo "$tree/pipe"
expect 1 'error\[E0100\].*not a regular file' timeout 20 "$sennit" info "$tree/pipe"
: >"$tree/empty.onnx"
expect 1 'error\[E0101\]' compile "$tree/empty.onnx"
echo 'this is no model' >"$tree/text.onnx"
expect 1 'error\[E0101\]' compile "$tree/text.onnx"

for share in 1 3 10 50 90 99; do
    head -c $((size * share / 100)) "$mlp" >"$tree/short.onnx"
    expect 1 'error\[E[0-9]+\]' compile "$tree/short.onnx"
done

# a byte of every 997 is turned over: an error or a model that compiles, never a crash
for ((at = 0; at < size; at += 997)); do
    cp "$mlp" "$tree/flipped.onnx"
    byte=$(od -An -tu1 -j $at -N 1 "$mlp")
    printf "\\x$(printf %x $((255 - byte)))" | dd of="$tree/flipped.onnx" bs=1 seek=$at conv=notrunc status=none
    "$sennit" info "$tree/flipped.onnx" >"$tree/output" 2>&1
    code=$?
    if [ $code -gt 1 ]; then
        echo "byte $at turned over: status $code" >&2
        head -5 "$tree/output" >&2
        failures=1
    fi
done

# sizes whose products overflow, or that no kernel could run over
lenet=$models/lenet/dynamo-21-raw-loss-dyn.onnx gpt2=$models/gpt2/dynamo-21-raw-loss-dyn.onnx
for size in 9223372036854775807 281474976710656 99999999999999999999; do
    expect 1 'error\[E0207\].*more than 2\^48 elements' "$sennit" compile "$lenet" --dim s10=$size -o "$tree/program"
done
expect 1 'error\[E0505\]' "$sennit" compile "$lenet" --dim s10=2147483648 -o "$tree/program"
expect 1 'error\[E020[12]\]' "$sennit" compile "$gpt2" --dim s10=1099511627776 --dim s87=1099511627776 --dim s21=16 \
    --dim s12=16 -o "$tree/program"

expect 1 'error\[E0704\].*missing' "$sennit" export "$tree/absent"
expect 1 'error\[E0710\].*absent' "$sennit" export "$tree/absent" -o "$tree/trained.onnx"
expect 2 'No such file' ls "$tree/trained.onnx"
expect 2 'No such file' ls "$tree/program"
exit $failures
