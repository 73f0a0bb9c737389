/* SPDX-License-Identifier: Apache-2.0
 * tx_convert_distributed: converts model folders to distributed checkpoints of PyTorch, and back; with the states of
 * AdamW, a checkpoint of a run. */
#include "models/tx_convert.h"

#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/checkpoint_files.h"
#include "models/files/dcp.h"
#include "models/files/hub.h"
#include "models/tokenizer/bpe.h"
#include "models/train/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((int64_t)256 << 20)
#define RANKS_LIMIT 65536

static bool every(const void *context, const char *tensor)
{
    (void)context, (void)tensor;
    return true;
}

static tx_status write_folder(const tx_weights *weights, const char *to)
{
    const tx_weights_form form = {.files = weights, .is_copied = every};
    if (tx_file_exists(TX_PATH(to, TX_WEIGHTS_SINGLE)) || tx_file_exists(TX_PATH(to, TX_WEIGHTS_INDEX)))
        return tx_fail(TX_INVALID, "%s: already holds a model: choose another folder", to);
    TX_TRY(tx_folder_create(to));
    return tx_weights_save_as(NULL, &form, to, TX_WEIGHTS_SHARD);
}

/* ---- States of AdamW --------------------------------------------------------------------------------- */

#define CONFIG "config.json"
#define STEP "step" /* torch's name for the number of updates, which each parameter has */

/* A state of one tensor. A parameter of several tensors has them one after another. */
typedef struct state {
    char name[TX_WEIGHTS_NAME];
    int32_t source; /* its tensor in the file, or -1 for the number of updates */
    int64_t first;
} state;

typedef struct states {
    tx_st_file *file;
    float updates;
    int32_t count;
    state *state;
    tx_st_tensor *tensor;
} states;

static void states_close(void *context)
{
    states *s = context;
    if (!s)
        return;
    tx_st_close(s->file);
    free(s->state);
    free(s->tensor);
    free(s);
}

static tx_status read_state(void *context, int32_t index, int64_t first, int64_t count, float *data)
{
    const states *s = context;
    const state *of = &s->state[index];
    if (of->source >= 0)
        return tx_st_read_f32(s->file, of->source, of->first + first, count, data);
    *data = s->updates;
    return TX_OK;
}

static tx_status read_stored(void *context, int32_t index, int64_t first, int64_t count, void *data)
{
    return read_state(context, index, first, count, data);
}

static tx_status fail_other(const tx_st_file *file, const char *name)
{
    return tx_fail(TX_UNSUPPORTED, "%s: the optimizer state %s is not one of AdamW in fp32", tx_st_path(file), name);
}

/* Splits the name of a state into that of its parameter and its own. */
static const char *split_name(const char *name, char param[TX_WEIGHTS_NAME])
{
    snprintf(param, TX_WEIGHTS_NAME, "%s", name);
    char *dot = strrchr(param, '.');
    if (!dot)
        return "";
    *dot = '\0';
    return dot + 1;
}

static bool is_moment(const char *kind)
{
    return strcmp(kind, "exp_avg") == 0 || strcmp(kind, "exp_avg_sq") == 0;
}

/* Adds the state of a weight. */
static void add(states *s, const tx_st_tensor *like, const char *kind, int32_t source, int64_t first)
{
    state *to = &s->state[s->count];
    *to = (state){.source = source, .first = first};
    snprintf(to->name, sizeof to->name, "%.*s.%s", (int)(sizeof to->name - sizeof "exp_avg_sq" - 1), like->name, kind);
    s->tensor[s->count] = *like;
    s->tensor[s->count].name = to->name;
    s->tensor[s->count].dtype = TX_ST_F32;
    if (source < 0)
        s->tensor[s->count].rank = 0;
    s->count++;
}

/* Adds tensor `i` of the file: a state for each tensor of its parameter. */
static tx_status add_states(states *s, const tx_weights *weights, int32_t i, int32_t sections)
{
    const tx_st_tensor *t = tx_st_tensor_at(s->file, i);
    char param[TX_WEIGHTS_NAME], piece[TX_WEIGHTS_NAME];
    const char *kind = split_name(t->name, param);
    int64_t first = 0;
    if (!is_moment(kind) || t->dtype != TX_ST_F32)
        return fail_other(s->file, t->name);
    for (int32_t k = 0; k < sections; k++) {
        tx_weights_piece_name(param, 0, k, piece);
        const int32_t at = tx_weights_find(weights, NULL, piece);
        if (at < 0 || strchr(param, '*'))
            return tx_fail(TX_UNSUPPORTED, "%s: the weights have no tensor for the optimizer state %s",
                           tx_st_path(s->file), t->name);
        const tx_st_tensor *weight = tx_weights_tensor_at(weights, at);
        add(s, weight, kind, i, first);
        first += tx_st_elements(weight);
        if (strcmp(kind, "exp_avg") == 0)
            add(s, weight, STEP, -1, 0);
    }
    return first == tx_st_elements(t) ? TX_OK
                                      : tx_fail(TX_FORMAT, "%s: %s has %" PRId64 " elements, its weights %" PRId64,
                                                tx_st_path(s->file), t->name, tx_st_elements(t), first);
}

static int32_t sections_of(const char *name)
{
    int32_t count = 1;
    for (; *name; name++)
        count += *name == '|';
    return count;
}

static tx_status list_states(states *s, const char *folder, const tx_weights *weights)
{
    tx_run_state run;
    size_t most = 1;
    TX_TRY(tx_st_open(TX_PATH(folder, TX_RUN_OPTIMIZER), &s->file));
    TX_TRY(tx_run_state_read(folder, folder, &run));
    s->updates = (float)run.updates;
    tx_run_state_free(&run);
    for (int32_t i = 0; i < tx_st_count(s->file); i++)
        most += 2 * (size_t)sections_of(tx_st_tensor_at(s->file, i)->name);
    s->state = calloc(most, sizeof *s->state);
    s->tensor = calloc(most, sizeof *s->tensor);
    if (!s->state || !s->tensor)
        return tx_fail(TX_MEMORY, "%s: no memory for its optimizer states", folder);
    for (int32_t i = 0; i < tx_st_count(s->file); i++)
        TX_TRY(add_states(s, weights, i, sections_of(tx_st_tensor_at(s->file, i)->name)));
    return TX_OK;
}

/* Opens the states of a checkpoint as torch divides and names them. NULL if the folder has none of AdamW. */
static tx_status open_states(const char *folder, const tx_weights *weights, const tx_reporter *report,
                             tx_weights **opened)
{
    *opened = NULL;
    if (!tx_file_exists(TX_PATH(folder, TX_RUN_OPTIMIZER)) || !tx_file_exists(TX_PATH(folder, TX_RUN_STATE)))
        return TX_OK;
    states *s = calloc(1, sizeof *s);
    const tx_status status =
        s ? list_states(s, folder, weights) : tx_fail(TX_MEMORY, "%s: no memory for its optimizer states", folder);
    if (status) {
        states_close(s);
        if (status == TX_UNSUPPORTED)
            tx_reporter_print(report, "%s: only the weights are converted", tx_error());
        return status == TX_UNSUPPORTED ? TX_OK : status;
    }
    const tx_weights_source source = {.count = s->count,
                                      .tensor = s->tensor,
                                      .read = read_state,
                                      .read_stored = read_stored,
                                      .close = states_close,
                                      .context = s};
    return tx_weights_of_source(folder, &source, opened);
}

/* Lists the moments of a distributed checkpoint, and finds the number of updates, which must be that of all. */
static tx_status list_moments(const tx_st_file *file, tx_st_tensor *moment, int32_t *source, int32_t *count,
                              int64_t *updates)
{
    for (int32_t i = 0; i < tx_st_count(file); i++) {
        const tx_st_tensor *t = tx_st_tensor_at(file, i);
        char param[TX_WEIGHTS_NAME];
        const char *kind = split_name(t->name, param);
        float step = 0.0f;
        if (is_moment(kind)) {
            moment[*count] = *t;
            moment[*count].dtype = TX_ST_F32;
            source[(*count)++] = i;
            continue;
        }
        if (strcmp(kind, STEP) != 0 || tx_st_elements(t) != 1)
            return fail_other(file, t->name);
        TX_TRY(tx_st_read_f32(file, i, 0, 1, &step));
        if (!(step >= 1.0f && step < (float)(1 << 24)) || (*updates && *updates != (int64_t)step))
            return tx_fail(TX_UNSUPPORTED, "%s: %s is %g, but all parameters must have the same number of updates",
                           tx_st_path(file), t->name, (double)step);
        *updates = (int64_t)step;
    }
    return *updates ? TX_OK : tx_fail(TX_UNSUPPORTED, "%s: no state has a number of updates", tx_st_path(file));
}

static tx_status write_moments(const tx_st_file *file, const tx_st_tensor *moment, const int32_t *source, int32_t count,
                               const char *path)
{
    tx_st_writer *writer = NULL;
    float *buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *buffer);
    tx_status status = buffer ? tx_st_create(path, moment, count, &writer)
                              : tx_fail(TX_MEMORY, "%s: no memory for the optimizer states", path);
    for (int32_t i = 0; i < count && !status; i++) {
        const int64_t elements = tx_st_elements(&moment[i]);
        for (int64_t at = 0, now; at < elements && !status; at += now) {
            now = elements - at < TX_WEIGHTS_CHUNK ? elements - at : TX_WEIGHTS_CHUNK;
            status = tx_st_read_f32(file, source[i], at, now, buffer);
            TX_THEN(status, tx_st_append(writer, buffer, (size_t)now * sizeof *buffer));
        }
    }
    status = tx_st_end(writer, status);
    free(buffer);
    return status;
}

/* Makes the model folder `to` a checkpoint of a run after as many steps as the optimizer did. */
static tx_status write_run(const tx_st_file *file, const char *to)
{
    const size_t room = (size_t)tx_st_count(file) + 1;
    tx_st_tensor *moment = calloc(room, sizeof *moment);
    int32_t *source = calloc(room, sizeof *source), count = 0;
    tx_run_state run = {0};
    const tx_run_facts facts = {0};
    int64_t updates = 0;
    tx_status status = moment && source ? list_moments(file, moment, source, &count, &updates)
                                        : tx_fail(TX_MEMORY, "%s: no memory for the optimizer states", to);
    TX_THEN(status, write_moments(file, moment, source, count, TX_PATH(to, TX_RUN_OPTIMIZER)));
    TX_THEN(status, tx_run_state_create(&run));
    run.step = run.updates = updates;
    TX_THEN(status, tx_run_state_write(&run, &facts, to, to));
    TX_THEN(status, tx_manifest_write(to, updates, NULL));
    tx_run_state_free(&run);
    free(moment);
    free(source);
    return status;
}

/* Converts the states of a distributed checkpoint, if it has any of AdamW. */
static tx_status convert_states(const char *from, const char *to, const tx_reporter *report)
{
    tx_st_file *file = NULL;
    if (!tx_file_exists(TX_PATH(from, TX_DCP_METADATA)))
        return TX_OK;
    tx_status status = tx_st_open_states(TX_PATH(from, TX_DCP_METADATA), &file);
    if (!status && tx_st_count(file) > 0)
        status = write_run(file, to);
    tx_st_close(file);
    if (status == TX_UNSUPPORTED)
        tx_reporter_print(report, "%s: only the weights are converted", tx_error());
    return status == TX_UNSUPPORTED ? TX_OK : status;
}

/* ---- Folders ----------------------------------------------------------------------------------------- */

static tx_status copy_files(const char *from, const char *to)
{
    tx_status status = tx_folder_copy_file(from, to, "generation_config.json", FILE_LIMIT);
    for (size_t i = 0; !status && tx_tokenizer_file_name(i); i++)
        status = tx_folder_copy_file(from, to, tx_tokenizer_file_name(i), FILE_LIMIT);
    TX_THEN(status, tx_folder_copy_file(from, to, CONFIG, FILE_LIMIT));
    return status;
}

static tx_status convert(const char *from, const char *to, int64_t ranks, const tx_reporter *report)
{
    tx_weights *weights, *moments = NULL;
    TX_TRY(tx_weights_open(from, &weights));
    tx_status status = ranks > 0 ? open_states(from, weights, report, &moments) : TX_OK;
    TX_THEN(status, ranks > 0 ? tx_dcp_write(weights, moments, to, (int32_t)ranks, report) : write_folder(weights, to));
    TX_THEN(status, copy_files(from, to));
    const bool complete = tx_file_exists(TX_PATH(to, CONFIG));
    if (!status && ranks == 0 && complete) /* a checkpoint has all of its files from the beginning */
        status = convert_states(from, to, report);
    if (!status && !complete)
        tx_reporter_print(report,
                          "%s has no " CONFIG ": copy that of the model and its tokenizer to %s; optimizer states are "
                          "converted only if %s has it before",
                          from, to, from);
    tx_weights_close(moments);
    tx_weights_close(weights);
    return status;
}

tx_status tx_convert_distributed(const char *from, const char *to, int64_t ranks, const tx_reporter *report)
{
    char *folder;
    TX_NEEDS(from && to, TX_INVALID);
    if (ranks < 0 || ranks > RANKS_LIMIT)
        return tx_fail(TX_INVALID, "tx_convert_distributed: %" PRId64 " ranks, at most %d are possible", ranks,
                       RANKS_LIMIT);
    TX_TRY(tx_hub_model(from, &folder));
    const tx_status status = convert(folder, to, ranks, report);
    free(folder);
    return status;
}
