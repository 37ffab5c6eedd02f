#!/bin/sh
# SIGTERM to `sennit train` ends the run after its step, with a checkpoint to resume from and status 143, also when it
# comes twice and to the whole process group, as a terminal's ^C does; SIGKILL ends its ranks as well: on one rank and on
# two. No process and, after SIGTERM, no temporary folder stays behind, nor half a checkpoint, of an earlier run either.
. "$(dirname "$0")/lib.sh"
mkdir tmp
export TMPDIR="$work/tmp"
process= # of the sennit that runs
trap '[ -z "$process" ] || kill -9 "$process" 2>/dev/null; rm -rf "$work"' EXIT INT TERM

# start RANKS: starts a long run, in a process group of its own, and waits until it makes steps.
start() {
    rm -rf saved run.jsonl
    mkdir saved
    touch saved/step-3.safetensors.tmp.iYc0aX saved/latest.tmp.Xa0cYi # of a run that was killed
    setsid "$sennit" train "$models/gpt2/dynamo-20-raw.onnx" --data "$models/gpt2/data" --steps 100000000 --ranks "$1" \
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
    [ -z "$(halves)" ] || fail "an earlier run's half-written files stay: $(halves)"
}

halves() {
    find saved -name '*.tmp.*'
}

# ended: waits for the end of the run.
ended() {
    status=0
    wait $process || status=$?
    process=
}

# stop SIGNAL RANKS
stop() {
    start "$2"
    kill -"$1" $process
    ended
}

# stopped NAME STATUS: it ended in an orderly way, and says nothing but that.
stopped() {
    [ $status = "$2" ] || fail "$1: status $status"
    grep -q 'stopped after step' output.txt || fail "$1: $(cat output.txt)"
    [ "$(grep -c . output.txt)" = 1 ] || fail "$1 says more: $(cat output.txt)"
    [ -s "saved/$(cat saved/latest)" ] || fail "$1 left no checkpoint: $(cat output.txt)"
    [ -z "$(halves)" ] || fail "$1 left half a file: $(halves)"
    [ -z "$(living)" ] || fail "$1 left a run"
    [ -z "$(ls tmp | grep '^sennit')" ] || fail "$1 left a folder: $(ls tmp)"
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
    stopped "SIGTERM on $ranks ranks" 143

    stop INT $ranks
    stopped "SIGINT on $ranks ranks" 130

    start $ranks
    kill -s INT -- -$process
    for _ in 1 2; do
        sleep 0.05
        kill -s INT -- -$process 2>/dev/null || true # it may have ended
    done
    ended
    stopped "three times ^C on $ranks ranks" 130

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
