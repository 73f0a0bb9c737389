/* SPDX-License-Identifier: Apache-2.0
 *
 * What an optimizer keeps: its forms, which say it of a parameter (optimizers.def), and the pieces of the arenas that
 * its nodes work on. */
#ifndef TX_API_OPTIMIZER_H
#define TX_API_OPTIMIZER_H

#include "backends/backend.h"

/* What there is one number of a state for (or `width` numbers). Rows and columns are those of a matrix. */
typedef enum tx_state_unit { TX_PER_WEIGHT, TX_PER_BLOCK, TX_PER_ROW, TX_PER_COLUMN } tx_state_unit;

/* A state: a column of a form's row in optimizers.def. */
typedef struct tx_optimizer_state {
    const char *name; /* in files */
    tx_dtype dtype;
    tx_state_unit per;
    int32_t width; /* 0: 1 */
    bool never_negative;
    bool (*kept)(const tx_optimizer_options *options); /* NULL: always; what may not be kept comes last */
    size_t type; /* offset of the tx_optimizer_options' type that it has; 0: `dtype` */
} tx_optimizer_state;
#define TX_MAX_OPTIMIZER_STATES (TX_MAX_OUT - 1)

struct tx_emit_args;
/* Emits the update of a form whose update is more than one node: args has the operands that optimizers.def names. */
typedef void tx_emit_update(tx_graph *graph, const struct tx_emit_args *args, const tx_optimizer_options *options);

typedef struct tx_optimizer_form {
    tx_op op;
    bool whole;           /* a node works on a whole tensor, whose shape it knows; else on any range of blocks */
    tx_emit_update *emit; /* NULL: the update is one node of `op` */
    tx_optimizer_state state[TX_MAX_OPTIMIZER_STATES];
    int32_t states; /* with the options of the optimizer */
} tx_optimizer_form;

/* A tensor of files: a parameter, or a section of it or of one of its experts (tx_param_spec.apart). */
typedef struct tx_param_tensor {
    int64_t first; /* element of the parameter that it begins at */
    tx_shape shape;
} tx_param_tensor;

/* Parameters of one form side by side, or this rank's part of them; of a whole form one tensor of a parameter. */
typedef struct tx_optimizer_piece {
    const tx_optimizer_form *form;
    int32_t param;          /* the first that it has a part of */
    int32_t tensor;         /* of a whole form: its number in the parameter */
    tx_shape shape;         /* of a whole form: the tensor's; else [count] */
    int64_t address, count; /* in WEIGHTS; elements, of no whole form whole blocks */
    int64_t gradients, groups,
        weights; /* addresses of its gradients, group bytes, and weights where the rank has them */
    int64_t state[TX_MAX_OPTIMIZER_STATES]; /* addresses in OPTIMIZER */
} tx_optimizer_piece;

typedef struct tx_optimizer {
    tx_optimizer_options options;
    tx_optimizer_form form[2];
    bool (*takes)(const tx_param_spec *spec); /* what has the first form; NULL: every parameter */
    tx_optimizer_piece *piece;                /* in the order of updates */
    int32_t pieces;
} tx_optimizer;

/* The caller frees it with tx_optimizer_free. */
tx_status tx_optimizer_choose(const tx_optimizer_options *options, tx_optimizer **optimizer);
void tx_optimizer_free(tx_optimizer *optimizer);
/* Elements, whole blocks, that move at a time of what lies outside the device's memory: enough for the full rate of a
 * bus, and little beside what the backward pass needs. `optimizer` may be NULL. */
int64_t tx_offload_elements(const tx_optimizer *optimizer);
const tx_optimizer_form *tx_optimizer_form_of(const tx_optimizer *optimizer, const tx_param_spec *spec);
/* Whether what is 0 of a parameter stays 0; NULL: not. */
bool tx_optimizer_keeps_zeros(const tx_optimizer *optimizer, const tx_param_spec *spec);
/* Whether parts of a parameter can be updated by themselves: each weight has its own states. */
bool tx_optimizer_divides(const tx_optimizer *optimizer);
/* The tensors of a parameter, and one of them by its number; `spec` says its logical shape. */
int32_t tx_param_tensors(const tx_param_spec *spec);
tx_param_tensor tx_param_tensor_of(const tx_param_spec *spec, int32_t number);
/* Numbers of a state for so many elements of that shape: its rows or columns, or so many or their blocks. */
int64_t tx_state_count(const tx_optimizer_state *state, const tx_shape *shape, int64_t elements);

#endif
