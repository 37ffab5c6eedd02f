#!/bin/sh
# Builds sennit from whatever state the checkout is in and runs its tests: installs missing packages, configures, builds, ctest.
#
#   tests/run.sh                                every test
#   tests/run.sh -L parity                      the tests of one label (a regular expression, as ctest takes it)
#   tests/run.sh -R name                        the tests whose name matches
#   tests/run.sh --quick                        the labels unit and ir alone: seconds
#   tests/run.sh --sanitize address,undefined   the same in build-address-undefined, instrumented; also: thread
#
# The exit status is ctest's. CTEST_PARALLEL_LEVEL sets how many tests run at once (default: the cores).
set -eu
cd "$(dirname "$0")/.."

usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit "$1"
}

build=build
sanitize=""
while [ $# -gt 0 ]; do
    case $1 in
    -L | -R | --sanitize) [ $# -ge 2 ] || usage 2 ;;
    esac
    case $1 in
    -L) label=$2 && shift ;;
    -R) name=$2 && shift ;;
    --sanitize) sanitize=$2 && shift ;;
    --quick) label='^(unit|ir)$' ;;
    -h | --help) usage 0 ;;
    *) echo "run.sh: unknown option $1" >&2 && usage 2 ;;
    esac
    shift
done

scripts/install-debian.sh
if [ -n "$sanitize" ]; then
    build=build-$(echo "$sanitize" | tr , -)
fi
cmake -G Ninja -B $build -DSENNIT_SANITIZE="$sanitize" >$build.log 2>&1 || { cat $build.log && exit 1; }
rm -f $build.log
ninja -C $build

# Reports about the insides of libgomp, Open MPI and oneDNN, which are not instrumented, are not about sennit.
here=$PWD/tests/sanitizers
export ASAN_OPTIONS="detect_stack_use_after_return=1:${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$here/lsan.supp:print_suppressions=0:${LSAN_OPTIONS:-}"
export TSAN_OPTIONS="suppressions=$here/tsan.supp:ignore_noninstrumented_modules=1:${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
# Root in a container, and more ranks than cores, are both normal here.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export CTEST_PARALLEL_LEVEL="${CTEST_PARALLEL_LEVEL:-$(nproc)}"

exec ctest --test-dir $build --output-on-failure --no-tests=error --output-log $build/ctest.log \
    ${label:+-L "$label"} ${name:+-R "$name"}
