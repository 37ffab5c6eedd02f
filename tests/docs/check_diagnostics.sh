#!/bin/sh
# check_diagnostics.sh ROOT: docs/diagnostics.md has a row for every code in the source, and none besides; no error and no
# warning there lacks a way out.
set -eu
cd "$1"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
grep -rhoE '["[][EWR][0-9]{4}[]"]' --include='*.c' frontend ir passes backend runtime tools | tr -d '[]"' | sort -u >"$tree/used"
grep -oE '^\| [EWR][0-9]{4} ' docs/diagnostics.md | tr -d '| ' | sort >"$tree/documented"
[ -s "$tree/used" ]
diff "$tree/used" "$tree/documented" || { echo "< in the source alone, > on the page alone" >&2 && exit 1; }
if grep -nE '^\| [EW][0-9]{4} .*\| *\|$' docs/diagnostics.md; then
    echo "the page has no way out for these" >&2
    exit 1
fi
