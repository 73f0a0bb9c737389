/* SPDX-License-Identifier: Apache-2.0
 * Products by groups of rows, which begin and end where `offsets` say. GROUPED 1 (op GROUPED_MATMUL): the rows of a and y are of
 * groups, each with a matrix of its own in b, and rows of none are 0, as a group more without terms. GROUPED 2
 * (GROUPED_MATMUL_GRAD): the terms are of groups, each with a result of its own. 0: there are no groups. */
#ifndef GROUPED
#define GROUPED 0
#endif

#if GROUPED
#define OFFSETS , __global const int *offsets, long offsets_at, long groups
#define GROUPS offsets + offsets_at, groups

/* Where rows of group e begin, of `groups`; the last end where the first of no group is. All are within 0..rows. */
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
#endif
