/* SPDX-License-Identifier: Apache-2.0
 * Status codes and messages, types and shapes. */
#ifndef TX_BASE_H
#define TX_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every public header declares its functions between TX_API_BEGIN and TX_API_END. These give them C linkage in C++ and
 * export them from the shared library, which exports nothing else. */
#ifdef __cplusplus
#define TX_API_LINKAGE_BEGIN extern "C" {
#define TX_API_LINKAGE_END }
#else
#define TX_API_LINKAGE_BEGIN
#define TX_API_LINKAGE_END
#endif
#if defined(__GNUC__)
#define TX_API_BEGIN _Pragma("GCC visibility push(default)") TX_API_LINKAGE_BEGIN
#define TX_API_END TX_API_LINKAGE_END _Pragma("GCC visibility pop")
#else
#define TX_API_BEGIN TX_API_LINKAGE_BEGIN
#define TX_API_END TX_API_LINKAGE_END
#endif

TX_API_BEGIN

#define TX_VERSION "0.2.0"
#define TX_MAX_RANK 5
/* Every tensor starts on a multiple of this many bytes; a parameter on TX_PARAM_BLOCK elements. */
#define TX_ALIGNMENT 512
#define TX_PARAM_BLOCK 256
/* Label of a position that counts neither in the loss nor in its gradient. */
#define TX_IGNORE_LABEL (-100)

/* ---- Status ------------------------------------------------------------------------------- */

/* X(NAME, value, "sentence") */
#define TX_STATUS_MAP(X)                             \
    X(OK, 0, "success")                              \
    X(INVALID, -1, "invalid argument")               \
    X(UNSUPPORTED, -2, "not supported")              \
    X(MEMORY, -3, "out of memory")                   \
    X(IO, -4, "input or output failed")              \
    X(FORMAT, -5, "malformed file")                  \
    X(DEVICE, -6, "the device or its driver failed") \
    X(NOT_FOUND, -7, "not found")                    \
    X(INTERNAL, -8, "internal error")

typedef enum tx_status {
#define X(name, value, text) TX_##name = value,
    TX_STATUS_MAP(X)
#undef X
} tx_status;

/* Returns the sentence for a status code. */
const char *tx_status_text(tx_status status);
/* Returns the message of the last failure on this thread, or "" if nothing has failed. */
const char *tx_error(void);

#if defined(__GNUC__)
#define TX_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define TX_PRINTF(f, a)
#endif
/* Records a failure: sets this thread's message and returns `status`. For code that extends TX. */
tx_status tx_fail(tx_status status, const char *format, ...) TX_PRINTF(2, 3);
/* Puts "context: " before this thread's message if `status` is a failure. Returns `status`. */
tx_status tx_fail_in(tx_status status, const char *format, ...) TX_PRINTF(2, 3);
/* Ends the function with the status of a call that fails. */
#define TX_TRY(call)                       \
    do {                                   \
        const tx_status tx_tried = (call); \
        if (tx_tried != TX_OK)             \
            return tx_tried;               \
    } while (0)
/* Cleans up at the end of a function: makes the call only if `status` is still TX_OK and keeps the first failure. */
#define TX_THEN(status, call) ((status) = (status) != TX_OK ? (status) : (call))
/* Ends a constructor: on success passes the new object to the caller, on failure frees it with `release`. Evaluates to
 * `status`. */
#define TX_RETURN(status, made, to, release) ((status) != TX_OK ? ((release)(made), (status)) : (*(to) = (made), TX_OK))

/* ---- Warnings and progress ---------------------------------------------------------------- */

/* Callbacks by which library code informs the user. The library itself prints nothing. Either may be NULL. */
typedef struct tx_reporter {
    /* Receives a warning: one line without a newline. */
    void (*warn)(void *context, const char *message);
    void *context; /* passed to both callbacks */
    /* Receives the progress of a long operation: `done` of `total` units. `what` names it, for example a file. Any
     * thread may call it. */
    void (*progress)(void *context, const char *what, int64_t done, int64_t total);
} tx_reporter;

/* ---- Message texts ------------------------------------------------------------------------ */

/* Writes `text` as one line that is safe to print on a terminal. Control characters become \n, \x1b and so on; a tab
 * becomes a blank. Text that needs more than `size` bytes (at least 6) is truncated. tx_fail applies it to its message.
 */
void tx_escape(const char *text, char *safe, size_t size);
/* Appends an entry to the text in `list`, a buffer of `size` bytes. `between` separates entries. Text that does not fit
 * is truncated. */
void tx_list_add(char *list, size_t size, const char *between, const char *format, ...) TX_PRINTF(4, 5);

/* Returns the plural ending after a number: "1 step", "2 steps". */
const char *tx_s(int64_t count);

/* ---- Arrays and time ------------------------------------------------------------------------ */

/* Makes room for `count` elements of `size` bytes. `array` is the address of the pointer to the first element, `*room`
 * the number of elements allocated; both start at 0. The caller frees the array. If memory runs out, the message names
 * the elements by `what`, a plural noun. */
tx_status tx_array_reserve(void *array, size_t *room, size_t count, size_t size, const char *what);

/* Returns seconds of a monotonic clock, to measure durations. */
double tx_now(void);

/* ---- Types and shapes ---------------------------------------------------------------------- */

/* X(NAME, bytes, "name in safetensors files"). NF4 and NF4_DOUBLE (backends/nf4.h) store frozen matrices that products
 * read. They hold blocks of 64 consecutive elements in 4 bits each; the scale of a block is fp32 or, with NF4_DOUBLE,
 * quantised to 8 bits. Q8 (backends/q8.h) is the same with 8 bits: the numbers of GGUF's Q8_0 blocks, 32 elements each.
 * MXFP4 (backends/nf4.h) has blocks of 32 elements whose scales are powers of two; it keeps values that came from
 * MXFP4. The types of TX_BLOCK_MAP (api/base/blocks.h) store frozen matrices and embedding tables as GGUF files hold
 * them, on the cpu backend. Single elements of these types are not addressable, so the unit is the byte. Safetensors
 * files never contain them.
 */
#define TX_DTYPE_MAP(X)            \
    X(F32, 4, "F32")               \
    X(BF16, 2, "BF16")             \
    X(F16, 2, "F16")               \
    X(I32, 4, "I32")               \
    X(U8, 1, "U8")                 \
    X(NF4, 1, "NF4")               \
    X(NF4_DOUBLE, 1, "NF4_DOUBLE") \
    X(Q8, 1, "Q8")                 \
    X(MXFP4, 1, "MXFP4")           \
    X(Q8_0, 1, "Q8_0")             \
    X(Q4_0, 1, "Q4_0")             \
    X(Q4_K, 1, "Q4_K")             \
    X(Q6_K, 1, "Q6_K")

typedef enum tx_dtype {
#define X(name, bytes, text) TX_##name,
    TX_DTYPE_MAP(X)
#undef X
        TX_DTYPE_COUNT
} tx_dtype;

size_t tx_dtype_size(tx_dtype dtype);
bool tx_dtype_packed(tx_dtype dtype); /* NF4, NF4_DOUBLE, MXFP4, Q8 or a type of blocks */
/* Returns the bytes of `count` contiguous elements. For packed types the result is a multiple of 64. */
int64_t tx_dtype_bytes(tx_dtype dtype, int64_t count);
const char *tx_dtype_name(tx_dtype dtype);

typedef struct tx_shape {
    int32_t rank;
    int64_t dim[TX_MAX_RANK]; /* outermost first; row-major, no gaps */
} tx_shape;

/* A shape from its dimensions: TX_SHAPE(4, 128, 768). */
#define TX_SHAPE(...) ((tx_shape){(int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

int64_t tx_shape_count(const tx_shape *shape); /* number of elements */
int64_t tx_shape_rows(const tx_shape *shape);  /* product of all dimensions but the last */
int64_t tx_shape_last(const tx_shape *shape);  /* the last dimension; 1 for rank 0 */
bool tx_shape_equal(const tx_shape *a, const tx_shape *b);
/* Writes "[4, 128, 768]"; returns `text`. */
const char *tx_shape_text(const tx_shape *shape, char *text, size_t size);

TX_API_END
#endif
