# Sourced by the scripts here: expect STATUS PATTERN COMMAND…: the exit status, and a line of the output (both streams)
# that the regular expression PATTERN matches. The script ends with `exit $failures`.
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
