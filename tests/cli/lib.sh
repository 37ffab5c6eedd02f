# Sourced by the scripts here: expect STATUS PATTERN COMMAND…: the exit status, and a line of the output (both streams)
# that the regular expression PATTERN matches; never PATTERN COMMAND…: it ends well, and no line matches. The script ends with `exit $failures`.
failures=0
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

expect() {
    status=$1 pattern=$2
    shift 2
    code=0
    "$@" >"$tree/output" 2>&1 || code=$?
    if [ $code -ne "$status" ] || ! grep -qE -- "$pattern" "$tree/output"; then
        echo "$0: $*: status $code (expected $status), output should match '$pattern':" >&2
        head -20 "$tree/output" >&2
        failures=1
    fi
}

never() {
    pattern=$1
    shift
    code=0
    "$@" >"$tree/output" 2>&1 || code=$?
    if [ $code -ne 0 ] || grep -E -- "$pattern" "$tree/output" >&2; then
        echo "$0: $*: status $code (expected 0), no output should match '$pattern'" >&2
        failures=1
    fi
}
