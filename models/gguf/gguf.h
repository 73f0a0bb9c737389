/* SPDX-License-Identifier: Apache-2.0
 *
 * Export of model folders to GGUF files, which llama.cpp runs, and import. The rows of types have the names
 * (gguf_family.h). */
#ifndef TX_ARCH_GGUF_H
#define TX_ARCH_GGUF_H

#include "models/arch/pooling.h"
#include "models/gguf/gguf_family.h"
#include "models/gguf/gguf_importance.h"
#include "models/tx_convert.h"

/* Exports a model folder's weights, configuration and tokenizer to one file. After a failure there is no file. Tensors
 * have the types that llama.cpp would choose (tx_gguf_choose). Types of 2 to 6 bits round by `importance`, which may
 * be NULL. Fails if weights do not match the configuration or are not finite or too large, and if
 * llama.cpp would compute the model or the tokenizer differently. Memory holds at most one transposed matrix. `report`
 * may be NULL. */
tx_status tx_gguf_export(const char *folder, const char *path, tx_convert_type type, const tx_importance *importance,
                         const tx_reporter *report);
/* Imports a file as a folder that transformers loads: config.json, model.safetensors of `dtype` (F32, F16 or BF16; F32
 * keeps every value exactly), tokenizer.json. Fails if the folder already holds a model. config.json is written last.
 */
tx_status tx_gguf_import(const char *path, const char *folder, tx_dtype dtype, const tx_reporter *report);

/* Use a file like a model folder. The caller frees the configuration. The weights are read on demand; the last
 * transposed matrix is kept in memory. TX_UNSUPPORTED names an unknown architecture, type or tensor. */
tx_status tx_config_of_gguf(const char *path, tx_config **config);
tx_status tx_gguf_weights(const char *path, tx_weights **weights);
/* Makes `config` store the matrices that the file holds in blocks (TX_BLOCK_MAP) as they are, unless a parameter joins
 * matrices whose blocks differ in size, or the layout differs. Only one cpu device computes with them. */
tx_status tx_gguf_keep_blocks(const char *path, tx_config *config);

/* Makes training round the matrices of `config` (tx_rounding) to the types that tx_gguf_export would choose for `type`
 * without importance. TX_UNSUPPORTED for models that cannot be exported. */
tx_status tx_gguf_round(tx_config *config, tx_convert_type type);

/* ---- Shared by the files gguf_*.c ---------------------------------------------------------------------- */

/* The name of a row's value in config.json, or NULL if the type has no such key. */
const char *tx_gguf_name_of(const tx_architecture *type, const tx_gguf_key *row);
/* The value of a row in models without it in config.json: the member's, or the one that follows from others. 0 means
 * that there is none. */
double tx_gguf_other_value(const tx_config *config, const tx_gguf_key *row);
/* Calls a function for each row of a type: its own, and those of the scheme with other keys. */
typedef tx_status tx_gguf_visit(void *context, const tx_gguf_key *row);
tx_status tx_gguf_each_key(const tx_gguf_family *family, tx_gguf_visit *visit, void *context);

/* The value of a row with a whole number that is written, and whether config.json has it. */
tx_status tx_gguf_whole_of(const tx_gguf_exported *model, const tx_gguf_key *row, int64_t *whole, bool *has);
/* Writes all rows of the model's family. */
tx_status tx_gguf_put_keys(const tx_gguf_exported *model, tx_gguf_writer *writer);

/* Reads the configuration of a file. The caller frees it. */
tx_status tx_gguf_config(const tx_gguf_file *file, tx_config **config);

/* Makes the checks of an export that need no weights. */
tx_status tx_gguf_check_export(const char *folder);

/* Makes the checks of a type, and those that follow from its row. */
tx_status tx_gguf_check_settings(const tx_gguf_exported *model);

#define TX_GGUF_ARCHITECTURE "general.architecture"
#define TX_GGUF_NAME_ROOM 72

/* GGUF files store rope scaling of type "llama3" as a tensor: a divisor of the frequency for each pair. */
#define TX_GGUF_ROPE_FACTORS "rope_freqs.weight"
void tx_gguf_rope_factors(const tx_rope_config *rope, int64_t pairs, float *factors);
/* Write rope settings to a file's keys, and read them into the JSON of a config.json. A file has a "linear" or "yarn"
 * scaling, or `factors` for `pairs` pairs (may be NULL). The factor of sines and cosines is written if it is not
 * `usual`, that of llama.cpp: tx_gguf_yarn, in which `all` is the value of a key. */
#define TX_GGUF_YARN_ALL "scaling.yarn_log_multiplier"
double tx_gguf_yarn(double factor, double all);
void tx_gguf_put_rope(tx_gguf_writer *writer, const char *architecture, const tx_rope_config *rope, int64_t size,
                      double usual);
tx_status tx_gguf_get_rope(const tx_gguf_file *file, const tx_gguf_family *family, const float *factors, int64_t pairs,
                           tx_json *config);

/* Write how embeddings are made of hidden states, and read it. Without the key of llama.cpp `pooling` keeps its values.
 * TX_UNSUPPORTED names what llama.cpp does not compute. */
tx_status tx_gguf_put_pooling(tx_gguf_writer *writer, const char *architecture, const tx_pooling *pooling);
tx_status tx_gguf_get_pooling(const char *path, tx_pooling *pooling);

#define TX_GGUF_FACTORS 5

/* The layout of a tensor, which may differ between the two kinds of files. */
struct tx_gguf_layout {
    char name[TX_GGUF_NAME_ROOM]; /* in GGUF files */
    tx_gguf_form form;
    tx_gguf_change change;
    int64_t heads;   /* of the rows, for PAIRS and LATENTS; of keys, for BY_HEAD, TILED and NETS */
    int64_t rotated; /* for PAIRS: the rows of a head that rotate; 0 means all */
    int64_t keys;    /* rows of a head of q, and of k; for TILED: elements before those of values */
    /* Rows of a head of v, and of gates; for TILED: heads for each head of keys; for BY_HEAD: those of queries, or 0
     * for 1. */
    int64_t values;
    int64_t expert;      /* its index in a GGUF tensor of all experts' matrices; or -1 */
    tx_shape shape;      /* in GGUF files, without the dimension of experts that `expert` selects from */
    int64_t rows, width; /* of a written matrix; a vector has rows of width 1 */
    int64_t skipped;     /* in an export: the first rows, which the file does not have */
    bool is_ups;         /* for double tensors: this is the second one */
    int32_t ups;         /* for double tensors, in an import: index of the second one */
    /* For SCALED: factors of rows up to the ends; the last end is that of the rows. */
    struct {
        int64_t end;
        double factor;
    } factors[TX_GGUF_FACTORS];
};

/* Finds the layout of a piece (tx_arch_pieces). TX_UNSUPPORTED if GGUF has no such tensor. `to_gguf` is true for an
 * export. */
tx_status tx_gguf_layout_of(const tx_config *config, const tx_weights_piece *pieces, int32_t index, bool to_gguf,
                            tx_gguf_layout *layout);
/* Makes the layout of the second one of a double tensor from that of the first one. */
void tx_gguf_to_second(tx_gguf_layout *layout);

/* Reads elements of a tensor. */
typedef tx_status tx_gguf_source(const void *from, int32_t index, int64_t first, int64_t count, float *data);

/* Returns true if GGUF files have two tensors instead of one: gates and ups, q | k | v and gates, keys and values. */
static inline bool tx_gguf_is_double(const tx_gguf_layout *layout)
{
    return layout->form == TX_GGUF_GATES || layout->form == TX_GGUF_HALVES || layout->form == TX_GGUF_COLUMNS ||
           layout->form == TX_GGUF_NETS || layout->form == TX_GGUF_LATENTS;
}

/* Returns true if a tensor is not whole rows of one source in another order. */
static inline bool tx_gguf_is_computed(const tx_gguf_layout *layout)
{
    return layout->form == TX_GGUF_TURNED || layout->form == TX_GGUF_SHIFTED || layout->change != TX_GGUF_SAME ||
           layout->form == TX_GGUF_TILED_COLUMNS || tx_gguf_is_double(layout);
}

/* The row of the source that is row `row` in the other kind of file, for forms that change the order of rows. In an
 * import, `*second` says whether it is one of the second tensor. */
int64_t tx_gguf_source_row(const tx_gguf_layout *layout, bool to_gguf, int64_t row, bool *second);

/* Reads tensors of one kind of file in the layout of the other. */
typedef struct tx_gguf_reader {
    tx_gguf_source *read;
    const void *from;
    bool to_gguf;
    const tx_gguf_layout *held; /* the layout of the matrix or row in `whole`, or NULL */
    int64_t matrix;             /* its index in the tensor */
    float *whole;               /* a matrix before it is transposed, or a row before its columns change their order */
} tx_gguf_reader;
/* Reads elements first..first+count-1 of tensor `index`. Both must be multiples of the source's block size. */
tx_status tx_gguf_read_as(tx_gguf_reader *reader, const tx_gguf_layout *layout, int32_t index, int64_t first,
                          int64_t count, float *data);
void tx_gguf_reader_free(tx_gguf_reader *reader);

#endif
