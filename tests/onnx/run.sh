#!/bin/sh
# Runs ONNX's backend tests: run.sh --check|--update PROGRAM BUILD_FOLDER
# The tests come from the newest set at hand: the archive in the shared data, or Debian's libonnx-testdata (onnx 1.12).
# The table and the floors are about the archive; with Debian's set only wrong answers and crashes fail.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
mode=$1 program=$2 build=$3
archive=${SENNIT_SHARED:-$source/../shared}/data/onnx-v1.22-backend-tests.tar.xz
table=$source/tests/onnx/results.md
debian=/usr/share/libonnx-testdata/data
unpacked=$build/onnx-v1.22-backend-tests

# Node tests that must pass at least.
interpreted_floor=1200
compiled_floor=1000

if [ -f "$archive" ]; then
    if [ ! -f "$unpacked/.complete" ]; then
        tar -xJf "$archive" -C "$build"
        touch "$unpacked/.complete"
    fi
    [ "$mode" = --update ] && check= || check=--check
    exec "$program" --table "$table" $check --summary "$build/onnx-backend.json" \
        --floor-interpreted $interpreted_floor --floor-compiled $compiled_floor "$unpacked"
elif [ -d "$debian" ]; then
    exec "$program" --summary "$build/onnx-backend.json" "$debian"
fi
echo "skipped: neither $archive nor libonnx-testdata is here"
exit 77
