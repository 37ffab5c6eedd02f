#!/bin/sh
# planner_usage.sh PLANNER DATA: what the planner says to wrong command lines and wrong files.
set -eu
. "$(dirname "$0")/../cli/lib.sh"
planner=$1 data=$2
graph=$data/pipedream/alexnet.graph.txt
piper=$(ls "$data"/piper/*.json | head -1)

expect 0 '^usage: planner --format' "$planner" --help
expect 2 '^usage: planner --format' "$planner"
expect 2 "no such format 'pipedreams'" "$planner" --format pipedreams "$graph"
expect 2 "no file for format 'piper'" "$planner" --format piper
expect 2 "unknown argument '--devices'" "$planner" --format pipedream "$graph" -n 4 -b 1e9 --devices 4
expect 2 "no number behind '--nodes'" "$planner" --format dapple "$graph" --nodes many
expect 2 "no number above 0 behind '--memory'" "$planner" --format piper "$piper" --memory 0
expect 2 "no number above 0 behind '--bandwidth'" "$planner" --format piper "$piper" --bandwidth 0
expect 2 "no integer from 1 to .* behind '--layers'" "$planner" --format piper "$piper" --layers -3
expect 2 "no integer from 1 to .* behind '--devices'" "$planner" --format piper "$piper" --devices 999999999999
expect 1 'maxFPGAs must be an integer' "$planner" --format dnn-partitioning "$piper"
expect 1 'a batch of 10 has no whole micro-batches of 7' "$planner" --format dapple "$graph" --micro-batch 7 --global-batch 10
expect 1 '-n and -b take one number a level' "$planner" --format pipedream "$graph" -n 4 4 -b 1e9
expect 1 'level 0: no machines' "$planner" --format pipedream "$graph" -n 0 -b 1e9
expect 1 'none.json: unable to open .*No such file' "$planner" --format piper none.json

printf 'node1 -- Linear -- forward_compute_time=1, backward_compute_time=2, activation_size=3\n' >"$tree/short.txt"
expect 1 'has no parameter_size' "$planner" --format dapple "$tree/short.txt"
printf '\tnode1 -- node2\n' >"$tree/edges.txt"
expect 1 "an edge names 'node1', which is no node" "$planner" --format dapple "$tree/edges.txt"
echo '{"maxDevices": 2, "nodes": []}' >"$tree/empty.json"
expect 1 'no nodes' "$planner" --format piper "$tree/empty.json"
echo '{"nodes": [{"id": 1}, {"id": 2}], "edges": [{"sourceId": 1, "destId": 3}]}' >"$tree/edge.json"
expect 1 'no node has the id 3' "$planner" --format dnn-partitioning "$tree/edge.json"

# An instance that no plan fits is an answer, not an error.
expect 0 '"objective": null' "$planner" --format nnscaler "$data/nnscaler_style/chain7x3_10.json" --memory 10
exit $failures
