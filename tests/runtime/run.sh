#!/bin/bash
# Trains the hand-made program on one to four ranks: equal losses, exact resumption after SIGKILL, errors that say what
# is wrong. Usage: run.sh MAKE_PROGRAM RUNNER KERNELS
set -u
make=$1 runner=$2 kernels=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
train() { # PROGRAM OPTIONS…: on as many ranks as its name says
    local ranks=${1#p}
    ranks=${ranks%%_*}
    local program=$1
    shift
    if [ "$ranks" = 1 ]; then
        "./$program" --data data --quiet "$@"
    else
        "$here/mpirun.sh" "$ranks" "./$program" --data data --quiet "$@"
    fi
}
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1"; }
close() { # two logs, to 1e-5
    [ "$(losses "$1" | wc -l)" = "$(losses "$2" | wc -l)" ] || return 1
    paste <(losses "$1") <(losses "$2") |
        awk '{ d = $2 - $4; if (d < 0) d = -d; if (!($1 == $3 && d <= 1e-5 * $2)) { print; bad = 1 } } END { exit bad }'
}
expect() { # STATUS TEXT COMMAND…: exit status, and a line with the text that appears once
    local status=$1 text=$2
    shift 2
    local out got
    out=$("$@" 2>&1)
    got=$?
    [ $got = "$status" ] || { echo "$out"; fail "status $got, not $status: $*"; }
    [ "$(grep -c -- "$text" <<< "$out")" = 1 ] || { echo "$out"; fail "'$text' is not there once: $*"; }
}

for ranks in 1 2 3 4; do "$make" "$runner" "$kernels" $ranks one data p$ranks || fail make; done
"$make" "$runner" "$kernels" 2 two data p2_two || fail make

train p1 --steps 20 --no-shuffle --log one.jsonl || fail "one rank"
[ "$(losses one.jsonl | wc -l)" = 20 ] || fail "not 20 steps"
losses one.jsonl | awk 'NR == 1 { first = $2 } END { exit !($2 < first / 4) }' || fail "the loss does not fall"
for program in p2 p3 p4 p2_two; do
    train $program --steps 20 --no-shuffle --log other.jsonl || fail $program
    close one.jsonl other.jsonl || fail "$program trains differently"
done

train p1 --steps 20 --seed 3 --log one_shuffled.jsonl || fail "shuffled"
train p3 --steps 20 --seed 3 --log other.jsonl || fail "shuffled on three"
close one_shuffled.jsonl other.jsonl || fail "the order of samples depends on the ranks"
close one.jsonl one_shuffled.jsonl > /dev/null && fail "shuffling does nothing"

# Killed, resumed: the same bits.
train p2 --steps 4000 --seed 5 --log whole.jsonl || fail "whole run"
"$here/mpirun.sh" 2 ./p2 --data data --steps 4000 --seed 5 --log killed.jsonl --checkpoint ck --checkpoint-every 100 \
    > killed.out 2>&1 &
launcher=$!
for _ in $(seq 400); do
    [ -f ck/latest ] && [ "$(wc -l < killed.jsonl)" -gt 250 ] && break
    sleep 0.02
done
kill -KILL $(pgrep -P $launcher) || fail "it was over too soon"
wait
[ "$(ls ck | grep -c 'step-.*safetensors$')" -le 3 ] || fail "old checkpoints stay"
train p2 --steps 4000 --seed 5 --log resumed.jsonl --checkpoint ck --resume ck || fail "resume"
first=$(losses resumed.jsonl | head -1 | cut -d' ' -f1)
[ "$first" -gt 100 ] || fail "resumed from the start"
diff <(losses whole.jsonl | awk -v f="$first" '$1 >= f') <(losses resumed.jsonl) > /dev/null || fail "resumed differently"
[ "$(cat ck/latest)" = step-4000.safetensors ] || fail "no last checkpoint"

# Asked to stop: after the step, with a checkpoint.
./p1 --data data --steps 100000000 --log stopped.jsonl --checkpoint stopped > stopped.out &
pid=$!
for _ in $(seq 200); do [ -s stopped.jsonl ] && break || sleep 0.02; done
kill -TERM $pid
stopped=0
wait $pid || stopped=$?
[ $stopped = 143 ] || fail "SIGTERM: status $stopped"
[ "stopped/step-$(losses stopped.jsonl | tail -1 | cut -d' ' -f1).safetensors" = "stopped/$(cat stopped/latest)" ] ||
    fail "the checkpoint is not of the last step"

# Other results.
train p3 --steps 2 --no-shuffle --save-gradients 2:grad.safetensors --eval-data data --eval-every 1 --log e.jsonl > out
[ "$(grep -c eval_loss e.jsonl)" = 2 ] || fail "two evaluations"
grep -q '"sums":{"dtype":"F32","shape":\[3\]' grad.safetensors || fail "gradients"
for program in p1 p4; do
    train $program --predictions $program.safetensors --quiet || fail "predictions"
    grep -q '"y":{"dtype":"F32","shape":\[64\]' $program.safetensors || fail "shape of the predictions"
done
cmp p1.safetensors p4.safetensors || fail "predictions depend on the ranks"

# What is wrong.
expect 1 'E0701' train p2 --steps 50 --lr 1e20
expect 1 'the program is for 3 ranks' "$here/mpirun.sh" 2 ./p3 --data data --steps 1
expect 1 'the program is for 3 ranks' ./p3 --data data --steps 1
expect 2 "there is no option --stepz; did you mean --steps" train p1 --stepz 1
expect 2 'is not one of constant|cosine|linear' train p2 --steps 1 --schedule cubic
expect 2 '--steps is missing' train p1
expect 1 "holds no checkpoint" train p2 --steps 2 --resume nowhere
expect 1 "cannot write" train p2 --steps 2 --log nowhere/x.jsonl
expect 1 "cannot write" train p2 --steps 2 --log /dev/full
expect 1 "cannot" train p2 --steps 1 --save-gradients 1:nowhere/x
mkdir -p taken/step-2.safetensors
expect 1 "cannot rename to 'taken/step-2.safetensors'" train p2 --steps 2 --checkpoint taken
[ "$(ls -A taken)" = step-2.safetensors ] || fail "a half-written checkpoint stays"
mkdir partial && cp data/x.npy partial/ && cp data/x.npy partial/extra.npy
expect 1 "there is no file for input 'target'" ./p1 --data partial --steps 1
cp data/target.npy partial/
expect 0 "no input reads extra.npy" train p3 --data partial --steps 1
head -c 100 data/x.npy > partial/x.npy
expect 1 "E0604" train p2 --data partial --steps 1
echo passed
