#!/bin/sh
# published.sh PROGRAM SOURCE: holds the cost model's errors against what it promises (docs/cost-model.md), on the sample
# in tests/data/published, and on all rows when the shared data is at hand; then the generated page must be current.
set -eu
program=$1
source=$2
shared=${SENNIT_SHARED:-$source/../shared}/data/published
tree=$(mktemp -d)
trap 'rm -r "$tree"' EXIT

# check FOLDER FILE FIELD MOST: a field of a file's score is at most MOST, in per cent.
check() {
    value=$(tail -n 1 "$tree/out" | grep -o "\"$2\": {[^}]*}" | grep -o "\"$3\": [-0-9.]*" | sed 's/.*: //')
    [ -n "$value" ] || { echo "published: no $3 of $2 in $1" >&2; exit 1; }
    awk -v value="$value" -v most="$4" 'BEGIN { exit !(value <= most) }' || {
        echo "published: $3 of $2 in $1 is $value %, more than $4 %" >&2
        exit 1
    }
}

# never_under FOLDER FILE LEAST: memory is a promise, so no row of a file is predicted smaller by more than that.
never_under() {
    value=$(tail -n 1 "$tree/out" | grep -o "\"$2\": {[^}]*}" | grep -o '"memory_under": [-0-9.]*' | sed 's/.*: //')
    [ -n "$value" ] || { echo "published: no memory_under of $2 in $1" >&2; exit 1; }
    awk -v value="$value" -v least="$3" 'BEGIN { exit !(value >= -least) }' || {
        echo "published: a memory of $2 in $1 is predicted $value % too small, more than $3 %" >&2
        exit 1
    }
}

# A sample of few rows may be further off than the whole.
"$program" "$source/tests/data/published" >"$tree/out"
check sample steps_vtrain_single.csv mape 18
check sample steps_vtrain_multi.csv mape 12
check sample steps_llm_foundry_fsdp.csv mape 16
check sample steps_mlperf.csv mape 12
check sample steps_megatron_papers.csv mape 8
check sample steps_simumax.csv memory_mape 3
check sample memory_megatron_ci.csv memory_mape 6
never_under sample steps_simumax.csv 3
never_under sample memory_megatron_ci.csv 3

if [ ! -d "$shared" ]; then
    echo "published: $shared is not at hand; the sample was checked alone"
    exit 0
fi
"$program" "$shared" >"$tree/out"
check all steps_vtrain_single.csv mape 12
check all steps_vtrain_multi.csv mape 12
check all steps_llm_foundry_fsdp.csv mape 12
check all steps_mlperf.csv mape 12
check all steps_megatron_papers.csv mape 8
check all steps_simumax.csv memory_mape 3
check all memory_megatron_ci.csv memory_mape 6
never_under all steps_simumax.csv 3
never_under all memory_megatron_ci.csv 3

"$program" "$shared" --table >"$tree/page"
[ -z "${SENNIT_UPDATE:-}" ] || cp "$tree/page" "$source/docs/cost-model-errors.md"
diff -u "$source/docs/cost-model-errors.md" "$tree/page" ||
    { echo "published: docs/cost-model-errors.md is stale; SENNIT_UPDATE=1 ctest -L cost writes it" >&2; exit 1; }
