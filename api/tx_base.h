/* SPDX-License-Identifier: Apache-2.0
 * Status codes and messages, types and shapes. */
#ifndef TX_BASE_H
#define TX_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Around what a header declares: C++ callers, and what the shared library exports, which is this and nothing else. */
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

#define TX_VERSION "0.1.0"
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

/* The sentence that belongs to a status code. */
const char *tx_status_text(tx_status status);
/* The message of the last failure on this thread; "" when there was none. */
const char *tx_error(void);

#if defined(__GNUC__)
#define TX_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define TX_PRINTF(f, a)
#endif
/* Records a failure: sets this thread's message and returns `status`. For code that extends TX. */
tx_status tx_fail(tx_status status, const char *format, ...) TX_PRINTF(2, 3);
/* Puts "context: " before this thread's message where `status` is a failure; returns `status`. */
tx_status tx_fail_in(tx_status status, const char *format, ...) TX_PRINTF(2, 3);
/* Ends the function with the status of a call that fails. */
#define TX_TRY(call)                       \
    do {                                   \
        const tx_status tx_tried = (call); \
        if (tx_tried != TX_OK)             \
            return tx_tried;               \
    } while (0)
/* For a function that releases something at its end: does the call unless `status` tells of a failure before. */
#define TX_THEN(status, call) ((status) = (status) != TX_OK ? (status) : (call))
/* For the end of a function that makes something: the caller gets it, or `release` frees it after a failure. The
 * status. */
#define TX_RETURN(status, made, to, release) ((status) != TX_OK ? ((release)(made), (status)) : (*(to) = (made), TX_OK))

/* ---- Telling ------------------------------------------------------------------------------ */

/* How library code tells the user something without printing. */
typedef struct tx_reporter {
    /* Takes one line, without its end, that the user should see and that is no failure. NULL: nobody listens. */
    void (*warn)(void *context, const char *message);
    void *context; /* of both */
    /* Takes how far something long is: `done` of `total`, in whatever it counts. `what` names it: a file. Any thread
     * may call it. NULL: nobody listens. */
    void (*progress)(void *context, const char *what, int64_t done, int64_t total);
} tx_reporter;

/* ---- Texts of messages --------------------------------------------------------------------- */

/* Writes `text` as one line without effect on a terminal: control characters as \n, \x1b and so on, a tab as a blank.
 * A text that needs more than `size` bytes (6 at least) is cut. tx_fail does so with its message. */
void tx_escape(const char *text, char *safe, size_t size);
/* Adds an entry to the list in `list`, which has `size` bytes; `between` comes before all but the first. A
 * longer text is cut. */
void tx_list_add(char *list, size_t size, const char *between, const char *format, ...) TX_PRINTF(4, 5);

/* The end of a noun after its number: "1 step", "2 steps". */
const char *tx_s(int64_t count);

/* ---- Arrays and time ------------------------------------------------------------------------ */

/* Makes room for `count` elements of `size` bytes. `array` is the address of the pointer to the first element, `*room`
 * the number of elements that it has room for; both begin with 0. The caller frees the array. TX_MEMORY names the
 * elements by `what`, in the plural. */
tx_status tx_array_reserve(void *array, size_t *room, size_t count, size_t size, const char *what);

/* Seconds since some fixed moment, for measuring durations: a clock that never goes back. */
double tx_now(void);

/* ---- Types and shapes ---------------------------------------------------------------------- */

/* X(NAME, bytes, "name in safetensors files"). NF4 and NF4_DOUBLE (backends/nf4.h) are for frozen matrices that
 * products read: blocks of 64 neighbours in 4 bits each, whose scales are in fp32 or, again by blocks, in 8 bits. They
 * have no place in files, and an element has no address of its own: their unit is the byte. */
#define TX_DTYPE_MAP(X) \
    X(F32, 4, "F32")    \
    X(BF16, 2, "BF16")  \
    X(F16, 2, "F16")    \
    X(I32, 4, "I32")    \
    X(U8, 1, "U8")      \
    X(NF4, 1, "NF4")    \
    X(NF4_DOUBLE, 1, "NF4_DOUBLE")

typedef enum tx_dtype {
#define X(name, bytes, text) TX_##name,
    TX_DTYPE_MAP(X)
#undef X
        TX_DTYPE_COUNT
} tx_dtype;

size_t tx_dtype_size(tx_dtype dtype);
bool tx_dtype_packed(tx_dtype dtype); /* NF4, NF4_DOUBLE */
/* Bytes of so many elements in one piece; of what is packed a multiple of 64. */
int64_t tx_dtype_bytes(tx_dtype dtype, int64_t count);
const char *tx_dtype_name(tx_dtype dtype);

typedef struct tx_shape {
    int32_t rank;
    int64_t dim[TX_MAX_RANK]; /* outermost first; row-major, no gaps */
} tx_shape;

/* TX_SHAPE(4, 128, 768) */
#define TX_SHAPE(...) ((tx_shape){(int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

int64_t tx_shape_count(const tx_shape *shape); /* number of elements */
int64_t tx_shape_rows(const tx_shape *shape);  /* product of all dimensions but the last */
int64_t tx_shape_last(const tx_shape *shape);  /* the last dimension; 1 for rank 0 */
bool tx_shape_equal(const tx_shape *a, const tx_shape *b);
/* Writes "[4, 128, 768]"; returns `text`. */
const char *tx_shape_text(const tx_shape *shape, char *text, size_t size);

TX_API_END
#endif
