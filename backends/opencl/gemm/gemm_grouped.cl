/* SPDX-License-Identifier: Apache-2.0
 *
 * Grouped matrix products; `offsets` holds the first row of each group.
 *
 * With GROUPED 1 (op GROUPED_MATMUL) the rows of a and y belong to groups, and each group has its own matrix in b.
 * Rows of no group are set to 0, as an additional group without terms. With GROUPED 2 (GROUPED_MATMUL_GRAD) the
 * terms belong to groups, and each group has its own result. With GROUPED 0 the product has no groups.
 */
#ifndef GROUPED
#define GROUPED 0
#endif

#if GROUPED
#define OFFSETS , __global const int *offsets, long offsets_at, long groups
#define GROUPS offsets + offsets_at, groups
#define MATRICES groups /* of b */

/* Returns the first row of group e of `groups`, clamped to 0..rows. Group number `groups` holds the rows of no
 * group. */
static long group_begin(__global const int *offsets, long e, long groups, long rows)
{
    return e > groups ? rows : clamp((long)offsets[e], 0L, rows);
}

static long group_rows(__global const int *offsets, long e, long groups, long rows)
{
    return max(group_begin(offsets, e + 1, groups, rows) - group_begin(offsets, e, groups, rows), 0L);
}
#else
#define OFFSETS
#define GROUPS 0, 0
#define MATRICES 1
#endif
