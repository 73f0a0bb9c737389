/* SPDX-License-Identifier: Apache-2.0
 *
 * How GGUF files store a model type, as llama.cpp's convert_hf_to_gguf.py maps it: a part of its row in the table of
 * architectures. Tensors have names by their slots, and keys by the members of the configuration that they hold, so
 * that a type with other names in Hugging Face's files needs none here. */
#ifndef TX_ARCH_GGUF_FAMILY_H
#define TX_ARCH_GGUF_FAMILY_H

#include "models/arch/rope.h"
#include "models/arch/stack.h"
#include "models/gguf/gguf_file.h"
#include "models/report.h"

/* The layout of a tensor in GGUF files. */
typedef enum tx_gguf_form {
    TX_GGUF_PLAIN,   /* as in Hugging Face's */
    TX_GGUF_TURNED,  /* transposed: [out, in] instead of [in, out] */
    TX_GGUF_PAIRS,   /* the rows of a head that rotate together are adjacent */
    TX_GGUF_BY_HEAD, /* Hugging Face's files have query, key and value of a head together */
    TX_GGUF_SHIFTED, /* values are greater by 1 */
    TX_GGUF_GATES,   /* two transposed tensors, gates and ups, whose columns alternate in Hugging Face's files */
    TX_GGUF_HALVES,  /* two tensors: ups follow the gates of an expert in Hugging Face's files */
    TX_GGUF_COLUMNS, /* as GATES, but the columns of ups follow those of gates */
    /* Of recurrent layers with more heads of values than of keys. Head i r + j, which uses head i of `heads` heads of
     * keys, is head j heads + i in GGUF files. */
    TX_GGUF_TILED,         /* rows */
    TX_GGUF_TILED_COLUMNS, /* columns */
    TX_GGUF_NETS,          /* two tensors, q | k | v and gates, that Hugging Face's files have by heads of keys */
    /* Two tensors that Hugging Face's files have by heads: the transposed matrices that expand keys from a latent, and
     * those that expand values. */
    TX_GGUF_LATENTS
} tx_gguf_form;

/* How GGUF files change the values. */
typedef enum tx_gguf_change {
    TX_GGUF_SAME,
    TX_GGUF_DECAY, /* -exp(x) */
    TX_GGUF_SCALED /* rows are multiplied by numbers of the configuration, which an import sets to 1 */
} tx_gguf_change;

/* The name of the tensor in a slot. Bars separate the tensors of sections; a row needs as many sections as the row of
 * the table of tensors has. GATES, HALVES and COLUMNS have the name of gates. "%d" is the index of the block. */
typedef struct tx_gguf_name {
    int32_t slot;
    const char *name;
    size_t first; /* of rows with this tx_stack_row.first */
} tx_gguf_name;

typedef enum tx_gguf_kind { TX_GGUF_INT, TX_GGUF_NUMBER, TX_GGUF_BOOL, TX_GGUF_WORD } tx_gguf_kind;
typedef enum tx_gguf_otherwise {
    TX_GGUF_NOTHING,
    TX_GGUF_FOUR_WIDTHS,
    TX_GGUF_HEADS,
    TX_GGUF_CONSTANT
} tx_gguf_otherwise;

typedef struct tx_gguf_layout tx_gguf_layout; /* gguf.h */

typedef struct tx_gguf_key {
    const char *key; /* in GGUF files, after the architecture */
    /* The value in config.json: that of the key with this member, or of this name. A member without a key has the same
     * value in all models of the type. */
    size_t member;
    const char *name;
    tx_gguf_kind kind;
    /* What an export writes if config.json has no value; NOTHING omits the key. If config.json has no such key, an
     * import refuses files with another value. */
    tx_gguf_otherwise otherwise;
    double constant;
    /* For whole numbers; may be NULL. An export writes this value. An import stores the file's under `name`. */
    int64_t (*value)(const tx_config *config);
    /* For whole numbers; may be NULL. Layers that this is false for have 0, and the file has a list if there are any.
     */
    bool (*in)(const tx_config *config, int64_t layer);
    /* The same for numbers of layers, of which the file has a list if they differ. Only tx_gguf_family.read reads it.
     */
    int64_t (*of_layer)(const tx_config *config, int64_t layer);
} tx_gguf_key;

/* A key of config.json that llama.cpp ignores, and the value that it assumes. */
typedef struct tx_gguf_fixed {
    const char *name;
    bool value;
} tx_gguf_fixed;

/* The model of an export: its complete configuration, and where warnings go. */
typedef struct tx_gguf_exported {
    const tx_config *config;
    const tx_json *json;
    const tx_reporter *report;
} tx_gguf_exported;

/* What types with the same slots share. Lists end with NULL. */
typedef struct tx_gguf_scheme {
    const tx_stack_row *(*rows)(const tx_config *config); /* the table of tensors */
    const tx_gguf_name *names;
    const tx_gguf_key *keys;
    /* The layout of a section of a tensor. PAIRS and BY_HEAD set the number of heads. */
    tx_gguf_form (*form)(const tx_config *config, const tx_stack_row *row, int32_t section, int64_t *heads);
    /* Rotary positions, or NULL if the type has none. */
    const tx_rope_config *(*rope)(const tx_config *config, int64_t *head_size);
    /* The keys of config.json that say whether tensors exist, whose names follow "blk.%d.". */
    struct {
        size_t member;
        const char *tensor;
    } flags[7];       /* the last one is empty */
    bool encoder;     /* a file has no head */
    bool token_types; /* a file has their number */
} tx_gguf_scheme;

typedef struct tx_gguf_family {
    const char *architecture; /* general.architecture */
    const tx_gguf_scheme *scheme;
    /* An import chooses between types of one architecture: a file must have the key (after the architecture) or tensor
     * (of a block: after "blk.%d.") `with`, and none of `without`. */
    const char *with, *without[2];
    bool export_only;  /* a file becomes another type */
    const char *never; /* why no file is written or read, or NULL */
    bool halves;       /* gates and ups of MLPs, which are one tensor in Hugging Face's files, are two */
    bool pairs;        /* rows of queries and keys that rotate together are adjacent */
    bool rope_factors; /* llama.cpp reads factors of "llama3"; it refuses other files with them */
    bool some_pairs;   /* all files have factors, which say which pairs rotate */
    bool whole_ramp;   /* "yarn": published models do not truncate; llama.cpp always does */
    bool level_yarn;   /* "yarn": files say that sines and cosines have no factor */
    bool latent;       /* keys and values come from a latent; all of the rotary part of a head rotates */
    const char *gelu;  /* the key of a GELU, which llama.cpp computes in its tanh form */
    /* These may be NULL. Names and keys replace those of the scheme. */
    const tx_gguf_name *names;
    const tx_gguf_key *keys;
    const tx_gguf_fixed *fixed;
    /* Returns TX_UNSUPPORTED and names the key if llama.cpp would compute the model differently. */
    tx_status (*check)(const tx_gguf_exported *model);
    /* Write further keys, and derive what config.json has of them. */
    void (*put)(const tx_config *config, tx_gguf_writer *writer);
    tx_status (*read)(const tx_gguf_file *file, tx_json *json);
    /* Completes the layout of a tensor, whose form and shape are set. */
    void (*lay)(const tx_config *config, const tx_stack_row *row, int32_t section, tx_gguf_layout *layout);
    /* llama.cpp has another architecture for some models of the type. An import reads both. */
    const struct tx_gguf_family *other;
    bool (*is_other)(const tx_config *config);
} tx_gguf_family;

#define TX_GGUF_FIXED(...)           \
    .fixed = (const tx_gguf_fixed[]) \
    {                                \
        __VA_ARGS__,                 \
        {                            \
            .name = NULL             \
        }                            \
    }
#define TX_GGUF_OWN_KEYS(...)     \
    .keys = (const tx_gguf_key[]) \
    {                             \
        __VA_ARGS__,              \
        {                         \
            .key = NULL           \
        }                         \
    }
#define TX_GGUF_OWN_NAMES(...)      \
    .names = (const tx_gguf_name[]) \
    {                               \
        __VA_ARGS__,                \
        {                           \
            .name = NULL            \
        }                           \
    }

#define TX_GGUF_NAME(slot_, name_)       \
    {                                    \
        .slot = (slot_), .name = (name_) \
    }
#define TX_GGUF_MEMBER(key_, member_, kind_, otherwise_)                                               \
    {                                                                                                  \
        .key = (key_), .member = (member_), .kind = TX_GGUF_##kind_, .otherwise = TX_GGUF_##otherwise_ \
    }
#define TX_GGUF_NAMED(key_, name_, kind_)                       \
    {                                                           \
        .key = (key_), .name = (name_), .kind = TX_GGUF_##kind_ \
    }

#define TX_GGUF_OUTPUT "output.weight"
#define TX_GGUF_EMBEDDING "token_embd.weight"
#define TX_GGUF_TYPES "token_types.weight"
#define TX_GGUF_HEAD_COUNT "attention.head_count"
#define TX_GGUF_EXPERTS "expert_count"
#define TX_GGUF_MTP "nextn_predict_layers"
#define TX_GGUF_WINDOW "attention.sliding_window"
#define TX_GGUF_WINDOWS "attention.sliding_window_pattern"
#define TX_GGUF_TANH_WARNING ": llama.cpp computes gelu_new, which differs by up to 0.0005"

/* The family that stores a model. */
const tx_gguf_family *tx_gguf_family_of(const tx_config *config);

/* Makes the key of an architecture. The room is enough for "qwen2.attention.layer_norm_rms_epsilon" and all others. */
#define TX_GGUF_KEY_ROOM 96
char *tx_gguf_key_of(char key[TX_GGUF_KEY_ROOM], const char *architecture, const char *rest);
/* The same of the architecture that the file has. */
tx_status tx_gguf_own_key(const tx_gguf_file *file, const char *rest, char key[TX_GGUF_KEY_ROOM]);

/* ---- Variants of Llama (llama_gguf.c) -------------------------------------------------------------------- */

/* With RMS norms, and with layer norms. */
extern const tx_gguf_scheme tx_llama_gguf, tx_llama_gguf_centred;
/* Checks that all layers have a window except every `period`-th, as llama.cpp derives it from the type. */
tx_status tx_llama_gguf_windows(const tx_gguf_exported *model, int period);
/* Makes the list layer_types that transformers needs; `slides` may be NULL. */
tx_status tx_llama_gguf_set_windows(tx_json *json, int64_t layers, const double *slides);
/* The number of layers before the first one with experts. */
int64_t tx_llama_gguf_dense(const tx_config *config);
/* Checks that layers before the first one with experts are dense, and others are not, and how groups are chosen. */
tx_status tx_llama_gguf_check_experts(const tx_gguf_exported *model);
/* Checks that there are as many heads of keys as of queries. */
tx_status tx_llama_gguf_check_heads(const tx_gguf_exported *model);
/* The width of the shared experts together. */
int64_t tx_llama_gguf_shared(const tx_config *config);
/* Sets the sizes of the parts of heads with a latent, of which `key` has the sum. */
tx_status tx_llama_gguf_read_latent(const tx_gguf_file *file, const char *key, tx_json *json);
/* Completes the configuration of a type with DeepSeek-V3's routing. Files count layers of multi-token prediction. */
tx_status tx_llama_gguf_read_experts(const tx_gguf_file *file, tx_json *json);

#endif
