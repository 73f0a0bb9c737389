/* SPDX-License-Identifier: Apache-2.0
 *
 * Begin and end of a tile. With OVERLAPS the epilogue of a tile runs while the next tile is multiplied. Its results of
 * 16 bits wait in local memory, in which each warp has its own rows. With each block of the next tile's terms a warp
 * applies the epilogue to STEP_ROWS rows and stores them. The unit needs nothing of the time of these loads,
 * exponentials and stores. The bias is added earlier: a product is rounded after its bias and before its epilogue.
 *
 * With the gradient of GELU, row i0 / TILE_M of `column_sums` gets the sums of y's columns over the rows of a tile, if
 * that operand is not NULL.
 */
#ifndef OVERLAPS
#define OVERLAPS 0
#endif
/* Results in fp32 do not fit into local memory; other rows are not whole quads. */
#define SAME_bf16bf16 1
#define SAME_f16f16 1
#define WAITS (OVERLAPS && VW == 4 && TX_CAT(TX_CAT(SAME_, AB), Y))

#if WAITS && defined(EPILOGUE)
#define MAY_SUM 1
#define SUMS_COLUMNS (!KEEPS) /* not in the preprocessor, which does not know the epilogue's name */
#define SUMS_ARGUMENTS , __global float *column_sums, long column_sums_at
#define COLUMN_SUMS (column_sums ? column_sums + column_sums_at : 0)
#else
#define MAY_SUM 0
#define SUMS_COLUMNS 0
#define SUMS_ARGUMENTS
#define COLUMN_SUMS 0
#endif

/* A work-item's lane, and the first row and column of its warp in a tile. They are computed when they are needed
 * (told_again). */
typedef struct position {
    int lane, line, column;
} position;

static position position_of(int item)
{
    const int now = told_again(item), warp = now / LANES;
    const position own = {now % LANES, warp % WARPS_M * WARP_M, warp / WARPS_M * WARP_N};
    return own;
}

#if WAITS
#if LANES * WARPS_M * WARPS_N < TILE_N
#error each work-item loads the bias of a column
#endif
#if MAY_SUM && WARPS_N > 1
#error each work-item adds the sums of a column
#endif
#define STEP_ROWS 2
#define ROW_QUADS (WARP_N / 4 / LANES) /* of a lane */
#define STEP_QUADS (STEP_ROWS * ROW_QUADS)
#define QUAD_ROW(quad) ((quad) / ROW_QUADS) /* in a step */
#define QUAD_COLUMN(quad, lane) (((quad) % ROW_QUADS * LANES + (lane)) * 4)
#define RESULTS_PITCH (TILE_N + PIECE) /* so that rows begin in different banks */

/* A warp's share of the previous tile. */
typedef struct waiting {
    __local y_t *rows;   /* of all warps */
    __local float *bias; /* of the tile's columns */
    float next_bias;     /* of this work-item's column in the tile that is multiplied */
    share of;
    int next;                   /* first row that is not stored */
    ushort4 others[STEP_QUADS]; /* operands of the next step's epilogue */
    vec added[ROW_QUADS];       /* sums of this lane's columns over the rows that were stored */
    __local float *warp_sums;   /* such sums of all warps, [WARPS_M, TILE_N] */
    __global float *sums;       /* of the tile's columns, or 0 */
} waiting;

#if MAY_SUM
#define SUMS_MEMORY                                                         \
    __local float warp_sums[WARPS_M * TILE_N] __attribute__((aligned(16))); \
    before.warp_sums = warp_sums;                                           \
    before.sums = 0;                                                        \
    added_clear(&before);

static void added_clear(waiting *w)
{
#pragma unroll
    for (int q = 0; q < ROW_QUADS; q++)
        w->added[q] = (vec)0.0f;
}
#else
#define SUMS_MEMORY
#endif

#define WAITING_MEMORY                                                            \
    __local y_t waiting_rows[TILE_M * RESULTS_PITCH] __attribute__((aligned(16))); \
    __local float waiting_bias[TILE_N];                                           \
    waiting before;                                                               \
    before.rows = waiting_rows;                                                   \
    before.bias = waiting_bias;                                                   \
    before.next = WARP_M;                                                         \
    SUMS_MEMORY

static vec widen_bf16(ushort4 bits)
{
    return AS_VEC(convert_uint4(bits) << 16);
}

static vec widen_f16(ushort4 bits)
{
    return vload_half4(0, (const half *)&bits);
}

/* Loads the operands of the next step's epilogue. */
TX_INLINE void others_load(waiting *w, long n, int lane)
{
    if (!READS(w->of.others))
        return;
#pragma unroll
    for (int q = 0; q < STEP_QUADS; q++) {
        const int column = min(QUAD_COLUMN(q, lane), w->of.columns - 4);
        const long at = min(w->next + QUAD_ROW(q), w->of.rows - 1) * n + column;
        w->others[q] = *(const __global ushort4 *)(w->of.others + at);
    }
}

/* While a block of terms is multiplied, stores the next rows that wait. */
TX_INLINE void waiting_step(waiting *w, const operands *o, int item)
{
    const position own = position_of(item);
    const int lane = own.lane, line = own.line, column = own.column;
    if (w->next >= WARP_M)
        return;
#pragma unroll
    for (int q = 0; q < STEP_QUADS; q++) {
        const int row = w->next + QUAD_ROW(q), at = QUAD_COLUMN(q, lane);
        const __local y_t *const rounded = w->rows + (line + row) * RESULTS_PITCH + column + at;
        const vec product = TX_CAT(widen_, Y)(*(const __local ushort4 *)rounded);
        const int exists = row < w->of.rows && at < w->of.columns;
        vec out = product;
        if (KEEPS || READS(w->of.others))
            out = tx_apply(product, TX_CAT(widen_, Y)(w->others[q]));
        if (KEEPS)
            STORE_IF(exists && w->of.kept, product, w->of.kept + row * o->n + at);
        STORE_IF(exists, out, w->of.y + row * o->n + at);
        if (SUMS_COLUMNS)
            w->added[q % ROW_QUADS] += exists ? tx_product(out) : (vec)0.0f;
    }
    w->next += STEP_ROWS;
    if (w->next < WARP_M)
        others_load(w, o->n, lane);
}

/* A barrier, before which warps show the sums of the columns of the tile that waits, and after which they are added and
 * stored. The next barrier separates them from those of the next tile. */
TX_INLINE void waiting_end(waiting *w, int item)
{
#if MAY_SUM
    const position own = position_of(item);
#pragma unroll
    for (int q = 0; q < ROW_QUADS && SUMS_COLUMNS; q++)
        *(__local vec *)(w->warp_sums + own.line / WARP_M * TILE_N + QUAD_COLUMN(q, own.lane)) = w->added[q];
    added_clear(w);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
#if MAY_SUM
    if (SUMS_COLUMNS && w->sums && item < w->of.columns) {
        float sum = 0.0f;
#pragma unroll
        for (int warp = 0; warp < WARPS_M; warp++)
            sum += w->warp_sums[warp * TILE_N + item];
        w->sums[item] = sum;
    }
#endif
}

/* Returns the blocks of terms of tile number `tile`. */
static int tile_begin(waiting *w, const operands *o, const outcome *to, uint tile, int item)
{
    const gemm_place place = place_of(o, tile);
    const long column = place.j0 + item;
    w->next_bias = to->bias && item < TILE_N && column < o->n ? to->bias[column] : 0.0f;
    return blocks_of(place.terms);
}

/* Rounds the sums of tile number `tile`, which then wait. Returns the number of the next tile. */
TX_INLINE uint tile_end(float sum[ATOMS_M][ATOMS_N][SUMS], waiting *w, const operands *o, const outcome *to,
                        const whole_operands *whole, uint tile, int item, __local uint *shown)
{
    while (w->next < WARP_M)
        waiting_step(w, o, item);
    const position own = position_of(item);
    const int lane = own.lane, line = own.line, column = own.column;
    const gemm_place place = place_of(o, tile);
    if (item < TILE_N)
        w->bias[item] = w->next_bias;
    waiting_end(w, item); /* the bias is complete, and the rows before have been read */
#pragma unroll
    for (int e = 0; e < LANE_SUMS; e += ROW_RUN) {
        const int row = line + e / SUMS / ATOMS_N * ATOM_M + ROW_OF(e % SUMS, lane);
        const int at = column + e / SUMS % ATOMS_N * ATOM_N + COLUMN_OF(e % SUMS, lane);
        *(__local uint *)(w->rows + row * RESULTS_PITCH + at) =
            narrow_both(SUM_AT(sum, e) + w->bias[at], SUM_AT(sum, e + 1) + w->bias[at + 1]);
    }
    w->of = share_of(to, o, &place, tile, line, column);
    w->next = 0;
    if (SUMS_COLUMNS)
        w->sums = to->column_sums ? to->column_sums + place.i0 / TILE_M * o->n + place.j0 : 0;
    others_load(w, o->n, lane);
    return next_of(o, &place, tile);
}

/* After the last tile. */
TX_INLINE void tiles_end(waiting *w, const operands *o, int item)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    while (w->next < WARP_M)
        waiting_step(w, o, item);
    if (SUMS_COLUMNS)
        waiting_end(w, item);
}
#else
#define WAITING_MEMORY
#define waiting_step(w, o, item)
#define tiles_end(w, o, item)
#define tile_begin(w, o, to, tile, item) blocks_of(place_of(o, tile).terms)
#define tile_end(sum, w, o, to, whole, tile, item, shown) tile_store(sum, o, to, whole, tile, item, shown)

/* Stores the sums of tile number `tile`. Returns the number of the next tile. */
TX_INLINE uint tile_store(float sum[ATOMS_M][ATOMS_N][SUMS], const operands *o, const outcome *to,
                          const whole_operands *whole, uint tile, int item, __local uint *shown)
{
    const position own = position_of(item);
    const int lane = own.lane, line = own.line, column = own.column;
    const gemm_place place = place_of(o, tile);
    const share of = share_of(to, o, &place, tile, line, column);
    mend(sum, whole, &place, line, column, of.rows, of.columns, lane);
    join_sums(sum, of.bias, of.columns, lane, shown);
    store_sums(sum, &of, o->n, lane);
    return next_of(o, &place, tile);
}
#endif
