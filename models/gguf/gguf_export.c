/* SPDX-License-Identifier: Apache-2.0
 * Exports a model folder to a GGUF file. */
#include "models/gguf/gguf.h"

#include "api/base/arithmetic.h"
#include "models/arch/find.h"
#include "models/gguf/gguf_importance.h"
#include "models/gguf/gguf_mix.h"
#include "models/tokenizer/tokenizer_gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS "position_embd.weight"
#define QUANTIZATION_VERSION 2
/* The greatest magnitude that halves hold, and the scales of blocks. */
#define MOST 65504.0f

typedef struct exporting {
    const char *folder;
    tx_convert_type dtype;
    const tx_reporter *report;
    const tx_gguf_family *type;
    tx_gguf_model model;             /* for the choice of types */
    const tx_importance *importance; /* or NULL */
    tx_config *config;
    tx_json *json; /* the complete configuration */
    tx_weights *weights;
    tx_tokenizer *tokenizer;
    int32_t pieces;
    tx_weights_piece *piece;
    int32_t parts;   /* the pieces, and once more those that GGUF files have as two tensors */
    int32_t *source; /* for each part, the index of its tensor in the weights */
    int32_t *place;  /* for each part, the index of its tensor in the file */
    tx_gguf_layout *layout;
    tx_gguf_tensor *tensor; /* in the order of the file, after the one of rope factors if there is one */
    int32_t tensors;
    float *factors; /* rope factors, or NULL */
    int64_t head_size;
    bool rotates;
    tx_rope_config rope;
    double usual; /* llama.cpp's factor of sines and cosines of yarn without a key for it */
    float *buffer;
    void *bytes;
    tx_gguf_reader reader;
    tx_gguf_writer *writer;
} exporting;

/* ---- Checks ------------------------------------------------------------------------------------------ */

/* Leaves out the head of masked language models, as llama.cpp's convert script does. */
static tx_status find_encoder(exporting *e)
{
    if (e->config->architecture->head != TX_HEAD_MASKED_LM)
        return tx_fail(TX_UNSUPPORTED, "%s: GGUF files hold encoders without a head",
                       e->config->architecture->class_name);
    if (!e->config->new_head)
        tx_reporter_print(e->report, "%s: the file gets the encoder without its head",
                          e->config->architecture->class_name);
    return tx_config_set_head(e->config, TX_HEAD_STATES);
}

static tx_status find_type(exporting *e)
{
    const tx_head head = e->config->architecture->head;
    e->type = tx_gguf_family_of(e->config);
    if (e->type && e->type->never)
        return tx_fail(TX_UNSUPPORTED, "%s: %s", e->config->architecture->class_name, e->type->never);
    if (e->type && e->type->scheme->encoder)
        return find_encoder(e);
    if (e->type && (head == TX_HEAD_CAUSAL_LM || head == TX_HEAD_SEQ2SEQ))
        return TX_OK;
    return tx_fail(TX_UNSUPPORTED,
                   "%s: GGUF files of this class are not implemented; docs/reference/features.md lists the others",
                   e->config->architecture->class_name);
}

/* Reads rope settings. */
static tx_status read_rope(exporting *e)
{
    const tx_rope_config *rope = e->type->scheme->rope ? e->type->scheme->rope(e->config, &e->head_size) : NULL;
    if (!rope)
        return TX_OK;
    e->rotates = true;
    e->rope = *rope;
    e->usual = e->type->latent || e->type->level_yarn ? 1 : tx_gguf_yarn(e->rope.factor, 0);
    if (e->rope.type == TX_ROPE_LLAMA3 && !e->type->rope_factors)
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: llama.cpp does not compute llama3 in a %s",
                       e->config->architecture->type);
    if (e->rope.type == TX_ROPE_LONGROPE || (e->rope.type == TX_ROPE_PROPORTIONAL && !e->type->some_pairs))
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: longrope and proportional cannot be written to GGUF files");
    const bool truncates = !e->type->whole_ramp;
    if (e->rope.type == TX_ROPE_YARN && !truncates)
        tx_reporter_print(e->report,
                          "rope_parameters: truncate: llama.cpp computes as if it were true, so its logits differ");
    if (e->rope.type == TX_ROPE_YARN && e->rope.truncate != truncates)
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: truncate: expected %s for a GGUF file of this type",
                       truncates ? "true" : "false");
    if (e->rope.type == TX_ROPE_YARN && e->type->latent && !(fabs(e->rope.attention - e->usual) < 1e-9))
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: GGUF files of this type cannot store this attention_factor");
    if (e->rope.type != TX_ROPE_LLAMA3 && !e->type->some_pairs)
        return TX_OK;
    e->factors = malloc((size_t)e->head_size * sizeof *e->factors);
    if (!e->factors)
        return tx_fail(TX_MEMORY, "no memory for rotary factors");
    tx_gguf_rope_factors(&e->rope, e->head_size / 2, e->factors);
    return TX_OK;
}

/* ---- Tensors ------------------------------------------------------------------------------------------- */

static tx_status list_tensor(exporting *e, int32_t index, bool is_ups)
{
    const tx_weights_piece *piece = &e->piece[index];
    const int32_t i = e->parts++;
    tx_gguf_layout *layout = &e->layout[i];
    const tx_weights_names names = tx_arch_names(e->config);
    e->source[i] = e->weights ? tx_weights_find(e->weights, &names, piece->name) : index;
    if (e->source[i] < 0)
        return tx_fail(TX_FORMAT, "the weights have no %s", piece->name);
    TX_TRY(tx_gguf_layout_of(e->config, e->piece, index, true, layout));
    if (is_ups)
        tx_gguf_to_second(layout);
    if (strcmp(layout->name, POSITIONS) == 0) { /* without those of padding */
        layout->skipped = layout->shape.dim[0] - e->config->positions;
        layout->shape.dim[0] = e->config->positions;
    }
    int32_t place = e->tensors, outer = layout->expert >= 0;
    while (layout->expert > 0 && place > 0 && strcmp(e->tensor[place - 1].name, layout->name) != 0)
        place--;
    place -= layout->expert > 0;
    e->place[i] = place;
    tx_gguf_tensor *tensor = &e->tensor[place];
    if (layout->expert > 0) { /* experts are in their order */
        tensor->dim[0]++;
        return TX_OK;
    }
    const int32_t rank = layout->shape.rank;
    e->tensors++;
    *tensor = (tx_gguf_tensor){.name = layout->name, .rank = rank + outer};
    tensor->dim[0] = 1;
    for (int32_t d = 0; d < rank; d++)
        tensor->dim[outer + d] = layout->shape.dim[d];
    return tx_gguf_is_double(layout) && !is_ups ? list_tensor(e, index, true) : TX_OK;
}

static tx_status list_tensors(exporting *e)
{
    TX_TRY(tx_arch_pieces(e->config, &e->piece, &e->pieces));
    const size_t room = 2 * (size_t)e->pieces + 1;
    e->source = malloc(room * sizeof *e->source);
    e->place = malloc(room * sizeof *e->place);
    e->layout = calloc(room, sizeof *e->layout);
    e->tensor = calloc(room, sizeof *e->tensor);
    if (!e->source || !e->place || !e->layout || !e->tensor)
        return tx_fail(TX_MEMORY, "no memory for the list of tensors");
    if (e->factors)
        e->tensor[e->tensors++] =
            (tx_gguf_tensor){.name = TX_GGUF_ROPE_FACTORS, .dtype = TX_GGUF_F32, .rank = 1, .dim = {e->head_size / 2}};
    for (int32_t i = 0; i < e->pieces; i++)
        TX_TRY(list_tensor(e, i, false));
    return TX_OK;
}

static tx_status find_count(void *context, const tx_gguf_key *row)
{
    exporting *e = context;
    int64_t *count = strcmp(row->key, TX_GGUF_HEAD_COUNT "_kv") == 0 ? &e->model.kv_heads
                     : strcmp(row->key, TX_GGUF_EXPERTS) == 0        ? &e->model.experts
                                                                     : NULL;
    bool has;
    TX_TRY(count ? tx_gguf_whole_of(&(tx_gguf_exported){e->config, e->json, e->report}, row, count, &has) : TX_OK);
    if (count == &e->model.kv_heads && row->in && !row->in(e->config, 0)) /* llama.cpp's quantizer asks for layer 0 */
        *count = 0;
    return TX_OK;
}

/* Chooses the types of all tensors. Returns the length of the longest row in `longest`. */
static tx_status choose_types(exporting *e, int64_t *longest)
{
    int32_t values = 0;
    TX_TRY(tx_gguf_each_key(e->type, find_count, e));
    e->model.architecture = e->type->architecture;
    e->model.layers = e->config->layers;
    e->model.heads = e->config->heads;
    e->model.tied = true;
    e->model.weighted = e->importance != NULL;
    for (int32_t t = 0; t < e->tensors; t++) {
        e->model.tied = e->model.tied && strcmp(e->tensor[t].name, TX_GGUF_OUTPUT) != 0;
        e->model.values += tx_gguf_is_values(e->tensor[t].name);
        *longest = tx_max(*longest, e->tensor[t].dim[e->tensor[t].rank - 1]);
    }
    for (int32_t t = 0; t < e->tensors; t++) {
        e->tensor[t].dtype = tx_gguf_choose(&e->model, e->dtype, &e->tensor[t], values);
        values += tx_gguf_is_values(e->tensor[t].name);
    }
    return TX_OK;
}

/* ---- Values -------------------------------------------------------------------------------------------- */

static tx_status put_encoder(const exporting *e)
{
    tx_pooling pooling;
    const char *prompt = "";
    int64_t types = 1;
    tx_status status = tx_pooling_read(e->folder, &pooling);
    if (!status && pooling.dense_count)
        status = tx_fail(TX_UNSUPPORTED, "%s: a module Dense is not implemented in GGUF files of encoders", e->folder);
    TX_THEN(status, tx_gguf_put_pooling(e->writer, e->type->architecture, &pooling));
    TX_THEN(status, tx_pooling_prompt(&pooling, NULL, &prompt));
    if (*prompt)
        tx_reporter_print(e->report, "config_sentence_transformers.json: GGUF files cannot store the default prompt: "
                                     "put it before each text");
    tx_pooling_free(&pooling);
    TX_THEN(status, TX_JSON_OPTIONAL(int, e->json, "type_vocab_size", 1, INT32_MAX, &types));
    if (e->type->scheme->token_types)
        tx_gguf_put_int(e->writer, "tokenizer.ggml.token_type_count", types);
    return status;
}

static tx_status put_values(exporting *e)
{
    char key[TX_GGUF_KEY_ROOM];
    const char *architecture = e->type->architecture, *slash = strrchr(e->folder, '/');
    const char *name = slash && slash[1] ? slash + 1 : e->folder;
    tx_gguf_put_string(e->writer, TX_GGUF_ARCHITECTURE, architecture, strlen(architecture));
    tx_gguf_put_string(e->writer, "general.type", "model", strlen("model"));
    tx_gguf_put_string(e->writer, "general.name", name, strlen(name));
    tx_gguf_put_int(e->writer, "general.file_type", tx_gguf_file_type(e->dtype));
    tx_gguf_put_int(e->writer, "general.quantization_version", QUANTIZATION_VERSION);
    TX_TRY(tx_gguf_put_keys(&(tx_gguf_exported){e->config, e->json, e->report}, e->writer));
    if (e->importance)
        tx_importance_put(e->importance, e->writer);
    if (e->type->put)
        e->type->put(e->config, e->writer);
    tx_gguf_put_int(e->writer, tx_gguf_key_of(key, architecture, "vocab_size"), e->config->vocab_size);
    if (e->type->scheme->encoder)
        TX_TRY(put_encoder(e));
    if (e->rotates)
        tx_gguf_put_rope(e->writer, architecture, &e->rope,
                         e->type->some_pairs ? e->head_size : (int64_t)(e->rope.rotated * (double)e->head_size),
                         e->usual);
    return tx_tokenizer_put_gguf(
        e->tokenizer,
        &(tx_gguf_ids){e->config->vocab_size, e->config->bos_token_id, e->config->eos_token_id, architecture},
        e->writer);
}

/* ---- Data ---------------------------------------------------------------------------------------------- */

static tx_status read_weights(const void *from, int32_t index, int64_t first, int64_t count, float *data)
{
    return tx_weights_read_f32(from, index, first, count, data);
}

/* Refuses values that the type of the tensor cannot hold. */
static tx_status check_values(const exporting *e, tx_gguf_dtype dtype, int64_t count)
{
    const float most = dtype == TX_GGUF_F32 || dtype == TX_GGUF_BF16 ? INFINITY : MOST;
    bool fits = true;
    for (int64_t i = 0; i < count; i++)
        fits &= (fabsf(e->buffer[i]) < INFINITY) & (fabsf(e->buffer[i]) <= most);
    for (int64_t i = 0; i < count && !fits; i++)
        if (!isfinite(e->buffer[i]))
            return tx_fail(TX_FORMAT, "holds %f: weights must be finite", (double)e->buffer[i]);
        else if (!(fabsf(e->buffer[i]) <= most))
            return tx_fail(TX_UNSUPPORTED, "holds %g, which is too large for this type: use --outtype bf16 or f32",
                           (double)e->buffer[i]);
    return TX_OK;
}

/* Writes the part `index` of a tensor. `columns` has the importance of all experts' columns, or is NULL. */
static tx_status write_tensor(exporting *e, int32_t index, const tx_gguf_tensor *tensor, const float *columns)
{
    const tx_gguf_layout *layout = &e->layout[index];
    const int64_t elements = tx_shape_count(&layout->shape), width = tx_shape_last(&layout->shape);
    const int64_t each = tensor->rank == 3 ? tensor->dim[1] * width : elements; /* of an expert */
    const int64_t most = tx_max(TX_WEIGHTS_CHUNK / width, 1) * width;
    for (int64_t at = 0, now; at < elements; at += now) {
        now = tx_min(tx_min(elements, (at / each + 1) * each) - at, most);
        const int64_t expert = tx_max(layout->expert, 0) + at / each;
        const tx_gguf_tensor of = {.dtype = tensor->dtype, .rank = 1, .dim = {now}};
        TX_TRY(tx_gguf_read_as(&e->reader, layout, e->source[index], layout->skipped * layout->width + at, now,
                               e->buffer));
        TX_TRY(tx_fail_in(check_values(e, tensor->dtype, now), "%s: tensor %s", e->folder,
                          tx_weights_tensor_at(e->weights, e->source[index])->name));
        tx_gguf_encode_rows(tensor->dtype, e->buffer, columns ? columns + expert * width : NULL, now / width, width,
                            e->bytes);
        TX_TRY(tx_gguf_append(e->writer, e->bytes, (size_t)tx_gguf_bytes(&of)));
    }
    return TX_OK;
}

/* Finds the importance of a tensor's columns, which tables and vectors do not have. */
static tx_status find_importance(const exporting *e, const tx_gguf_tensor *t, int32_t *missing, const float **columns)
{
    *columns = NULL;
    if (!e->importance || tx_gguf_block(t->dtype) == 1)
        return TX_OK;
    TX_TRY(tx_importance_of(e->importance, t->name, t->dim[t->rank - 1], t->rank == 3 ? t->dim[0] : 1, columns));
    *missing += !*columns && strncmp(t->name, "blk.", 4) == 0;
    return TX_OK;
}

static tx_status write_file(exporting *e, const char *path)
{
    const int32_t first = e->factors ? 1 : 0;
    const float *columns;
    int32_t missing = 0;
    e->reader = (tx_gguf_reader){.read = read_weights, .from = e->weights, .to_gguf = true};
    TX_TRY(tx_gguf_begin(e->writer, path, e->tensor, e->tensors));
    if (e->factors)
        TX_TRY(tx_gguf_append(e->writer, e->factors, (size_t)(e->head_size / 2) * sizeof *e->factors));
    for (int32_t t = first; t < e->tensors; t++) {
        TX_TRY(find_importance(e, &e->tensor[t], &missing, &columns));
        for (int32_t i = 0; i < e->parts; i++)
            if (e->place[i] == t)
                TX_TRY(write_tensor(e, i, &e->tensor[t], columns));
        tx_report_progress(e->report, path, t + 1, e->tensors);
    }
    if (missing)
        tx_reporter_print(e->report, "--imatrix lacks %" PRId32 " matrices, which are rounded without importance",
                          missing);
    tx_gguf_writer *writer = e->writer;
    e->writer = NULL;
    return tx_gguf_commit(writer);
}

/* Checks that a file can hold the model. */
static tx_status check_config(exporting *e)
{
    TX_TRY(find_type(e));
    TX_TRY(tx_config_json(e->config, &e->json));
    if (e->type->scheme->encoder) /* without the positions of padding */
        TX_TRY(tx_json_set_int(e->json, "max_position_embeddings", e->config->positions));
    TX_TRY(tx_gguf_check_settings(&(tx_gguf_exported){e->config, e->json, e->report}));
    return read_rope(e);
}

/* Reads everything except the weights, and checks that the file can hold it. */
static tx_status prepare(exporting *e)
{
    TX_TRY(tx_config_of_folder(e->folder, &e->config));
    TX_TRY(tx_fail_in(check_config(e), "%s", e->folder));
    return tx_tokenizer_open(e->folder, &e->tokenizer);
}

static tx_status export(exporting *e, const char *path)
{
    TX_TRY(prepare(e));
    TX_TRY(tx_arch_check(e->config, e->folder));
    TX_TRY(tx_arch_open_weights(e->folder, &e->weights));
    TX_TRY(list_tensors(e));
    TX_TRY(tx_gguf_create(&e->writer));
    TX_TRY(tx_fail_in(put_values(e), "%s", e->folder));
    int64_t room = TX_WEIGHTS_CHUNK;
    TX_TRY(choose_types(e, &room));
    e->buffer = malloc((size_t)room * sizeof *e->buffer);
    e->bytes = malloc((size_t)room * sizeof *e->buffer);
    if (!e->buffer || !e->bytes)
        return tx_fail(TX_MEMORY, "no memory for rows of %" PRId64 " elements", room);
    return write_file(e, path);
}

static tx_status release(exporting *e, tx_status status)
{
    tx_gguf_discard(e->writer);
    tx_gguf_reader_free(&e->reader);
    tx_tokenizer_free(e->tokenizer);
    tx_weights_close(e->weights);
    tx_json_free(e->json);
    tx_config_free(e->config);
    free(e->piece);
    free(e->source);
    free(e->place);
    free(e->layout);
    free(e->tensor);
    free(e->factors);
    free(e->buffer);
    free(e->bytes);
    return status;
}

tx_status tx_gguf_export(const char *folder, const char *path, tx_convert_type dtype, const tx_importance *importance,
                         const tx_reporter *report)
{
    exporting e = {.folder = folder, .dtype = dtype, .report = report, .importance = importance};
    return release(&e, export(&e, path));
}

tx_status tx_gguf_check_export(const char *folder)
{
    exporting e = {.folder = folder};
    return release(&e, prepare(&e));
}

/* ---- Quantization-aware training ------------------------------------------------------------------------ */

/* Whether the blocks of a tensor have the same numbers in the file as in the parameter. */
static bool keeps_blocks(const tx_gguf_layout *layout, tx_gguf_dtype dtype)
{
    if (layout->form != TX_GGUF_TILED_COLUMNS)
        return layout->change == TX_GGUF_SAME && layout->form != TX_GGUF_LATENTS;
    return (layout->width - layout->keys) / (layout->heads * layout->values) % tx_gguf_block(dtype) == 0;
}

/* Adds a part of a tensor of the file to the parameter that has it. */
static tx_status round_part(const exporting *e, int32_t index, tx_rounding *r)
{
    const tx_weights_piece *piece = &e->piece[e->source[index]];
    const tx_gguf_layout *layout = &e->layout[index];
    const bool columns =
        layout->form == TX_GGUF_TURNED || layout->form == TX_GGUF_GATES || layout->form == TX_GGUF_COLUMNS;
    const tx_gguf_dtype dtype = e->tensor[e->place[index]].dtype;
    const int32_t type = tx_gguf_type_number(dtype);
    const int64_t elements = tx_shape_count(&piece->shape), width = tx_shape_last(&piece->shape);
    const int64_t end = (piece->first + elements) / width;
    const int32_t last = r->parts - 1;
    const bool one_type = layout->form != TX_GGUF_NETS || last < 0 || r->part[last].type == type;
    if (dtype != TX_GGUF_F32 && (!one_type || !keeps_blocks(layout, dtype)))
        return tx_fail(TX_UNSUPPORTED,
                       "%s has other blocks in GGUF files than in training, which scale it or change its "
                       "order: choose a type with smaller blocks, or train without",
                       piece->name);
    if (last >= 0 && r->part[last].type == type) {
        r->part[last].end = tx_max(r->part[last].end, end);
        return TX_OK;
    }
    if (r->parts == TX_MAX_SECTIONS || (r->parts && columns))
        return tx_fail(TX_UNSUPPORTED, "%s has too many parts of different types: choose another type", piece->name);
    r->columns = columns;
    r->part[r->parts].type = type;
    r->part[r->parts++].end = end;
    return TX_OK;
}

static tx_status round_all(exporting *e, tx_rounding *rounding)
{
    int64_t longest = 0;
    TX_TRY(check_config(e));
    if (e->type->scheme->encoder)
        return tx_fail(TX_UNSUPPORTED, "encoders are not trained for blocks");
    TX_TRY(list_tensors(e));
    TX_TRY(choose_types(e, &longest));
    for (int32_t i = 0; i < e->parts; i++)
        TX_TRY(round_part(e, i, &rounding[e->piece[e->source[i]].param]));
    for (int32_t p = 0; p < tx_arch_params(e->config); p++)
        if (rounding[p].parts == 1 && rounding[p].part[0].type == tx_gguf_type_number(TX_GGUF_F32))
            rounding[p].parts = 0;
    return TX_OK;
}

tx_status tx_gguf_round(tx_config *config, tx_convert_type type)
{
    exporting e = {.dtype = type, .config = config};
    tx_rounding *created = calloc((size_t)tx_arch_params(config) + 1, sizeof *created);
    tx_status status = created ? round_all(&e, created) : tx_fail(TX_MEMORY, "out of memory");
    e.config = NULL;
    release(&e, status);
    return TX_RETURN(status, created, &config->rounding, free);
}
