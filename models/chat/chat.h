/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates together with a tokenizer: conversations become ids. */
#ifndef TX_CHAT_CHAT_H
#define TX_CHAT_CHAT_H

#include "models/jinja/jinja.h"
#include "models/report.h"
#include "models/tokenizer/buffer.h"
#include "models/tokenizer/marks.h"
#include "models/tx_chat.h"

/* The texts around an answer, found by rendering a small conversation. */
typedef struct tx_chat_frame {
    char *question; /* the text of a question */
    char *prompt;   /* what add_generation_prompt adds; may be empty */
    char *before;   /* between that and the answer; may be empty */
    char *end;      /* the end of an answer, without white space around it */
    bool closes;    /* the end is written once, after all messages */
    bool open;      /* answers have no end of their own; `end` is the token that begins a question */
} tx_chat_frame;

/* Immutable once made. */
struct tx_chat {
    char *text; /* the Jinja of the template */
    tx_jinja *jinja;
    const tx_tokenizer *tokenizer;
    bool is_own;           /* the template is from the tokenizer's folder */
    bool parts, null;      /* it reads a list of parts as content; and null better than "" next to tool calls */
    bool objects;          /* it renders arguments of calls that are objects */
    bool only_parts;       /* it does not render a text as content */
    struct tx_chat *tools; /* the template for conversations with tools, or NULL */
    /* How answers write thoughts and calls (forms.def); NULL for none. */
    const char *thought, *thought_end;
    const struct tx_calls_form *form;
    tx_json *given[2]; /* its variables: without and with add_generation_prompt */
    tx_ids kept;       /* added tokens around questions and answers, which are plain text in messages */
    const char *eos;
    size_t eos_size;
    tx_chat_frame frame;
    const char *header; /* at the start of an answer, never learnt: the prompt, or words before the answer */
    int32_t end_id;     /* the last added token of frame.end, or its id as a whole; -1 if there is neither */
};

/* The template of a conversation with or without tools. */
static inline const tx_chat *tx_chat_with(const tx_chat *chat, bool tools)
{
    return tools && chat->tools ? chat->tools : chat;
}

/* The added token that ends an answer, or -1 if a word or several tokens end it. `*keeps_eos` is true if the template
 * also uses eos_token in another place. */
int32_t tx_chat_end_token(const tx_chat *chat, bool *keeps_eos);
/* Checks whether the tokenizer's folder has another template. */
tx_status tx_chat_replaces(const tx_chat *chat, bool *replaces);
/* Writes the template as chat_template.jinja into a model's folder. */
tx_status tx_chat_save(const tx_chat *chat, const char *folder);

/* ---- Templates by name (templates.c) -------------------------------------------------------------------- */

/* The Jinja of a built-in template, or NULL if no template has this name. */
const char *tx_chat_template_find(const char *name);
/* All names, with ", " between. */
const char *tx_chat_template_names(void);

/* ---- Rendering (render.c) ------------------------------------------------------------------------------- */

/* Begin with {0}. */
typedef struct tx_chat_text {
    tx_buffer bytes;
    tx_text_part *part; /* the template's parts are frame */
    bool *answer;       /* for each part: its tokens get labels in training */
    size_t parts, room[2];
    tx_jinja_text rendered; /* scratch */
} tx_chat_text;

void tx_chat_text_free(tx_chat_text *text); /* sets it to {0} */
/* The parts of a conversation that get labels in training. */
typedef enum tx_chat_labels {
    TX_CHAT_NONE,
    TX_CHAT_ANSWERS,   /* blocks `generation` if the template has them, else the `learnt` messages after their header */
    TX_CHAT_COMPLETION /* all that the template writes after the prompt, as TRL's completion_only_loss */
} tx_chat_labels;

/* Renders a conversation. With `asks` it ends as `conversation->suffix` says, else after its last message. Marks the
 * parts of `labels`. TX_FORMAT if the template raises an exception, does not render a key of the conversation, or does
 * not show which bytes belong to an answer. Keys that it does not read, and messages that it does not render, are noted
 * as ignored; `conversation->lost` is the number of the first such message, from 1. */
tx_status tx_chat_render(const tx_chat *chat, tx_conversation *conversation, bool asks, tx_chat_labels labels,
                         tx_chat_text *text);
/* The same for a prompt and its completion without a template (TX_CHAT_PLAIN), followed by eos_token. Texts of special
 * tokens become their ids anywhere. Uses only the members tokenizer, eos and eos_size of `chat`. */
tx_status tx_chat_render_plain(const tx_chat *chat, const tx_conversation *conversation, tx_chat_text *text);
/* Finds the texts around an answer. */
tx_status tx_chat_find_frame(const tx_chat *chat, tx_chat_frame *frame);
/* Finds the text from the begin of the next question on. The caller frees. */
tx_status tx_chat_find_next(const tx_chat *chat, char **next);

/* ---- Between conversations and templates (prepare.c) ---------------------------------------------------- */

/* Finds out how the template reads contents. */
tx_status tx_chat_find_habits(tx_chat *chat);
/* Writes contents as the template reads them. TX_FORMAT if it does not read a key. */
tx_status tx_chat_prepare(const tx_chat *chat, tx_conversation *conversation);
/* Accepts messages as OpenAI's clients return them: arguments of calls are texts, which become objects if the template
 * renders objects, and thoughts that the template leaves out of earlier answers are noted as ignored. */
tx_status tx_chat_accept(const tx_chat *chat, tx_conversation *conversation);
/* Changes a conversation that the template does not render as it is: joins lists of parts, and if the template knows no
 * role developer, such messages get the role system. Sets *changed if it did. */
tx_status tx_chat_adapt(const tx_chat *chat, tx_conversation *conversation, bool *changed);
/* Sets `lost` to the number of the first message whose text the template does not render, or to 0. */
tx_status tx_chat_find_lost(const tx_chat *chat, tx_conversation *conversation, bool asks);
/* Renders a conversation up to the end of its last message's text. */
tx_status tx_chat_render_open(const tx_chat *chat, const tx_conversation *conversation, tx_jinja_text *text);

/* ---- Answers (answers.c) -------------------------------------------------------------------------------- */

#define TX_CHAT_LEARNT 4u /* one more flag of a byte of tx_jinja_text */

/* Flags the bytes of a rendered conversation whose tokens get labels in training. */
tx_status tx_chat_mark_answers(const tx_chat *chat, const tx_conversation *conversation, tx_jinja_text *text);

/* ---- Ids (encode.c) ------------------------------------------------------------------------------------- */

/* Replaces `ids` by the ids of a text, as transformers' apply_chat_template does, except that special tokens and the
 * tokens around answers are plain text in messages. `learnt` (may be NULL) receives 1 for each id that gets a label,
 * and 0 for the others. */
tx_status tx_chat_encode(const tx_chat *chat, tx_encoder *encoder, const tx_chat_text *text, tx_ids *ids,
                         tx_ids *learnt);

/* ---- Objects of instruction data (conversation.c) -------------------------------------------- */

/* The form of an object by its keys, or TX_CHAT_FORMS if it has none. */
tx_chat_form tx_chat_form_of(const tx_json *object);
/* Refuses an object with preferences, from which TX cannot train. */
tx_status tx_chat_foreign(const tx_json *object);
/* Replaces the conversation by the prompt of an object with preferences, followed by its key `side`, chosen or
 * rejected. Pass NULL as `side` for only the prompt. The prompt and both sides are texts, or lists of messages.
 * TX_FORMAT if the object is malformed; the message names the key. */
tx_status tx_conversation_read_side(const tx_json *object, const char *side, tx_conversation *conversation);
/* Message `index`. */
tx_json *tx_conversation_message(const tx_conversation *conversation, size_t index);
/* Adds a key that nothing reads to the list of ignored keys, once, while there is room. */
void tx_conversation_ignore(tx_conversation *conversation, const char *key);

#endif
