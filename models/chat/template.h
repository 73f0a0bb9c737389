/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: how the turns of a conversation become the one text that a model is given.
 *
 *     begin  { system_before SYSTEM system_after   user_before USER user_after
 *              prompt answer_before ANSWER end after } ...
 *
 * A model continues what ends with `prompt`; from there to `end`, this one included, the text is the model's own.
 * "{bos}" and "{eos}" stand for the tokenizer's bos_token and eos_token. */
#ifndef TX_CHAT_TEMPLATE_H
#define TX_CHAT_TEMPLATE_H

#include "models/tx_text.h"
#include "tx_json.h"

/* X(member): texts, which may be NULL: empty. */
#define TX_CHAT_TEXTS(X)                                                                                          \
    X(begin)                                                                                                      \
    X(system_before)                                                                                              \
    X(system_after)                                                                                               \
    X(user_before)                                                                                                \
    X(user_after)                                                                                                 \
    X(prompt)                                                                                                     \
    X(answer_before)                                                                                              \
    X(end)                                                                                                        \
    X(after)                                                                                                      \
    X(default_system)       /* what the system says where a conversation does not begin with it; NULL: nothing */ \
    X(default_system_input) /* the same where an instruction has an input; NULL: as default_system */             \
    X(input)                /* between an instruction and its input; NULL: an empty line */
#define TX_CHAT_FLAGS(X)                                                                  \
    X(system_in_user) /* the system's text stands before that of the user's first turn */ \
    X(no_system)      /* there is no such role */                                         \
    X(trim)           /* white space at both ends of what is said is left out */          \
    X(alternate)      /* after the system, user and assistant take turns */

typedef struct tx_chat_template {
    const char *name;
#define X(member) const char *member;
    TX_CHAT_TEXTS(X)
#undef X
#define X(member) bool member;
    TX_CHAT_FLAGS(X)
#undef X
} tx_chat_template;

/* The template of this name (template.def), NULL: there is none. */
const tx_chat_template *tx_chat_template_find(const char *name);
/* All names, with ", " between. */
const char *tx_chat_template_names(void);

/* A template from an object of its members; unknown ones are refused. The texts live as long as `json`. */
tx_status tx_chat_template_read(const tx_json *json, tx_chat_template *made);
/* The object of a template's members. The caller frees. */
tx_status tx_chat_template_json(const tx_chat_template *t, tx_json **json);

/* ---- As transformers has them (jinja.c) ---------------------------------------------------------------- */

/* The template as the text of a chat_template.jinja, which gives the same texts; its first line is a comment that holds
 * the template's own object. The caller frees. */
tx_status tx_chat_jinja_write(const tx_chat_template *t, char **text);
/* What the text of a chat_template.jinja says, where it was written by TX or is one that models have been published
 * with; its own object is then in `*json` (NULL: there is none), which the caller frees. TX_UNSUPPORTED: it is
 * unknown. */
tx_status tx_chat_jinja_read(const char *text, size_t size, tx_chat_template *made, tx_json **json);

#endif
