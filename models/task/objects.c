/* SPDX-License-Identifier: Apache-2.0
 * Reads the objects of a JSON file for the tasks whose samples are objects. */
#include "models/task/objects.h"

#include "api/base/file.h"
#include "models/text/lines.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void tx_objects_close(tx_objects *o)
{
    free(o->text);
    tx_json_free(o->array);
    free(o->lines);
}

static tx_status index_lines(tx_objects *o, size_t begin, size_t size)
{
    int64_t number = 1;
    for (size_t at = begin; at < size; number++) {
        const char *newline = memchr(o->text + at, '\n', size - at);
        const size_t next = newline ? (size_t)(newline - o->text) + 1 : size;
        TX_TRY(tx_array_reserve(&o->lines, &o->room, o->count + 1, sizeof *o->lines, "lines"));
        if (!tx_line_is_blank(o->text + at, next - at))
            o->lines[o->count++] = (tx_object_line){at, next - at, number};
        at = next;
    }
    return TX_OK;
}

tx_status tx_objects_open(const char *path, tx_objects *o)
{
    size_t size, begin;
    TX_TRY(tx_file_read(path, INT64_MAX, &o->text, &size));
    TX_TRY(tx_text_begin(o->text, size, false, &begin));
    if (o->text[begin + strspn(o->text + begin, " \t\r\n")] == '[') {
        TX_TRY(tx_json_parse_line(o->text + begin, size - begin, "JSON", &o->array));
        o->count = tx_json_size(o->array);
    } else {
        TX_TRY(index_lines(o, begin, size));
    }
    return o->count ? TX_OK : tx_fail(TX_FORMAT, "holds no samples");
}

tx_status tx_objects_read(const tx_objects *o, size_t number, tx_json **own, const tx_json **object)
{
    *own = NULL;
    if (o->array) {
        *object = tx_json_at(o->array, number);
        return TX_OK;
    }
    TX_TRY(tx_json_parse_line(o->text + o->lines[number].at, o->lines[number].size, "JSON", own));
    *object = *own;
    return TX_OK;
}

tx_status tx_objects_fail(const tx_objects *o, size_t number, tx_status status)
{
    return o->array ? tx_fail_in(status, "element %zu", number + 1)
                    : tx_fail_in(status, "line %" PRId64, o->lines[number].number);
}

bool tx_objects_skip(tx_objects *o, size_t number, int64_t most)
{
    if (o->bad >= most)
        return false;
    o->first_bad = o->bad++ ? o->first_bad : number;
    return true;
}

void tx_objects_report(const tx_objects *o, const char *path, const tx_reporter *report)
{
    if (o->bad)
        tx_reporter_print(report, "%.800s: %" PRId64 " malformed %s skipped, the first is %s %" PRId64, path, o->bad,
                          o->array ? "elements are" : "lines are", o->array ? "element" : "line",
                          o->array ? (int64_t)o->first_bad + 1 : o->lines[o->first_bad].number);
}
