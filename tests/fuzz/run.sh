#!/bin/sh
# run.sh RUNS SECONDS PROGRAM DICTIONARY|- ARGUMENTS…: a fuzzer with further ARGUMENTS: folders of files that it runs
# first and starts from (among them an input for each fault that was found), options. An input that fails is printed and
# kept beside PROGRAM.
#
# SECONDS 0 is the test: RUNS inputs from a fixed seed and a fresh corpus. It counts inputs, not seconds, and keeps
# nothing, so that the same program tries the same inputs on every machine and every day: what fails it is the change at
# hand, not the luck of the draw. Its time limits are for hangs, and wide: a busy machine is none.
#
# Any other SECONDS looks for new faults for that long: a new seed each time, and a corpus that grows in PROGRAM.corpus.
# `cmake -DSENNIT_FUZZ_EXPLORE=600 build && ctest --test-dir build -L fuzz` does so.
set -eu
runs=$1 seconds=$2 program=$3 dictionary=$4
shift 4
[ "$dictionary" = - ] || set -- "$@" -dict="$dictionary"
if [ "$seconds" = 0 ]; then
    corpus=$(mktemp -d)
    trap 'rm -rf "$corpus"' EXIT
    set -- "$@" -seed=1 -runs="$runs" -max_total_time=600 -timeout=300
else
    corpus=$program.corpus
    mkdir -p "$corpus"
    set -- "$@" -max_total_time="$seconds" -timeout=60
fi
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1
"$program" -rss_limit_mb=2048 -max_len=12288 -print_final_stats=1 -artifact_prefix="$program-" "$corpus" "$@"
