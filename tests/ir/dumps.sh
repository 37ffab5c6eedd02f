#!/bin/sh
# dumps.sh SENNIT MODULE.sir: what --dump-ir=after-all writes parses back to the same text, and passes go on from any
# dump to the same end.
set -eu
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
pipeline=$("$1" opt --print-pipeline | paste -sd,)
"$1" opt "$2" --passes="$pipeline" --dump-ir=after-all --dump-dir "$tree/dumps" -o "$tree/end.sir"
# the same constants lie in different side files
text() {
    sed 's/ from "[^"]*" at [0-9]*/ from a file/' "$1"
}
text "$tree/end.sir" >"$tree/end"
number=0
for pass in $(echo "$pipeline" | tr , ' '); do
    number=$((number + 1))
    dump=$tree/dumps/$(printf %02d $number)-$pass.sir
    [ -s "$dump" ] || { echo "dumps.sh: $dump is missing" >&2 && exit 1; }
    "$1" opt "$dump" -o "$tree/again.sir"
    diff "$dump" "$tree/again.sir"
    rest=$(echo "$pipeline" | cut -d, -f$((number + 1))-)
    # `--passes=` with nothing after it runs nothing
    "$1" opt "$dump" --passes="$rest" -o "$tree/rest.sir"
    text "$tree/rest.sir" | diff "$tree/end" - || { echo "dumps.sh: the end differs from $dump on" >&2 && exit 1; }
done
echo "$number dumps"
