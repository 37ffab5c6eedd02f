#!/bin/sh
# draw.sh [SENNIT]: draws the pictures of this folder again: the report of a small pipeline, light and dark, and its
# timeline, predicted from a profile of this machine and measured. Needs chromium and Python (both of Debian); let the
# machine do nothing else meanwhile.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sennit=$(realpath "${1:-$here/../../build/tools/sennit}")
model=$here/../../samples/chargpt/model.onnx
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
what="--loss softmax_cross_entropy:logits,labels --dim seq=64"
head -c 40000 /dev/zero >tokens

# shot OUT.png WIDTH HEIGHT 0|1 PAGE.html: a picture of a page; 0: the browser prefers dark pages
shot() {
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 \
        --blink-settings="preferredColorScheme=$4" --window-size="$2,$3" --screenshot="$1" "file://$work/$5" 2>/dev/null
}

plan() { # plan FILE SCHEDULE
    "$sennit" plan "$model" $what --cluster local:2 --batch 32 --mesh "pp=2,microbatches=4,schedule=$2" -o "$1" >/dev/null
}

plan report.json zero-bubble
"$sennit" compile "$model" $what --plan report.json -o report
shot "$here/report-light.png" 1180 1640 1 report.d/report.html
shot "$here/report-dark.png" 1180 1640 0 report.d/report.html

plan timeline.json 1f1b
"$sennit" profile -o profile.json timeline.json
"$sennit" train "$model" $what --plan timeline.json --data tokens --steps 20 --threads 1 --quiet --trace run.trace
"$sennit" simulate timeline.json --profile profile.json --trace both.trace --measured run.trace
python3 "$here/timeline.py" both.trace timeline.html
shot "$here/timeline.png" 1180 240 1 timeline.html
