/* SPDX-License-Identifier: Apache-2.0
 *
 * Model folders to GGUF files, as llama.cpp runs them, and back: names and forms are those of gguf.def. */
#ifndef TX_ARCH_GGUF_H
#define TX_ARCH_GGUF_H

#include "models/arch/arch.h"
#include "models/arch/rope.h"
#include "models/files/gguf.h"

/* Writes a model folder's weights, configuration and tokenizer as one file, whole or not at all. Weights become
 * `dtype`, but for what llama.cpp wants in fp32 (vectors, tables of positions); of q8_0, rows that are no whole blocks
 * become fp16. Weights that do not fit the configuration or are not finite are refused, as are a model and a tokenizer
 * that llama.cpp would compute in another way. At most the largest matrix that is turned is in memory. `report` may be
 * NULL. */
tx_status tx_gguf_export(const char *folder, const char *path, tx_gguf_dtype dtype, const tx_reporter *report);
/* Writes a file's contents as a folder that transformers loads: config.json, model.safetensors of `dtype` (F32, F16 or
 * BF16; F32 holds every value as it is), tokenizer.json. A folder that holds a model already is refused. config.json is
 * written last. */
tx_status tx_gguf_import(const char *path, const char *folder, tx_dtype dtype, const tx_reporter *report);

/* A file in the place of a model folder: its configuration, which the caller frees, and its weights, which are read
 * where they are asked for; of matrices that lie the other way round the last one is in memory. UNSUPPORTED names an
 * architecture, a type or a tensor that TX does not know. */
tx_status tx_config_of_gguf(const char *path, tx_config **config);
tx_status tx_gguf_weights(const char *path, tx_weights **weights);

/* ---- For these --------------------------------------------------------------------------------------- */

typedef enum tx_gguf_family { TX_GGUF_GPT2, TX_GGUF_LLAMA } tx_gguf_family;
typedef enum tx_gguf_form { TX_GGUF_PLAIN, TX_GGUF_TURNED, TX_GGUF_QUERIES, TX_GGUF_KEYS } tx_gguf_form;
typedef enum tx_gguf_kind { TX_GGUF_INT, TX_GGUF_NUMBER } tx_gguf_kind;
typedef enum tx_gguf_otherwise { TX_GGUF_NOTHING, TX_GGUF_FOUR_WIDTHS, TX_GGUF_HEADS } tx_gguf_otherwise;

typedef struct tx_gguf_type {
    const char *type, *architecture;
    tx_gguf_family family;
    bool pairs;
} tx_gguf_type;

typedef struct tx_gguf_key {
    tx_gguf_family family;
    const char *key, *name;
    tx_gguf_kind kind;
    tx_gguf_otherwise otherwise;
} tx_gguf_key;

typedef struct tx_gguf_fixed {
    const char *type, *name;
    bool value;
} tx_gguf_fixed;

/* The tables; a NULL ends each. */
extern const tx_gguf_type tx_gguf_types[];
extern const tx_gguf_key tx_gguf_keys[];
extern const tx_gguf_fixed tx_gguf_fixed_keys[];

/* What a file says of its model. */
typedef struct tx_gguf_model {
    const tx_gguf_type *type;
    tx_config *config; /* the caller frees it */
    int64_t kv_heads;  /* of a GPT-2 0 */
} tx_gguf_model;
tx_status tx_gguf_model_read(const tx_gguf_file *file, tx_gguf_model *model);

#define TX_GGUF_OUTPUT "output.weight"
#define TX_GGUF_EMBEDDING "token_embd.weight"

/* Room for "qwen2.attention.layer_norm_rms_epsilon" and all others; the key of an architecture. */
#define TX_GGUF_KEY_ROOM 96
#define TX_GGUF_NAME_ROOM 72
char *tx_gguf_key_of(char key[TX_GGUF_KEY_ROOM], const char *architecture, const char *rest);

/* Frequencies of rotary positions that are scaled as "llama3" are a tensor, a factor a pair. */
#define TX_GGUF_ROPE_FACTORS "rope_freqs.weight"
void tx_gguf_rope_factors(const tx_rope_config *rope, int64_t pairs, float *factors);
/* Rotary positions to a file's values, and to config.json's: what the file has as "linear" or "yarn", or as factors of
 * `pairs` pairs (NULL: none). */
void tx_gguf_put_rope(tx_gguf_writer *writer, const char *architecture, const tx_rope_config *rope, int64_t size);
tx_status tx_gguf_get_rope(const tx_gguf_file *file, const char *architecture, const float *factors, int64_t pairs,
                           tx_json *config);

/* How a tensor lies in one kind of file and in the other. */
typedef struct tx_gguf_layout {
    char name[TX_GGUF_NAME_ROOM]; /* in GGUF files */
    tx_gguf_form form;
    int64_t heads;       /* of the rows, where these go in pairs */
    int64_t rows, width; /* of what is written; of a vector each row is one number */
} tx_gguf_layout;

/* The layout of the tensor that Hugging Face's files call `param`; TX_UNSUPPORTED where GGUF has none. `shape` is that
 * of Hugging Face's, `to_gguf` says which is written. `heads`, `of_kv`: of queries, of keys. */
tx_status tx_gguf_layout_of(const tx_gguf_type *type, const char *param, const tx_shape *shape, bool to_gguf,
                            int64_t heads, int64_t of_kv, tx_gguf_layout *layout);

/* Reads elements of a tensor. */
typedef tx_status tx_gguf_source(const void *from, int32_t index, int64_t first, int64_t count, float *data);

/* Reads tensors of one kind of file in the order of the other. */
typedef struct tx_gguf_reader {
    tx_gguf_source *read;
    const void *from;
    bool to_gguf;
    int32_t held; /* the matrix that was turned last, -1: none; */
    float *whole; /* as it lies */
} tx_gguf_reader;
/* Elements first..first+count-1 of tensor `index`, both multiples of the block that the source has. */
tx_status tx_gguf_read_as(tx_gguf_reader *reader, const tx_gguf_layout *layout, int32_t index, int64_t first,
                          int64_t count, float *data);
void tx_gguf_reader_free(tx_gguf_reader *reader);

#endif
