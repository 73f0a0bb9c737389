/* SPDX-License-Identifier: Apache-2.0
 * Emulates the instructions of matrix_mma.cl, matrix_mma_tile.cl, matrix_wgmma.cl, matrix_amd.cl and matrix_dpas.cl in
 * OpenCL C. Sources: the PTX manual, AMD's matrix instruction calculator and the OpenCL registry. The lanes exchange
 * their values in local memory, SHOWN words each. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#undef EMULATED
#define EMULATED 1

/* Element i of an array of 32-bit words. The words are read with the type that they were written with. */
static float element_of(const __local uint *words, int i)
{
#if WIDEN
    const uint one = words[i / 2] >> 16 * (i % 2) & 0xFFFFu, size = one & 0x7FFFu;
#define IS_f16 1
#define IS_bf16 0
    if (!TX_CAT(IS_, AB))
        return as_float(one << 16);
    const float v = size < 0x400u    ? (float)size * 0x1p-24f
                    : size < 0x7C00u ? as_float((size << 13) + (112u << 23))
                                     : as_float(size << 13 | 0x7F800000u);
    return one == size ? v : -v;
#else
    return as_float(words[i]);
#endif
}

#if WIDEN && PLANES == 1
#define POWER_OF exp2
#define RECIPROCAL_OF(x) (1.0f / (x))
#endif

#if WIDEN
/* To nearest even. */
static uint narrowed(float x)
{
    const uint u = as_uint(x), size = u & 0x7FFFFFFFu;
    if (!TX_CAT(IS_, AB))
        return size > 0x7F800000u ? u >> 16 | 0x40u : (u + 0x7FFFu + (u >> 16 & 1u)) >> 16;
    const uint large = size >= 0x477FF000u ? 0x7C00u : (size - (112u << 23) + 0xFFFu + (size >> 13 & 1u)) >> 13;
    const uint small = as_uint(as_float(size) + 0.5f) - 0x3F000000u; /* in units of 2^-24 */
    return u >> 16 & 0x8000u | (size > 0x7F800000u ? 0x7E00u : size < 0x38800000u ? small : large);
}

/* Returns two values as they are stored, a in the lower half. */
static uint narrow_both(float a, float b)
{
    return narrowed(a) | narrowed(b) << 16;
}
#endif

#if ATOM == MMA || ATOM == WGMMA
#if ATOM == WGMMA
#ifdef TILE_N
#define SHOWN (8 + 8 * 8) /* instructions of wgmma that wait */
#else
#define SHOWN (8 + 8 * 16)
#endif
#else
#define SHOWN 6
#endif

/* Starts a copy. The bits of operands of wgmma are inverted until the copy is complete. */
static void copy_begin(__local void *to, const __global void *from, int bytes)
{
#if ATOM == WGMMA
    for (int i = 0; i < 4; i++)
        ((__local uint *)to)[i] = ~(4 * i < bytes ? ((const __global uint *)from)[i] : 0);
#else
    for (int i = 0; i < 16 / (int)sizeof(ab_t); i++)
        ((__local ab_t *)to)[i] = bytes ? ((const __global ab_t *)from)[i] : 0;
#endif
}

static void copy_close(void)
{
}

static void copy_wait(void)
{
}

/* Of matrix_mma_tile.cl. */
static void copy_wait_oldest(void)
{
}

/* Adds the exact sum of all products, and drops the bits that do not fit into an fp32. */
static void multiply_add(float *sum, const uint *a, const uint *b, __local uint *shown)
{
    const int item = get_local_id(0), lane = item % 32, per = WIDEN ? 2 : 1; /* terms in a register */
    const uint read = WIDEN ? ~0u : ~0x1FFFu;
    __local uint *mine = shown + item * SHOWN, *warp = mine - lane * SHOWN;
    for (int i = 0; i < SHOWN; i++)
        mine[i] = (i < 4 ? a[i] : b[i - 4]) & read;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = 0; e < 4; e++) {
        const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
        double all = sum[e];
        for (int k = 0; k < 8 * per; k++) {
            const int t = k / per % 4, upper = k / (4 * per);
            all += (double)element_of(warp + (row % 8 * 4 + t) * SHOWN + row / 8 + 2 * upper, k % per) *
                   (double)element_of(warp + (column * 4 + t) * SHOWN + 4 + upper, k % per);
        }
        sum[e] = convert_float_rtz(all);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

static void load_matrices(uint out[4], const __local ab_t *row, int turned, __local uint *shown)
{
    const int item = get_local_id(0), lane = item % 32, g = lane / 4, t = lane % 4;
    shown[2 * item] = (uint)(ulong)row;
    shown[2 * item + 1] = (uint)((ulong)row >> 32);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 4; i++) {
        const __local uint *rows = shown + 2 * (item - lane + 8 * i);
#define ROW(j) ((const __local ab_t *)((ulong)rows[2 * (j) + 1] << 32 | rows[2 * (j)]))
        const uint first = turned ? ROW(2 * t)[g] : ROW(g)[2 * t];
        const uint second = turned ? ROW(2 * t + 1)[g] : ROW(g)[2 * t + 1];
#undef ROW
        out[i] = first | second << 16;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

#if ATOM == WGMMA
/* Started operations run when the work-item waits for them, so that a write into a block that comes too early is
 * detected. `shown` holds the positions of a product's blocks of a and b (4 words), the number of started operations
 * (4), and the numbers at the last call of units_close (5) and the one before (6). The operands follow from word 8 on:
 * the descriptors and positions of the blocks, or the fragment of a in four words. */

static int along_at(int line, int term);
static int across_at(int term, int line, int lines);

#ifdef TILE_N
/* Completes the copies of this work-item (matrix_copy_async.cl). */
static void show(const __local ab_t *block, int along, int lines, int item)
{
    const int per_term = lines / PIECE, per_line = TILE_K / PIECE, group = 32 * WARPS_M * WARPS_N;
    const int items = lines * per_line % group ? 256 : group;
    for (int i = item; item < items && i < lines * per_line; i += items) {
        const int at =
            along ? along_at(i / per_line, i % per_line * PIECE) : across_at(i / per_term, i % per_term * PIECE, lines);
        for (int word = 0; word < 4; word++)
            ((__local uint *)(block + at))[word] ^= ~0u;
    }
}

static void blocks_show(const __local ab_t *a, const __local ab_t *b, int step, int item, __local uint *shown)
{
    __local uint *mine = shown + item * SHOWN;
    if (step == 0 || PLANE_A(step) < PLANE_A(step - 1)) /* the first that reads it */
        show(a, !TRANS_A, TILE_M, item);
    if (step == 0 || PLANE_B(step) > PLANE_B(step - 1))
        show(b, TRANS_B, TILE_N, item);
    vstore2(as_uint2((ulong)a), 0, mine);
    vstore2(as_uint2((ulong)b), 1, mine);
}
#endif

/* The element of a line and a term of an operand that a descriptor names, in a block at this address. */
static float described(ulong descriptor, ulong block, int line, int term, int across)
{
    const uint begin = ((uint)(descriptor & 0x3FFF) << 4) - (uint)(block & 0x3FFFF) & 0x3FFFF;
    const uint lead = (uint)(descriptor >> 16 & 0x3FFF) << 4, stride = (uint)(descriptor >> 32 & 0x3FFF) << 4;
    const uint at = begin + (across ? line / 64 * lead + term / 8 * stride + term % 8 * 128 + line % 64 * 2
                                    : line / 8 * stride + line % 8 * 128 + term * 2);
    if (descriptor >> 62 != 1)
        return NAN;
    return element_of((const __local uint *)(block + (at ^ (at >> 7 & 7) << 4)), 0);
}

/* Terms 0 to 15 of a lane's 2 rows, which four lanes have in registers, begun together. */
static void held(float left[2][16], const __local uint *one, int lane)
{
    for (int i = 0; i < 32; i++) {
        const int row = i / 16, k = i % 16;
        left[row][k] = element_of(one + (k / 2 % 4 - lane % 4) * SHOWN + row + k / 8 * 2, k % 2);
    }
}

/* The values of a lane's 2 rows and a quarter of the columns. */
static void run(float *sum, const __local uint *one, int item, int columns, int is_held, int a_across, int b_across)
{
    const ulong a = as_ulong(vload2(0, one)), block_a = as_ulong(vload2(1, one));
    const ulong b = as_ulong(vload2(2, one)), block_b = as_ulong(vload2(3, one));
    const int lane = item % 32, row = item / 32 % 4 * 16 + lane / 4;
    float left[2][16];
    if (is_held)
        held(left, one, lane);
    for (int i = 0; i < 32 && !is_held; i++)
        left[i / 16][i % 16] = described(a, block_a, row + i / 16 * 8, i % 16, a_across);
    for (int c = 0; c < columns / 4; c++) {
        double first = sum[c / 2 * 4 + c % 2], second = sum[c / 2 * 4 + c % 2 + 2];
        for (int k = 0; k < 16; k++) {
            const double right = described(b, block_b, c / 2 * 8 + lane % 4 * 2 + c % 2, k, b_across);
            first += left[0][k] * right;
            second += left[1][k] * right;
        }
        sum[c / 2 * 4 + c % 2] = convert_float_rtz(first);
        sum[c / 2 * 4 + c % 2 + 2] = convert_float_rtz(second);
    }
}

/* The first `count` of all that is begun, if they add to these sums. */
static void run_first(float *sum, uint count, __local uint *mine, int columns, int is_held, int a_across, int b_across)
{
    __local uint *one = mine + 8;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < count; i++)
        run(sum, one + 8 * i, get_local_id(0), columns, is_held, a_across, b_across);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 4; i < 7; i++)
        mine[i] = max(mine[i], count) - count;
    for (uint i = 0; i < 8 * mine[4]; i++)
        one[i] = one[8 * count + i];
}

static int told_again(int x)
{
    return x;
}

static void units_begin(void)
{
}

static void copies_show(void)
{
}

static void units_close(__local uint *shown)
{
    __local uint *mine = shown + get_local_id(0) * SHOWN;
    mine[6] = mine[5];
    mine[5] = mine[4];
}

static void begin(ulong2 a, ulong2 b, __local uint *shown)
{
    __local uint *mine = shown + get_local_id(0) * SHOWN, *one = mine + 8 + 8 * mine[4];
    vstore4(as_uint4(a), 0, one);
    vstore4(as_uint4(b), 1, one);
    //@90a mine[4]++;
}

#ifdef TILE_N
static void multiply_terms(float *sum, ulong a, ulong b, int adds, __local uint *shown)
{
    __local uint *mine = shown + get_local_id(0) * SHOWN;
    for (int e = 0; !adds && e < TILE_N / 2; e++)
        sum[e] = 0.0f; /* with PROMOTES nothing waits then */
    begin((ulong2)(a, as_ulong(vload2(0, mine))), (ulong2)(b, as_ulong(vload2(1, mine))), shown);
}

static void units_wait_earlier(float *sum, __local uint *shown)
{
    __local uint *mine = shown + get_local_id(0) * SHOWN;
    run_first(sum, mine[6], mine, TILE_N, 0, TRANS_A, !TRANS_B);
}

static void units_end(float *sum, __local uint *shown)
{
    __local uint *mine = shown + get_local_id(0) * SHOWN;
    run_first(sum, mine[4], mine, TILE_N, 0, TRANS_A, !TRANS_B);
}
#else /* attention_wgmma.cl */
static void multiply_lines(float *s, const __local ab_t *own, const __local ab_t *others, ulong a, ulong b, int first,
                           __local uint *shown)
{
    for (int e = 0; first && e < OTHERS / 2; e++)
        s[e] = 0.0f;
    begin((ulong2)(a, (ulong)own), (ulong2)(b, (ulong)others), shown);
}

static void multiply_turned(float *out, const uint *p, const __local ab_t *others, ulong b, __local uint *shown)
{
    begin(as_ulong2(vload4(0, p)), (ulong2)(b, (ulong)others), shown);
}

static void scores_wait(float *s, int later, __local uint *shown)
{
    __local uint *mine = shown + get_local_id(0) * SHOWN;
    run_first(s, mine[later ? 6 : 4], mine, OTHERS, 0, 0, 0);
}

static void outputs_wait(float *out, int later, __local uint *shown)
{
    __local uint *mine = shown + get_local_id(0) * SHOWN;
    run_first(out, mine[later ? 6 : 4], mine, D, 1, 0, 1);
}

static void sums_hold(float *out)
{
}

static void fragment_hold(uint *p)
{
}

static void powers_hold(float sum)
{
}

/* Completes the copies of this work-item (attention_mma.cl). */
static void lines_show(__local ab_t *block, int lines, int item)
{
    for (int at = item; at < lines * PIECES; at += GROUP) {
        const int line = at / PIECES, term = at % PIECES * PIECE;
        __local uint *piece = (__local uint *)(block + line * 64 + term / 64 * 64 * lines +
                                               (term % 64 ^ line % 8 * PIECE));
        for (int word = 0; word < 4; word++)
            piece[word] ^= ~0u;
    }
}
#endif
#endif
#elif ATOM == DPAS8 || ATOM == DPAS16
#define HELD (128 / LANES) /* words of an operand */
#define SHOWN (2 * HELD)
#define SUB_GROUP

/* Reads from an address that is not a multiple of 16 bytes. No test expects this. */
static uint8 read_words(const __local void *from)
{
    uint word[8];
    for (int i = 0; i < 8; i++)
        word[i] = (ulong)from % 16 ? ~0u : ((const __local uint *)from)[i * LANES + get_local_id(0) % LANES];
    return vload8(0, word);
}

static rows8 read_rows(const __local void *from)
{
#if ATOM == DPAS8
    return as_int8(read_words(from));
#elif WIDEN
    ushort one[8];
    for (int i = 0; i < 8; i++)
        one[i] = (ulong)from % 16 ? 0xFFFF : ((const __local ushort *)from)[i * LANES + get_local_id(0) % LANES];
    return as_short8(vload8(0, one));
#else
    return as_float4(read_words(from).lo);
#endif
}

/* The terms of row r belong to a lane's row r: LANES lanes have two each, or one; of 8 terms half of the lanes have
 * one. */
static float of_row(const __local uint *warp, int row, int k)
{
#if ATOM == DPAS8
    return element_of(warp + k / 2 * SHOWN + row, k % 2);
#elif WIDEN
    return element_of(warp + k * SHOWN, row);
#else
    return element_of(warp + (row % 2 * 8 + k) * SHOWN, row / 2);
#endif
}

static void multiply(float *sum, const sixteen *a, const sixteen *b, __local uint *shown)
{
    const int item = get_local_id(0), lane = item % LANES;
    __local uint *mine = shown + item * SHOWN, *warp = mine - lane * SHOWN;
    for (int i = 0; i < 2; i++) {
#if ATOM == DPAS8
        vstore8(as_uint8(a->rows[i]), i, mine);
#else
        vstore4(as_uint4(a->rows[i]), i, mine);
#endif
    }
    for (int j = 0; j < COLUMNS / LANES; j++)
        vstore8(as_uint8(b->columns[j]), j, mine + HELD);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = 0; e < SUMS; e++)
        for (int k = 0; k < ATOM_K; k++) {
            const int row = ROW_OF(e, lane), column = COLUMN_OF(e, lane);
            sum[e] += of_row(warp, row, k) * element_of(warp + column % LANES * SHOWN + HELD + column / LANES * 8, k);
        }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#else
#define SHOWN (8 * HELD)

static void multiply(float *sum, const uint4 *a, const uint4 *b, __local uint *shown)
{
    const int item = get_local_id(0), lane = item % LANES;
    __local uint *mine = shown + item * SHOWN, *warp = mine - lane * SHOWN;
    for (int i = 0; i < HELD; i++) {
        vstore4(a[i], i, mine);
        vstore4(b[i], i + HELD, mine);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = 0; e < SUMS; e++)
        for (int k = 0; k < ATOM_K; k++) {
            /* With WMMA11 each half of the lanes reads its own. */
            const int half_of = HELD == 2 ? lane / ATOM_M : k / PIECE, at = HELD == 2 ? k : k % PIECE;
            sum[e] += element_of(warp + (ROW_OF(e, lane) + half_of * ATOM_M) * SHOWN, at) *
                      element_of(warp + (COLUMN_OF(e, lane) + half_of * ATOM_N) * SHOWN + 4 * HELD, at);
        }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

/* Returns x of the lane whose number differs in these bits. */
static float across(float x, int bits, __local uint *shown)
{
    const int item = get_local_id(0);
    shown[item * SHOWN] = as_uint(x);
    barrier(CLK_LOCAL_MEM_FENCE);
    const float other = as_float(shown[(item ^ bits) * SHOWN]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return other;
}

#if 0
