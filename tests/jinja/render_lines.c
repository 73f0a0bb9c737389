/* SPDX-License-Identifier: Apache-2.0
 * Renders templates for check_jinja.py: a line of JSON {"template", "said", "given"} each, answered by one of
 * {"text", "flags", "turns"} or {"error"}. */
#include "models/jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tx_status render(const tx_json *line, tx_json *answer)
{
    const char *text;
    size_t size;
    tx_json *said, *given, *turns = tx_json_array();
    tx_jinja *jinja = NULL;
    tx_jinja_text made = {0};
    tx_status status = tx_json_get_text(line, "template", &text, &size);
    TX_THEN(status, tx_json_get(line, "said", TX_JSON_OBJECT, &said));
    TX_THEN(status, tx_json_get(line, "given", TX_JSON_OBJECT, &given));
    TX_THEN(status, tx_jinja_parse(text, size, &jinja));
    TX_THEN(status, tx_jinja_render(jinja, said, given, &made));
    TX_THEN(status, tx_json_set_text(answer, "text", made.bytes.data ? made.bytes.data : "", made.bytes.size));
    for (size_t i = 0; i < made.flags.size && !status; i++)
        made.flags.data[i] = (char)('0' + made.flags.data[i]);
    TX_THEN(status, tx_json_set_text(answer, "flags", made.flags.data ? made.flags.data : "", made.flags.size));
    for (size_t i = 0; i < made.turns && !status; i++) {
        TX_THEN(status, tx_json_append_int(turns, (int64_t)made.turn[i].message));
        TX_THEN(status, tx_json_append_int(turns, (int64_t)made.turn[i].begin));
        TX_THEN(status, tx_json_append_int(turns, (int64_t)made.turn[i].end));
    }
    if (status)
        tx_json_free(turns);
    TX_THEN(status, tx_json_set(answer, "turns", turns));
    tx_jinja_text_free(&made);
    tx_jinja_free(jinja);
    return status;
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    for (ssize_t size; (size = getline(&line, &room, stdin)) > 0;) {
        tx_json *json = NULL, *answer = tx_json_object();
        tx_status status = tx_json_parse_line(line, (size_t)size - 1, "line", &json);
        TX_THEN(status, render(json, answer));
        if (status)
            tx_json_set_string(answer, "error", tx_error());
        char *text = tx_json_text(answer, TX_JSON_LINE);
        puts(text ? text : "{}");
        free(text);
        tx_json_free(answer);
        tx_json_free(json);
    }
    free(line);
    return 0;
}
