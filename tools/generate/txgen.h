/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of txgen: options, input, output of texts, and conversations. */
#ifndef TX_TOOLS_TXGEN_H
#define TX_TOOLS_TXGEN_H

#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tools/cli/output.h"
#include "tools/cli/ranks.h"
#include "tx_chat.h"
#include "tx_generate.h"
#include "tx_grammar.h"

/* The largest numbers of stop strings of a conversation, and of adapters of a command. */
enum { TXGEN_STOPS = 64, TXGEN_ADAPTERS = 16 };

typedef struct txgen_settings {
    tx_lm_options lm; /* run() in txgen.c sets the members without an option */
    const char *save_merged, *prompts, *logits, *perplexity, *reference, *chat_template, *system, *prompt_name,
        *adapter_weights, *chat_template_kwargs, *json_schema, *grammar, *regex;
    tx_words prompt, ids, stop, breakers, adapter;
    tx_generation how; /* its values are used if they are given */
    int64_t stride, max_length;
    int32_t combination_type;
    bool chat, classify, embed;
    tx_alive *alive; /* the thread that prints progress, or NULL */
} txgen_settings;

extern const tx_cli txgen_program;

/* ---- options.c -------------------------------------------------------------------------------------- */

/* Reads the command line. Returns TX_GO_ON or the exit status. The caller frees `given`. */
int txgen_parse(int argc, char *const *argv, txgen_settings *settings, tx_option_values *given);
/* Chooses sampling for a model without settings of its own, unless the command line chooses how to decode. Returns true
 * if it did. */
bool txgen_sample(const tx_option_values *given, tx_generation *how);
/* Replaces the values in `how` by those that the command line gives. */
void txgen_generation(const tx_option_values *given, tx_generation *how);

/* ---- adapters.c ------------------------------------------------------------------------------------- */

/* The folder of the adapter, or of the sum of several; NULL if there is none. */
typedef struct txgen_adapter {
    const char *folder;
    char parent[4096], path[4096 + 16]; /* the temporary folder; empty if there is none */
} txgen_adapter;

/* Close it also after a failure. */
tx_status txgen_open_adapter(const txgen_settings *settings, txgen_adapter *adapter);
void txgen_close_adapter(txgen_adapter *adapter);

/* ---- grammar.c --------------------------------------------------------------------------------------- */

/* The constraint of all texts; its members are NULL if there is none. Initialize it with {0}. */
typedef struct txgen_grammar {
    tx_vocabulary *vocabulary;
    tx_grammar *grammar;
} txgen_grammar;

/* Close it also after a failure, before the model. */
tx_status txgen_open_grammar(const txgen_settings *settings, tx_lm *lm, txgen_grammar *grammar);
void txgen_close_grammar(txgen_grammar *grammar);

/* ---- input.c ---------------------------------------------------------------------------------------- */

/* Prompts to continue. It owns their ids and texts; texts end with a NUL. Initialize it with {0}. */
typedef struct txgen_prompts {
    tx_lm_prompt *prompt;
    int64_t count;
    size_t room;
} txgen_prompts;

void txgen_prompts_free(txgen_prompts *prompts);
/* Reads the prompts of --ids, --prompt and --prompts, or from standard input if there are none. */
tx_status txgen_read_prompts(const txgen_settings *settings, txgen_prompts *prompts);
/* Prompts the user for a line and reads it without its newline. Returns false at the end of the input. Initialize
 * `*line` and `*room` with NULL and 0, as for getline; the caller frees `*line`. */
bool txgen_ask(tx_alive *alive, char **line, size_t *room, size_t *length);
/* True for a .jsonl file. */
bool txgen_is_json_lines(const char *path);
/* Reads a text file, or standard input if `path` is "-", without a byte order mark. Files that are not text are an
 * error. The caller frees `*text`. */
tx_status txgen_read_file(const char *path, char **text, size_t *size);
/* Passes the lines of such a file, except blank ones, to `take`, without their ends. Errors name the line. */
typedef tx_status txgen_take(void *context, const char *line, size_t size);
tx_status txgen_each_line(const char *path, txgen_take *take, void *context);
/* As txgen_read_file, but joins the texts of a .jsonl file by empty lines. The caller frees `*text`, also after an
 * error. */
tx_status txgen_read_text(const char *path, char **text, size_t *size);

/* ---- run.c ------------------------------------------------------------------------------------------- */

/* Flushes standard output. */
tx_status txgen_flush(void);
/* Continues the prompts. */
tx_status txgen_run(tx_lm *lm, tx_alive *alive, const tx_generation *how, const txgen_prompts *prompts);
/* Continues each line that the user types. */
tx_status txgen_talk(tx_lm *lm, tx_alive *alive, const tx_generation *how);

/* ---- chat.c ------------------------------------------------------------------------------------------ */

/* The state of conversations. */
typedef struct txgen_chat {
    tx_lm *lm;
    tx_chat *chat;
    tx_encoder *encoder;
    tx_generation how;             /* options of generation, with the template's end of an answer */
    const char *stop[TXGEN_STOPS]; /* stop strings: those of `how`, and the template's end if it is not a token */
    const char *system;            /* the system message; NULL leaves it to the template */
    tx_json *variables;            /* of the template; or NULL */
    tx_alive *alive;
    char *answer;             /* the answer so far */
    size_t size, room, shown; /* its bytes; allocated bytes; bytes that are printed */
    tx_status status;         /* an error of storing or writing the answer */
} txgen_chat;

/* Holds a conversation on standard input, or answers --prompt and --prompts. */
tx_status txgen_run_chat(const txgen_settings *settings, tx_lm *lm, const tx_generation *how);
/* Empties a conversation, and adds the variables of the template and the system message, if any. */
tx_status txgen_chat_begin(const txgen_chat *c, tx_conversation *conversation);
/* Start an answer, and append bytes to it. */
void txgen_chat_clear(txgen_chat *c);
void txgen_chat_grow(txgen_chat *c, const char *bytes, size_t size);

/* ---- lines.c ----------------------------------------------------------------------------------------- */

/* Classifies or embeds the texts of --prompt, --prompts or standard input, and prints a line of JSON for each. */
tx_status txgen_lines(const txgen_settings *settings, const tx_lm_options *options);

/* ---- answers.c --------------------------------------------------------------------------------------- */

/* Answers each --prompt with text, and each line of --prompts with a line of JSON: {"messages": [.., the answer]}. */
tx_status txgen_answer_all(const txgen_settings *settings, txgen_chat *c);

#endif
