/* SPDX-License-Identifier: Apache-2.0
 *
 * The first and last kernels of Muon's chain of nodes (api/optimizers/muon.c), and the normalization and blend
 * between them.
 */

__kernel void muon_momentum(const __global float *g, long go, __global float *b, long bo, __global float *u, long uo,
                            long n, float momentum, int nesterov, const __global float *result)
{
    const int finite = result[TX_RESULT_FINITE] != 0.0f;
    const float factor = result[TX_RESULT_GRAD_FACTOR];
    g += go;
    b += bo;
    u += uo;
    TX_EACH({
        vec d = tx_load(g, i, n, 0.0f) * factor;
        vec old = tx_load(b, i, n, 0.0f);
        vec now = old + (d - old) * (1.0f - momentum);
        if (finite) {
            tx_store(now, b, i, n);
            tx_store(nesterov ? d + momentum * (now - d) : now, u, i, n);
        } else {
            tx_store(0.0f, u, i, n);
        }
    })
}

__kernel void muon(__global float *p, long po, const __global float *x, long xo, const __global uchar *groups, long gro,
                   long n, float decay, float scale, const __global uint *control, const __global float *result)
{
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    const float rate = tx_update_rate(control, result);
    const float keep = groups[gro] & 1 ? 1.0f - rate * decay : 1.0f;
    const int zeros_stay = groups[gro] & 2;
    p += po;
    x += xo;
    TX_EACH({
        vec old = tx_load(p, i, n, 0.0f);
        vec now = old * keep - rate * scale * tx_load(x, i, n, 0.0f);
        tx_store(zeros_stay ? old == 0.0f ? old : now : now, p, i, n);
    })
}

__kernel void normalize_by(const __global float *x, long xo, const __global float *sumsq, long so, __global float *y,
                           long yo, long n, float eps)
{
    const float inverse = 1.0f / fmax(sqrt(sumsq[so]), eps);
    x += xo;
    y += yo;
    TX_EACH({ tx_store(tx_load(x, i, n, 0.0f) * inverse, y, i, n); })
}

__kernel void blend(const __global float *a, long ao, const __global float *b, long bo, __global float *y, long yo,
                    long n, float alpha, float scale)
{
    a += ao;
    b += bo;
    y += yo;
    TX_EACH({ tx_store(alpha * tx_load(a, i, n, 0.0f) + scale * tx_load(b, i, n, 0.0f), y, i, n); })
}
