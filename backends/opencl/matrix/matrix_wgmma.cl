/* SPDX-License-Identifier: Apache-2.0
 *
 * The atom of NVIDIA's wgmma (H100 and H200: sm_90a), for 16-bit operands. Four warps together multiply 64 lines of
 * a by TILE_N columns of b. The unit reads local memory itself while the warps continue. The sums have the layout of
 * matrix_mma.cl, in adjacent pieces of 16 x 16.
 *
 * The driver compiles for sm_90 and checks instructions. So the instructions of sm_90a are comments in inline
 * assembly, which backends/opencl/matrix/retarget.c turns into instructions. Without that step nothing is
 * multiplied.
 */

/* The unit reads lines of 128 bytes, in atoms of 8. A line holds terms (one for each line of the operand), or 64
 * lines (one for each term). The 8 pieces of a line are permuted by the line's number. */
#define LINE_BYTES 128
#define ATOM_BYTES (8 * LINE_BYTES)
#define SEGMENT (64 * TILE_K) /* elements of a block in 64 lines */

static int along_at(int line, int term)
{
    return line * TILE_K + (term ^ line % 8 * PIECE);
}

static int across_at(int term, int line, int lines)
{
    return line / 64 * SEGMENT + term * 64 + (line % 64 ^ term % 8 * PIECE);
}

/* The matrix descriptor of an operand that begins at element `at` of `blocks` (PTX manual, "Matrix Descriptor
 * Format"), in units of 16 bytes. It holds the address; the bytes from 64 lines to the next, if lines of memory are
 * terms; the bytes from one atom to the next; and the permutation of pieces.
 * Blocks are aligned to ATOM_BYTES, because the permutation uses address bits. */
static ulong descriptor(const __local ab_t *blocks, int at)
{
    return (ulong)((uint)(ulong)blocks + (uint)at * (uint)sizeof(ab_t) & 0x3FFFF) >> 4 |
           (ulong)(SEGMENT * sizeof(ab_t) >> 4) << 16 | (ulong)(ATOM_BYTES >> 4) << 32 | 1UL << 62;
}

/* From 16 terms to the next. */
#define STEP_ALONG (16 * sizeof(ab_t) >> 4)
#define STEP_ACROSS (2 * ATOM_BYTES >> 4)

#if EMULATED == 0
/* Makes the copies of this work-item visible to the unit. A barrier must follow. */
static void blocks_show(const __local ab_t *a, const __local ab_t *b, int item, __local uint *shown)
{
    __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static int told_again(int x)
{
    __asm__ volatile("" : "+r"(x));
    return x;
}

static void units_begin(void)
{
    __asm__ volatile("//@90a wgmma.fence.sync.aligned;" ::: "memory");
}

#define WGMMA_bf16 "f32.bf16.bf16 "
#define WGMMA_f16 "f32.f16.f16 "
#define DIGIT_0 "0"
#define DIGIT_1 "1"
#define DIGIT_OF(x) TX_CAT(DIGIT_, x)
#define NOT_0 1
#define NOT_1 0
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define EIGHT(s) \
    "+f"((s)[0]), "+f"((s)[1]), "+f"((s)[2]), "+f"((s)[3]), "+f"((s)[4]), "+f"((s)[5]), "+f"((s)[6]), "+f"((s)[7])
#define ALL_64(s)                                                                                                  \
    EIGHT(s), EIGHT((s) + 8), EIGHT((s) + 16), EIGHT((s) + 24), EIGHT((s) + 32), EIGHT((s) + 40), EIGHT((s) + 48), \
        EIGHT((s) + 56)
/* Adds to the sums, negates neither operand, and states whether lines of memory are terms. */
#define FLAGS "1, 1, 1, " DIGIT_OF(TRANS_A) ", " DIGIT_OF(TX_CAT(NOT_, TRANS_B)) ";"
#if TILE_N == 256
#define ALL_SUMS(s) ALL_64(s), ALL_64((s) + 64)
#define SHAPE "m64n256k16."
#define NAMES                                                              \
    TEN()                                                                  \
    TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) \
        TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127"
#define OPERANDS "%128, %129, "
#else
#define ALL_SUMS(s) ALL_64(s)
#define SHAPE "m64n128k16."
#define NAMES TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60, %61, %62, %63"
#define OPERANDS "%64, %65, "
#endif

/* Begins sum [64 x TILE_N] += a b of four warps for 16 terms; a and b are descriptors. */
static void multiply_terms(float *sum, ulong a, ulong b, __local uint *shown)
{
    __asm__ volatile("//@90a wgmma.mma_async.sync.aligned." SHAPE TX_CAT(WGMMA_, AB) "{" NAMES "}, " OPERANDS FLAGS
                     : ALL_SUMS(sum)
                     : "l"(a), "l"(b)
                     : "memory");
}

/* Makes the products since the last call one group, and waits for earlier groups. */
static void units_close(float *sum, __local uint *shown)
{
    __asm__ volatile("//@90a wgmma.commit_group.sync.aligned;" ::: "memory");
    __asm__ volatile("//@90a wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

/* The sums are operands, so that compilers do not read them earlier. */
static void units_end(float *sum, __local uint *shown)
{
    __asm__ volatile("//@90a wgmma.wait_group.sync.aligned 0;" : ALL_SUMS(sum) : : "memory");
}
#endif

static void multiply_block(float sum[1][TILE_N / ATOM_N][SUMS], const __local ab_t *a, const __local ab_t *b, int stage,
                           int line, int column, int lane, __local uint *shown)
{
    const ulong left = descriptor(a, stage * (TILE_M * TILE_K) + line / 64 * SEGMENT),
                right = descriptor(b, stage * (TILE_N * TILE_K));
    units_begin();
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++)
        multiply_terms(sum[0][0], left + k * (TRANS_A ? STEP_ACROSS : STEP_ALONG),
                       right + k * (TRANS_B ? STEP_ALONG : STEP_ACROSS), shown);
    units_close(sum[0][0], shown);
}

static void multiply_end(float sum[1][TILE_N / ATOM_N][SUMS], __local uint *shown)
{
    units_end(sum[0][0], shown);
}
