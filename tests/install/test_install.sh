#!/bin/sh
# test_install.sh BUILD_FOLDER VERSION: what `cmake --install` puts in place is complete, and works from there.
set -eu
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

DESTDIR= cmake --install "$1" --prefix "$prefix" >/dev/null
test "$("$prefix/bin/sennit" --version)" = "sennit $2"
test -x "$prefix/bin/sennit-rank"
"$prefix/bin/sennit" --help >/dev/null

# The header that a plug-in needs stands alone: no other file of ours, in strict C17 and in C++ alike.
header=$prefix/include/sennit/plugin.h
test -f "$header"
cc -std=c17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c "$header"

# Completion is generated from the table of options.
grep -q 'sennit' "$prefix/share/bash-completion/completions/sennit"
