/* SPDX-License-Identifier: Apache-2.0
 *
 * Persistent launches: one launch that executes all launches of a program (persistent.c).
 */
#ifndef TX_OPENCL_PERSISTENT_H
#define TX_OPENCL_PERSISTENT_H

#include "backends/opencl/runtime/internal.h"

#define TX_CL_KERNELS 24  /* most kernels of a persistent launch */
#define TX_CL_MEMORIES 15 /* most buffers */
#define TX_CL_HEAD 7      /* words of a step before its arguments (persistent.cl) */
#define TX_CL_POOL 64     /* bytes of a vector of local memory: float16 */

/* A kernel of a persistent launch, by the first step that launches it. */
typedef struct tx_cl_body {
    const tx_cl_command *command;
    int32_t step; /* of the command */
    bool alone;   /* its work-items neither wait for each other nor share local memory */
} tx_cl_body;

/* The content of a persistent launch: `steps` launches of `bodies` kernels with work-groups of at most `group`
 * work-items, and `memories` buffers. */
typedef struct tx_cl_joint {
    size_t group;
    int32_t steps, bodies, memories;
    tx_cl_body body[TX_CL_KERNELS];
    struct {
        tx_arena_id arena;
        int32_t chunk;
    } memory[TX_CL_MEMORIES];
} tx_cl_joint;

/* Lists the kernels and buffers of a program. Returns NULL, or the reason why it cannot be a persistent launch. */
const char *tx_cl_persistent_list(const tx_executable *executable, tx_cl_joint *joint);
/* Returns all words that persistent.cl reads, *count of them, which the caller frees: the place of each step, then the
 * steps. Sets *pool to the vectors of local memory that they need. NULL if memory runs out. */
uint64_t *tx_cl_persistent_words(const tx_executable *executable, tx_cl_joint *joint, size_t *count, size_t *pool);

/* Writes the program of a persistent launch. The caller frees it. */
tx_status tx_cl_persistent_text(const tx_context *context, const tx_cl_joint *joint, char **text);

/* Returns the words of an argument in a step: 1 for memory. */
int32_t tx_cl_words_of(const tx_cl_argument *argument);

#endif
