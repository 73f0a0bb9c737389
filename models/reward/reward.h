/* SPDX-License-Identifier: Apache-2.0
 *
 * Rewards of completions: functions of a table (functions.def), models, a command of the user, or numbers of a file. */
#ifndef TX_REWARD_REWARD_H
#define TX_REWARD_REWARD_H

#include "models/arch/arch.h"
#include "models/files/digest.h"
#include "models/options/settings.h"
#include "models/report.h"
#include "models/tokenizer/bpe.h"
#include "models/tx_chat.h"
#include "tx_json.h"

enum { TX_REWARDS_MAX = 8, TX_REWARD_NAME = 64 };

/* The functions of a run. */
typedef struct tx_reward_names {
    int32_t count;
    char name[TX_REWARDS_MAX][TX_REWARD_NAME];
    double weight[TX_REWARDS_MAX];
} tx_reward_names;

/* Adds a name of letters, digits, "_", "-" and ".". TX_INVALID for another one, or if it is there already. */
tx_status tx_reward_add_name(const char *name, size_t size, tx_reward_names *names);
/* Sets the weights from --reward_weights, or to 1. TX_INVALID unless there is one for each function. */
tx_status tx_reward_weigh(const char *weights, tx_reward_names *names);

/* ---- Recorded completions (recorded.c) ------------------------------------------------------------------ */

/* The completions of --rollout_file with their rewards, which are NaN if they do not apply. */
typedef struct tx_recorded {
    tx_reward_names names;
    tx_ids ids; /* of all completions, one after the other */
    int64_t count;
    int64_t *end;    /* [count]: of each completion's ids */
    double *rewards; /* [count, names.count] */
} tx_recorded;

/* Reads the file, whose completions have 1 to `most` ids below `vocab`. The caller frees, also after a failure. */
tx_status tx_recorded_open(const char *path, int64_t most, int64_t vocab, tx_recorded *recorded);
void tx_recorded_close(tx_recorded *recorded);

/* ---- Functions (reward.c, functions.c) ------------------------------------------------------------------ */

/* A completion. Texts need not end with NUL. */
typedef struct tx_reward_sample {
    const tx_json *object; /* the row of the data, with its prompt */
    const char *text;      /* the completion without special tokens */
    size_t size;
    const int32_t *ids;
    int64_t count;
} tx_reward_sample;

/* The settings of a function: its member of --reward_config, over the defaults of functions.def. */
typedef struct tx_reward_settings {
    const char *column, *pattern, *from, *label;
    bool strip, ignore_case, prompt, special_tokens;
    double tolerance, target, max, cache, ngram, penalty, max_length;
    const tx_json *schema;
} tx_reward_settings;

typedef struct tx_reward_state tx_reward_state;
/* The reward of a completion, NaN if the function does not apply. */
typedef tx_status tx_reward_function(const tx_reward_settings *settings, tx_reward_state *state,
                                     const tx_reward_sample *sample, double *reward);
#define TX_REWARD(word, ...) tx_reward_function tx_reward_##word;
#include "models/reward/functions.def"

/* A compiled expression, for tx_reward_regex. */
tx_status tx_reward_state_open(const char *pattern, tx_reward_state **state);
void tx_reward_state_free(tx_reward_state *state); /* NULL is fine */

/* ---- Models (model.c, scorer.c) ------------------------------------------------------------------------- */

/* A frozen model with a head for sequences, its tokenizer and its chat template. */
typedef struct tx_reward_model {
    char *folder;
    char prefix[16]; /* of its parameters in the model in training */
    tx_config *config;
    tx_tokenizer *tokenizer;
    tx_encoder *encoder;
    tx_chat *chat; /* NULL if the tokenizer has none */
    tx_reward_settings set;
    int64_t label;               /* whose probability is the reward, or -1: the reward is the only output */
    int64_t most;                /* tokens of a prompt with its completion */
    char digest[TX_DIGEST_TEXT]; /* of the weights, once they are read */
} tx_reward_model;

/* Opens a folder, except for the weights; `number` distinguishes it from other reward models. Texts have at most `most`
 * tokens unless the settings say otherwise. TX_INVALID if it is no such model, or if the settings do not fit it. */
tx_status tx_reward_model_open(const char *folder, const tx_reward_settings *set, int32_t number, int64_t most,
                               tx_reward_model **model);
void tx_reward_model_free(tx_reward_model *model); /* NULL is fine */

/* Its plans in the model in training. */
typedef struct tx_scorer tx_scorer;
/* Computes the rewards of `count` texts, `stride` doubles apart: of text i, ids begin at end[i - 1], or at 0, and end
 * before end[i]. */
tx_status tx_scorer_run(tx_scorer *scorer, const int32_t *ids, const int64_t *end, int64_t count, double *to,
                        int64_t stride);

/* Renders and encodes completions with their prompts, and computes their rewards, `stride` doubles apart. TX_INVALID if
 * a text is longer than model->most. */
tx_status tx_reward_model_ask(const tx_reward_model *model, tx_scorer *scorer, const tx_reward_sample *samples,
                              int64_t count, double *to, int64_t stride);

typedef struct tx_rewards tx_rewards;

/* The caller of the rewards: its rank, the tokens of its longest rows, its reporter, and a function that is called
 * several times a second while a program answers. */
typedef struct tx_reward_caller {
    int32_t rank;
    int64_t block;
    const tx_reporter *report;
    void (*alive)(void *context);
    void *context;
} tx_reward_caller;

/* Reads --reward_funcs, --reward_config and --reward_weights; starts no program, and reads no weights of models.
 * TX_INVALID names the fault. */
tx_status tx_rewards_open(const tx_job_settings *set, const tx_reward_caller *caller, tx_rewards **rewards);
void tx_rewards_free(tx_rewards *rewards); /* ends the programs; NULL is fine */
const tx_reward_names *tx_rewards_names(const tx_rewards *rewards);
/* Its models, in the order of the functions, and their number. `rewards` may be NULL. */
tx_reward_model *const *tx_rewards_models(const tx_rewards *rewards, int32_t *count);
/* Compiles the plans of `count` models, for `rows` completions at once. The caller frees the scorers, also after a
 * failure; they are 0 before. */
tx_status tx_scorers_create(tx_model *in, tx_reward_model *const *models, int32_t count, int64_t rows,
                            tx_dtype autocast, tx_scorer *scorers[TX_REWARDS_MAX]);
void tx_scorers_free(tx_scorer *scorers[TX_REWARDS_MAX]);
/* Computes the rewards [count, functions] of completions of step `step`. `scorers` are those of the models. A failure
 * names the function. */
tx_status tx_rewards_compute(tx_rewards *rewards, tx_scorer *const *scorers, int64_t step,
                             const tx_reward_sample *samples, int64_t count, double *to);

/* ---- A program of the user (command.c) ------------------------------------------------------------------ */

typedef struct tx_reward_command tx_reward_command;

/* `line` is the program with its arguments, separated by spaces; no shell reads it. An answer may take `timeout`
 * seconds. */
tx_status tx_reward_command_open(const char *line, double timeout, int64_t seed, const tx_reward_caller *caller,
                                 tx_reward_command **command);
void tx_reward_command_free(tx_reward_command *command);
/* Asks for the rewards of completions, `stride` doubles apart. Starts the program if it does not run. After a wrong
 * answer, or none in time, the program is started once more and gets the same question; then the call fails. */
tx_status tx_reward_command_ask(tx_reward_command *command, int64_t step, const tx_reward_sample *samples,
                                int64_t count, double *to, int64_t stride);

#endif
