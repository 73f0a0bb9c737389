/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a model folder in the Hugging Face layout: model.safetensors, or shards listed by
 * model.safetensors.index.json. Loads them into a tx_model and saves them. */
#ifndef TX_FILES_WEIGHTS_H
#define TX_FILES_WEIGHTS_H

#include "models/files/digest.h"
#include "models/files/safetensors.h"
#include "models/report.h"

#define TX_WEIGHTS_SINGLE "model.safetensors"
#define TX_WEIGHTS_INDEX TX_WEIGHTS_SINGLE ".index.json"
/* Elements copied at a time, so that memory never holds a second copy of the weights. */
#define TX_WEIGHTS_CHUNK ((int64_t)1 << 20)

typedef struct tx_weights tx_weights;
struct tx_weights_names;

/* ---- Reading ----------------------------------------------------------------------------------- */

/* Opens a folder, one file, or an index (a name that ends with .json). Opens every shard and checks the index against
 * them before any data are read. */
tx_status tx_weights_open(const char *path, tx_weights **weights);
void tx_weights_close(tx_weights *weights);

/* Tensors of a file in another format, with the names, shapes and element order of Hugging Face's. */
typedef struct tx_weights_source {
    int32_t count;
    const tx_st_tensor *tensor;
    tx_status (*read)(void *context, int32_t index, int64_t first, int64_t count, float *data); /* as tx_st_read_f32 */
    /* For each tensor the type of the elements that `read_stored` reads in any number of threads, or TX_DTYPE_COUNT if
     * only `read` reads it; of those in `turned`, which may be NULL, it reads the transpose. All are NULL if there is
     * none. */
    const tx_dtype *stored;
    const bool *turned;
    tx_status (*read_stored)(void *context, int32_t index, int64_t first, int64_t count, void *data);
    void (*close)(void *context); /* frees all of the source */
    void *context;
} tx_weights_source;

/* Takes ownership of the source, also on failure. Messages start with `path`. */
tx_status tx_weights_of_source(const char *path, const tx_weights_source *source, tx_weights **weights);

int32_t tx_weights_count(const tx_weights *weights);
const tx_st_tensor *tx_weights_tensor_at(const tx_weights *weights, int32_t index);
/* Same as tx_st_read_f32. */
tx_status tx_weights_read_f32(const tx_weights *weights, int32_t index, int64_t first, int64_t count, float *data);
/* The type of the elements of a tensor, or with `turned` of its transpose, as tx_weights_read_stored reads them in any
 * number of threads: whole bytes or blocks. TX_DTYPE_COUNT if it has none in TX, or if a source computes them. */
tx_dtype tx_weights_stored(const tx_weights *weights, int32_t index, bool turned);
tx_status tx_weights_read_stored(const tx_weights *weights, int32_t index, int64_t first, int64_t count, void *data);
const char *tx_weights_path(const tx_weights *weights);
/* Returns the index of the tensor called `name`, or -1. With `names` (may be NULL) `name` is a parameter's name. */
int32_t tx_weights_find(const tx_weights *weights, const struct tx_weights_names *names, const char *name);

/* ---- Into a model -------------------------------------------------------------------------------- */

#define TX_WEIGHTS_NAME 256
/* Prefixes of parameters of frozen models that are read next to the trained one: a teacher or reference, and reward
 * models, whose prefix has a number ("reward_0."). */
#define TX_WEIGHTS_TEACHER "teacher."
#define TX_WEIGHTS_REWARD "reward_"
/* Whether a parameter belongs to one of them. */
bool tx_weights_of_teacher(const char *param);

/* Maps tensors of a file to parameters. `rename` writes the parameter's name to `param`, or "" for a known tensor that
 * is not needed. It copies an unknown name, which is reported if no parameter has it. */
typedef struct tx_weights_names {
    void (*rename)(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME]);
    const void *context;
    /* Returns true if the file may lack this piece, which then keeps its value. NULL means false. */
    bool (*may_lack)(const void *context, const char *piece);
    /* Returns true if another file holds the parameter, which then keeps its value. NULL means false. */
    bool (*is_elsewhere)(const void *context, const char *param);
    /* Writes the name of the piece whose tensor replaces the one that the file lacks, and returns true; or returns
     * false if there is none. NULL means false. */
    bool (*stand_in)(const void *context, const char *piece, char other[TX_WEIGHTS_NAME]);
    /* Matrices with `grown_to` rows may have only `grown_from` in the file. The other rows begin as the mean. Pass 0 if
     * no matrix has grown. */
    int64_t grown_from, grown_to;
    bool quiet_if_missing;       /* a piece that the file lacks already has its value */
    bool other_shape_is_missing; /* a piece that the file may lack is also ignored if it has another shape */
} tx_weights_names;

typedef struct tx_load_options {
    size_t size;               /* sizeof(tx_load_options) */
    bool allow_nonfinite;      /* accept NaN and infinities */
    const tx_reporter *report; /* receives progress; may be NULL */
    tx_digest *digest;         /* receives all values, as F32 in reading order; may be NULL */
} tx_load_options;

/* Copies the file's tensors to the parameters, converting F16, BF16 and F64. Threads read them directly to the model's
 * memory if tx_model_map finds it; else chunks of a few MB are written. One message lists all missing and unexpected
 * names and wrong shapes, before any parameter is changed. A value that is not finite is an error unless `options` (may
 * be NULL) allow it; some parameters have then changed. Shapes must be equal: nothing is transposed. */
tx_status tx_weights_load(const tx_weights *weights, tx_model *model, const tx_weights_names *names,
                          const tx_load_options *options);

/* The upper bound of absolute values of a parameter: infinity, or less if it is stored in float16. `model` may be NULL.
 */
float tx_weights_limit(const tx_model *model, int32_t param);

/* A tensor in a file: a parameter or a part of it. If a parameter's name lists names between bars
 * ("self_attn.q_proj|k_proj|v_proj.weight"), each of its sections is a tensor in files. Sections divide the first
 * dimension. If the name has a star ("experts.*.w1|w3.weight"), each index of the first dimension is a separate tensor
 * in files, and sections divide the next dimension. */
typedef struct tx_weights_piece {
    char name[TX_WEIGHTS_NAME];
    tx_shape shape; /* logical */
    int32_t param;
    int64_t first; /* its first element in the parameter */
    bool turned;   /* the parameter has the transposes of its matrices (tx_param_spec) */
    bool scalar;   /* saved without dimensions */
} tx_weights_piece;

/* Makes the shape of a matrix, or of several, that of the transpose. */
static inline void tx_weights_turn(tx_shape *shape)
{
    int64_t *last = shape->dim + shape->rank - 1;
    const int64_t columns = *last;
    *last = last[-1];
    last[-1] = columns;
}

/* The number of pieces of a parameter: without a star at most TX_MAX_SECTIONS. */
int32_t tx_weights_piece_count(const char *name, const tx_param_spec *spec);
/* Replaces the star by `number`, and the names between bars by the name with index `section`. */
void tx_weights_piece_name(const char *name, int32_t number, int32_t section, char text[TX_WEIGHTS_NAME]);
/* Writes at most `room` pieces of parameter number `param` to `piece`. Returns the number written. */
int32_t tx_weights_pieces(const char *name, const tx_param_spec *spec, int32_t param, int32_t room,
                          tx_weights_piece *piece);

/* Lists the pieces of a model's parameters, except those for which `is_elsewhere` (may be NULL) returns true. The
 * caller frees `*pieces`. */
tx_status tx_weights_list(const tx_model *model, bool (*is_elsewhere)(const void *context, const char *param),
                          const void *context, tx_weights_piece **pieces, int32_t *count);

/* Makes the checks of tx_weights_load without a model. */
tx_status tx_weights_check(const tx_weights *weights, const tx_weights_piece *pieces, int32_t count,
                           const tx_weights_names *names);

/* ---- Saving ---------------------------------------------------------------------------------------- */

/* Bytes of data in a shard, the same as transformers' default. */
#define TX_WEIGHTS_SHARD INT64_C(50000000000)

/* Writes every parameter except a teacher's under its own name in its storage type, with its logical shape, in arena
 * order. The file is model.safetensors; above `shard_bytes` there are several, model-00001-of-0000N.safetensors, and an
 * index. A shard holds at least one parameter. Old weight files of the other kind are removed at the end. Each file is
 * replaced atomically, the set of shards is not: for that the caller must write to another folder and rename it. */
tx_status tx_weights_save(tx_model *model, const char *folder, int64_t shard_bytes);

/* A folder that has tensors besides the model's. */
typedef struct tx_weights_form {
    const tx_weights *files; /* its files; not a source */
    /* Returns true for tensors of the files that are copied to the byte. */
    bool (*is_copied)(const void *context, const char *tensor);
    /* Writes the name of a piece of the model in the files. */
    void (*name)(const void *context, const char *piece, char tensor[TX_WEIGHTS_NAME]);
    const void *context;
} tx_weights_form;

/* The same in a form, which may be NULL. Without a model only the form's tensors are written. Tensors with wider
 * elements come first, so that all are aligned. */
tx_status tx_weights_save_as(tx_model *model, const tx_weights_form *form, const char *folder, int64_t shard_bytes);

/* Describes a tensor of `dtype` F32, BF16, F16 or U8 for a file. `name` is not copied. */
tx_st_tensor tx_weights_part(const char *name, tx_dtype dtype, const tx_shape *shape);

/* Appends a part of parameter `param` to the file: as many elements as `tensor` has, of its type, from element `first`
 * on. `buffer` has room for TX_WEIGHTS_CHUNK elements. */
tx_status tx_weights_append(tx_model *model, tx_param_role part, int32_t param, int64_t first,
                            const tx_st_tensor *tensor, float *buffer, tx_st_writer *writer);

#endif
