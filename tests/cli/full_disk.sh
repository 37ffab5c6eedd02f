#!/bin/sh
# full_disk.sh SENNIT: whatever writes a file, and cannot write all of it, says so with status 1 and leaves the folder as
# it was: no half of a file, none under a temporary name, and the file that was there before. A limit on the size of
# files stands for the full disk.
. "$(dirname "$0")/lib.sh"
sennit=$1
models=$(cd "$(dirname "$0")/../data/models" && pwd)
loss=softmax_cross_entropy:logits,labels
gpt2=$models/gpt2/dynamo-20-raw.onnx
cd "$tree"

# full BLOCKS CODE FILE COMMAND…: with files of at most so many blocks of 512 bytes, the command fails with CODE for lack
# of room in out/FILE, of which it leaves what was there.
full() {
    blocks=$1 code_=$2 file=$3
    shift 3
    rm -rf out
    mkdir out
    echo before >"out/$file"
    expect 1 "error\[$code_\]" sh -c 'ulimit -f "$0" && "$@"' "$blocks" "$@"
    [ "$(ls -A out)" = "$file" ] && [ "$(cat "out/$file")" = before ] || {
        echo "$0: $*: left in its folder: $(ls -lA out)" >&2
        failures=1
    }
}

"$sennit" compile "$gpt2" --loss $loss --batch 4 --steps 20 --save-gradients 1:g -o program >compile.log 2>&1 &&
    "$sennit" plan "$gpt2" --loss $loss --cluster local:2 --batch 4 -o plan.json >>compile.log 2>&1 &&
    ./program --data "$models/gpt2/data" --steps 1 --checkpoint saved --quiet >>compile.log 2>&1 &&
    "$sennit" compile "$gpt2" --loss $loss --dump-ir=after-all --dump-dir dumps --stop-after canonicalize -o unused >>compile.log 2>&1 || {
    cat compile.log >&2
    exit 1
}

full 1500 E0702 program "$sennit" compile "$gpt2" --loss $loss --batch 4 -o out/program
full 1 E0445 plan.json "$sennit" plan "$gpt2" --loss $loss --cluster local:2 --batch 4 -o out/plan.json
full 2 E0830 trace.json "$sennit" simulate plan.json --trace out/trace.json
full 2 E0710 model.onnx "$sennit" export saved -o out/model.onnx
full 2 E0804 module.sir "$sennit" opt dumps/*-canonicalize.sir -o out/module.sir
full 2 E0702 kernels.cu "$sennit" compile "$gpt2" --loss $loss --batch 4 --target cuda:sm_90 --emit source -o out/kernels.cu

# The kernels, which a run loads from a file in memory, have room.
full 200 E0713 trace.json ./program --data "$models/gpt2/data" --steps 20 --trace out/trace.json
full 200 E0713 gradients ./program --data "$models/gpt2/data" --steps 1 --save-gradients 1:out/gradients
full 200 E0713 latest ./program --data "$models/gpt2/data" --steps 1 --checkpoint out

# A log is written line by line: as many whole lines as there is room for.
yes '{"step": 0, "loss": 1}' | head -n 4430 >log.jsonl
expect 1 'error\[E0713\]' sh -c 'ulimit -f 200 && "$@"' - ./program --data "$models/gpt2/data" --steps 100 \
    --resume saved --log log.jsonl
grep -q '"step": 2,' log.jsonl && [ "$(tail -c 2 log.jsonl)" = '}' ] || {
    echo "$0: a log ends in the middle of a line: $(tail -n 1 log.jsonl)" >&2
    failures=1
}
exit $failures
