#!/bin/sh
# test_tokenize.sh TOKENIZE SHAKESPEARE: tokens follow code points, the split is 90 to 10, damaged text is refused.
set -eu
tokenize=$1
shakespeare=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

printf 'b\303\251a\342\202\254\360\237\230\200bbbbb' >"$out/text" # b é a € 😀 b b b b b
"$tokenize" "$out/text" "$out"
test "$(od -An -v -tu1 "$out/train.bin" | tr -s ' \n' ' ')" = ' 1 0 2 0 0 0 3 0 4 0 1 0 1 0 1 0 1 0 '
test "$(od -An -v -tu1 "$out/val.bin" | tr -s ' \n' ' ')" = ' 1 0 '
test "$(cat "$out/characters.txt")" = 'abé€😀'

for damaged in '\377' 'a\303' 'a\303b' '\300\200'; do
    printf "$damaged" >"$out/text"
    if "$tokenize" "$out/text" "$out" 2>"$out/error"; then
        echo "accepted: $damaged" >&2
        exit 1
    fi
    grep -q 'not UTF-8' "$out/error"
done

"$tokenize" "$shakespeare" "$out" | grep -q '^1115394 characters, 65 distinct: 1003854 to train, 111540 to validate$'
