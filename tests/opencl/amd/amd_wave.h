/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs decoded machine code of AMD, one work-group after the other. An unknown instruction, or an access outside its
 * memory, ends the process with a line that names kernel and instruction. Unwritten registers and local memory hold
 * NaN. */
#ifndef TX_TESTS_AMD_WAVE_H
#define TX_TESTS_AMD_WAVE_H

#include "tests/opencl/amd/amd_image.h"

#include <stdbool.h>
#include <stddef.h>

/* A program in memory. */
typedef struct amd_program {
    const amd_header *header;
    unsigned char *memory; /* of the object's sections, which have real addresses */
    char (*name)[AMD_NAME];
    const amd_instruction *code;
    const amd_kernel *kernel;
    const amd_argument *argument;
    void (**run)(void); /* function of each name, or NULL if it is not emulated */
} amd_program;

/* The result points into `image`, which must outlive it. Returns false for an invalid image or without memory. */
bool amd_open(amd_program *program, unsigned char *image, size_t size);
void amd_close(amd_program *program);

/* Memory that a kernel may touch. */
typedef struct amd_range {
    uint64_t first, bytes;
} amd_range;

/* Bytes of a kernel's arguments: it may read whole pieces of so many. */
#define AMD_ARGUMENT_BYTES(kernel) (((kernel)->argument_bytes + 63) / 64 * 64)

typedef struct amd_launch {
    const amd_program *program;
    const amd_kernel *kernel;
    bool gfx12; /* where numbers of work-groups lie */
    uint32_t items[3], groups[3];
    uint32_t local_bytes;
    const void *arguments; /* as the kernel reads them */
    amd_range *range;      /* the arguments' buffers; the emulator appends three ranges of its own */
    int ranges;
} amd_launch;

void amd_run(const amd_launch *launch);

/* Clocks of all accesses to local memory, and of the same without bank conflicts. */
extern uint64_t amd_local_clocks[2];

#endif
