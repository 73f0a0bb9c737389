/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of tx_chat_parser: parser.c finds thoughts, calls and text, calls.c reads calls, values.c converts values,
 * pieces.c reports pieces.
 *
 * A state is a function that examines bytes from `at`. It returns false if it needs more bytes; then it is called again
 * with them, from the same `at` on. It never examines a byte twice, except for the bytes of half a mark. */
#ifndef TX_CHAT_PARSER_H
#define TX_CHAT_PARSER_H

#include "models/tokenizer/buffer.h"
#include "models/tx_chat.h"

typedef enum tx_calls_kind {
    TX_CALLS_JSON,
    TX_CALLS_BARE,
    TX_CALLS_NAMED,
    TX_CALLS_KEYED,
    TX_CALLS_PYTHON,
    TX_CALLS_CHANNELS
} tx_calls_kind;

/* A row of forms.def. */
typedef struct tx_calls_form {
    const char *name;
    tx_calls_kind kind;
    const char *sign, *open, *begin, *name_end, *key, *key_end, *value, *value_end, *end, *close;
} tx_calls_form;

/* A position in a JSON value. */
typedef struct tx_json_scan {
    size_t depth;
    bool string, escape;
    char quote; /* of Python's string, or 0 */
} tx_json_scan;

typedef bool (*tx_parser_state)(tx_chat_parser *parser);

struct tx_chat_parser {
    tx_chat_parsing how;
    const tx_calls_form *form;          /* or NULL */
    const char *thought, *thought_end;  /* NULL if no thought can follow */
    const char *before;                 /* text that the template writes before an answer */
    tx_buffer held, special;            /* bytes; for each 1 if it is of a special token, which is no content */
    size_t from, at;                    /* in `held`: the first byte that is not reported, and not examined */
    tx_parser_state state, start, text; /* the present one; those of an answer's begin and of its text */
    bool ended;                         /* no more bytes follow */
    bool fresh;                         /* skip white space */
    bool announced, open;               /* a call is reported; more of its arguments follow */
    bool malformed;                     /* arguments of a call are no JSON */
    bool bare;                          /* a call without a mark */
    tx_chat_piece_kind body;            /* of a message with a header, or a thought */
    size_t value;                       /* in `held`: the begin of a key or value */
    tx_json_scan scan;
    tx_buffer name, arguments, key; /* of the call */
    bool late;                      /* `arguments` are known, but not reported */
    tx_status status;               /* the first failure */
};

/* ---- pieces.c -------------------------------------------------------------------------------------------- */

typedef enum tx_match { TX_MATCH_NO, TX_MATCH_HALF, TX_MATCH } tx_match;

static inline bool tx_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Compares the bytes at `at` with a mark, or with half of it at the end of the text so far. "" matches nothing. */
tx_match tx_parser_match(const tx_chat_parser *p, size_t at, const char *mark);
/* Moves `at` over blanks and bytes of `more`. Returns false if there are no other bytes. */
bool tx_parser_skip(tx_chat_parser *p, const char *more);
/* Reports a piece. */
void tx_parser_report(tx_chat_parser *p, tx_chat_piece_kind kind, const char *text, size_t size);
/* Reports the bytes up to `end`, without special tokens if they are content. */
void tx_parser_flush(tx_chat_parser *p, tx_chat_piece_kind kind, size_t end);
/* The state for text that is content, from `from` on. Returns true. */
bool tx_parser_to_content(tx_chat_parser *p, bool fresh);

/* ---- parser.c -------------------------------------------------------------------------------------------- */

/* Finds the forms of thoughts and calls by the text of a template. */
void tx_parser_find_forms(tx_chat *chat);
/* Whether the prompt begins a thought: it ends with the mark. */
tx_status tx_parser_opens_thought(const tx_chat *chat, const tx_chat_parsing *how, bool *opens);

/* ---- calls.c --------------------------------------------------------------------------------------------- */

/* The state between calls; `from` is at their mark. */
bool tx_calls_between(tx_chat_parser *p);
/* The state of arguments in JSON, which begin at `at`. */
bool tx_calls_arguments(tx_chat_parser *p);
/* Reports the name of a call. */
void tx_calls_announce(tx_chat_parser *p);
/* Ends the text within a call. */
void tx_calls_end(tx_chat_parser *p);

/* ---- values.c -------------------------------------------------------------------------------------------- */

typedef enum tx_scanned { TX_SCAN_INSIDE, TX_SCAN_LAST, TX_SCAN_AFTER } tx_scanned;

/* Examines a byte of a JSON value: it is inside, the last, or the first after it. */
tx_scanned tx_json_scan_byte(tx_json_scan *scan, char c);
/* The same for a value, or an argument, of Python. */
tx_scanned tx_python_scan_byte(tx_json_scan *scan, char c);
/* Whether a text is one JSON value; with `object` an object. */
bool tx_is_json(const char *text, size_t size, bool object);
/* Appends a JSON string. */
void tx_add_json_string(tx_buffer *to, const char *text, size_t size);
/* Appends literals of Python as JSON. */
void tx_add_python(tx_buffer *to, const char *text, size_t size);
/* Appends the value of parameter `key` of a tool as JSON, according to the schema of the tool. */
void tx_add_value(tx_buffer *to, const tx_json *tools, const tx_buffer *name, const tx_buffer *key, const char *text,
                  size_t size);
/* The tool of a name, or NULL. */
const tx_json *tx_find_tool(const tx_json *tools, const char *name, size_t size);

#endif
