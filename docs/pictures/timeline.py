#!/usr/bin/env python3
"""timeline.py TRACE.json PAGE.html: a Chrome trace as a picture, a row for each thread, coloured by what an instruction
belongs to as in sennit's report."""

import json
import sys

WIDTH, LEFT, ROW, BAR = 1160, 200, 32, 24
COLOURS = {"forward": "#4c78a8", "backward": "#d9772e", "update": "#4c9447"}
COMMUNICATION = "#8c4fa3"


def colour(event):
    kind = event["name"].split()[0]
    if kind in ("send", "recv", "message") or kind.startswith(("all_", "reduce_")):
        return COMMUNICATION
    return COLOURS.get(event["cat"].split("_")[0], "#999")


def main():
    with open(sys.argv[1]) as file:
        events = json.load(file)["traceEvents"]
    named = {"process_name": {}, "thread_name": {}}
    for e in events:
        if e["ph"] == "M":
            named[e["name"]][(e["pid"], e["tid"]) if e["name"] == "thread_name" else e["pid"]] = e["args"]["name"]
    work = [e for e in events if e["ph"] == "X"]
    rows = sorted({(e["pid"], e["tid"]) for e in work})
    end = max(e["ts"] + e["dur"] for e in work)
    scale = (WIDTH - LEFT) / end
    shapes = []
    for i, row in enumerate(rows):
        y = i * ROW
        shapes.append(f'<text x="0" y="{y + 12}">{named["process_name"].get(row[0], row[0])}</text>'
                      f'<text x="0" y="{y + 24}" class="small">{named["thread_name"].get(row, row[1])}</text>')
        for e in work:
            if (e["pid"], e["tid"]) == row:
                shapes.append(f'<rect x="{LEFT + e["ts"] * scale:.2f}" y="{y}" width="{max(e["dur"] * scale, 0.1):.2f}" '
                              f'height="{BAR}" fill="{colour(e)}"/>')
    base, step = len(rows) * ROW + 4, 10000
    for tick in range(0, int(end) + 1, step):
        x = LEFT + tick * scale
        shapes.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{base}" stroke="#888" stroke-width="0.5" opacity="0.5"/>'
                      f'<text x="{x + 3}" y="{base + 8}" class="small">{tick // 1000} ms</text>')
    with open(sys.argv[2], "w") as file:
        file.write(f'<!doctype html><meta charset="utf-8"><style>text{{font:13px sans-serif}}.small{{font-size:10px;'
                   f'fill:#666}}</style><svg width="{WIDTH}" height="{base + 20}">{"".join(shapes)}</svg>')


main()
