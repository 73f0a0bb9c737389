/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills memory. Drivers' own fills hang, destroy the context or write wrong values (docs/design/drivers.md).
 */

/* Sets `bytes` bytes from element `offset` on. Elements have `unit` bytes, and `word` consists of them. Item i writes
 * 16 bytes at an aligned address. The first 15 items also write the bytes before and after these. */
__kernel void fill(__global uchar *y, long offset, long bytes, uint word, int unit)
{
    const long first = offset * unit, i = (long)get_global_id(0), head = min(-first & 15, bytes),
               quads = (bytes - head) / 16, tail = head + 16 * quads;
    y += first;
    if (i < quads)
        *(__global uint4 *)(y + head + 16 * i) = (uint4)word;
    if (i < head)
        y[i] = (uchar)(word >> 8 * (first + i & 3));
    if (i < bytes - tail)
        y[tail + i] = (uchar)(word >> 8 * (i & 3));
}
