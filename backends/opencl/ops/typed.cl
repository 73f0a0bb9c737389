/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads and stores of a storage type that an argument names: one program for all types, as drivers take a second to
 * build one. For kernels whose time is that of their memory. `at` is an offset in elements. Callers: cast, dropout.
 */
/* tx_cl_arg_types. Macros, which a persistent launch may define for several programs. */
#define TYPE_F32 0
#define TYPE_BF16 1

static vec load_typed(int type, const __global void *p, long at, long i, long n)
{
    if (type == TYPE_F32)
        return tx_load_f32((const __global float *)p + at, i, n);
    const __global ushort *h = (const __global ushort *)p + at;
    return type == TYPE_BF16 ? tx_load_bf16(h, i, n) : tx_load_f16(h, i, n);
}

static void store_typed(int type, vec v, __global void *p, long at, long i, long n)
{
    __global ushort *h = (__global ushort *)p + at;
    if (type == TYPE_F32)
        tx_store_f32(v, (__global float *)p + at, i, n);
    else if (type == TYPE_BF16)
        tx_store_bf16(v, h, i, n);
    else
        tx_store_f16(v, h, i, n);
}
