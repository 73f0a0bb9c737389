/* SPDX-License-Identifier: Apache-2.0
 * The configuration of the Llama family: the members of all types, and their functions. */
#ifndef TX_MODELS_LLAMA_CONFIG_H
#define TX_MODELS_LLAMA_CONFIG_H

#include "api/base/arithmetic.h"
#include "models/arch/families.h"
#include "models/arch/rope.h"
#include "models/arch/stack.h"

#define TX_LLAMA_LAYERS (1 << 12)        /* limit */
#define TX_LLAMA_EXPERT_LAYERS (1 << 10) /* limit for models with experts */
#define TX_LLAMA_LISTED 128              /* limit for models with a list of numbers of layers */
#define TX_LLAMA_STREAMS 4

/* A set of layers. */
typedef struct tx_layer_set {
    bool listed; /* the file lists the layers; else other keys select them */
    uint64_t bits[TX_LLAMA_LAYERS / 64];
} tx_layer_set;

static inline bool has_layer(const tx_layer_set *set, int64_t layer)
{
    return set->bits[layer / 64] >> layer % 64 & 1u;
}

static inline void add_layer(tx_layer_set *set, int64_t layer)
{
    set->bits[layer / 64] |= UINT64_C(1) << layer % 64;
}

static inline void remove_layer(tx_layer_set *set, int64_t layer)
{
    set->bits[layer / 64] &= ~(UINT64_C(1) << layer % 64);
}

/* The activations of MLPs. GELU_NEW and GELU_FAST are the tanh form of GELU. */
enum {
    TX_LLAMA_SILU,
    TX_LLAMA_GELU_TANH,
    TX_LLAMA_GELU,
    TX_LLAMA_GELU_NEW,
    TX_LLAMA_GELU_FAST,
    TX_LLAMA_RELU2,
    TX_LLAMA_RELU,
    TX_LLAMA_XIELU
};
extern const char *const tx_llama_activations[];

/* Recurrent mixers (mixer.h), and the limits of their sizes. */
enum { TX_MIXER_DELTA, TX_MIXER_MAMBA2, TX_MIXER_CONV, TX_MIXER_LIGHTNING };
enum { TX_LLAMA_MULTIPLIERS = 5 }; /* of sections of columns, at most */
enum { TX_MIXER_TAPS = 8, TX_MIXER_HEADS = 1024, TX_MIXER_SIZE = 256 };

/* Members are mathematics. Each family's table of keys maps its names in config.json to them. */
typedef struct llama_config {
    tx_config base;
    const tx_stack_row *rows;        /* the table of the family's tensors */
    int64_t max_position_embeddings; /* base.positions is longer if scaling extends it (tx_rope_positions) */
    int64_t padding;                 /* 1 + pad_token_id, whose embedding gets no gradient; 0 without one */
    double initializer_range;
    bool tie_word_embeddings;
    int64_t mtp_layers; /* layers for multi-token prediction after the others in files, which TX does not read */
    struct {
        bool by_root_of_width; /* embeddings are multiplied by sqrt(width) */
        double multiplier;     /* 0 means 1, as for other multipliers */
        bool projected;        /* matrices map embeddings of another width to the blocks, and back to the head */
        int64_t width;         /* that width; 0 means the blocks' */
        int64_t layer_width;   /* of the further embedding of each layer (layer_inputs.c); 0 means none */
        int64_t layer_vocab;   /* rows of its table in the file */
        int64_t layerless;     /* tokens at the end of the vocabulary that this table has no rows for */
        double dropout;
    } embedding;
    struct {
        int64_t kv_heads;      /* 0 means the number of query heads (null in the file) */
        int64_t head_dim;      /* 0 means width / heads */
        bool bias;             /* of the output projection, and of q, k and v unless a key says otherwise */
        bool qkv_bias;         /* q, k and v have biases */
        bool by_head;          /* in files q, k and v of a head are adjacent */
        bool by_group;         /* in files the heads of q that share k and v are adjacent to these */
        bool gated;            /* each head of q is followed by the gate of its output */
        bool multi_query;      /* all heads of q share a head of k and v */
        double dropout;        /* of the attention's weights */
        int64_t query_scalar;  /* scores are divided by its root. 0 uses `multiplier` */
        double multiplier;     /* the scale of the scores; 0 means 1 / sqrt(head size) */
        double key_multiplier; /* of the keys; 0 means 1 */
        double in, out;        /* of input and result next to a mixer; 0 means 1 */
        double cap;            /* c tanh(score / c), or 0 without a cap */
        double clip;           /* the limit of q, k and v; 0 means none */
        bool clips_norms;      /* the limit applies after the norms of q and k */
        double scale_growth;   /* queries are multiplied by 1 + growth ln(1 + floor(position / original length)), */
        int64_t scale_step;    /* or with this, in layers without rotary positions, (position + 1) / step */
        bool chunked;          /* the window is the position's own chunk of so many */
        int64_t window;        /* of layers with a sliding window; 0 means no window */
        bool windowed;         /* false if no layer has the window */
        tx_layer_set windows;  /* the layers with the window, if they are listed */
        int64_t window_period; /* else the period of layers without it */
        int64_t first_window;  /* else (0) the first layer with it */
        bool both;             /* positions also see later ones, and half of the window on each side */
        /* Layers that differ (layer_attention.c). Those without a window may have other heads, and values that are the
         * keys before their norm. The last ones have no keys and values: they use those of the last layer of their kind
         * before them. */
        bool differs;
        int64_t full_head_dim, full_kv_heads; /* 0 means the same heads */
        bool keys_as_values;
        int64_t borrowing; /* the number of those last layers */
        int64_t lending;   /* with some, the number of layers before them */
    } attention;
    struct {
        int64_t rank;           /* of the latent that keys and values are computed from; 0 means none */
        int64_t query_rank;     /* of the latent of queries; 0 means none */
        int64_t plain, rotated; /* elements of a head of q and k without and with rotary positions */
        int64_t value;          /* elements of a head of v */
        bool pairs;             /* the elements that rotate together are adjacent */
        double sharpness;       /* factor of the scores, from "mscale_all_dim" of YaRN */
        /* The index of sparse attention chooses so many positions, those of the greatest scores: all, because rows are
         * at most as long. TX keeps its weights as they are. */
        int64_t index_most, index_heads, index_size;
        tx_layer_set index_shared; /* layers that use the index of an earlier one */
    } latent;
    struct {
        double eps;
        bool add_one;    /* weights of norms are 1 + gamma */
        bool centred;    /* norms without a bias are layer norms, too */
        bool heads;      /* the heads of q and k are normalised, if the family has such weights */
        bool whole;      /* all heads of q, and of k, are normalised together */
        bool each;       /* each head of q and k is normalised by a layer norm, if the family has such weights */
        bool bare;       /* norms before attention, MLP and head have no weights */
        bool bare_heads; /* nor have those after the embedding, and of the heads of q and k */
        bool after_sum;  /* norms follow the additions of attention and MLP */
        bool after_rope; /* heads are normalised after their rotation */
    } norms;
    struct {
        int64_t inner; /* 0 means 4 width */
        bool rounds;   /* the real size is 2/3 of `inner` times `factor`, rounded up to `multiple` */
        double factor;
        int64_t multiple;
        bool bias;
        bool plain;                      /* no gate */
        bool wide_if_borrowing;          /* layers that use keys and values of others have twice the size */
        double multipliers[2];           /* of gates and results */
        int32_t sizes[TX_LLAMA_LISTED];  /* the inner widths of layers; 0 means `inner` */
        float sparsity[TX_LLAMA_LISTED]; /* the part of gates that become 0 (altup.c); 0 means that all are used */
        int32_t choice, activation;      /* the activation is the sum: `activation` is the first one of the family */
    } mlp;
    struct {
        tx_rope_config rope;
        bool has_local;       /* layers with a window have rotary positions of their own */
        tx_rope_config local; /* those positions */
        bool interleaved;     /* pairs that rotate are adjacent elements of a head */
        bool reversed;        /* pairs rotate by negative angles */
        bool only_windows;    /* if there is a window, only its layers have rotary positions */
        tx_layer_set none;    /* the layers without rotary positions, if they are listed */
        int64_t none_period;  /* else their period, or 0 */
        bool learned;         /* a table of positions, no rotary ones */
        int64_t first;        /* the row of that table for the first position */
        bool alibi;           /* biases of distances (alibi.h), no rotary positions */
        bool rounded_alibi;   /* as tx_alibi.rounded */
    } positions;
    struct {
        bool parallel;         /* attention and MLP both take the block's input */
        bool two_norms;        /* then each has a norm of its own */
        double multiplier;     /* of the parts that a block adds */
        double dropout;        /* of these parts */
        double hidden_dropout; /* other dropouts, which must be 0 */
        /* The stream is the result of each norm. It and the part that is added to it have factors: next to attention,
         * recurrent mixers and MLPs. */
        bool normed;
        double factors[3][2]; /* 0 means 1 */
    } residual;
    struct {
        bool alternate;   /* several residual streams, of which blocks compute the first (altup.c) */
        int64_t low_rank; /* of the matrices next to the attention */
        double limit;     /* of the coefficients' weights in training; 0 means none */
    } streams;
    struct {
        int64_t count;        /* 0 in models without experts */
        int64_t chosen;       /* of a token */
        int64_t inner;        /* 0 means mlp.inner */
        int64_t shared;       /* number of experts that all tokens use */
        int64_t shared_inner; /* their size together; 0 means that of as many experts */
        bool with_mlp;        /* layers also have an MLP, and its result and that of the experts have norms */
        bool scales_inputs;   /* the weights scale the inputs of the experts, not their results */
        bool averaged;        /* the result is the mean of theirs and that of the others, else the sum */
        int64_t period;       /* of layers with experts */
        int64_t first, last;  /* the first and the last of them; below 0 there is no last one */
        tx_layer_set dense;   /* layers of this period that have an MLP nevertheless */
        bool normalise;       /* the weights of a token's experts are scaled to sum 1 */
        bool biased;          /* a bias chooses the experts, if it depends on a key whether the family has one */
        bool sigmoid;         /* scores are the sigmoid of the router's logits, not their softmax */
        /* A token's experts are of `kept` groups (tx_expert_choice); with fewer than 2 groups, of any. */
        int64_t groups, kept, best;
        int32_t grouping; /* 0 ignores the groups */
        double least;     /* the weights are divided by this if it is greater than their sum */
        double scale;     /* of the weights; 0 means 1 */
        bool balance;     /* add the load-balancing loss */
        double balance_factor, jitter;
        double mixer;        /* as in tx_experts */
        double limit, alpha; /* clamped SwiGLU of interleaved gates. 0 means plain SwiGLU */
    } experts;
    struct {
        tx_layer_set layers; /* that are recurrent instead of attending */
        int32_t kind;
        int64_t taps; /* of the convolution */
        int64_t k_heads, v_heads, k_size, v_size;
        bool conv_bias;
        bool joined;       /* in files, q, k and v of a head of keys are adjacent, and the gates of DeltaNets */
        bool parallel;     /* recurrent layers have attention, too, and add both results */
        tx_layer_set mlps; /* layers that are only an MLP, in models of such blocks: */
        bool alone;        /* a block has one part: a mixer, attention, an MLP or experts */
        bool norm;         /* Mamba-2 normalises its results */
        bool norm_first;   /* the norm comes before the gate */
        double in, out;    /* multipliers of inputs and outputs */
        double multipliers[TX_LLAMA_MULTIPLIERS]; /* those of Mamba-2's gates, x, B, C and steps */
        double low, high;                         /* limits of Mamba-2's step; a `high` of 0 means none */
    } mixer;
    struct {
        double divisor; /* 0 means 1 */
        double multiplier;
        double cap; /* c tanh(logits / c), or 0 without a cap */
        bool bias;  /* the head has one, if the family has such a parameter */
    } logits;
} llama_config;

static inline const llama_config *llama_of(const tx_config *config)
{
    return (const llama_config *)config;
}

static inline int64_t head_size(const llama_config *c)
{
    if (c->latent.rank)
        return c->latent.plain + c->latent.rotated;
    return c->attention.head_dim ? c->attention.head_dim : c->base.width / c->base.heads;
}

/* Returns true if a layer has experts, instead of an MLP or next to it (experts.with_mlp). */
static inline bool is_sparse(const tx_config *config, int64_t layer)
{
    const llama_config *c = llama_of(config);
    return c->experts.count > 0 && (layer + 1) % c->experts.period == 0 && layer >= c->experts.first &&
           (c->experts.last < 0 || layer <= c->experts.last) && !has_layer(&c->experts.dense, layer);
}

static inline bool is_dense(const tx_config *config, int64_t layer)
{
    return !is_sparse(config, layer);
}

/* The inner width of MLPs. */
static inline int64_t mlp_size(const llama_config *c)
{
    if (!c->mlp.rounds)
        return c->mlp.inner ? c->mlp.inner : 4 * c->base.width;
    const int64_t size = (int64_t)(c->mlp.factor * (double)(2 * c->mlp.inner / 3));
    return tx_round_up(size, c->mlp.multiple);
}

static inline int64_t expert_size(const llama_config *c)
{
    return c->experts.inner ? c->experts.inner : c->mlp.inner;
}

/* The inner width of the experts that all tokens use; 0 without any. */
static inline int64_t shared_size(const llama_config *c)
{
    return c->experts.shared_inner ? c->experts.shared_inner : c->experts.shared * expert_size(c);
}

/* Returns true if a layer has such experts. */
static inline bool has_shared(const tx_config *config, int64_t layer)
{
    return is_sparse(config, layer) && shared_size(llama_of(config)) > 0;
}

static inline int64_t kv_heads(const llama_config *c)
{
    return c->attention.kv_heads ? c->attention.kv_heads : c->base.heads;
}

/* Whether a layer has the window. */
static inline bool slides(const llama_config *c, int64_t layer)
{
    if (c->attention.windows.listed)
        return has_layer(&c->attention.windows, layer);
    return c->attention.window_period > 0 ? (layer + 1) % c->attention.window_period != 0
                                          : c->attention.windowed && layer >= c->attention.first_window;
}

/* The sliding window of a layer in positions, or 0 for full attention. */
static inline int64_t window_of(const llama_config *c, int64_t layer)
{
    return c->attention.windowed && slides(c, layer) ? c->attention.window : 0;
}

/* The sizes of heads without a window, and those of a layer. */
static inline int64_t full_head_size(const llama_config *c)
{
    return c->attention.full_head_dim ? c->attention.full_head_dim : head_size(c);
}

static inline int64_t head_size_of(const llama_config *c, int64_t layer)
{
    return slides(c, layer) ? head_size(c) : full_head_size(c);
}

static inline int64_t kv_heads_of(const llama_config *c, int64_t layer)
{
    return c->attention.full_kv_heads && !slides(c, layer) ? c->attention.full_kv_heads : kv_heads(c);
}

/* Whether a layer has keys of its own. */
static inline bool has_keys(const tx_config *config, int64_t layer)
{
    const llama_config *c = llama_of(config);
    return c->attention.borrowing == 0 || layer < c->attention.lending;
}

/* Whether a layer has values of its own, and whether it has keys that are the values. */
static inline bool has_values(const tx_config *config, int64_t layer)
{
    const llama_config *c = llama_of(config);
    return has_keys(config, layer) && !(c->attention.keys_as_values && !slides(c, layer));
}

static inline bool has_only_keys(const tx_config *config, int64_t layer)
{
    return has_keys(config, layer) && !has_values(config, layer);
}

static inline bool has_only_queries(const tx_config *config, int64_t layer)
{
    return !has_keys(config, layer);
}

/* The rows of the table of the layers' embeddings. Tokens from there on have its first row. */
static inline int64_t layer_rows(const llama_config *c)
{
    return c->base.vocab_size - c->embedding.layerless;
}

/* The inner width of a layer's MLP. */
static inline int64_t mlp_size_of(const llama_config *c, int64_t layer)
{
    if (layer < TX_LLAMA_LISTED && c->mlp.sizes[layer] > 0)
        return c->mlp.sizes[layer];
    return c->mlp.wide_if_borrowing && !has_keys(&c->base, layer) ? 2 * mlp_size(c) : mlp_size(c);
}

/* The part of a layer's gates that become 0; 0 means that all are used. */
static inline float sparsity_of(const llama_config *c, int64_t layer)
{
    return layer < TX_LLAMA_LISTED ? c->mlp.sparsity[layer] : 0.0f;
}

/* Whether a layer has rotary positions. */
static inline bool has_rope(const llama_config *c, int64_t layer)
{
    if (c->positions.learned || c->positions.alibi)
        return false;
    if (c->positions.only_windows)
        return !c->attention.window || window_of(c, layer) > 0;
    if (c->positions.none.listed)
        return !has_layer(&c->positions.none, layer);
    return c->positions.none_period == 0 || (layer + 1) % c->positions.none_period != 0;
}

/* A word of a list with one for each layer, and the set that the layer joins, or NULL. The last word is NULL. */
typedef struct tx_layer_word {
    const char *word;
    tx_layer_set *layers;
} tx_layer_word;

/* Reads the list `key`, which must exist. Other words, and fewer than `layers`, are refused. */
tx_status tx_llama_read_words(const tx_json *json, const char *key, int64_t layers, const tx_layer_word *words);
/* Reads the layers without rotary positions from "no_rope_layers", unless it is absent or empty. */
tx_status tx_llama_read_no_rope(const tx_json *json, llama_config *config);
/* Reads the list "layer_types": "sliding_attention" or "full_attention" for each layer. */
tx_status tx_llama_read_layer_types(const tx_json *json, llama_config *config);
/* Reads the settings of layers with and without a window from "rope_parameters" of version 5 of transformers. */
tx_status tx_llama_read_ropes(const tx_json *json, tx_config *config);
/* Reads from the settings of rotary positions how queries grow with their position; without them, the defaults remain.
 */
tx_status tx_llama_read_growth(const tx_json *json, llama_config *config);
/* Reads a cap of scores or logits; null means none. */
tx_status tx_llama_read_cap(const tx_json *json, const char *key, double *cap);
/* Reads a list of numbers of layers, which is empty if the file has none. */
tx_status tx_llama_read_layers(const tx_json *json, const char *key, tx_layer_set *set);
/* Reads the layers without experts from a list of "sparse" or "dense" for each layer, if there is one. */
tx_status tx_llama_read_mlp_types(const tx_json *json, llama_config *config);
/* The functions read, write and check of tx_architecture. */
tx_status tx_llama_read(const tx_json *json, tx_config *config);
/* The same for types that list the layers with a window. */
tx_status tx_llama_read_windows(const tx_json *json, tx_config *config);
/* The same for types whose head_dim may not be null in transformers. */
tx_status tx_llama_read_sized(const tx_json *json, tx_config *config);
/* The same for types whose embedding of padding is trained, too. */
tx_status tx_llama_read_unpadded(const tx_json *json, tx_config *config);
tx_status tx_llama_write(const tx_config *config, tx_json *json);
tx_status tx_llama_check(const tx_config *config);
/* Checks what layer_attention.c does not implement: the layers that share keys and values, and rotary positions. */
tx_status tx_llama_check_layer_attention(const tx_config *config);

#endif
