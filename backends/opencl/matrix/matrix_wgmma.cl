/* SPDX-License-Identifier: Apache-2.0
 *
 * The atom of NVIDIA's wgmma (H100 and H200: sm_90a), for 16-bit operands. Four warps together multiply 64 lines of
 * a by TILE_N columns of b. The unit reads local memory itself while the warps continue. The sums have the layout of
 * matrix_mma.cl, in adjacent pieces of 16 x 16.
 *
 * The driver compiles for sm_90 and checks instructions. So the instructions of sm_90a are comments in inline
 * assembly, which backends/opencl/matrix/retarget.c turns into instructions. Without that step nothing is
 * multiplied.
 *
 * Products (matrix_mma_tile.cl) define TILE_N; attention (attention_wgmma.cl) has products of its own.
 */

/* The unit reads lines of 128 bytes, in atoms of 8. A line holds terms (one for each line of the operand), or 64
 * lines (one for each term). The 8 pieces of a line are permuted by the line's number. */
#define LINE_BYTES 128
#define ATOM_BYTES (8 * LINE_BYTES)

/* The matrix descriptor of an operand that begins at element `at` of `blocks` (PTX manual, "Matrix Descriptor
 * Format"), in units of 16 bytes. It holds the address; the bytes from 64 lines to the next, `segment` elements, if
 * lines of memory are terms; the bytes from one atom to the next; and the permutation of pieces.
 * Blocks are aligned to ATOM_BYTES, because the permutation uses address bits. */
static ulong descriptor_of(const __local ab_t *blocks, int at, int segment)
{
    return (ulong)((uint)(ulong)blocks + (uint)at * (uint)sizeof(ab_t) & 0x3FFFF) >> 4 |
           (ulong)(segment * sizeof(ab_t) >> 4) << 16 | (ulong)(ATOM_BYTES >> 4) << 32 | 1UL << 62;
}

/* From 16 terms to the next. */
#define STEP_ALONG (16 * sizeof(ab_t) >> 4)
#define STEP_ACROSS (2 * ATOM_BYTES >> 4)

#if EMULATED == 0
#define WGMMA_bf16 "f32.bf16.bf16 "
#define WGMMA_f16 "f32.f16.f16 "
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define EIGHT(io, s) \
    io((s)[0]), io((s)[1]), io((s)[2]), io((s)[3]), io((s)[4]), io((s)[5]), io((s)[6]), io((s)[7])
/* The sums of a lane for so many columns as operands: outputs only, or inputs too. */
#define NEW "=f"
#define OLD "+f"
#define SUMS_64(io, s) EIGHT(io, s), EIGHT(io, (s) + 8), EIGHT(io, (s) + 16), EIGHT(io, (s) + 24)
#define SUMS_128(io, s) SUMS_64(io, s), SUMS_64(io, (s) + 32)
#define SUMS_256(io, s) SUMS_128(io, s), SUMS_128(io, (s) + 64)
#define NAMES_64 TEN() TEN(1) TEN(2) "%30, %31"
#define NAMES_128 TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60, %61, %62, %63"
#define NAMES_256                                                          \
    TEN()                                                                  \
    TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) \
        TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127"
#define SHAPE_64 "m64n64k16."
#define SHAPE_128 "m64n128k16."
#define SHAPE_256 "m64n256k16."
/* The operands that follow: two descriptors, or a's fragment in registers and a descriptor. */
#define LOCAL_64 "%32, %33, "
#define LOCAL_128 "%64, %65, "
#define LOCAL_256 "%128, %129, "
#define HELD_64 "{%32, %33, %34, %35}, %36, "
#define HELD_128 "{%64, %65, %66, %67}, %68, "
/* Begins sum [64 x columns] = a b of four warps for 16 terms. `flags`: whether the old sum is added, factors of a and
 * b, and whether lines of memory are terms. */
#define WGMMA_BEGIN(columns, from, flags, io, sum, ...) WGMMA_TEXT("", "", columns, from, flags, io, sum, __VA_ARGS__)
#define WGMMA_TEXT(before, after, columns, from, flags, io, sum, ...)                                               \
    __asm__ volatile(before "//@90a wgmma.mma_async.sync.aligned." TX_CAT(SHAPE_, columns) TX_CAT(WGMMA_, AB)       \
                     "{" TX_CAT(NAMES_, columns) "}, " TX_CAT(from, columns) flags after                            \
                     : TX_CAT(SUMS_, columns)(io, sum)                                                              \
                     : __VA_ARGS__                                                                                  \
                     : "memory")

static int told_again(int x)
{
    __asm__ volatile("" : "+r"(x));
    return x;
}

static void units_begin(void)
{
    __asm__ volatile("//@90a wgmma.fence.sync.aligned;" ::: "memory");
}

/* Makes the copies of this work-item visible to the unit. A barrier must follow. */
static void copies_show(void)
{
    __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Makes the products since the last call one group. */
static void units_close(__local uint *shown)
{
    __asm__ volatile("//@90a wgmma.commit_group.sync.aligned;" ::: "memory");
}
#endif

#ifdef TILE_N
#define SEGMENT (64 * TILE_K) /* elements of a block in 64 lines */

static int along_at(int line, int term)
{
    return line * TILE_K + (term ^ line % 8 * PIECE);
}

static int across_at(int term, int line, int lines)
{
    return line / 64 * SEGMENT + term * 64 + (line % 64 ^ term % 8 * PIECE);
}

#if EMULATED == 0
static void blocks_show(const __local ab_t *a, const __local ab_t *b, int step, int item, __local uint *shown)
{
    copies_show();
}

#define DIGIT_0 "0"
#define DIGIT_1 "1"
#define DIGIT_OF(x) TX_CAT(DIGIT_, x)
#define NOT_0 1
#define NOT_1 0
/* Negates neither operand, and states whether lines of memory are terms. */
#define FLAGS ", 1, 1, " DIGIT_OF(TRANS_A) ", " DIGIT_OF(TX_CAT(NOT_, TRANS_B)) ";"

/* Begins sum [64 x TILE_N] += a b; a and b are descriptors. If `adds` is 0, which is possible with PROMOTES, it
 * replaces the sum. */
static void multiply_terms(float *sum, ulong a, ulong b, int adds, __local uint *shown)
{
#if PROMOTES
    WGMMA_TEXT("{.reg .pred p; setp.ne.s32 p, %66, 0;\n", "\n}", TILE_N, LOCAL_, "p" FLAGS, OLD, sum, "l"(a), "l"(b),
               "r"(adds));
#else
    WGMMA_BEGIN(TILE_N, LOCAL_, "1" FLAGS, OLD, sum, "l"(a), "l"(b));
#endif
}

/* Waits for all groups except the last one. */
static void units_wait_earlier(float *sum, __local uint *shown)
{
    __asm__ volatile("//@90a wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

/* The sums are operands, so that compilers do not read them earlier. */
static void units_end(float *sum, __local uint *shown)
{
    __asm__ volatile("//@90a wgmma.wait_group.sync.aligned 0;" : TX_CAT(SUMS_, TILE_N)(OLD, sum) : : "memory");
}
#endif

static void multiply_block(float sum[1][TILE_N / ATOM_N][SUMS], const __local ab_t *a, const __local ab_t *b, int adds,
                           int line, int column, int lane, __local uint *shown)
{
    const ulong left = descriptor_of(a, line / 64 * SEGMENT, SEGMENT), right = descriptor_of(b, 0, SEGMENT);
    units_begin();
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++)
        multiply_terms(sum[0][0], left + k * (TRANS_A ? STEP_ACROSS : STEP_ALONG),
                       right + k * (TRANS_B ? STEP_ALONG : STEP_ACROSS), adds || k > 0, shown);
    units_close(shown);
}

static void multiply_earlier(float sum[1][TILE_N / ATOM_N][SUMS], __local uint *shown)
{
    units_wait_earlier(sum[0][0], shown);
}

static void multiply_end(float sum[1][TILE_N / ATOM_N][SUMS], __local uint *shown)
{
    units_end(sum[0][0], shown);
}
#endif
