#!/bin/sh
# The check itself must notice an arrow the wrong way, and accept the right ones.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

mkdir "$tree/base" "$tree/ir" "$tree/backend" "$tree/runtime"
echo '#include "base/str.h"' >"$tree/ir/good.c"
echo '#include "runtime/schedule.h"' >"$tree/backend/good.c"
"$here/arrows.sh" "$tree"

expect_refusal() {
    echo "$2" >"$tree/$1"
    if "$here/arrows.sh" "$tree" >/dev/null 2>&1; then
        echo "not noticed: $1: $2" >&2
        exit 1
    fi
    rm "$tree/$1"
}
expect_refusal base/bad.c '#include "ir/graph.h"'
expect_refusal runtime/bad.h '#  include "ir/graph.h"'
expect_refusal backend/bad.c '#include "runtime/exec/exec.h"'
expect_refusal ir/bad.c '#include "graph.h"'
