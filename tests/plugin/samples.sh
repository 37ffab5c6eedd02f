#!/bin/sh
# samples.sh SOURCE BUILD: the sample plug-ins, copied out of the tree and built against the installed header alone, work.
set -eu
source=$1 build=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

cmake --install "$build" --prefix "$tree/usr" >/dev/null
cp -r "$source/samples/plugins" "$tree/plugins"
cmake -S "$tree/plugins" -B "$tree/build" -DCMAKE_PREFIX_PATH="$tree/usr" -DCMAKE_C_FLAGS='-Wall -Wextra -Werror' >/dev/null
cmake --build "$tree/build" >/dev/null
sennit=$tree/usr/bin/sennit module=$source/tests/plugin/module.sir

fail() {
    echo "samples.sh: $1" >&2
    cat "$tree/out" >&2
    exit 1
}
"$sennit" opt "$module" --plugin "$tree/build/libsquare.so" --passes='square{x=1},dce' --remarks >"$tree/out" 2>&1 || fail square
grep -q 'mul(%x, %x)' "$tree/out" || fail 'the square is missing'
grep -q 'pow' "$tree/out" && fail 'a power is left'
grep -q 'square: 1 squares; arguments: x=1' "$tree/out" || fail 'the remark is missing'
"$sennit" opt "$module" --plugin "$tree/build/libsquare.so" --list-passes | grep -q 'square  *pow(x, 2)' || fail 'the pass is not listed'

# "@main: T ms on cpu: …; matmul T ms": half the time with the plug-in
matmul_time() {
    "$sennit" opt "$module" --passes=estimate --remarks "$@" 2>&1 >/dev/null | sed -n 's/.*matmul \([0-9.]*\) ms.*/\1/p'
}
slow=$(matmul_time) fast=$(matmul_time --plugin "$tree/build/libfast_matmul.so")
echo "matmul: $slow ms built in, $fast ms with the plug-in" | tee "$tree/out"
awk -v slow="$slow" -v fast="$fast" 'BEGIN { exit !(slow > 0 && fast > 0.49 * slow && fast < 0.51 * slow) }' || fail 'not half'

# a slow network, as it was measured: the plan avoids what the built-in model found best
cat >"$tree/desks.json" <<'END'
{"name": "desks",
 "nodes": [{"count": 4, "devices": 1, "device": "cpu", "memory": "8 GB"}],
 "links": [{"name": "infiniband", "nodes": "all", "latency": "1 us", "bandwidth": "10 GB/s"}]}
END
find_plan() {
    "$sennit" plan "$source/samples/chargpt/model.onnx" --loss softmax_cross_entropy:logits,labels --dim seq=32 \
        --cluster "$tree/desks.json" --batch 16 "$@" >"$tree/out" 2>&1 || fail 'no plan'
    sed -n 2p "$tree/out"
}
built_in=$(find_plan) measured=$(find_plan --plugin "$tree/build/libmeasured_network.so")
echo "plan: $built_in built in, $measured with the measured network" | tee "$tree/out"
[ "$built_in" != "$measured" ] || fail 'the plug-in changed no plan'
