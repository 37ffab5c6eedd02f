#!/bin/bash
# opt.sh SENNIT: the pass manager's options: pipelines, cutting and bisecting them, dumps, times; bad input and output.
set -u
sennit=$1
. "$(dirname "$0")/lib.sh"
cat >"$tree/in.sir" <<'END'
sennit 1 graph
func @main(%x: f32[4]) {
  %one = constant() <value=1> : f32[]
  %a = mul(%x, %one) : f32[4]
  %b = exp(%a) : f32[4]
  %c = exp(%a) : f32[4]
  %d = add(%b, %c) : f32[4]
  return %d
}
END
opt() { "$sennit" opt "$tree/in.sir" "$@"; }

expect 0 '%d   = add\(%b, %c\)' opt
expect 0 'add\(%b, %b\)' opt --passes=canonicalize,cse,dce
expect 0 '^  cse  ' "$sennit" opt --list-passes
expect 0 '^fold-constants$' "$sennit" opt --print-pipeline
expect 0 '^fold-constants\{limit=64\}$' "$sennit" opt --print-pipeline '--passes=dce,fold-constants{limit=64}' --start-from=fold-constants
# canonicalize alone leaves both exponentials, whichever way the pipeline is cut
expect 0 'add\(%b, %c\)' opt --passes=canonicalize,cse --stop-after=canonicalize
expect 0 'add\(%b, %c\)' opt --passes=canonicalize,cse --pass-limit=1
expect 0 'mul\(%x, %one\)' opt --passes=canonicalize,cse --start-from=cse
expect 0 'ms verify .* ops  cse$' opt --passes=canonicalize,cse --time-passes

expect 0 'add' opt --passes=canonicalize,cse --dump-ir=after-all --dump-dir "$tree/dumps"
expect 0 '^sennit 1 graph' cat "$tree/dumps/01-canonicalize.sir"
expect 0 'add\(%b, %b\)' cat "$tree/dumps/02-cse.sir"
expect 0 'add' opt --passes=canonicalize,cse --dump-ir=before=cse --dump-dir "$tree/before"
expect 0 '^02-before-cse.sir$' ls "$tree/before"

expect 1 'E0811.*did you mean .dce' opt --passes=dcee
expect 1 'E0812' opt '--passes=dce{x'
expect 1 'E0812.*takes no arguments|E0812' opt '--passes=dce{x=1}'
expect 1 'E0813.*whole number' opt '--passes=fold-constants{limit=many}'
expect 1 'E0814.*no pass .cse' opt --passes=dce --stop-after=cse
expect 1 'E0815' opt --passes=dce --dump-ir=sometimes
expect 1 'E0816' opt --passes=dce --dump-ir=after-all --dump-dir /dev/null/dumps
expect 1 'E0817.*does not work on graph form' opt --passes=plan-memory
expect 1 'E0804' opt -o "$tree/absent/out.sir"
expect 1 'E0804' bash -c '"$1" opt "$2" >/dev/full' - "$sennit" "$tree/in.sir"
expect 1 'E0805' "$sennit" opt
expect 1 'E0801' "$sennit" opt "$tree/absent.sir"
expect 1 'E0801' "$sennit" opt "$tree"
expect 1 'at: .*in2.sir:2:1' bash -c 'echo "sennit 1 graph
frob" >"$2/in2.sir"; "$1" opt "$2/in2.sir"' - "$sennit" "$tree"
exit $failures
