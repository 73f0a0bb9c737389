/* SPDX-License-Identifier: Apache-2.0
 *
 * The atom of NVIDIA's mma.sync, from compute capability 8.0 on: bf16 and fp16 here, fp32 in matrix_tf32.cl. The PTX
 * manual describes fragments under mma.m16n8k8 (.tf32) and mma.m16n8k16 (.bf16, .f16). g is lane / 4, t is lane % 4.
 */

#define LANES 32
#define KEEPS_ORDER 1

#if !EMULATED
/* Copies 16 bytes, or writes 16 zeros if `bytes` is 0. */
static void copy_begin(__local void *to, const __global void *from, int bytes)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"l"(to), "l"(from), "r"(bytes) : "memory");
}

static void copy_wait(void)
{
    __asm__ volatile("cp.async.wait_all;" ::: "memory");
}

/* Returns the value of x in the lane whose number differs in these bits. */
static float across(float x, int bits, __local uint *shown)
{
    float y;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(y) : "f"(x), "r"(bits));
    return y;
}

#define MMA_bf16 "m16n8k16.row.col.f32.bf16.bf16.f32"
#define MMA_f16 "m16n8k16.row.col.f32.f16.f16.f32"
#define MMA_f32 "m16n8k8.row.col.f32.tf32.tf32.f32"
/* sum [16 x 8] += a b with the fragments of all lanes. */
static void multiply_add(float sum[4], const uint a[4], const uint b[2], __local uint *shown)
{
    __asm__ volatile(
        "mma.sync.aligned." TX_CAT(MMA_, AB) " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(sum[0]), "f"(sum[1]), "f"(sum[2]),
          "f"(sum[3]));
}

/* Loads four matrices of 8 x 8 16-bit elements. Lane i names row i % 8 of matrix i / 8. A lane gets two neighbours
 * in row g of each, or with `turned` in column g. */
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

#if WIDEN
#define NARROW_bf16 "bf16"
#define NARROW_f16 "f16"
/* Rounds two numbers to their storage type, a in the lower half. */
static uint narrow_both(float a, float b)
{
    uint two;
    __asm__("cvt.rn." TX_CAT(NARROW_, AB) "x2.f32 %0, %1, %2;" : "=r"(two) : "f"(b), "f"(a));
    return two;
}
#endif
#endif

#if WIDEN
#define ATOM_M 16
#define ATOM_N 16
#define ATOM_K 16
#define SUMS 8
#define ROW_RUN 2
#define ROW_OF(e, lane) ((lane) / 4 + (e) % 4 / 2 * 8)
#define COLUMN_OF(e, lane) ((e) / 4 * 8 + (lane) % 4 * 2 + (e) % 2)

typedef uint fragment[4]; /* of b: two of the first 8 columns, two of the others */

static void multiply(float *sum, const uint *a, const uint *b, __local uint *shown)
{
    multiply_add(sum, a, b, shown);
    multiply_add(sum + 4, a, b + 2, shown);
}
#endif
