/* SPDX-License-Identifier: Apache-2.0
 *
 * Merges attention over two sets of keys into attention over both. A, B and O name storage types (f32, bf16 or f16).
 */

/* TX_ROW is row (b, t) and head. A sample has T rows of `heads` heads of size n. */
__kernel void attention_merge(const __global TX_CAT(A, _t) * a, long ao, const __global float *a_lse, long alo,
                              const __global TX_CAT(B, _t) * b, long bo, const __global float *b_lse, long blo,
                              __global TX_CAT(O, _t) * o, long oo, __global float *lse, long lo, long n, long T,
                              int heads)
{
    const long row = TX_ROW / heads, h = TX_ROW % heads, at = (row / T * heads + h) * T + row % T;
    const float of_a = a_lse[alo + at], of_b = b_lse[blo + at], greater = fmax(of_a, of_b);
    const float weight_a = exp(of_a - greater), weight_b = exp(of_b - greater), sum = weight_a + weight_b;
    const float share_a = weight_a / sum, share_b = weight_b / sum;
    a += ao + TX_ROW * n;
    b += bo + TX_ROW * n;
    o += oo + TX_ROW * n;
    TX_EACH({
        if (i == 0)
            lse[lo + at] = greater + log(sum);
        TX_CAT(tx_store_, O)(TX_CAT(tx_load_, A)(a, i, n) * share_a + TX_CAT(tx_load_, B)(b, i, n) * share_b, o, i, n);
    })
}
