/* SPDX-License-Identifier: Apache-2.0
 *
 * Export of model folders to GGUF files, which llama.cpp runs, and import. gguf.def has the tables of names. */
#ifndef TX_ARCH_GGUF_H
#define TX_ARCH_GGUF_H

#include "models/arch/pooling.h"
#include "models/arch/rope.h"
#include "models/files/gguf.h"

/* Exports a model folder's weights, configuration and tokenizer to one file. After a failure there is no file. Weights
 * are written as `dtype`, except tensors that llama.cpp expects in fp32 (vectors and position tables). With q8_0, rows
 * that are not a multiple of the block size become fp16. Fails if weights do not match the configuration or are not
 * finite, and if llama.cpp would compute the model or the tokenizer differently. Memory holds at most one transposed
 * matrix. `report` may be NULL. */
tx_status tx_gguf_export(const char *folder, const char *path, tx_gguf_dtype dtype, const tx_reporter *report);
/* Imports a file as a folder that transformers loads: config.json, model.safetensors of `dtype` (F32, F16 or BF16; F32
 * keeps every value exactly), tokenizer.json. Fails if the folder already holds a model. config.json is written last.
 */
tx_status tx_gguf_import(const char *path, const char *folder, tx_dtype dtype, const tx_reporter *report);

/* Use a file like a model folder. The caller frees the configuration. The weights are read on demand; the last
 * transposed matrix is kept in memory. TX_UNSUPPORTED names an unknown architecture, type or tensor. */
tx_status tx_config_of_gguf(const char *path, tx_config **config);
tx_status tx_gguf_weights(const char *path, tx_weights **weights);
/* Makes `config` store the matrices that the file holds in blocks (TX_BLOCK_MAP) as they are, unless a parameter joins
 * matrices whose blocks differ in size, or the layout is transposed (GPT-2). Only one cpu device computes with them. */
tx_status tx_gguf_keep_blocks(const char *path, tx_config *config);

/* ---- Shared by the files gguf_*.c ---------------------------------------------------------------------- */

/* Families before LLAMA have none of its rows, and no rotary positions. */
typedef enum tx_gguf_family {
    TX_GGUF_GPT2,
    TX_GGUF_GPT_BIGCODE,
    TX_GGUF_BLOOM,
    TX_GGUF_MPT,
    TX_GGUF_BERT,
    TX_GGUF_DISTILBERT,
    TX_GGUF_MODERNBERT,
    TX_GGUF_T5,
    TX_GGUF_LLAMA,
    TX_GGUF_GRANITE,
    TX_GGUF_GRANITE_MOE,
    TX_GGUF_OLMO2,
    TX_GGUF_OLMO3,
    TX_GGUF_PHI3,
    TX_GGUF_STABLELM,
    TX_GGUF_GEMMA,
    TX_GGUF_GEMMA2,
    TX_GGUF_GPT_NEOX,
    TX_GGUF_MIXTRAL,
    TX_GGUF_QWEN2_MOE,
    TX_GGUF_QWEN3_MOE,
    TX_GGUF_OLMOE,
    TX_GGUF_SEED_OSS,
    TX_GGUF_STARCODER2,
    TX_GGUF_PHI,
    TX_GGUF_NEMOTRON,
    TX_GGUF_COHERE,
    TX_GGUF_GLM,
    TX_GGUF_GLM4,
    TX_GGUF_HUNYUAN,
    TX_GGUF_GPT_OSS,
    TX_GGUF_EXAONE4,
    TX_GGUF_FALCON,
    TX_GGUF_FAMILIES
} tx_gguf_family;
typedef enum tx_gguf_form {
    TX_GGUF_PLAIN,
    TX_GGUF_TURNED,
    TX_GGUF_QUERIES,
    TX_GGUF_KEYS,
    TX_GGUF_BY_HEAD,
    TX_GGUF_SHIFTED,
    TX_GGUF_GATES,
    TX_GGUF_HALVES
} tx_gguf_form;
typedef enum tx_gguf_kind { TX_GGUF_INT, TX_GGUF_NUMBER, TX_GGUF_BOOL, TX_GGUF_WORD } tx_gguf_kind;
typedef enum tx_gguf_otherwise {
    TX_GGUF_NOTHING,
    TX_GGUF_FOUR_WIDTHS,
    TX_GGUF_HEADS,
    TX_GGUF_ONE,
    TX_GGUF_EIGHT,
    TX_GGUF_TINY,
    TX_GGUF_FALSE,
    TX_GGUF_CONTEXT
} tx_gguf_otherwise;

typedef struct tx_gguf_type {
    const char *type, *architecture;
    tx_gguf_family family;
    bool pairs;
} tx_gguf_type;

typedef struct tx_gguf_key {
    tx_gguf_family family;
    const char *key, *name; /* a NULL name means that config.json has no such key */
    tx_gguf_kind kind;
    tx_gguf_otherwise otherwise;
} tx_gguf_key;

typedef struct tx_gguf_fixed {
    const char *type, *name;
    bool value;
} tx_gguf_fixed;

/* Whether a type has the rows of a family. A row of the type's own family replaces those that come later. */
bool tx_gguf_has_rows(const tx_gguf_type *type, tx_gguf_family family);

/* The tables of gguf.def; a NULL ends each. */
extern const tx_gguf_type tx_gguf_types[];
extern const tx_gguf_key tx_gguf_keys[];
extern const tx_gguf_fixed tx_gguf_fixed_keys[];

/* Whether a type has a row of tx_gguf_keys. */
bool tx_gguf_has_key(const tx_gguf_type *type, const tx_gguf_key *row);
/* The value of a key that config.json does not have. */
double tx_gguf_other_value(const tx_gguf_key *row, const tx_config *config);

/* The model that a file describes. */
typedef struct tx_gguf_model {
    const tx_gguf_type *type;
    tx_config *config; /* the caller frees it */
    int64_t kv_heads;  /* 0 for families before LLAMA */
} tx_gguf_model;
tx_status tx_gguf_model_read(const tx_gguf_file *file, tx_gguf_model *model);

/* The model of an export: its complete configuration, and where warnings go. */
typedef struct tx_gguf_exported {
    const tx_gguf_type *type;
    const tx_config *config;
    const tx_json *json;
    const tx_reporter *report;
} tx_gguf_exported;
/* Returns TX_UNSUPPORTED and names the key if llama.cpp would compute the model differently. */
tx_status tx_gguf_check_settings(const tx_gguf_exported *model);

#define TX_GGUF_ARCHITECTURE "general.architecture"
#define TX_GGUF_OUTPUT "output.weight"
#define TX_GGUF_EMBEDDING "token_embd.weight"
#define TX_GGUF_TYPES "token_types.weight"
#define TX_GGUF_EXPERTS "expert_count"
#define TX_GGUF_T5_GATE "enc.blk.0.ffn_gate.weight"
#define TX_GGUF_EXAONE4_LAYERS 64 /* the only EXAONE 4 to which llama.cpp gives sliding windows */
#define TX_GGUF_WINDOWS "attention.sliding_window_pattern"
#define TX_GGUF_CLIP "attention.clamp_kqv" /* MPT: attn_config.clip_qkv */

/* Makes the key of an architecture. The room is enough for "qwen2.attention.layer_norm_rms_epsilon" and all others. */
#define TX_GGUF_KEY_ROOM 96
#define TX_GGUF_NAME_ROOM 72
char *tx_gguf_key_of(char key[TX_GGUF_KEY_ROOM], const char *architecture, const char *rest);

/* GGUF files store rope scaling of type "llama3" as a tensor: a divisor of the frequency for each pair. */
#define TX_GGUF_ROPE_FACTORS "rope_freqs.weight"
void tx_gguf_rope_factors(const tx_rope_config *rope, int64_t pairs, float *factors);
/* Write rope settings to a file's keys, and read them into the JSON of a config.json. A file has a "linear" or "yarn"
 * scaling, or `factors` for `pairs` pairs (may be NULL). */
void tx_gguf_put_rope(tx_gguf_writer *writer, const char *architecture, const tx_rope_config *rope, int64_t size);
tx_status tx_gguf_get_rope(const tx_gguf_file *file, const char *architecture, const float *factors, int64_t pairs,
                           tx_json *config);

/* Write how embeddings are made of hidden states, and read it. Without the key of llama.cpp `pooling` keeps its values.
 * TX_UNSUPPORTED names what llama.cpp does not compute. */
tx_status tx_gguf_put_pooling(tx_gguf_writer *writer, const char *architecture, const tx_pooling *pooling);
tx_status tx_gguf_get_pooling(const char *path, tx_pooling *pooling);

/* The layout of a tensor, which may differ between the two kinds of files. */
typedef struct tx_gguf_layout {
    char name[TX_GGUF_NAME_ROOM]; /* in GGUF files */
    tx_gguf_form form;
    int64_t heads;       /* number of heads in the rows, for QUERIES, KEYS and BY_HEAD */
    int64_t expert;      /* its index in a GGUF tensor of all experts' matrices; or -1 */
    tx_shape shape;      /* in GGUF files, without the dimension of experts that `expert` selects from */
    int64_t rows, width; /* of a written matrix; a vector has rows of width 1 */
    int64_t skipped;     /* in an export: the first rows, which the file does not have */
    bool is_ups;         /* for GATES and HALVES, in an export: this is the tensor of ups */
    int32_t ups;         /* for GATES and HALVES, in an import: index of the tensor of ups */
} tx_gguf_layout;

/* Finds the layout of the tensor that Hugging Face's files call `param`. TX_UNSUPPORTED if GGUF has no such tensor.
 * `shape` is the shape in Hugging Face's files. `to_gguf` is true for an export. `heads` and `of_kv` are the numbers of
 * query heads and of key heads. */
tx_status tx_gguf_layout_of(const tx_gguf_type *type, const char *param, const tx_shape *shape, bool to_gguf,
                            int64_t heads, int64_t of_kv, tx_gguf_layout *layout);
/* Makes the name of the tensor of ups that belongs to one of gates. */
void tx_gguf_ups_name(const char *gates, char ups[TX_GGUF_NAME_ROOM]);

/* Reads elements of a tensor. */
typedef tx_status tx_gguf_source(const void *from, int32_t index, int64_t first, int64_t count, float *data);

/* Returns true if GGUF files have two tensors instead of one: gates and ups. */
static inline bool tx_gguf_is_double(const tx_gguf_layout *layout)
{
    return layout->form == TX_GGUF_GATES || layout->form == TX_GGUF_HALVES;
}

/* The row of the source that is row `row` in the other kind of file, for QUERIES, KEYS, BY_HEAD and HALVES. */
int64_t tx_gguf_source_row(const tx_gguf_layout *layout, bool to_gguf, int64_t row);

/* Reads tensors of one kind of file in the layout of the other. */
typedef struct tx_gguf_reader {
    tx_gguf_source *read;
    const void *from;
    bool to_gguf;
    const tx_gguf_layout *held; /* the layout of the matrix in `whole`, or NULL */
    int64_t matrix;             /* its index in the tensor */
    float *whole;               /* a matrix before it is transposed */
} tx_gguf_reader;
/* Reads elements first..first+count-1 of tensor `index`. Both must be multiples of the source's block size. */
tx_status tx_gguf_read_as(tx_gguf_reader *reader, const tx_gguf_layout *layout, int32_t index, int64_t first,
                          int64_t count, float *data);
void tx_gguf_reader_free(tx_gguf_reader *reader);

#endif
