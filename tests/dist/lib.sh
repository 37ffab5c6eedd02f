# Shared by the scripts of this folder. $1 of each is the sennit command.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers run tests as root
sennit=$1
models=$(cd "$(dirname "$0")/../data/models" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
cd "$work"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# losses LOG: the losses of a run, one a line.
losses() {
    sed -n 's/.*"loss": *\([-+0-9.e]*\).*/\1/p' "$1"
}

# same_numbers FILE FILE: as many lines, each equal to 1e-5 relative; says which are not.
same_numbers() {
    [ -s "$1" ] || return 1
    paste "$1" "$2" | awk '
        NF != 2 { bad = "the files differ in length"; exit }
        { d = $1 - $2; if (d < 0) d = -d; m = $2 < 0 ? -$2 : $2; if (!(d <= 1e-5 * m)) { bad = "line " NR ": " $1 " and " $2; exit } }
        END { if (bad) { print bad; exit 1 } }'
}

# same_losses LOG LOG: as many steps, with the same losses.
same_losses() {
    losses "$1" >a.txt
    losses "$2" >b.txt
    [ -s a.txt ] || fail "$1 has no losses"
    same_numbers a.txt b.txt || fail "$1 and $2 differ"
}
