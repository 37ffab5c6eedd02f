#!/bin/sh
# check_commands.sh SENNIT FILE.md...: every `sennit` command in a shell block exists and knows the options it is given,
# and every script and program named there is in the tree.
set -eu
sennit=$1
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
status=0

complain() {
    echo "$1: $2" >&2
    status=1
}

# The shell blocks of a page: one command a line, continuation lines joined, comments gone.
commands() {
    awk '/^```/ { inside = ($0 == "```sh"); next }
         inside { sub(/ +# .*/, ""); if (sub(/ *\\$/, " ")) { line = line $0; next } print line $0; line = "" }' "$1"
}

# check PAGE WORD...: one command line.
check() {
    page=$1 && shift
    case $1 in
    sennit | build/tools/sennit)
        command=$2 && shift 2
        help=$("$sennit" "$command" --help 2>/dev/null) || { complain "$page" "no command: sennit $command" && return; }
        for word; do
            option=${word%%=*}
            case $option in
            --*) echo "$help" | grep -qE -- "(^|[ ,])$option( |\$)" || complain "$page" "sennit $command has no $option" ;;
            esac
        done
        ;;
    samples/* | tests/* | scripts/* | .ci/*)
        [ -x "$root/$1" ] || complain "$page" "no such program: $1"
        ;;
    esac
}

set -f # words such as --frozen '.*' are no file patterns
found=0
for page; do
    while read -r line; do
        [ -n "$line" ] || continue
        found=$((found + 1))
        check "$page" $line
    done <<END
$(commands "$page")
END
done
[ $found -gt 0 ] || complain "check_commands" "found no commands at all"
exit $status
