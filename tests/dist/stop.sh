#!/bin/sh
# SIGTERM to `sennit train` ends the run after its step, with a checkpoint to resume from and status 143, and SIGKILL
# ends its ranks as well: on one rank and on two. No process and, after SIGTERM, no temporary folder stays behind.
. "$(dirname "$0")/lib.sh"
mkdir tmp
export TMPDIR="$work/tmp"
process= # of the sennit that runs
trap '[ -z "$process" ] || kill -9 "$process" 2>/dev/null; rm -rf "$work"' EXIT INT TERM

# stop SIGNAL RANKS: starts a long run, sends the signal to sennit once it makes steps, and waits for its end.
stop() {
    rm -rf saved run.jsonl
    "$sennit" train "$models/gpt2/dynamo-20-raw.onnx" --data "$models/gpt2/data" --steps 100000000 --ranks "$2" \
        --loss softmax_cross_entropy:logits,labels --log run.jsonl --checkpoint saved --quiet >output.txt 2>&1 &
    process=$!
    tries=0
    until [ -s run.jsonl ]; do
        kill -0 $process 2>/dev/null || fail "the run ended by itself: $(cat output.txt)"
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "no step in a minute"
        sleep 0.1
    done
    held
    kill -"$1" $process
    status=0
    wait $process || status=$?
    process=
}

# The runs that live: they are programs in our temporary folder.
living() {
    for run in /proc/[0-9]*; do
        case $(readlink "$run/exe" 2>/dev/null) in "$work"/*) echo "${run#/proc/}" ;; esac
    done
}

# No thread of a run may handle the signals that stop it (runtime/exec/stop_signal.h): bits 1, 9 and 14 are SIGINT,
# SIGUSR1 and SIGTERM. MPI's own threads are made later and inherit that.
held() {
    for run in $(living); do
        for thread in /proc/"$run"/task/*/status; do
            blocked=$(sed -n 's/^SigBlk:[[:space:]]*/0x/p' "$thread")
            [ $((blocked & 0x4202)) = $((0x4202)) ] || fail "$thread does not hold the signals back: $blocked"
            echo "$thread" >>held.txt
        done
    done
}

for ranks in 1 2; do
    stop TERM $ranks
    [ $status = 143 ] || fail "SIGTERM on $ranks ranks: status $status"
    grep -q 'stopped after step' output.txt || fail "SIGTERM on $ranks ranks: $(cat output.txt)"
    [ -s saved/latest ] || fail "SIGTERM on $ranks ranks left no checkpoint: $(cat output.txt)"
    [ -z "$(living)" ] || fail "SIGTERM on $ranks ranks left a run"
    [ -z "$(ls tmp | grep '^sennit')" ] || fail "SIGTERM on $ranks ranks left a folder: $(ls tmp)"

    stop INT $ranks
    [ $status = 130 ] || fail "SIGINT on $ranks ranks: status $status"
    [ -s saved/latest ] || fail "SIGINT on $ranks ranks left no checkpoint: $(cat output.txt)"

    stop KILL $ranks
    tries=0
    while [ -n "$(living)" ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "SIGKILL on $ranks ranks left a run"
        sleep 0.1
    done
    rm -rf tmp/sennit-*
done
[ -s held.txt ] || fail "no thread was looked at"
echo "stopped runs end"
