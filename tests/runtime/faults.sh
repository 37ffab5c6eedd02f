#!/bin/bash
# A rank that dies, is stopped or hangs: all ranks end soon, and the message says which it was, where it was and where
# the others waited. A rank that is merely slow is left alone.
# Usage: faults.sh MAKE_PIPELINE RUNNER KERNELS SENNIT
set -u
make=$1 runner=$2 kernels=$3 sennit=$4
here=$(cd "$(dirname "$0")" && pwd)
models=$here/../data/models
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "FAILED: $*" >&2
    [ -f out ] && cat out >&2
    exit 1
}
"$make" "$runner" "$kernels" 2 2 one data p2_2 || fail make

rank_of() { tr '\0' '\n' < /proc/$1/environ 2> /dev/null | sed -n 's/^OMPI_COMM_WORLD_RANK=//p'; }
process_of() { # RANK: of the programs in our folder
    for entry in /proc/[0-9]*; do
        case $(readlink "$entry/exe" 2> /dev/null) in "$work"/*) [ "$(rank_of "${entry#/proc/}")" = "$1" ] && echo "${entry#/proc/}" ;; esac
    done
}
living() {
    for entry in /proc/[0-9]*; do
        case $(readlink "$entry/exe" 2> /dev/null) in "$work"/*) echo "${entry#/proc/}" ;; esac
    done
}
ended() { # SECONDS: the launcher ends within them, and so do the ranks
    local left=$(($1 * 10))
    while kill -0 $launcher 2> /dev/null; do
        left=$((left - 1))
        [ $left -gt 0 ] || fail "it goes on"
        sleep 0.1
    done
    wait $launcher
    status=$?
    for _ in $(seq 30); do [ -z "$(living)" ] && return || sleep 0.1; done
    fail "ranks stay: $(living)"
}
says() { grep -qE -- "$1" out || fail "no word of $1"; }
place='step [0-9]+, (micro-batch [0-2], )?(forward|backward|update): [a-z_]+ #[0-9]+ of (forward|backward|update)|step [0-9]+, (between steps|reading data|between programs)'

lose() { # SIGNAL RANK WORDS
    rm -f log out
    "$here/mpirun.sh" 4 ./p2_2 --data data --steps 100000000 --quiet --log log --timeout 4 > out 2>&1 &
    launcher=$!
    for _ in $(seq 600); do [ "$(wc -l 2> /dev/null < log || echo 0)" -gt 20 ] && break || sleep 0.1; done
    kill -"$1" $(process_of "$2") || fail "rank $2 cannot be found"
    ended 30
    [ $status != 0 ] || fail "status 0"
    says "error\[E0717\]: rank $2 $3"
    says "it was last seen at ($place)"
    says "rank [0-3] (waits|is) at ($place)"
    [ "$(grep -c '^error' out)" = 1 ] || fail "not one error"
}
for rank in 0 1 3; do
    lose KILL $rank "is gone"
    lose STOP $rank "has not been heard of"
done

# A hang in a kernel; the stages' peers wait in receives, and the message knows the ONNX nodes.
for rank in 0 2; do
    HANG=$rank:40 "$here/mpirun.sh" 4 ./p2_2 --data data --steps 1000 --quiet --timeout 3 > out 2>&1 &
    launcher=$!
    ended 30
    [ $status = 1 ] || fail "status $status"
    says "error\[E0717\]: rank $rank hangs: no progress for [0-9]+ s"
    says 'last seen at step [0-9]+, micro-batch [0-2], (forward|backward): kernel #0 of (forward|backward) \("/(first/Mul|second/Gemm)"'
    says "rank $((2 - rank)) waits at step [0-9]+, micro-batch [0-2], (forward|backward): recv #[0-9]+ of (forward|backward) \\(\"/(first/Mul|second/Gemm)\""
done

# Ranks that wait for each other; the proof knows it beforehand.
"$make" "$runner" "$kernels" 2 1 stuck data stuck || fail make
"$sennit" prove stuck > out 2>&1 && fail "a deadlock is proved sound"
says 'deadlock: nobody can go on; recv #0 of forward .*rank class 0 waits; recv #0 of forward .*rank class 1 waits'
"$here/mpirun.sh" 2 ./stuck --data data --steps 10 --quiet --timeout 2 > out 2>&1 &
launcher=$!
ended 30
[ $status = 1 ] || fail "status $status"
says 'error\[E0717\]: all ranks have waited for each other for 2 s'
says 'rank 0 waits at step 1, micro-batch 0, forward: recv #0 of forward'
says 'rank 1 waits at step 1, micro-batch 0, forward: recv #0 of forward'

# Slow is not lost: seven seconds in one kernel, with a patience of two.
SPIN=2:40 timeout 60 "$here/mpirun.sh" 4 ./p2_2 --data data --steps 30 --quiet --timeout 2 --log slow > out 2>&1 ||
    fail "a slow rank ends the run"
[ "$(wc -l < slow)" = 30 ] || fail "not all steps"

# The whole command, compiled from a model: status 1.
rm -f log
TMPDIR=$work "$sennit" train "$models/gpt2/dynamo-21-raw-loss-dyn.onnx" --data "$models/gpt2/data" --batch 8 \
    --mesh pp=2,microbatches=4 --steps 100000000 --log log --quiet > out 2>&1 &
launcher=$!
for _ in $(seq 600); do [ "$(wc -l 2> /dev/null < log || echo 0)" -gt 5 ] && break || sleep 0.1; done
kill -KILL $(process_of 1)
ended 30
[ $status = 1 ] || fail "sennit train: status $status"
says "error\[E0717\]: rank 1 is gone"
says 'step [0-9]+, '
echo passed
