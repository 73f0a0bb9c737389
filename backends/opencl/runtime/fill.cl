/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills memory. Drivers' own fills hang, destroy the context or write wrong values (docs/design/drivers.md).
 */

/* Sets `bytes` bytes from `offset` on to the bytes of `word`, which are all the same. Item i writes 16 bytes at an
 * aligned address. The first 15 items also write the bytes before and after these. */
__kernel void fill(__global uchar *y, long offset, long bytes, uint word)
{
    const long i = (long)get_global_id(0), head = min(-offset & 15, bytes), quads = (bytes - head) / 16,
               tail = head + 16 * quads;
    y += offset;
    if (i < quads)
        *(__global uint4 *)(y + head + 16 * i) = (uint4)word;
    if (i < head)
        y[i] = (uchar)word;
    if (i < bytes - tail)
        y[tail + i] = (uchar)word;
}
