#!/bin/sh
# check.sh SENNIT FILECHECK MODULE.sir: runs `sennit opt` with the options of the module's "// RUN:" line and has
# FileCheck compare what it prints, standard error included. "// FAILS" in the module: the command must exit with 1.
set -u
options=$(sed -n 's|^// RUN: *||p' "$3")
expected=0
grep -q '^// FAILS' "$3" && expected=1
output=$(mktemp)
trap 'rm -f "$output"' EXIT
# shellcheck disable=SC2086 # options are words
"$1" opt "$3" $options >"$output" 2>&1
status=$?
if [ $status -ne $expected ]; then
    cat "$output"
    echo "check.sh: exit status $status instead of $expected" >&2
    exit 1
fi
"$2" --dump-input=fail "$3" <"$output"
