/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of txgen: its options, what it reads, and how texts are shown. */
#ifndef TX_TOOLS_TXGEN_H
#define TX_TOOLS_TXGEN_H

#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tx_chat.h"
#include "tx_generate.h"

/* Strings that end a text, at most, in a conversation. */
enum { TXGEN_STOPS = 64 };

typedef struct txgen_settings {
    const char *model, *adapter, *save_merged, *device, *device_map, *dtype, *prompts, *logits, *perplexity,
        *chat_template, *system, *nvme_path;
    bool load_in_4bit, double_quant;
    tx_words prompt, ids, stop;
    int64_t threads, batch_size, stride, max_length;
    int64_t max_new_tokens, min_new_tokens, top_k, num_beams, seed;
    double temperature, top_p, repetition_penalty, length_penalty;
    int32_t early_stopping, offload_param;
    bool do_sample, chat;
    tx_alive *alive; /* prints progress; may be NULL */
} txgen_settings;

extern const tx_cli txgen_program;

/* ---- options.c -------------------------------------------------------------------------------------- */

/* Reads the command line; returns TX_GO_ON or the status to exit with. The caller frees what was given. */
int txgen_parse(int argc, char *const *argv, txgen_settings *settings, tx_option_values *given);
/* How to generate: what the command line says, in the place of what `how` holds. */
tx_status txgen_generation(const tx_option_values *given, tx_generation *how);

/* ---- input.c ---------------------------------------------------------------------------------------- */

/* What is to be continued; ids and texts, NUL-terminated, are its own. Begin with {0}. */
typedef struct txgen_prompts {
    tx_lm_prompt *prompt;
    int64_t count;
} txgen_prompts;

void txgen_prompts_free(txgen_prompts *prompts);
/* Those of --ids; or of --prompt and --prompts, or standard input. */
tx_status txgen_read_prompts(const txgen_settings *settings, txgen_prompts *prompts);
/* Asks for a line, without its end; false where there is none any more. Begin with NULL and 0; the caller frees. */
bool txgen_ask(tx_alive *alive, char **line, size_t *room, size_t *length);
/* All of a text file, "-" being standard input, without a byte order mark; other files are refused. The caller frees
 * `*text`. */
tx_status txgen_read_file(const char *path, char **text, size_t *size);
/* The same; of a .jsonl file its texts, with an empty line between two. The caller frees `*text`. */
tx_status txgen_read_text(const char *path, char **text, size_t *size);

/* ---- run.c ------------------------------------------------------------------------------------------- */

/* Continues the prompts. */
tx_status txgen_run(tx_lm *lm, tx_alive *alive, const tx_generation *how, const txgen_prompts *prompts);
/* Continues each line that the user types. */
tx_status txgen_talk(tx_lm *lm, tx_alive *alive, const tx_generation *how);

/* ---- chat.c ------------------------------------------------------------------------------------------ */

/* What conversations need; the options' `how` with what ends an answer. */
typedef struct txgen_chat {
    tx_lm *lm;
    tx_chat *chat;
    tx_encoder *encoder;
    tx_generation how;
    const char *stop[TXGEN_STOPS]; /* those of `how` and, where it is no token, what ends an answer */
    const char *system;            /* NULL: what the template says */
    tx_alive *alive;
    bool streams;             /* answers are shown as they grow */
    char *answer;             /* the one that grows */
    size_t size, room, shown; /* its bytes; how many of them are shown */
    tx_status status;         /* a failure to keep it */
    int error;                /* errno of a failed write to standard output, else 0 */
} txgen_chat;

/* A conversation, or answers to what the options name. */
tx_status txgen_run_chat(const txgen_settings *settings, tx_lm *lm, const tx_generation *how);
/* Begins a conversation with what --system says. */
tx_status txgen_chat_begin(const txgen_chat *c, tx_conversation *conversation);
/* The ids of a conversation that waits for an answer. */
tx_status txgen_chat_ids(const txgen_chat *c, tx_conversation *conversation, tx_ids *ids);
/* Begins an answer, and adds bytes to it. */
void txgen_chat_clear(txgen_chat *c);
void txgen_chat_grow(txgen_chat *c, const char *bytes, size_t size);

/* ---- answers.c --------------------------------------------------------------------------------------- */

/* Answers each --prompt by its text, each line of --prompts by a line of JSON: {"messages": [.., the answer]}. */
tx_status txgen_answer_all(const txgen_settings *settings, txgen_chat *c);

#endif
