# SPDX-License-Identifier: Apache-2.0
# Checks that the texts of a picture do not overlap and are within it. Line 1 is its <svg ...>, and each further line
# begins with <text or <tspan. A text with textLength has that width. Others have about 6.7 a character, bold ones (class
# "name") 8. `wanted` is the number of texts with the class "roof", or empty for any number.
function value(name) { return match($0, " " name "=\"[^\"]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : "" }
NR == 1 { canvas = value("width"); next }
value("x") == "" { next }
{
    text = $0; sub(/^[^>]*>/, "", text); sub(/<.*/, "", text)
    size = value("textLength") ? value("textLength") : (value("class") == "name" ? 8 : 6.7) * length(text)
    left[NR] = value("x") - (value("text-anchor") == "end" ? size : value("text-anchor") == "middle" ? size / 2 : 0)
    right[NR] = left[NR] + size; top[NR] = value("y") - 11; bottom[NR] = value("y") + 3; name[NR] = text
    roofs += value("class") == "roof"
    if (!(left[NR] >= -1 && right[NR] <= canvas + 8)) { print text ": outside, " left[NR] " to " right[NR] " of " canvas; bad = 1 }
    for (i = 2; i < NR; i++)
        if ((i in left) && left[NR] < right[i] && left[i] < right[NR] && top[NR] < bottom[i] && top[i] < bottom[NR]) { print text " lies on " name[i]; bad = 1 }
}
END { if (wanted != "" && roofs != wanted) { print roofs " labels"; bad = 1 } if (NR < 3) { print "no texts"; bad = 1 } exit bad }
