#!/bin/sh
# What goes wrong in a run, beyond the model: the data, the numbers, the disk, the ranks. Exit status 1, a diagnostic
# that says what and where, nothing half-written.
. "$(dirname "$0")/lib.sh"
sennit=$1
models=$(cd "$(dirname "$0")/../data/models" && pwd)
loss=softmax_cross_entropy:logits,labels
cd "$tree"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

train() { # STATUS PATTERN [OPTIONS]: gpt2 on its own data unless told otherwise
    wanted=$1 pattern_=$2
    shift 2
    expect "$wanted" "$pattern_" "$sennit" train "$models/gpt2/dynamo-20-raw.onnx" --loss $loss --steps 2 --quiet "$@"
}

train_well() { # [OPTIONS]
    "$sennit" train "$models/gpt2/dynamo-20-raw.onnx" --loss $loss --steps 2 --quiet --data data "$@" || {
        echo "$0: a good run failed" >&2
        failures=1
    }
}

# An .npy file of int64 [rows, 16], all of one value.
npy() { # FILE ROWS VALUE_BYTE
    header="{'descr': '<i8', 'fortran_order': False, 'shape': ($2, 16), }"
    {
        printf '\223NUMPY\001\000\166\000%-117s\n' "$header"
        head -c $(($2 * 16)) /dev/zero | sed "s/\x00/\\x$3\x00\x00\x00\x00\x00\x00\x00/g"
    } >"$1"
}

mkdir data
train 1 'input_ids' --data data                       # lists what the graph wants
train 1 'nowhere' --data nowhere
npy data/input_ids.npy 8 05
train 1 'labels' --data data
npy data/labels.npy 8 7f                              # 127 of 96 classes
train 1 'labels' --data data
npy data/labels.npy 8 05
train_well
npy data/input_ids.npy 8 7f
train 1 'input_ids' --data data
npy data/input_ids.npy 2 05                           # fewer rows than a batch
train 1 'E06' --data data
npy data/input_ids.npy 8 05
head -c 300 data/labels.npy >cut.npy && mv cut.npy data/labels.npy
train 1 'labels' --data data
npy data/labels.npy 8 05

train 1 'E0404' --data data --ranks 8                 # more ranks than samples
expect 1 'E0701' "$sennit" train "$models/mlp/dynamo-20-raw.onnx" --loss $loss --steps 20 --quiet \
    --data "$models/mlp/data" --optimizer sgd,lr=1e9
train 2 'optimizer|--optimiser' --optimiser sgd --data data
train 1 'E0305' --data data --optimizer adamw,rate=1
train 1 'E0311' --data data --clip -1
train 1 'E0504.*gpu' --data data --target gpu         # never another target than the one asked for
train 1 'E0504' --data data --target cuda:90
train 1 'E0503' --data data --target cuda:sm_90
expect 1 'E0503.*source' "$sennit" compile "$models/gpt2/dynamo-20-raw.onnx" --loss $loss --emit source -o source
train 1 'E0821' --data data --plugin absent.so
train 1 'E0405.*read: unable to open' --data data --plan absent.json
train 1 'softmax_cross_entropy:LOGITS' --data data --loss foo:logits,labels
train 1 'E0604' --data data --eval-data nowhere
train 1 'help: .*--eval-data' --data data --eval-data nowhere
train 2 'threads is at most' --data data --threads 100000
expect 1 'E0710.*nowhere' "$sennit" export nowhere -o out.onnx
expect 1 'help: give the folder that --checkpoint' "$sennit" export nowhere -o out.onnx
train 2 'data is missing' --steps 3                  # no data at all

# Where nothing can be written, nothing is left.
mkdir closed && touch closed/file
train 1 'error\[E0713\].*closed/file/log' --data data --log closed/file/log.jsonl
train 1 'error\[E0713\].*closed/file/saved' --data data --checkpoint closed/file/saved --checkpoint-every 1
expect 1 'closed/file' "$sennit" compile "$models/gpt2/dynamo-20-raw.onnx" --loss $loss -o closed/file/x
[ "$(ls closed)" = file ] || { echo "something was left in a folder that could not be written" >&2; failures=1; }

# A full disk: the log and the checkpoint report it.
if [ -w /dev/full ]; then
    train 1 'space|/dev/full' --data data --log /dev/full
fi
(
    ulimit -f 8 # files of 4 KiB at most
    trap '' XFSZ
    expect 1 'E0702.*write|large' "$sennit" compile "$models/gpt2/dynamo-20-raw.onnx" --loss $loss -o small
    [ -z "$(ls | grep '^small')" ] || { echo "a file that did not fit was left: $(ls)" >&2; failures=1; }
    exit $failures
) || failures=1

# The executable by itself: what it lacks, a wrong number of ranks, a wrong line, a model that has changed.
cp "$models/gpt2/dynamo-20-raw.onnx" model.onnx
"$sennit" compile model.onnx --loss $loss -o program
expect 1 'error\[E0714\].*--save-gradients' ./program --data data --steps 1 --save-gradients 1:g
expect 1 'error\[E0715\].*for 1 rank, but 2 were started' mpirun --oversubscribe -n 2 ./program --data data --steps 1
expect 2 '^./program: --steps is missing' ./program --data data
expect 2 'no option --step; did you mean --steps' ./program --data data --step 3
expect 2 '^  help: `./program --help`' ./program --data data --step 3
echo >>model.onnx
expect 1 "error\[E0716\].*'.*/model.onnx' has changed" ./program --data data --steps 1
head -c 1000000 program >half && chmod +x half
expect 1 'error\[E0716\].*no training program' ./half --data data --steps 1

# A rank that is killed alone: mpirun is not there to say it.
mkdir temporary
TMPDIR=$tree/temporary "$sennit" train "$models/gpt2/dynamo-20-raw.onnx" --loss $loss --data data --steps 100000000 --log killed \
    --quiet >killed.out 2>&1 &
command=$!
for _ in $(seq 300); do [ -s killed ] && break || sleep 0.1; done
kill -KILL "$(cat /proc/$command/task/$command/children)"
code=0
wait $command || code=$?
[ $code = 1 ] && grep -q 'error\[E0717\].*ended by signal 9' killed.out || {
    echo "$0: a killed run: status $code: $(cat killed.out)" >&2
    failures=1
}

# A checkpoint of another model, and one that is no checkpoint.
train_well --checkpoint saved
expect 1 'error\[E0712\].*another model' "$sennit" train "$models/mlp/dynamo-20-raw.onnx" --loss $loss --steps 4 --data "$models/mlp/data" --resume saved
echo nonsense >saved/latest
train 1 'error\[E0712\].*saved/latest.*does not name' --data data --resume saved
train 1 "error\[E0712\].*'nowhere' holds no checkpoint" --data data --resume nowhere
train 1 'help: --resume takes the folder' --data data --resume nowhere
train 1 'error\[E0712\].*nowhere' --data data --resume nowhere --ranks 2
grep -qE 'mpirun|-----' "$tree/output" && {
    echo "$0: mpirun repeats that a run failed: $(cat "$tree/output")" >&2
    failures=1
}
expect 1 'saved/nonsense' "$sennit" export saved -o out.onnx
[ ! -e out.onnx ] || { echo "a failed export left a file" >&2; failures=1; }
# the rate falls from --lr, or the one compiled in, to --min-lr
train 2 'min-lr 0.1 is above --lr 0.01' --data "$models/gpt2/data" --lr 0.01 --min-lr 0.1 --schedule cosine
train 2 'min-lr 0.1 is above the learning rate 0.001' --data "$models/gpt2/data" --optimizer adamw,lr=1e-3 --min-lr 0.1 --schedule cosine
exit $failures
