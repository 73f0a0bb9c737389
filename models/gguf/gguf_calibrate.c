/* SPDX-License-Identifier: Apache-2.0
 * Computes the importance of a model's inputs over a text, and writes it as llama-imatrix does. */
#include "models/gguf/gguf_calibrate.h"

#include "api/base/file.h"
#include "models/generate/inputs.h"
#include "models/gguf/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_LIMIT ((int64_t)1 << 30)

/* The inputs of one matrix of the file, or of one for each expert. */
typedef struct matrix {
    const tx_input_sums *of;
    tx_gguf_layout layout;
    char sums[TX_GGUF_NAME_ROOM + 16], counts[TX_GGUF_NAME_ROOM + 16];
} matrix;

typedef struct calibration {
    tx_lm *lm;
    const char *text;
    tx_inputs *inputs;
    matrix *matrix;
    int32_t matrices;
    float *squares, *rows; /* of a matrix */
} calibration;

/* ---- Names ---------------------------------------------------------------------------------------------- */

static void add_matrix(calibration *c, const tx_gguf_layout *layout, int32_t param)
{
    const tx_input_sums *of = &c->inputs->of[param];
    matrix *m = &c->matrix[c->matrices];
    if (of->width != layout->width || layout->expert > 0) /* the first one is for all experts */
        return;
    c->matrices++;
    m->of = of;
    m->layout = *layout;
    /* Only this form changes the order of columns, and values of sums are never changed. */
    m->layout.form = layout->form == TX_GGUF_TILED_COLUMNS ? layout->form : TX_GGUF_PLAIN;
    m->layout.change = TX_GGUF_SAME;
    snprintf(m->sums, sizeof m->sums, "%s" TX_IMPORTANCE_SUMS, layout->name);
    snprintf(m->counts, sizeof m->counts, "%s" TX_IMPORTANCE_COUNTS, layout->name);
}

/* Finds the matrices of the file that are made of the parameters. */
static tx_status list(calibration *c, const tx_weights_piece *pieces, int32_t count)
{
    int64_t longest = 1, experts = 1;
    c->matrix = calloc(2 * (size_t)count + 1, sizeof *c->matrix);
    if (!c->matrix)
        return tx_fail(TX_MEMORY, "no memory for the list of matrices");
    for (int32_t i = 0; i < count; i++) {
        const tx_input_sums *of = &c->inputs->of[pieces[i].param];
        tx_gguf_layout layout;
        if (of->matrices == 0)
            continue;
        longest = of->width * of->matrices > longest ? of->width * of->matrices : longest;
        experts = of->matrices > experts ? of->matrices : experts;
        TX_TRY(tx_gguf_layout_of(c->lm->config, pieces, i, true, &layout));
        add_matrix(c, &layout, pieces[i].param);
        if (tx_gguf_is_double(&layout)) {
            tx_gguf_to_second(&layout);
            add_matrix(c, &layout, pieces[i].param);
        }
    }
    c->squares = malloc((size_t)longest * sizeof *c->squares);
    c->rows = malloc((size_t)experts * sizeof *c->rows);
    return c->squares && c->rows ? TX_OK : tx_fail(TX_MEMORY, "no memory for sums of inputs");
}

static tx_status list_matrices(calibration *c)
{
    tx_weights_piece *pieces = NULL;
    int32_t count = 0;
    TX_TRY(tx_arch_pieces(c->lm->config, &pieces, &count));
    const tx_status status = list(c, pieces, count);
    free(pieces);
    return status;
}

/* ---- Results -------------------------------------------------------------------------------------------- */

/* A tx_gguf_source: the sums of a matrix are its only row. */
static tx_status read_sums(const void *from, int32_t index, int64_t first, int64_t count, float *data)
{
    const double *squares = from;
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)squares[first + i];
    return index == 0 ? TX_OK : TX_INTERNAL;
}

/* Converts the sums of a matrix, in the order of the file's columns, and the numbers of its inputs. */
static tx_status convert(const calibration *c, const matrix *m)
{
    const int64_t width = m->of->width;
    for (int64_t e = 0; e < m->of->matrices; e++) {
        tx_gguf_reader reader = {.read = read_sums, .from = m->of->squares + e * width, .to_gguf = true};
        const tx_status status = tx_gguf_read_as(&reader, &m->layout, 0, 0, width, c->squares + e * width);
        tx_gguf_reader_free(&reader);
        TX_TRY(status);
        c->rows[e] = (float)m->of->rows[e];
    }
    return TX_OK;
}

static tx_status write_data(const calibration *c, tx_gguf_writer *writer)
{
    for (int32_t i = 0; i < c->matrices; i++) {
        const tx_input_sums *of = c->matrix[i].of;
        TX_TRY(convert(c, &c->matrix[i]));
        TX_TRY(tx_gguf_append(writer, c->squares, (size_t)(of->matrices * of->width) * sizeof *c->squares));
        TX_TRY(tx_gguf_append(writer, c->rows, (size_t)of->matrices * sizeof *c->rows));
    }
    return TX_OK;
}

static tx_status write_file(const calibration *c, const char *path)
{
    tx_gguf_writer *writer;
    tx_gguf_tensor *tensors = calloc(2 * (size_t)c->matrices + 1, sizeof *tensors);
    if (!tensors)
        return tx_fail(TX_MEMORY, "no memory for the list of matrices");
    for (int32_t i = 0; i < c->matrices; i++) {
        const matrix *m = &c->matrix[i];
        tensors[2 * i] = (tx_gguf_tensor){m->sums, TX_GGUF_F32, 2, {m->of->matrices, m->of->width}};
        tensors[2 * i + 1] = (tx_gguf_tensor){m->counts, TX_GGUF_F32, 2, {m->of->matrices, 1}};
    }
    tx_status status = tx_gguf_create(&writer);
    if (!status) {
        tx_gguf_put_string(writer, "general.type", "imatrix", strlen("imatrix"));
        tx_gguf_put_array(writer, TX_IMPORTANCE_DATASETS, TX_GGUF_VALUE_STRING, 1);
        tx_gguf_add_string(writer, c->text, strlen(c->text));
        tx_gguf_put_int(writer, TX_IMPORTANCE_CHUNKS, c->inputs->windows);
        tx_gguf_put_int(writer, "imatrix.chunk_size", c->inputs->length);
        status = tx_gguf_begin(writer, path, tensors, 2 * c->matrices);
        TX_THEN(status, write_data(c, writer));
        if (status)
            tx_gguf_discard(writer);
        else
            status = tx_gguf_commit(writer);
    }
    free(tensors);
    return status;
}

static tx_status add_all(const calibration *c, tx_importance *importance)
{
    for (int32_t i = 0; i < c->matrices; i++) {
        const matrix *m = &c->matrix[i];
        TX_TRY(convert(c, m));
        TX_TRY(tx_importance_add(importance, m->layout.name, m->of->width, m->of->matrices, c->squares, c->rows));
    }
    return TX_OK;
}

static tx_status make_importance(const calibration *c, tx_importance **importance)
{
    tx_importance *created = NULL;
    TX_TRY(tx_importance_create(c->text, c->text, c->inputs->windows, &created));
    const tx_status status = add_all(c, created);
    return TX_RETURN(status, created, importance, tx_importance_close);
}

/* ---- The text ------------------------------------------------------------------------------------------- */

/* Runs the model. A tokenizer that adds a token before each text adds it to the empty one, too. */
static tx_status read_text(calibration *c)
{
    char *text = NULL;
    size_t size = 0;
    int32_t *ids = NULL, *empty = NULL;
    int64_t count = 0, added = 0;
    TX_TRY(tx_file_read(c->text, TEXT_LIMIT, &text, &size));
    tx_status status = tx_lm_encode(c->lm, text, size, &ids, &count);
    free(text);
    TX_THEN(status, tx_lm_encode(c->lm, "", 0, &empty, &added));
    TX_THEN(status, tx_lm_sum_inputs(c->lm, ids, count, added > 0 ? empty[0] : -1, &c->inputs));
    free(ids);
    free(empty);
    return tx_fail_in(status, "%s", c->text);
}

tx_status tx_gguf_calibrate(const char *folder, const tx_calibration *how, const tx_reporter *report,
                            tx_importance **importance)
{
    calibration c = {.text = how->text};
    tx_lm_options options = {
        .size = sizeof options, .model = folder, .device = how->device, .threads = how->threads, .batch_size = 1};
    if (report) {
        options.warn = report->warn;
        options.context = report->context;
        options.progress = report->progress;
    }
    TX_TRY(tx_lm_open(&options, &c.lm));
    tx_config_keep_experts(c.lm->config);
    tx_status status = read_text(&c);
    tx_lm_drop(c.lm); /* its weights are not needed any more */
    tx_config_pack(c.lm->config, TX_F32);
    TX_THEN(status, list_matrices(&c));
    if (how->file)
        TX_THEN(status, write_file(&c, how->file));
    TX_THEN(status, how->file ? tx_importance_open(how->file, importance) : make_importance(&c, importance));
    free(c.matrix);
    free(c.squares);
    free(c.rows);
    tx_inputs_free(c.inputs);
    tx_lm_free(c.lm);
    return status;
}
