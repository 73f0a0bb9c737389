#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# roofline.sh FOLDER(tools/bench): at any width the labels of the roofline in a report are apart from each other and
# within the picture, by the rectangles that the SVG gives them. Roofs near each other, as a device's types often are.
folder=$1
. "${0%/*}/../program.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[ -n "$browser" ] || { echo "skipped: no Chromium"; exit 77; }

cat > "$work/page" << 'END'
<!doctype html>
<meta charset="utf-8">
<style>
@page.css@</style>
<main></main>
<script type="application/json" id="data">@DATA@</script>
<script>
(() => {
@page.js@
@roofline.js@
drawRoofline(main, data);
})();
</script>
END

# draw NAME ROOFS ROWS: a page with these
draw()
{
    cat > "$work/data" << END
{"version": "0", "what": "ops", "name": "$1", "command": "txbench ops", "device": "a device", "platform": "p",
 "driver": "1",
 "peaks": {"copy_gbytes": 100, "copy_bytes": 268435456, "launch_seconds": 1e-6, "alone_seconds": 1e-5,
 "product_gflops": {$2}},
 "rows": [$3]}
END
    awk -v folder="$folder" -v data="$(tr '\n' ' ' < "$work/data")" '
        match($0, /@[a-z]+[.](css|js)@/) {
            part = substr($0, RSTART + 1, RLENGTH - 2); rest = substr($0, RSTART + RLENGTH); found = 0
            while ((getline < (folder "/" part)) > 0) { print; found = 1 }
            if (!found) while ((getline < (folder "/../cli/" part)) > 0) print
            $0 = rest
        }
        { at = index($0, "@DATA@"); if (at) $0 = substr($0, 1, at - 1) data substr($0, at + 6); print }' "$work/page" \
    > "$work/$1.html"
}

# row X Y: an op of that intensity and rate
row()
{
    first='"name": "op", "case": "c", "group": "g", "variant": "v", "bound": "copy", "seconds": 1e-3'
    last='"gbytes": 1, "share": 0.5, "spread": 0.01, "attainable_gflops": 9'
    printf '%s{%s, "flops": %s, "bytes": 1000, "gflops": %s, %s}' "${3:-, }" "$first" "$1" "$2" "$last"
}
few="$(row 100 5 ' ')$(row 20000 700)$(row 900000 880)"
wide="$(row 1 0.01 ' ')$(row 90000000 90000)"
draw near '"f32": 900, "bf16": 950, "f16": 940, "tf32": 945' "$few"
draw one '"f32": 900' "$few"
draw far '"f32": 900, "bf16": 90000, "f16": 30' "$wide"

for case in near:5 one:2 far:4; do
    name=${case%:*}
    for width in 400 1200 2000; do
        timeout 100 "$browser" --headless --no-sandbox --disable-gpu --window-size=$width,900 \
            --dump-dom "file://$work/$name.html" \
            > "$work/dom" 2> /dev/null
        tr '\n' ' ' < "$work/dom" | sed 's/<svg/\n<svg/; s/<\/svg>/\n/' | grep '^<svg' |
            sed 's/<text/\n<text/g' > "$work/texts"
        awk -v wanted="${case#*:}" -f "${0%/*}/labels.awk" "$work/texts" > "$work/out" ||
            fail "$name at $width"
    done
done

verdict
