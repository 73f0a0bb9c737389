/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a model folder in the Hugging Face layout: model.safetensors, or shards listed by
 * model.safetensors.index.json; and their way into and out of a tx_model. */
#ifndef TX_FILES_WEIGHTS_H
#define TX_FILES_WEIGHTS_H

#include "models/files/safetensors.h"
#include "models/report.h"

#define TX_WEIGHTS_SINGLE "model.safetensors"
#define TX_WEIGHTS_INDEX TX_WEIGHTS_SINGLE ".index.json"
/* Elements copied at a time: weights are never in memory a second time. */
#define TX_WEIGHTS_CHUNK ((int64_t)1 << 20)

typedef struct tx_weights tx_weights;
struct tx_weights_names;

/* ---- Reading ----------------------------------------------------------------------------------- */

/* `path`: a folder, one file, or an index (a name that ends with .json). Opens every shard and checks the index against
 * them before any data are read. */
tx_status tx_weights_open(const char *path, tx_weights **weights);
void tx_weights_close(tx_weights *weights);

/* Tensors of a file of another kind, as Hugging Face's have them: names, shapes, order of elements. */
typedef struct tx_weights_source {
    int32_t count;
    const tx_st_tensor *tensor;
    tx_status (*read)(void *context, int32_t index, int64_t first, int64_t count, float *data); /* as tx_st_read_f32 */
    void (*close)(void *context); /* frees all of the source */
    void *context;
} tx_weights_source;

/* Takes the source over, on failure too. `path` starts the messages. */
tx_status tx_weights_of_source(const char *path, const tx_weights_source *source, tx_weights **weights);

int32_t tx_weights_count(const tx_weights *weights);
const tx_st_tensor *tx_weights_tensor_at(const tx_weights *weights, int32_t index);
/* As tx_st_read_f32. */
tx_status tx_weights_read_f32(const tx_weights *weights, int32_t index, int64_t first, int64_t count, float *data);
const char *tx_weights_path(const tx_weights *weights);
/* Number of the tensor whose name is `name`, by `names` (or NULL) its parameter's; -1: there is none. */
int32_t tx_weights_find(const tx_weights *weights, const struct tx_weights_names *names, const char *name);

/* ---- Into a model -------------------------------------------------------------------------------- */

#define TX_WEIGHTS_NAME 256
/* What the names of parameters of another model begin with, which is read beside the one that is trained and saved. */
#define TX_WEIGHTS_TEACHER "teacher."
bool tx_weights_of_teacher(const char *param);

/* Which parameter a tensor of the file belongs to: `rename` writes its name to `param`, or "" for a tensor that is
 * known and not needed. A name that is not known is copied as it is, and reported if no parameter has it. */
typedef struct tx_weights_names {
    void (*rename)(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME]);
    const void *context;
    /* Whether the file may lack a piece of this name: it then stays as it is. NULL: it may not. */
    bool (*may_lack)(const void *context, const char *piece);
    /* Whether a parameter of the model is of another file, so that it stays as it is; NULL: none is. */
    bool (*is_elsewhere)(const void *context, const char *param);
    bool other_shape_lacks; /* a file that has what it may lack in another shape lacks it */
} tx_weights_names;

typedef struct tx_load_options {
    size_t size;               /* sizeof(tx_load_options) */
    bool allow_nonfinite;      /* take NaN and infinities as they are, instead of refusing them */
    const tx_reporter *report; /* learns how far it is; NULL: nobody does */
    tx_digest *digest;         /* takes all values, as F32 in the order in which they are read; NULL: there is none */
} tx_load_options;

/* Copies the file's tensors to the parameters by pieces of a few MB, converting F16, BF16 and F64. Missing and
 * unexpected names and all wrong shapes are told in one message, before any parameter is changed. The first value that
 * is not finite is reported and refused (unless `options`, which may be NULL, allow it); the parameters before it are
 * then loaded already. Shapes must be equal: nothing is transposed. */
tx_status tx_weights_load(const tx_weights *weights, tx_model *model, const tx_weights_names *names,
                          const tx_load_options *options);

/* Absolute values of a parameter must be less than this: infinity, or less for one that is stored in float16. `model`
 * may be NULL. */
float tx_weights_limit(const tx_model *model, int32_t param);

/* What a file holds as one tensor: a parameter, or one of its sections where its name has one name for each of them
 * between bars ("self_attn.q_proj|k_proj|v_proj.weight"); such sections divide the first dimension. Where the name has
 * a star, the first dimension counts what files hold apart by its number there ("experts.*.w1|w3.weight"), of each of
 * which the sections divide the next. */
typedef struct tx_weights_piece {
    char name[TX_WEIGHTS_NAME];
    tx_shape shape; /* the logical one */
    int32_t param;
    int64_t first; /* element of the parameter that it begins at */
} tx_weights_piece;

/* How many pieces a parameter is: without a star at most TX_MAX_SECTIONS. */
int32_t tx_weights_piece_count(const char *name, const tx_param_spec *spec);
/* Writes those of parameter number `param` to `piece`, as far as there is room; returns how many. */
int32_t tx_weights_pieces(const char *name, const tx_param_spec *spec, int32_t param, int32_t room,
                          tx_weights_piece *piece);

/* The pieces of a model's parameters; `is_elsewhere`, which may be NULL, says which are left out. The caller frees
 * `*pieces`. */
tx_status tx_weights_list(const tx_model *model, bool (*is_elsewhere)(const void *context, const char *param),
                          const void *context, tx_weights_piece **pieces, int32_t *count);

/* What tx_weights_load checks, without a model. */
tx_status tx_weights_check(const tx_weights *weights, const tx_weights_piece *pieces, int32_t count,
                           const tx_weights_names *names);

/* ---- Out of a model -------------------------------------------------------------------------------- */

/* As large as transformers makes a shard, in bytes of data. */
#define TX_WEIGHTS_SHARD INT64_C(50000000000)

/* Writes every parameter but a teacher's as F32 under its own name, logical shape, in arena order: to model.safetensors
 * in the folder, or to model-00001-of-0000N.safetensors and an index where they are over `shard_bytes`. A shard holds
 * at least one parameter. Weights that lie in the folder in the other form are removed at the end. The files appear
 * whole, one by one: only a caller who renames the folder replaces a sharded model as a whole. */
tx_status tx_weights_save(tx_model *model, const char *folder, int64_t shard_bytes);

/* How a part of a parameter lies in a file: `dtype` F32, BF16, F16 or U8, logical shape. `name` is not copied. */
tx_st_tensor tx_weights_part(const char *name, tx_dtype dtype, const tx_shape *shape);

/* Appends a part of parameter `param` to the file: as many elements as `tensor` has, of its type, from element `first`
 * on; `buffer` holds TX_WEIGHTS_CHUNK. */
tx_status tx_weights_append(tx_model *model, tx_param_role part, int32_t param, int64_t first,
                            const tx_st_tensor *tensor, float *buffer, tx_st_writer *writer);

#endif
