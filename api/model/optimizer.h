/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer states: the forms that describe them (optimizers.def), and the pieces of the arenas that one update node
 * works on. */
#ifndef TX_API_OPTIMIZER_H
#define TX_API_OPTIMIZER_H

#include "backends/backend.h"

/* A state has one value (or `width` values) for each unit. Rows and columns are those of a matrix. Channels are its
 * rows, or its columns if there are more of them. */
typedef enum tx_state_unit {
    TX_PER_WEIGHT,
    TX_PER_BLOCK,
    TX_PER_ROW,
    TX_PER_COLUMN,
    TX_PER_CHANNEL,
    TX_PER_TENSOR
} tx_state_unit;

/* An optimizer state: a column of a form's row in optimizers.def. */
typedef struct tx_optimizer_state {
    const char *name; /* in files */
    tx_dtype dtype;
    tx_state_unit per;
    int32_t width; /* 0 means 1 */
    bool never_negative;
    bool averages; /* the average of the weights (tx_optimizer_average); is the first state */
    bool (*kept)(const tx_optimizer_options *options); /* NULL means always; optional states come last */
    size_t type;  /* offset in tx_optimizer_options of the state's type; 0 means `dtype` */
    size_t times; /* offset in tx_optimizer_options of the int32_t width; 0 means `width` */
} tx_optimizer_state;
#define TX_MAX_OPTIMIZER_STATES (TX_MAX_OUT - 1)

struct tx_emit_args;
/* Emits an update of more than one node. `args` has the operands of optimizers.def. */
typedef void tx_emit_update(tx_graph *graph, const struct tx_emit_args *args, const tx_optimizer_options *options);

typedef struct tx_optimizer_form {
    tx_op op;
    bool whole;           /* a node updates one whole tensor and uses its shape; otherwise any range of blocks */
    tx_emit_update *emit; /* NULL if the update is one node of `op` */
    tx_optimizer_state state[TX_MAX_OPTIMIZER_STATES];
    int32_t states; /* number of states with the options of the optimizer */
} tx_optimizer_form;

/* A tensor in files: a parameter, or one of its sections or experts (tx_param_spec.apart). */
typedef struct tx_param_tensor {
    int64_t first; /* first element in the parameter */
    tx_shape shape;
} tx_param_tensor;

/* Contiguous parameters of one form, or this rank's shard of them. For a `whole` form, one tensor of a parameter. */
typedef struct tx_optimizer_piece {
    const tx_optimizer_form *form;
    int32_t param;          /* first parameter in the piece */
    int32_t tensor;         /* for a `whole` form: index of the tensor in the parameter */
    tx_shape shape;         /* for a `whole` form: shape of the tensor; otherwise [count] */
    float rate;             /* as in tx_param_spec */
    int64_t address, count; /* address in WEIGHTS; elements (whole blocks unless the form is `whole`) */
    int64_t gradients, groups,
        /* Addresses of its gradients, group bytes, and weights on this rank. */
        weights;
    int64_t state[TX_MAX_OPTIMIZER_STATES]; /* addresses in OPTIMIZER */
} tx_optimizer_piece;

typedef struct tx_optimizer {
    tx_optimizer_options options;
    tx_optimizer_form form[2];
    bool (*takes)(const tx_param_spec *spec); /* parameters that have the first form; NULL means all */
    tx_optimizer_piece *piece;                /* in the order of updates */
    int32_t pieces;
} tx_optimizer;

/* The caller frees it with tx_optimizer_free. */
tx_status tx_optimizer_choose(const tx_optimizer_options *options, tx_optimizer **optimizer);
void tx_optimizer_free(tx_optimizer *optimizer);
/* Returns the elements (whole blocks) of an offloaded state that move at a time. They suffice for the full rate of a
 * bus and are few compared with the memory of the backward pass. `optimizer` may be NULL. */
int64_t tx_offload_elements(const tx_optimizer *optimizer);
const tx_optimizer_form *tx_optimizer_form_of(const tx_optimizer *optimizer, const tx_param_spec *spec);
/* Whether zeros of a parameter stay 0. `optimizer` may be NULL. */
bool tx_optimizer_keeps_zeros(const tx_optimizer *optimizer, const tx_param_spec *spec);
/* Whether shards of a parameter can be updated separately because each weight has its own states. */
bool tx_optimizer_divides(const tx_optimizer *optimizer);
/* The tensors of a parameter in files: their number, and one by its index. `spec` has the logical shape. */
int32_t tx_param_tensors(const tx_param_spec *spec);
tx_param_tensor tx_param_tensor_of(const tx_param_spec *spec, int32_t number);
/* Returns the values of a state for `elements` elements of a shape: its rows or columns, or the elements or their
 * blocks. */
int64_t tx_state_count(const tx_optimizer_state *state, const tx_shape *shape, int64_t elements);
/* Returns the values of a state by row, column, channel or tensor for the first `number` tensors of a parameter. */
int64_t tx_state_values_before(const tx_optimizer_state *state, const tx_param_spec *spec, int32_t number);

#endif
