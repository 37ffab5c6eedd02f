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
    cc -std=c99 -shared -fPIC -I"$source/include" -D"BROKEN_$1" "$source/tests/plugin/broken.c" -o "$tree/${1%%=*}${2-}.so"
}
for way in SYMBOL ABI NULL NAME OPERATOR OPERANDS ERASE ORDER STATUS ABORT NAN INIT INIT_EXIT QUERY EXIT CRASH; do
    build $way || exit 1
done
for cost in -1 1e300 INFINITY 0 SENNIT_MAX_SECONDS; do
    build COST=$cost $cost || exit 1
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
expect 'E0832.*crashes while it runs its pass: Aborted' "$tree/ABORT.so" --passes=broken
expect 'E0827.*answered NaN seconds.*0 to 10000' "$tree/NAN.so" --passes=estimate
expect 'E0827.*answered -1 seconds' "$tree/COST-1.so" --passes=estimate
expect 'E0827.*answered 1e+300 seconds' "$tree/COST1e300.so" --passes=estimate
expect 'E0827.*answered inf seconds' "$tree/COSTINFINITY.so" --passes=estimate
expect 'E0832.*ends the program while it answers what ops cost' "$tree/EXIT.so" --passes=estimate
expect 'E0832.*crashes while it answers what ops cost: Segmentation fault' "$tree/CRASH.so" --passes=estimate
expect 'E0832.*crashes while it loads' "$tree/INIT.so"
expect 'E0832.*crashes while it loads' "$tree/QUERY.so"
expect 'E0832.*ends the program while it loads' "$tree/INIT_EXIT.so"

# plan PLUGIN
plan() {
    rm -f "$tree/plan.json"
    timeout 120 "$sennit" plan "$source/samples/chargpt/model.onnx" --loss softmax_cross_entropy:logits,labels \
        --dim seq=32 --cluster local:4 --batch 16 --plugin "$1" -o "$tree/plan.json" >"$tree/out" 2>"$tree/err"
    code=$?
}
fail() {
    echo "broken.sh: $1: status $code" >&2
    head -5 "$tree/err" >&2
    status=1
}
# A plan is not made from costs that are no times, which is said once.
plan "$tree/NAN.so"
[ $code -eq 1 ] && [ "$(grep -c E0827 "$tree/err")" -eq 1 ] && [ ! -e "$tree/plan.json" ] || fail 'costs that are no numbers'
plan "$tree/EXIT.so"
[ $code -eq 1 ] && grep -q "E0832" "$tree/err" && [ ! -e "$tree/plan.json" ] || fail 'a plug-in that calls exit'
# The least and the largest of times are times: a plan is found, also where none is better than another.
for cost in 0 SENNIT_MAX_SECONDS; do
    plan "$tree/COST$cost.so"
    [ $code -eq 0 ] && [ -s "$tree/plan.json" ] || fail "costs of $cost"
done
# A plan names the plug-ins that it was made with; naming one again changes nothing.
"$sennit" simulate "$tree/plan.json" --plugin "$tree/COSTSENNIT_MAX_SECONDS.so" >"$tree/out" 2>"$tree/err"
code=$?
[ $code -eq 0 ] || fail 'a plug-in that is named twice'
# It names them so that the plan works from any folder.
(cd "$tree" && plan COST0.so && cd / && exec "$sennit" simulate "$tree/plan.json") >"$tree/out" 2>"$tree/err"
code=$?
[ $code -eq 0 ] || fail 'a plug-in by a relative path'
exit $status
