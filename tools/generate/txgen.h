/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of txgen: its options, what it reads, and how texts are shown. */
#ifndef TX_TOOLS_TXGEN_H
#define TX_TOOLS_TXGEN_H

#include "models/generate/generate.h"
#include "models/text/tokenizer.h"
#include "tools/cli/options.h"

typedef struct txgen_settings {
    const char *model, *device, *prompts, *logits, *perplexity;
    tx_words prompt, ids, stop;
    int64_t threads, batch_size, stride, max_length;
    int64_t max_new_tokens, min_new_tokens, top_k, num_beams, seed;
    double temperature, top_p, repetition_penalty, length_penalty;
    int32_t early_stopping;
    bool do_sample;
} txgen_settings;

extern const tx_cli txgen_program;

/* ---- options.c -------------------------------------------------------------------------------------- */

/* Reads the command line; returns TX_GO_ON or the status to exit with. The caller frees what was given. */
int txgen_parse(int argc, char *const *argv, txgen_settings *settings, tx_option_values *given);
/* How to generate: transformers' defaults, the folder's generation_config.json, then what the command line says. */
tx_status txgen_generation(const tx_option_values *given, const char *folder, const tx_config *config,
                           tx_generation *generation);

/* ---- input.c ---------------------------------------------------------------------------------------- */

/* What is to be continued. */
typedef struct txgen_prompts {
    tx_prompt *prompt;
    char **text; /* NUL-terminated; NULL for ids */
    size_t *size;
    int64_t count, room;
} txgen_prompts;

void txgen_prompts_free(txgen_prompts *prompts);
/* Takes `size` bytes of text as one more prompt; an empty text begins after the end of another (id `begin`). */
tx_status txgen_add_text(txgen_prompts *prompts, tx_encoder *encoder, const char *text, size_t size, int64_t begin);
/* Those of --ids. */
tx_status txgen_read_ids(const txgen_settings *settings, txgen_prompts *prompts);
/* Those of --prompt and --prompts, or standard input. */
tx_status txgen_read_prompts(const txgen_settings *settings, tx_encoder *encoder, int64_t begin,
                             txgen_prompts *prompts);
/* All of a text file; of a .jsonl file its texts, with an empty line between two. The caller frees `*text`. */
tx_status txgen_read_text(const char *path, char **text, size_t *size);

/* ---- run.c ------------------------------------------------------------------------------------------- */

typedef struct txgen_job {
    const txgen_settings *set;
    tx_generation how;
    tx_config *config;
    char *folder;
    tx_engine *engine;
    tx_model *model;
    tx_tokenizer *tokenizer; /* NULL with ids */
    tx_encoder *encoder;
    txgen_prompts prompts;
} txgen_job;

/* Continues the prompts, in batches. */
tx_status txgen_run(txgen_job *job);
/* Continues each line that the user types. */
tx_status txgen_talk(txgen_job *job);

#endif
