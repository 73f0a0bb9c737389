/* SPDX-License-Identifier: Apache-2.0
 *
 * The static graph: tensors and nodes, as the passes see them. */
#ifndef TX_API_GRAPH_H
#define TX_API_GRAPH_H

#include "api/graph/op.h"

/* The values that an index tensor may hold; what is outside is refused when it is written. */
typedef struct tx_index_range {
    int64_t low, high; /* low <= index < high */
    bool ignore;       /* or TX_IGNORE_LABEL */
} tx_index_range;

struct tx_tensor {
    tx_graph *graph;
    int32_t id; /* its index in the graph */
    tx_dtype dtype;
    tx_shape shape;
    tx_arena_id arena;
    int64_t offset;   /* arena address */
    tx_tensor *base;  /* whose storage this is, when not its own (reshape, in place, view) */
    int64_t within;   /* bytes from the beginning of that storage */
    int32_t producer; /* index of the node; -1: none */
    int32_t param;    /* the parameter's number, of what a PARAM node gives; -1: no parameter */
    bool requires_grad, is_output, is_input;
    bool is_fixed; /* lies at `offset` in every plan; else the planner places it by its lifetime */
    tx_index_range range;
    char *name;          /* of inputs, parameters and states; else NULL */
    int32_t first, last; /* lifetime in nodes, of storage that is planned */
};

/* Attributes of a node: no control word and a factor of 1, except as named. */
#define TX_ATTRS(...) ((tx_attrs){.control = -1, .alpha = 1.0f, __VA_ARGS__})
#define TX_PLAIN TX_ATTRS()

typedef struct tx_node {
    tx_op op;
    tx_direction direction;
    int32_t block; /* of the architecture (tx_graph_block), also of what passes make of its nodes; 0: of none */
    tx_attrs attrs;
    tx_tensor *in[TX_MAX_IN];
    tx_tensor *out[TX_MAX_OUT];
} tx_node;

/* Bytes of the logits of a chunk of the classifier (tx_chunk). */
#define TX_CHUNK_BYTES (INT64_C(256) << 20)
#define TX_CROSSINGS 8 /* most tensors of a micro-batch from a stage to the next */

struct tx_graph {
    tx_model *model;
    tx_tensor **tensor;
    int32_t tensors;
    tx_node *node;
    int32_t nodes;
    tx_direction direction; /* of the nodes being added */
    int32_t block;          /* likewise */
    tx_tensor **loss; /* what tx_backward was given, until autodiff takes it: the gradients are those of the sum */
    int32_t losses;
    tx_dtype autocast;              /* what tx_graph_autocast was given */
    tx_checkpointing checkpointing; /* what tx_graph_checkpointing was given */
    bool offloads;                  /* tx_graph_offload_activations */
    int64_t chunk_bytes;            /* TX_CHUNK_BYTES, or what a test sets */
    tx_tensor **repeated; /* [repeats, repeated_tensors], of a graph of many micro-batches (tx_repeat): NULL, or the
                             tensor that one has in place of that of micro-batch 0; NULL: it is of one alone */
    int32_t repeats, repeated_tensors;
    tx_tensor *places; /* where the tokens of chunks of longer rows stand, once they are asked for (build.c) */
    /* Of a model that is divided among devices: what the next stage gets, and what this one has of the stage before,
     * inputs; in the same order, NULL behind the last. */
    tx_tensor *gone[TX_CROSSINGS + 1], *come[TX_CROSSINGS + 1];
    bool planned;     /* has been given to a plan: storage is shared, so nothing may be added */
    tx_status status; /* of the first failure; its message is kept below */
    char message[512];
};

/* NULL for NULL. */
static inline tx_tensor *tx_tensor_root(tx_tensor *t)
{
    while (t && t->base)
        t = t->base;
    return t;
}

/* Where it lies in its root's arena. */
static inline int64_t tx_tensor_address(const tx_tensor *t)
{
    int64_t address = 0;
    for (; t->base; t = t->base)
        address += t->within;
    return address + t->offset;
}

static inline int64_t tx_tensor_bytes(const tx_tensor *t)
{
    return tx_dtype_bytes(t->dtype, tx_shape_count(&t->shape));
}

/* Whether it keeps what it holds while a plan runs, but for what the nodes of the graph that make it write. Of the
 * results that is the loss scale, which the update plan alone writes. */
static inline bool tx_tensor_lasts(tx_tensor *t)
{
    const tx_tensor *root = tx_tensor_root(t);
    const tx_arena_id arena = root->arena;
    return arena == TX_ARENA_PLANNED || arena == TX_ARENA_WEIGHTS || arena == TX_ARENA_KEPT ||
           arena == TX_ARENA_FROZEN || arena == TX_ARENA_HALF || arena == TX_ARENA_EXCHANGE || arena == TX_ARENA_TP ||
           (arena == TX_ARENA_RESULT && root->offset == TX_RESULT_LOSS_SCALE * (int64_t)sizeof(float));
}

/* A copy of a graph that has no plan and no losses, for another stage of its model (copy.c): parameters and states lie
 * where that stage has them, and tensors keep their numbers. */
tx_status tx_graph_copy(const tx_graph *graph, tx_model *stage, tx_graph **copy);

/* Keeps a failure as tx_graph_fail does, for functions that return NULL then. */
static inline void *tx_graph_refuse(tx_graph *graph, tx_status status)
{
    tx_graph_fail(graph, status);
    return NULL;
}

/* Fails once the graph has a plan; `what` begins the message. */
tx_status tx_graph_open(const tx_graph *graph, const char *what);
/* TX_OK, or the first failure with its message put back. */
tx_status tx_graph_check(const tx_graph *graph);

/* What a node is asked to be; all but op and in may be left out. */
typedef struct tx_emit_args {
    tx_op op;
    tx_attrs attrs;
    tx_tensor *in[TX_MAX_IN];
    const tx_dtype *dtype;      /* of output 0, where the op has a choice */
    const tx_shape *shape;      /* of output 0, where the op does not know it */
    tx_tensor *out[TX_MAX_OUT]; /* given tensors to write to (fixed storage); NULL: made here */
} tx_emit_args;

/* Validates and appends a node; the node's outputs go to `args->out`. Returns output 0 (NULL on failure, which the
 * graph keeps). */
tx_tensor *tx_emit(tx_graph *graph, tx_emit_args *args);
/* Emits an op by name for the graph of `first`. NULL is an earlier failure, which the graph has. */
#define TX_EMIT(first, NAME, attributes, ...) TX_EMIT_AS(first, NAME, attributes, NULL, NULL, __VA_ARGS__)
/* The same with the type and shape of output 0. */
#define TX_EMIT_AS(first, NAME, attributes, type, size, ...)                                                        \
    ((first)                                                                                                        \
         ? tx_emit((first)->graph,                                                                                  \
                   &(tx_emit_args){                                                                                 \
                       .op = TX_OP_##NAME, .attrs = attributes, .in = {__VA_ARGS__}, .dtype = type, .shape = size}) \
         : NULL)

/* The attributes of attention over qkv with these options. False if the options do not fit; the graph has the failure.
 */
bool tx_attention_attrs(tx_tensor *qkv, const tx_attention_options *options, tx_attrs *attrs);

/* A tensor on fixed storage (arena address `offset`), not made by a node. */
tx_tensor *tx_tensor_fixed(tx_graph *graph, tx_dtype dtype, tx_shape shape, tx_arena_id arena, int64_t offset);
/* A tensor that the planner places in an arena, PLANNED, OFFLOADED, EXCHANGE or TP, not made by a node. */
tx_tensor *tx_tensor_planned(tx_graph *graph, tx_dtype dtype, tx_shape shape, tx_arena_id arena);
/* A view: `shape` elements of `whole` from element `first` on, to be read or written in their place. */
tx_tensor *tx_tensor_view(tx_tensor *whole, int64_t first, tx_shape shape);
/* Narrows the values that may be written to an index input, unless it is NULL, to low .. high - 1 and, with `ignore`,
 * TX_IGNORE_LABEL. */
void tx_tensor_narrow(tx_tensor *t, int64_t low, int64_t high, bool ignore);
/* The scalar `result` of the model as a tensor [1]. */
tx_tensor *tx_tensor_result(tx_graph *graph, tx_result result);

/* Appends a copy of a node as it is, for ops that are not the user's; `*number` receives its number. */
tx_status tx_graph_append(tx_graph *graph, const tx_node *node, int32_t *number);

#endif
