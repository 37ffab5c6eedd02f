#!/bin/sh
# format.sh ROOT CLANG_FORMAT: every C file is as clang-format would write it.
set -eu
cd "$1"
find base ir include frontend passes backend runtime tools tests samples -name '*.[ch]' -not -path '*/data/*' -print0 |
    xargs -0 "$2" --dry-run -Werror
