#!/bin/sh
# run.sh SECONDS PROGRAM DICTIONARY|- SEEDS: fuzzes for a while, starting from the files in the folder SEEDS. What it
# finds lies in PROGRAM.corpus; an input that fails is printed and kept beside it.
set -eu
seconds=$1 program=$2 dictionary=$3 seeds=$4
corpus=$program.corpus
mkdir -p "$corpus"
[ "$dictionary" = - ] || set -- -dict="$dictionary"
[ "$dictionary" != - ] || set --
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1
exec "$program" "$@" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=12288 -print_final_stats=1 \
    -artifact_prefix="$program-" "$corpus" "$seeds"
