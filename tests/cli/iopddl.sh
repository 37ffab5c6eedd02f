#!/bin/bash
# iopddl.sh SENNIT: a contest problem is solved to its known optimum, plain and compressed; what cannot be read, solved
# or written is diagnosed and leaves no file.
set -u
sennit=$1
. "$(dirname "$0")/lib.sh"
example=$(cd "$(dirname "$0")/../.." && pwd)/tests/data/iopddl/example.json
solution=$tree/solution.json

# refused PATTERN PROBLEM: status 1, the message, and no solution
refused() {
    expect 1 "$1" "$sennit" iopddl "$2" --work 100000 -o "$solution"
    [ ! -e "$solution" ] || {
        echo "$0: $2 is refused, but a solution was written" >&2
        failures=1
    }
}

expect 0 '"cost": 445, "lower_bound": 445' "$sennit" iopddl "$example" --work 100000
gzip -c "$example" >"$tree/example.json.gz"
expect 0 '"cost": 445, "lower_bound": 445' "$sennit" iopddl "$tree/example.json.gz" --work 100000 -o "$solution"
grep -qE '^\[[0-9]+(, [0-9]+){4}\]$' "$solution" || {
    echo "$0: no list of five strategies: $(cat "$solution")" >&2
    failures=1
}
rm "$solution"

refused 'E0492.*No such file' "$tree/missing.json"
refused 'E0492.*not a regular file' "$tree"
head -c 300 "$example" >"$tree/short.json"
refused 'E0490.*the text ends too early' "$tree/short.json"
head -c 100 "$tree/example.json.gz" >"$tree/short.json.gz"
refused 'E049[02]' "$tree/short.json.gz"
head -c 4000 /dev/zero >"$tree/zero.json.gz"
refused "E0490.*line 1: expected '\{'" "$tree/zero.json.gz"
sed 's/\[15\]/["15"]/' "$example" >"$tree/text.json"
refused 'E0490.*line 1[0-9]: expected an integer' "$tree/text.json"
sed 's/\[55, 65\]/[55.5, 65]/' "$example" >"$tree/fraction.json"
refused 'E0490.*found a fraction' "$tree/fraction.json"
sed 's/\[30, 40\]/[30]/' "$example" >"$tree/cells.json"
refused 'E0491.*problem.edges.costs\[0\] has 1 entries' "$tree/cells.json"

# nothing keeps the limit: neither figure is a number
sed 's/"usage_limit": 50/"usage_limit": 5/' "$example" >"$tree/tight.json"
refused '"cost": null, "lower_bound": null' "$tree/tight.json"
refused 'E0493.*keeps the usage limit' "$tree/tight.json"

# a place that cannot be written is reported before the search: there is no line of figures
expect 1 'E0804.*No such file' "$sennit" iopddl "$example" --work 100000 -o "$tree/none/solution.json"
grep -q lower_bound "$tree/output" && {
    echo "$0: it searched before it looked at the output" >&2
    failures=1
}
exit $failures
