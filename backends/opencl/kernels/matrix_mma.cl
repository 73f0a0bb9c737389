/* SPDX-License-Identifier: Apache-2.0
 * The atom of NVIDIA's mma.sync, from compute capability 8.0 on: bf16, fp16, and fp32 rounded to tf32 to nearest. Fragments are
 * in the PTX manual under mma.m16n8k8 (.tf32) and mma.m16n8k16 (.bf16, .f16); two of these make 16 columns. g is lane / 4, t is
 * lane % 4. */

#define LANES 32
#define ATOM_M 16
#define ATOM_N 16
#define ATOM_K (WIDEN ? 16 : 8)
#define SUMS 8
#define ROW_RUN 2
#define ROW_OF(e, lane) ((lane) / 4 + (e) % 4 / 2 * 8)
#define COLUMN_OF(e, lane) ((e) / 4 * 8 + (lane) % 4 * 2 + (e) % 2)
#define KEEPS_ORDER 1

/* These pitches let the reads of a warp fall into different banks. */
#define PITCH_ALONG (TILE_K + PIECE)
#define PITCH_ACROSS (TILE + 8)

typedef uint fragment[4]; /* of b: two of the first 8 columns, two of the others */

#if !EMULATED
/* Copies 16 bytes, of which those from `bytes` on are 0. */
static void copy_begin(__local void *to, const __global void *from, int bytes)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"l"(to), "l"(from), "r"(bytes) : "memory");
}

static void copy_wait(void)
{
    __asm__ volatile("cp.async.wait_all;" ::: "memory");
}

static uint round_tf32(float x)
{
    uint bits;
    __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

#define MMA_bf16 "m16n8k16.row.col.f32.bf16.bf16.f32"
#define MMA_f16 "m16n8k16.row.col.f32.f16.f16.f32"
#define MMA_f32 "m16n8k8.row.col.f32.tf32.tf32.f32"
/* sum [16 x 8] += a b of all lanes' fragments. */
static void multiply_add(float *sum, const uint *a, const uint *b, __local uint *shown)
{
    __asm__ volatile("mma.sync.aligned." TX_CAT(MMA_, AB) " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four matrices of 8 x 8 16-bit elements; lane i names row i % 8 of matrix i / 8. A lane gets two neighbours of row g of
 * each, or where turned is 1 of column g. */
static void load_matrices(uint out[4], const __local ab_t *row, int turned, __local uint *shown)
{
    if (turned)
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                         : "l"(row)
                         : "memory");
    else
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                         : "l"(row)
                         : "memory");
}
#endif

#if !WIDEN
static uint element(const __local float *block, int along, int line, int term)
{
    return round_tf32(block[along ? line * PITCH_ALONG + term : term * PITCH_ACROSS + line]);
}

static void load_a(fragment a, const __local float *block, int line, int term, int lane, __local uint *shown)
{
    const int g = lane / 4, t = lane % 4;
    a[0] = element(block, !TRANS_A, line + g, term + t);
    a[1] = element(block, !TRANS_A, line + g + 8, term + t);
    a[2] = element(block, !TRANS_A, line + g, term + t + 4);
    a[3] = element(block, !TRANS_A, line + g + 8, term + t + 4);
}

static void load_b(fragment b, const __local float *block, int line, int term, int lane, __local uint *shown)
{
    const int g = lane / 4, t = lane % 4;
    b[0] = element(block, TRANS_B, line + g, term + t);
    b[1] = element(block, TRANS_B, line + g, term + t + 4);
    b[2] = element(block, TRANS_B, line + g + 8, term + t);
    b[3] = element(block, TRANS_B, line + g + 8, term + t + 4);
}
#else
static void load_a(fragment a, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    const int row = lane % 8, half_line = lane / 8 % 2 * 8, half_term = lane / 16 * 8;
    load_matrices(a, TRANS_A ? block + (term + row + half_term) * PITCH_ACROSS + line + half_line
                             : block + (line + row + half_line) * PITCH_ALONG + term + half_term, TRANS_A, shown);
}

static void load_b(fragment b, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    const int row = lane % 8, half_term = lane / 8 % 2 * 8, half_line = lane / 16 * 8;
    load_matrices(b, TRANS_B ? block + (line + row + half_line) * PITCH_ALONG + term + half_term
                             : block + (term + row + half_term) * PITCH_ACROSS + line + half_line, !TRANS_B, shown);
}
#endif

static void multiply(float *sum, const uint *a, const uint *b, __local uint *shown)
{
    multiply_add(sum, a, b, shown);
    multiply_add(sum + 4, a, b + 2, shown);
}
