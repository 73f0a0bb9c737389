/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoded program of AMD's machine code, which amd_compile.py writes and amd_wave.c runs. It is little-endian,
 * without padding: header, memory, names, instructions, kernels, arguments. amd_compile.py has the same structs. */
#ifndef TX_TESTS_AMD_IMAGE_H
#define TX_TESTS_AMD_IMAGE_H

#include <stdint.h>

#define AMD_MAGIC 0x31414d44

typedef struct amd_header {
    uint32_t magic, bytes; /* of the object's sections, as they lie in memory; a multiple of 8 */
    uint32_t names, instructions, kernels, arguments;
} amd_header;

#define AMD_NAME 64

enum { AMD_NONE, AMD_SCALAR, AMD_VECTOR, AMD_CONSTANT };
enum { AMD_NEGATED = 1, AMD_ABSOLUTE = 2, AMD_SIGNED = 4 }; /* of a float; a part of a register extends its sign */
/* The part of a register that is read: all, a word of 16 bits, a half as a float, or a byte, the first of four. */
enum { AMD_WHOLE, AMD_LOW_WORD, AMD_HIGH_WORD, AMD_LOW_HALF, AMD_HIGH_HALF, AMD_BYTE };

/* Scalar registers by their numbers in instructions; those of lanes from 256 on are the accumulation registers. */
enum { AMD_VCC = 106, AMD_TTMP = 108, AMD_NULL = 124, AMD_M0 = 125, AMD_EXEC = 126, AMD_SCALARS = 128 };
enum {
    AMD_VECTORS = 514
}; /* the last two hold the results of the first instruction of a pair while the second reads its operands */

typedef struct amd_operand {
    uint8_t kind, change, part, unused;
    uint32_t reg, low, high; /* low and high: of a constant */
} amd_operand;

typedef struct amd_instruction {
    uint32_t name, at; /* at: its first byte in memory */
    int32_t number[4]; /* what amd_wave.def says of the kind of instruction */
    amd_operand to, also, from[4];
} amd_instruction;

typedef struct amd_kernel {
    char name[AMD_NAME];
    uint32_t entry; /* the first instruction's number */
    uint32_t lanes, most_items, group[3], local_bytes, private_bytes, argument_bytes, properties, resources;
    uint32_t first_argument, arguments;
} amd_kernel;

typedef struct amd_argument {
    uint32_t offset, size, kind, align;
} amd_argument;

/* In the order of amd_compile.py's KINDS. Higher ones are hidden arguments, which are 0. libclc reads only the grid's
 * offset, at its position in former versions. */
enum { AMD_BY_VALUE, AMD_GLOBAL, AMD_LOCAL };

#endif
