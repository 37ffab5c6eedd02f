#!/bin/sh
# broken.sh SOURCE BUILD: every way of being broken is an error with exit status 1 that says so, and nothing is printed.
set -u
source=$1 sennit=$2/tools/sennit
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
status=0

# expect MESSAGE PLUGIN [options…]
expect() {
    message=$1 plugin=$2
    shift 2
    "$sennit" opt "$source/tests/plugin/module.sir" --plugin "$plugin" "$@" >"$tree/out" 2>"$tree/err"
    code=$?
    if [ $code -ne 1 ] || ! grep -q "$message" "$tree/err" || [ -s "$tree/out" ]; then
        echo "broken.sh: expected '$message' and status 1, got status $code:" >&2
        cat "$tree/err" >&2
        status=1
    fi
}
build() {
    cc -std=c99 -shared -fPIC -I"$source/include" -D"BROKEN_$1" "$source/tests/plugin/broken.c" -o "$tree/$1.so"
}
for way in SYMBOL ABI NULL NAME OPERATOR OPERANDS ERASE ORDER STATUS COST INIT QUERY; do
    build $way || exit 1
done
expect 'E0821.*does not load' "$tree/absent.so"
echo 'not a shared object' >"$tree/text.so"
expect 'E0821.*does not load' "$tree/text.so"
expect 'E0822.*lacks the symbol' "$tree/SYMBOL.so"
expect 'E0823.*for ABI 2' "$tree/ABI.so"
expect 'E0823.*for ABI 0' "$tree/NULL.so"
expect 'E0824.*name of another' "$tree/NAME.so"
expect 'E0825.*no such operator' "$tree/OPERATOR.so" --passes=broken
expect 'E0825.*does not take 1 operands' "$tree/OPERANDS.so" --passes=broken
expect 'E0825.*still read' "$tree/ERASE.so" --passes=broken
expect 'E0828.*malformed' "$tree/ORDER.so" --passes=broken
expect 'E0824.*status 3' "$tree/STATUS.so" --passes=broken
expect 'E0827.*nan seconds' "$tree/COST.so" --passes=estimate
expect 'E0832.*crashes while it loads' "$tree/INIT.so"
expect 'E0832.*crashes while it loads' "$tree/QUERY.so"

# A plan is not made from costs that are no times.
"$sennit" plan "$source/samples/chargpt/model.onnx" --loss softmax_cross_entropy:logits,labels --dim seq=32 \
    --cluster local:4 --batch 16 --plugin "$tree/COST.so" -o "$tree/plan.json" >"$tree/out" 2>"$tree/err"
code=$?
if [ $code -ne 1 ] || ! grep -q 'E0827.*nan seconds' "$tree/err" || [ -e "$tree/plan.json" ]; then
    echo "broken.sh: plan with costs that are no numbers: status $code" >&2
    head -5 "$tree/err" >&2
    status=1
fi
exit $status
