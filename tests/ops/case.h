/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of the conformance suite: the cases of an op, the contents of operands, and the descriptor that every
 * row of ops.def must have. References work on arrays of doubles and share no arithmetic with any backend. They share
 * only backends/rng.h, since the bits of a dropout mask are part of the contract. */
#ifndef TX_TESTS_OPS_CASE_H
#define TX_TESTS_OPS_CASE_H

#include "backends/backend.h"

#include <math.h>

/* ---- Numbers --------------------------------------------------------------------------------- */

/* The value nearest to x (ties to even) that `dtype` can hold. Written without bit tricks, on purpose. */
double tx_number_round(tx_dtype dtype, double x);
void tx_number_encode(tx_dtype dtype, const double *value, int64_t count, void *bytes);
void tx_number_decode(tx_dtype dtype, const void *bytes, int64_t count, double *value);
/* Packed types, in blocks: rounds values to those that the type can hold, writes them and reads them (number_nf4.c). */
void tx_number_settle(tx_dtype dtype, double *value, int64_t count);
void tx_number_pack(tx_dtype dtype, const double *value, int64_t count, uint8_t *bytes);
void tx_number_unpack(tx_dtype dtype, const uint8_t *bytes, int64_t count, double *value);
/* Op GELU and its slope. */
double tx_number_gelu(double x, bool exact);
double tx_number_gelu_slope(double x, bool exact);
/* Dot product, and the sum of its terms' absolute values. */
double tx_number_dot(const double *a, const double *b, int64_t n, double *magnitude);
/* Half the distance between 1 and the next larger value; 0 for whole numbers. */
double tx_number_epsilon(tx_dtype dtype);

/* ---- Calls: one op with its operands as doubles ------------------------------------------------- */

typedef struct tx_array {
    tx_dtype dtype; /* TX_DTYPE_COUNT: absent */
    tx_shape shape;
    int64_t count;
    double *value;
    /* For outputs: the sum of the absolute values of the terms of an element, to which rounding errors are
     * proportional. It is 0 if the element must be exact, and INFINITY if the contract leaves it open. */
    double *magnitude;
} tx_array;

typedef struct tx_call {
    tx_op op;
    tx_attrs attrs;
    tx_array in[TX_MAX_IN], out[TX_MAX_OUT];
    tx_controls controls;
    double result[TX_RESULT_COUNT];           /* arena RESULT, before and after */
    double result_magnitude[TX_RESULT_COUNT]; /* as tx_array.magnitude */
} tx_call;

/* Runs the reference of call->op. Outputs hold their old contents before, which only accumulating calls read. */
tx_status tx_call_reference(tx_call *call);
/* Allocates an array, filled with zeros. tx_call_free releases all arrays. */
tx_status tx_array_allocate(tx_array *array, bool output);
void tx_call_free(tx_call *call);

/* Returns the values in an array of blocks of Q8_0 (U8); NULL for other types. The caller frees. */
double *tx_array_blocks(const tx_array *array);

static inline bool tx_array_present(const tx_array *a)
{
    return a->dtype != TX_DTYPE_COUNT;
}
static inline int64_t tx_array_last(const tx_array *a)
{
    return tx_shape_last(&a->shape);
}
static inline int64_t tx_array_rows(const tx_array *a)
{
    return tx_shape_rows(&a->shape);
}
/* Stores an element and its magnitude, to which its error is proportional. */
static inline void tx_array_put(tx_array *a, int64_t i, double value, double magnitude)
{
    a->value[i] = value;
    a->magnitude[i] = magnitude;
}

/* Adds a term to an element, if the case has the array. */
static inline void tx_array_add(tx_array *a, int64_t i, double value, double magnitude)
{
    if (tx_array_present(a))
        tx_array_put(a, i, a->value[i] + value, a->magnitude[i] + magnitude);
}

/* ---- Cases ---------------------------------------------------------------------------------- */

typedef enum tx_fill_kind {
    TX_FILL_UNIFORM,  /* real numbers in [lo, hi) */
    TX_FILL_INDEX,    /* whole numbers in [lo, hi) */
    TX_FILL_SPARSE,   /* whole numbers in [lo, hi), every fifth -1 */
    TX_FILL_LABELS,   /* whole numbers in [lo, hi), every fifth TX_IGNORE_LABEL */
    TX_FILL_LENGTHS,  /* whole numbers: hi, then lo, then between */
    TX_FILL_STARTS,   /* first position of each position's sample, in packed rows; odd rows INDEX */
    TX_FILL_SPECIAL,  /* ties, subnormals, overflows, infinities and NaN of the 16-bit types, then UNIFORM */
    TX_FILL_HOLES,    /* UNIFORM; row 0 is -inf except for its first element, row 1 all -inf */
    TX_FILL_NAN,      /* UNIFORM with one NaN in the middle */
    TX_FILL_PADDED,   /* UNIFORM; columns from attrs.vocab on hold 1e4 */
    TX_FILL_DISTINCT, /* whole numbers in [0, hi), all of a row different */
    TX_FILL_PLACES,   /* each place of as many once, the last first; every fifth -1 */
    TX_FILL_TOKENS,   /* of each place the token, which have hi places each, as PLACES says */
    /* Not falling, from 0 to hi: lo 0 by even steps; 1: every second step is none and some is left at the end; 2: by
     * one step; 3: by none. */
    TX_FILL_OFFSETS,
    /* Operand spans [B, 3] of ops that continue earlier tokens. The first sample has the last row and all hi tokens, by
     * numbers that are too large; every third one has none. Every second one begins at position 0. */
    TX_FILL_SPANS,
    TX_FILL_BLOCKS, /* bytes of blocks of Q8_0, with values between -2 and 2 */
    TX_FILL_DERIVED /* gradient ops: an output of the forward reference */
} tx_fill_kind;

typedef struct tx_spec {
    tx_dtype dtype; /* TX_DTYPE_COUNT: absent */
    tx_shape shape;
    tx_fill_kind fill;
    double lo, hi;
    tx_arena_id arena;
} tx_spec;

static inline tx_spec tx_spec_of(tx_dtype dtype, tx_shape shape, tx_fill_kind fill, double lo, double hi)
{
    return (tx_spec){dtype, shape, fill, lo, hi, TX_ARENA_PLANNED};
}
/* fp32 numbers in [-1, 1) */
static inline tx_spec tx_spec_real(tx_shape shape)
{
    return tx_spec_of(TX_F32, shape, TX_FILL_UNIFORM, -1.0, 1.0);
}
static inline tx_spec tx_spec_derived(tx_shape shape)
{
    return tx_spec_of(TX_F32, shape, TX_FILL_DERIVED, 0.5, 1.5);
}

/* A cache of this shape in blocks of Q8_0. */
static inline tx_spec tx_spec_blocks(const tx_shape *cache)
{
    const tx_shape bytes = TX_SHAPE(cache->dim[0], cache->dim[1], cache->dim[2] / 32 * 34);
    return tx_spec_of(TX_U8, bytes, TX_FILL_BLOCKS, 0.0, 256.0);
}

/* Positions of the samples of a batch: hi, then lo, then between. */
static inline tx_spec tx_spec_positions(int64_t batch, int64_t lo, int64_t hi)
{
    return tx_spec_of(TX_I32, TX_SHAPE(batch), TX_FILL_LENGTHS, (double)lo, (double)hi);
}

enum {
    TX_CASE_BENCH = 1,  /* big: timed, never checked */
    TX_CASE_ZEROS = 2,  /* a result that is mostly zero, constant or open is right here */
    TX_CASE_RESULT = 4, /* output 0 is word LOSS of arena RESULT */
    TX_CASE_CHUNKS = 8  /* operands alternate between two chunks */
};

typedef struct tx_case {
    char label[96];
    uint32_t flags;
    uint32_t salt; /* other numbers for the same case */
    tx_attrs attrs;
    tx_spec in[TX_MAX_IN];
    tx_dtype out_dtype; /* type asked of output 0, or TX_DTYPE_COUNT */
    tx_shape out_shape; /* shape asked of output 0 (fill, broadcast) */
    tx_controls controls;
    float result[TX_RESULT_COUNT];
} tx_case;

#define TX_CASES_MAX 480
typedef struct tx_cases {
    int32_t count;
    bool overflow;
    tx_case item[TX_CASES_MAX];
} tx_cases;

/* Appends a case without operands and with usual controls, and names it. It never returns NULL. If the list is full, it
 * sets `overflow`, and the harness refuses the list. */
tx_case *tx_case_add(tx_cases *list, const char *format, ...) TX_PRINTF(2, 3);
/* Appends a copy of the last case, its name with a suffix. */
tx_case *tx_case_copy(tx_cases *list, const char *suffix);
/* Appends copies of the last case in the other modes of accumulation: TX_ADD, and by control with 0 and 1. */
void tx_case_accumulate(tx_cases *list);
/* Appends copies of all cases that are checked with the inputs of `in` (bit i: input i), and with `out` output 0, of 16
 * bits, bf16 and fp16 in turn. */
void tx_case_half(tx_cases *list, uint32_t in, bool out);
/* Appends a copy of the last case, with operands in two chunks. */
void tx_case_chunks(tx_cases *list);

/* Other numbers for the same case: inputs, old contents and run-time scalars. */
void tx_case_salt(tx_case *c);
/* Builds the call of a case: inputs filled (derived ones by the forward reference where `derive`), outputs
 * shaped and allocated, old contents of outputs that accumulate filled. Free with tx_call_free. */
tx_status tx_call_of_case(tx_op op, const tx_case *c, bool derive, tx_call *call);
/* Shapes and allocates the outputs of a call whose inputs are set; out[0] holds the requested type and shape. */
tx_status tx_call_outputs(tx_call *call);
/* The factor of output o's old contents in this call: 0 or 1. */
double tx_call_beta(const tx_call *call, int32_t o);
/* Returns the random number at attrs.draw.site for element i of operand `in`, or that element after dropout. */
uint32_t tx_call_draw(const tx_call *call, int in, int64_t i);
double tx_call_dropped(const tx_call *call, int in, int64_t i);

/* ---- Descriptors ------------------------------------------------------------------------------ */

/* Returns the source of input i of a gradient op. */
#define TX_FROM_DY 0
#define TX_FROM_NOWHERE (-1) /* the forward op does not know it */
#define TX_FROM_IN(k) (1 + (k))
#define TX_FROM_OUT(k) (1 + TX_MAX_IN + (k))

typedef struct tx_descriptor {
    void (*cases)(tx_cases *list);
    /* Computes types and shapes of the outputs from those of the inputs, independently of tx_op_infer. out[0] holds the
     * case's request. If NULL, output 0 is like input 0. */
    void (*outputs)(tx_call *call);
    void (*reference)(tx_call *call);
    double (*length)(const tx_call *call); /* length of an element's longest sum, or NULL for 1 */
    /* Gradient ops: the forward op, the source of each input, and for each output the number (+ 1) of the forward input
     * whose gradient it is, or 0. */
    bool gradient;
    tx_op forward;
    int8_t source[TX_MAX_IN];
    int8_t gradient_of[TX_MAX_OUT];
    int8_t lies_on[TX_MAX_OUT]; /* number (+ 1) of the input that the output overwrites, or 0 */
    uint32_t work;              /* bit i: output i is scratch */
    bool may_refuse;            /* devices without IEEE 754 division return TX_UNSUPPORTED */
} tx_descriptor;

/* Defines a function of a descriptor by one expression. TX_OUTPUT defines type and shape of output 0; the others define
 * the longest sum, and the reference of an op whose element i depends only on elements i of its inputs x and y. */
#define TX_OUTPUT(name, type, of)                                \
    static void name(tx_call *call)                              \
    {                                                            \
        call->out[0] = (tx_array){.dtype = (type), .shape = of}; \
    }
#define TX_LENGTH(name, length)             \
    static double name(const tx_call *call) \
    {                                       \
        return (double)(length);            \
    }
#define TX_POINTWISE(name, result, magnitude_)                                          \
    static void name(tx_call *call)                                                     \
    {                                                                                   \
        for (int64_t i = 0; i < call->out[0].count; i++) {                              \
            const double x = call->in[0].value[i];                                      \
            const double y = tx_array_present(&call->in[1]) ? call->in[1].value[i] : x; \
            tx_array_put(&call->out[0], i, result, magnitude_);                         \
            (void)y;                                                                    \
        }                                                                               \
    }

/* One descriptor a row of ops.def: a row that has none does not link. */
#define TX_OP(NAME, name, ...) extern const tx_descriptor tx_descriptor_##name;
#define TX_VIRTUAL(...)
#include "ops.def"

const tx_descriptor *tx_descriptor_of(tx_op op);

/* Returns the position of the first token of sample b, from the operand `positions` (0 if absent), for a table or cache
 * of `rows` rows into which `time` tokens are written. */
static inline int64_t tx_position_of(const tx_array *positions, int64_t b, int64_t rows, int64_t time)
{
    double p = tx_array_present(positions) ? positions->value[b] : 0.0;
    return p < 0.0 ? 0 : p > (double)(rows - time) ? rows - time : (int64_t)p;
}

/* Returns the row of caches with `rows` rows that sample b uses: operand `slots`, or b if it is absent. */
static inline int64_t tx_slot_of(const tx_array *slots, int64_t b, int64_t rows)
{
    return tx_array_present(slots) ? (int64_t)fmin(fmax(slots->value[b], 0.0), (double)(rows - 1)) : b;
}

/* The same of a token, row = b time + t: positions of two dimensions are of tokens. */
static inline int64_t tx_place_of(const tx_array *positions, int64_t row, int64_t rows, int64_t time)
{
    if (tx_array_present(positions) && positions->shape.rank == 2)
        return (int64_t)fmin(fmax(positions->value[row], 0.0), (double)(rows - 1));
    return tx_position_of(positions, row / time, rows, time) + row % time;
}

/* Shapes for element-wise ops: 1, odd, around vector and tile edges, ranks 1 to 4. Returns how many. */
int32_t tx_shapes_plain(const tx_shape **shapes);

#endif
