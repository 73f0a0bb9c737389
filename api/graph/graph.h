/* SPDX-License-Identifier: Apache-2.0
 *
 * The static graph: its tensors and nodes. Builders create them and passes edit them (edit.h). */
#ifndef TX_API_GRAPH_H
#define TX_API_GRAPH_H

#include "api/graph/op.h"
#include "api/model/arena.h"

/* The values that an index tensor may contain. A write of any other value fails. */
typedef struct tx_index_range {
    int64_t low, high; /* low <= index < high */
    bool ignore;       /* TX_IGNORE_LABEL is allowed too */
} tx_index_range;

struct tx_tensor {
    tx_graph *graph;
    int32_t id; /* index in the graph */
    tx_dtype dtype;
    tx_shape shape;
    tx_arena_id arena;
    int64_t offset;   /* address in the arena */
    tx_tensor *base;  /* the tensor whose storage this one uses (reshape, in place, view), or NULL */
    int64_t within;   /* byte offset in that storage */
    int32_t producer; /* index of the node; -1 if none */
    int32_t param;    /* index of the parameter of a PARAM node's result; otherwise -1 */
    bool requires_grad, is_output, is_input;
    bool is_full;  /* a state that is fp32 in every model (tx_state_full) */
    bool is_fixed; /* at `offset` in every plan; otherwise the planner assigns the address by lifetime */
    tx_index_range range;
    char *name;          /* of inputs, parameters and states; otherwise NULL */
    int32_t first, last; /* first and last node of the lifetime of planned storage */
};

/* Attributes of a node. Unless named, there is no control and the factor is 1. */
#define TX_ATTRS(...) ((tx_attrs){.control = -1, .alpha = 1.0f, __VA_ARGS__})
#define TX_PLAIN TX_ATTRS()

typedef struct tx_node {
    tx_op op;
    tx_direction direction;
    /* Block of the architecture (tx_graph_block), or 0. Nodes that passes derive from a node have its block. */
    int32_t block;
    tx_attrs attrs;
    tx_tensor *in[TX_MAX_IN];
    tx_tensor *out[TX_MAX_OUT];
} tx_node;

/* Bytes of the logits in one chunk of the classifier (tx_chunk). */
#define TX_CHUNK_BYTES (INT64_C(256) << 20)
#define TX_CROSSINGS 8 /* most tensors that a micro-batch passes from one stage to the next */

struct tx_graph {
    tx_model *model;
    tx_tensor **tensor;
    int32_t tensors;
    tx_node *node;
    int32_t nodes;
    tx_rope **rope; /* rotary positions of nodes, each once: equal nodes have equal attributes */
    int32_t ropes;
    tx_direction direction; /* of the nodes that are added next */
    int32_t block;          /* of the nodes that are added next */
    /* Losses given to tx_backward, until autodiff consumes them. The gradients are those of their sum. */
    tx_tensor **loss;
    int32_t losses;
    tx_dtype autocast;              /* type given to tx_graph_autocast */
    tx_dtype residual;              /* type given to tx_graph_residual_dtype */
    bool fp32_residual_gradient;    /* tx_graph_fp32_residual_gradient was called */
    tx_checkpointing checkpointing; /* options given to tx_graph_checkpointing */
    bool offloads;                  /* tx_graph_offload_activations was called */
    bool exchanges;                 /* update nodes exchange weights and average (tx_optimizer_average) */
    bool whole_rows;                /* tx_graph_set_sequence ended sequence parallelism */
    int64_t chunk_bytes;            /* of logits, see tx_graph_limit_logits */
    /* [repeats, repeated_tensors] in a graph of many micro-batches (tx_repeat), otherwise NULL. The entry of a
     * micro-batch is its copy of a tensor of micro-batch 0, or NULL if there is only one for all. */
    tx_tensor **repeated;
    int32_t repeats, repeated_tensors;
    tx_tensor *starts, *starts_of; /* starts of whole rows, and this rank's part of them (parallel/heads.c) */
    tx_tensor *places; /* positions of the tokens in context-parallel chunks, once they are needed (build.c) */
    /* If the model is divided among devices: `sent` has the tensors for the next stage and `received` those from the
     * stage before, which are inputs. Both have the same order and end with NULL. */
    tx_tensor *sent[TX_CROSSINGS + 1], *received[TX_CROSSINGS + 1];
    bool planned;     /* has a plan, which shares its storage; nothing may be added */
    tx_status status; /* of the first failure, whose message follows */
    char message[512];
};

/* Returns the tensor that owns the storage of `t`; NULL for NULL. */
static inline tx_tensor *tx_tensor_root(tx_tensor *t)
{
    while (t && t->base)
        t = t->base;
    return t;
}

/* Returns the address in the arena of the tensor's root. */
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

/* Whether only nodes of the graph that create it write to the tensor while a plan runs. In arena RESULT only the loss
 * scale persists; only the update plan writes it. */
static inline bool tx_tensor_lasts(tx_tensor *t)
{
    const tx_tensor *root = tx_tensor_root(t);
    return tx_arena_info_of(root->arena)->lasts ||
           (root->arena == TX_ARENA_RESULT && root->offset == TX_RESULT_LOSS_SCALE * (int64_t)sizeof(float));
}

/* Copies a graph without plan and losses for another stage of its model (copy.c). Parameters and states get that
 * stage's addresses. Tensors keep their indices. */
tx_status tx_graph_copy(const tx_graph *graph, tx_model *stage, tx_graph **copy);

/* Records a failure like tx_graph_fail and returns NULL. */
static inline void *tx_graph_refuse(tx_graph *graph, tx_status status)
{
    tx_graph_fail(graph, status);
    return NULL;
}

/* Fails if the graph has a plan; `what` starts the message. */
tx_status tx_graph_open(const tx_graph *graph, const char *what);
/* Returns TX_OK, or the first failure and restores its message. */
tx_status tx_graph_check(const tx_graph *graph);

/* Arguments of a new node. Only `op` and `in` are required. */
typedef struct tx_emit_args {
    tx_op op;
    tx_attrs attrs;
    tx_tensor *in[TX_MAX_IN];
    const tx_dtype *dtype;      /* of output 0, if the op has a choice */
    const tx_shape *shape;      /* of output 0, if the operands do not determine it */
    tx_tensor *out[TX_MAX_OUT]; /* existing tensors to write to (fixed storage); NULL creates new ones */
} tx_emit_args;

/* Validates and appends a node and stores its outputs in `args->out`. Returns output 0, or NULL on failure, which the
 * graph records. */
tx_tensor *tx_emit(tx_graph *graph, tx_emit_args *args);
/* Emits an op in the graph of `first`. If `first` is NULL because of an earlier failure, it returns NULL. */
#define TX_EMIT(first, NAME, attributes, ...) TX_EMIT_AS(first, NAME, attributes, NULL, NULL, __VA_ARGS__)
/* The same with a type and a shape for output 0. */
#define TX_EMIT_AS(first, NAME, attributes, type, size, ...)                                                        \
    ((first)                                                                                                        \
         ? tx_emit((first)->graph,                                                                                  \
                   &(tx_emit_args){                                                                                 \
                       .op = TX_OP_##NAME, .attrs = attributes, .in = {__VA_ARGS__}, .dtype = type, .shape = size}) \
         : NULL)

/* Gives output 0 the storage of operand 0 if the op renames it. A pass that replaces operand 0 calls it. */
static inline void tx_node_rename(const tx_node *n)
{
    if (tx_op_renames(n->op))
        n->out[0]->base = n->in[0];
}

/* Returns the graph's copy of `rope`, for attributes of its nodes; NULL on failure, which the graph records. */
tx_rope *tx_graph_rope(tx_graph *graph, const tx_rope *rope);
/* Sets the attributes of attention over qkv. Returns false if the options do not fit; the graph records the failure. */
bool tx_attention_attrs(tx_tensor *qkv, const tx_attention_options *options, tx_attrs *attrs);

/* Creates a tensor at a fixed address of an arena, without a producer. */
tx_tensor *tx_tensor_fixed(tx_graph *graph, tx_dtype dtype, tx_shape shape, tx_arena_id arena, int64_t offset);
/* Creates a tensor that the planner places in arena PLANNED, OFFLOADED, EXCHANGE or TP, without a producer. */
tx_tensor *tx_tensor_planned(tx_graph *graph, tx_dtype dtype, tx_shape shape, tx_arena_id arena);
/* Creates a view: `shape` elements of `whole` from element `first` on. */
tx_tensor *tx_tensor_view(tx_tensor *whole, int64_t first, tx_shape shape);
/* Restricts the values that may be written to an index input to low .. high - 1, and TX_IGNORE_LABEL if `ignore`. `t`
 * may be NULL. */
void tx_tensor_narrow(tx_tensor *t, int64_t low, int64_t high, bool ignore);
/* Returns the scalar `result` of the model as a tensor [1]. */
tx_tensor *tx_tensor_result(tx_graph *graph, tx_result result);

/* Appends a copy of a node without validation, for ops that only the engine uses; `*number` receives its index. */
tx_status tx_graph_append(tx_graph *graph, const tx_node *node, int32_t *number);

#endif
