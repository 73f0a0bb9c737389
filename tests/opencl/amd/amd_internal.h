/* SPDX-License-Identifier: Apache-2.0
 * Declarations that the emulator's files share: waves, their registers, operands. */
#ifndef TX_TESTS_AMD_INTERNAL_H
#define TX_TESTS_AMD_INTERNAL_H

#include "tests/opencl/amd/amd_wave.h"

#define AMD_LANES 64

typedef struct amd_group {
    const amd_launch *launch;
    unsigned char *local;
    uint32_t private_bytes; /* of an item */
} amd_group;

typedef struct amd_state {
    const amd_group *group;
    const amd_instruction *now;
    uint32_t lanes, next; /* next: the number of the instruction that follows */
    uint32_t scc, s[AMD_SCALARS], v[AMD_VECTORS][AMD_LANES];
    unsigned char *private; /* of all lanes, one after the other */
    bool waits, ended;
} amd_state;

/* Ends the process with a message. */
_Noreturn void amd_stop(const amd_state *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline uint64_t amd_two(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

uint64_t amd_exec(const amd_state *w);
uint32_t amd_scalar(const amd_state *w, uint32_t reg);
void amd_put_scalar(amd_state *w, uint32_t reg, uint32_t x);
float amd_half(uint32_t bits);

/* Word `word` of an operand in all lanes. */
void amd_fetch_word(const amd_state *w, const amd_operand *o, uint32_t word, uint32_t out[AMD_LANES]);
/* An operand of elements of `size` bytes, 4 or 8; 1: bits of a mask. */
void amd_fetch(const amd_state *w, const amd_operand *o, size_t size, void *out);
/* The same of a scalar. */
void amd_fetch_one(const amd_state *w, const amd_operand *o, size_t size, void *out);
/* Results, of the lanes that are active. */
void amd_put_word(amd_state *w, uint32_t reg, const uint32_t x[AMD_LANES]);
void amd_put(amd_state *w, const amd_operand *o, size_t size, const void *x);
void amd_put_one(amd_state *w, const amd_operand *o, size_t size, const void *x);

/* The functions of amd_wave.def that are written out. */
#define VECTOR(...)
#define CARRY(...)
#define SCALAR(...)
#define COMPARE(...)
#define SAVE(...)
#define OTHER(name) void amd_##name(amd_state *w, const amd_instruction *x);
#include "tests/opencl/amd/amd_wave.def"
#undef VECTOR
#undef CARRY
#undef SCALAR
#undef COMPARE
#undef SAVE
#undef OTHER

typedef void (*amd_function)(amd_state *w, const amd_instruction *x);
/* Returns the function of an instruction's name, or NULL if it is not emulated. */
amd_function amd_function_of(const char *name);

#endif
