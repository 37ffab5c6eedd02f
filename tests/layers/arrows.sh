#!/bin/sh
# arrows.sh ROOT: every #include "..." in a layer must point at the layer itself or at one it may see:
#
#   base <- ir <- { frontend, passes } <- backend <- tools        runtime sees base alone
#
# backend may also read runtime/schedule.h, mesh.h, operands.h and package.h, the contract between the two; a plug-in's header stands alone.
set -eu
cd "$1"

# What LAYER may include, as an extended regular expression over the path between the quotes.
sees() {
    case $1 in
    base) echo 'base/' ;;
    ir) echo '(base|ir)/' ;;
    frontend) echo '(base|ir|frontend)/|onnx\.pb-c\.h"' ;;
    passes) echo '(base|ir|passes|sennit)/' ;;
    backend) echo '(base|ir|frontend|passes|backend|sennit)/|runtime/(schedule|mesh|operands|package)\.h"' ;;
    runtime) echo '(base|runtime)/' ;;
    include) echo 'sennit/' ;;
    esac
}

status=0
for layer in base ir frontend passes backend runtime include; do
    [ -d $layer ] || continue
    if grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' --include='*.[ch]' --include='*.def' $layer |
        grep -vE ":[[:space:]]*#[[:space:]]*include[[:space:]]*\"($(sees $layer))"; then
        echo "arrows: $layer must not include the above" >&2
        status=1
    fi
done
exit $status
