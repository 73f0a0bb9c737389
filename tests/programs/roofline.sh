#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# roofline.sh PAGE: at any width the labels of txbench's roofline lie apart from each other and within the
# picture, by the rectangles that the SVG gives them. Roofs near each other, as a device's types often are.
page=$1
. "${0%/*}/../program.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[ -n "$browser" ] || { echo "skipped: no Chromium"; exit 77; }

# draw NAME ROOFS ROWS: a page with these
draw()
{
    cat > "$work/data" << END
{"version": "0", "what": "ops", "name": "$1", "command": "txbench ops", "device": "a device", "platform": "p", "driver": "1",
 "peaks": {"copy_gbytes": 100, "copy_bytes": 268435456, "launch_seconds": 1e-6, "alone_seconds": 1e-5, "product_gflops": {$2}},
 "rows": [$3]}
END
    awk -v folder="${page%/*}" -v data="$(tr '\n' ' ' < "$work/data")" '
        match($0, /@[a-z]+[.](css|js)@/) {
            file = folder "/" substr($0, RSTART + 1, RLENGTH - 2); rest = substr($0, RSTART + RLENGTH)
            while ((getline < file) > 0) print
            $0 = rest
        }
        { at = index($0, "@DATA@"); if (at) $0 = substr($0, 1, at - 1) data substr($0, at + 6); print }' "$page" > "$work/$1.html"
}

# row X Y: an op of that intensity and rate
row()
{
    printf '%s{"name": "op", "case": "c", "group": "g", "variant": "v", "bound": "copy", "seconds": 1e-3, "flops": %s, "bytes": 1000, "gflops": %s, "gbytes": 1, "share": 0.5, "spread": 0.01, "attainable_gflops": 9}' \
        "${3:-, }" "$1" "$2"
}
few="$(row 100 5 ' ')$(row 20000 700)$(row 900000 880)"
wide="$(row 1 0.01 ' ')$(row 90000000 90000)"
draw near '"f32": 900, "bf16": 950, "f16": 940, "tf32": 945' "$few"
draw one '"f32": 900' "$few"
draw far '"f32": 900, "bf16": 90000, "f16": 30' "$wide"

for case in near:5 one:2 far:4; do
    name=${case%:*}
    for width in 400 1200 2000; do
        timeout 100 "$browser" --headless --no-sandbox --disable-gpu --window-size=$width,900 --dump-dom "file://$work/$name.html" \
            > "$work/dom" 2> /dev/null
        # Each text as "left right top bottom"; a label has its own width, a number of the axes about 6.7 a character.
        tr '\n' ' ' < "$work/dom" | sed 's/<svg/\n<svg/; s/<\/svg>/\n/' | grep '^<svg' | sed 's/<text/\n<text/g' > "$work/texts"
        awk -v wanted="${case#*:}" '
            function value(name) { return match($0, " " name "=\"[^\"]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : "" }
            NR == 1 { canvas = value("width"); next }
            {
                text = $0; sub(/^[^>]*>/, "", text); sub(/<.*/, "", text)
                size = value("textLength") ? value("textLength") : 6.7 * length(text)
                left[NR] = value("x") - (value("text-anchor") == "end" ? size : value("text-anchor") == "middle" ? size / 2 : 0)
                right[NR] = left[NR] + size; top[NR] = value("y") - 11; bottom[NR] = value("y") + 3; name[NR] = text
                roofs += value("class") == "roof"
                if (!(left[NR] >= -1 && right[NR] <= canvas + 8)) { print text ": outside, " left[NR] " to " right[NR] " of " canvas; bad = 1 }
                for (i = 2; i < NR; i++)
                    if (left[NR] < right[i] && left[i] < right[NR] && top[NR] < bottom[i] && top[i] < bottom[NR]) { print text " lies on " name[i]; bad = 1 }
            }
            END { if (roofs != wanted) { print roofs " labels"; bad = 1 } exit bad }' "$work/texts" > "$work/out" ||
            fail "$name at $width"
    done
done

[ $failures -eq 0 ] && echo "all good"
exit $((failures != 0))
