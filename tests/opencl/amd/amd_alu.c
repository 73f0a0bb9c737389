/* SPDX-License-Identifier: Apache-2.0
 * The computations of the instructions of amd_wave.def. */
#include "tests/opencl/amd/amd_internal.h"

#include "api/base/half.h"

#include <math.h>
#include <string.h>

typedef float f;
typedef uint32_t u;
typedef int32_t i;
typedef uint64_t ul;
typedef int64_t l;
typedef bool m;

static u half_of(f x)
{
    return tx_f32_to_f16(x);
}

/* ---- Arithmetic -------------------------------------------------------------------------------------------------- */

static bool denormal(f x)
{
    return fpclassify(x) == FP_SUBNORMAL;
}

/* Transcendental instructions take and give no denormals. */
static f flushed(f x)
{
    return denormal(x) ? copysignf(0.0f, x) : x;
}

static f mantissa_of(f x)
{
    int exponent;
    return isfinite(x) ? frexpf(x, &exponent) : x;
}

static i exponent_of(f x)
{
    int exponent = 0;
    if (isfinite(x) && x != 0.0f)
        frexpf(x, &exponent);
    return exponent;
}

static u to_u32(f x)
{
    return !(x > 0.0f) ? 0 : x >= 4294967296.0f ? UINT32_MAX : (u)x;
}

static i to_i32(f x)
{
    return isnan(x) ? 0 : x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (i)x;
}

static u class_of(f x)
{
    const bool minus = signbit(x);
    switch (fpclassify(x)) {
    case FP_NAN:
        return tx_bits_of(x) & 0x400000 ? 2 : 1;
    case FP_INFINITE:
        return minus ? 4 : 512;
    case FP_ZERO:
        return minus ? 32 : 64;
    case FP_SUBNORMAL:
        return minus ? 16 : 128;
    default:
        return minus ? 8 : 256;
    }
}

/* a: the quotient c / b so far. */
static f fixed_quotient(f a, f b, f c)
{
    const f sign = signbit(b) != signbit(c) ? -1.0f : 1.0f;
    if (isnan(b) || isnan(c) || (b == 0.0f && c == 0.0f) || (isinf(b) && isinf(c)))
        return NAN;
    if (b == 0.0f || isinf(c))
        return sign * INFINITY;
    return isinf(b) || c == 0.0f ? sign * 0.0f : copysignf(a, sign);
}

static u turned(u a)
{
    u out = 0;
    for (int n = 0; n < 32; n++)
        out |= (a >> n & 1) << (31 - n);
    return out;
}

/* Returns the number of leading bits that equal the highest one, or -1 if all bits are equal. */
static i equal_bits(i a)
{
    const u x = (u)(a < 0 ? ~a : a);
    return x == 0 ? -1 : __builtin_clz(x);
}

/* The lowest `bits` bits with their sign. */
static i extended(i a, u bits)
{
    return bits == 0 ? 0 : bits >= 32 ? a : (i)((u)a << (32 - bits)) >> (32 - bits);
}

static u bytes_of(u a, u b, u select)
{
    const ul from = amd_two(b, a);
    u out = 0;
    for (int n = 0; n < 4; n++) {
        const u s = select >> 8 * n & 0xff;
        const u byte = s < 8    ? (u)(from >> 8 * s) & 0xff
                       : s < 12 ? (from >> (16 * (s - 8) + 15) & 1) * 0xff
                                : (s > 12) * 0xffu;
        out |= byte << 8 * n;
    }
    return out;
}

/* ---- Instructions of the table ----------------------------------------------------------------------------------- */

/* clang-format off */
#define VECTOR(name, D, A, B, C, value)                                        \
    static void name(amd_state *w, const amd_instruction *x)                   \
    {                                                                          \
        D to[AMD_LANES]; A first[AMD_LANES]; B second[AMD_LANES]; C third[AMD_LANES]; \
        amd_fetch(w, &x->from[0], sizeof(A), first);                           \
        amd_fetch(w, &x->from[1], sizeof(B), second);                          \
        amd_fetch(w, &x->from[2], sizeof(C), third);                           \
        for (u n = 0; n < w->lanes; n++) {                                     \
            const A a = first[n]; const B b = second[n]; const C c = third[n]; \
            (void)a, (void)b, (void)c;                                         \
            to[n] = (D)(value);                                                \
        }                                                                      \
        amd_put(w, &x->to, sizeof(D), to);                                     \
    }
#define CARRY(name, value)                                                     \
    static void name(amd_state *w, const amd_instruction *x)                   \
    {                                                                          \
        u first[AMD_LANES], second[AMD_LANES]; m third[AMD_LANES];             \
        amd_fetch(w, &x->from[0], sizeof(u), first);                           \
        amd_fetch(w, &x->from[1], sizeof(u), second);                          \
        amd_fetch(w, &x->from[2], sizeof(m), third);                           \
        for (u n = 0; n < w->lanes; n++) {                                     \
            const u a = first[n], b = second[n]; const m c = third[n];         \
            (void)c;                                                           \
            const ul d = value;                                                \
            first[n] = (u)d;                                                   \
            third[n] = d >> 32 & 1;                                            \
        }                                                                      \
        amd_put(w, &x->to, sizeof(u), first);                                  \
        amd_put(w, &x->also, sizeof(m), third);                                \
    }
#define SCALAR(name, D, A, B, C, value, carry)                                 \
    static void name(amd_state *w, const amd_instruction *x)                   \
    {                                                                          \
        A a; B b; C c;                                                         \
        const u scc = w->scc;                                                  \
        amd_fetch_one(w, &x->from[0], sizeof(A), &a);                          \
        amd_fetch_one(w, &x->from[1], sizeof(B), &b);                          \
        amd_fetch_one(w, &x->from[2], sizeof(C), &c);                          \
        (void)b, (void)c, (void)scc;                                           \
        const D d = (D)(value);                                                \
        amd_put_one(w, &x->to, sizeof(D), &d);                                 \
        w->scc = (carry) != 0;                                                 \
    }
#define COMPARE(name, A, carry)                                                \
    static void name(amd_state *w, const amd_instruction *x)                   \
    {                                                                          \
        A a, b;                                                                \
        amd_fetch_one(w, &x->from[0], sizeof(A), &a);                          \
        amd_fetch_one(w, &x->from[1], sizeof(A), &b);                          \
        w->scc = carry;                                                        \
    }
#define SAVE(name, A, value)                                                   \
    static void name(amd_state *w, const amd_instruction *x)                   \
    {                                                                          \
        const amd_operand mask = {.kind = AMD_SCALAR, .reg = AMD_EXEC};        \
        A a, exec;                                                             \
        amd_fetch_one(w, &x->from[0], sizeof(A), &a);                          \
        amd_fetch_one(w, &mask, sizeof(A), &exec);                             \
        amd_put_one(w, &x->to, sizeof(A), &exec);                              \
        exec = value;                                                          \
        amd_put_one(w, &mask, sizeof(A), &exec);                               \
        w->scc = exec != 0;                                                    \
    }
/* clang-format on */
#define OTHER(name)
#include "tests/opencl/amd/amd_wave.def"
#undef VECTOR
#undef CARRY
#undef SCALAR
#undef COMPARE
#undef SAVE
#undef OTHER

void amd_v_mad_u64_u32(amd_state *w, const amd_instruction *x)
{
    u a[AMD_LANES], b[AMD_LANES];
    ul c[AMD_LANES], d[AMD_LANES];
    m over[AMD_LANES];
    amd_fetch(w, &x->from[0], sizeof(u), a);
    amd_fetch(w, &x->from[1], sizeof(u), b);
    amd_fetch(w, &x->from[2], sizeof(ul), c);
    for (u n = 0; n < w->lanes; n++) {
        d[n] = (ul)a[n] * b[n] + c[n];
        over[n] = d[n] < c[n];
    }
    amd_put(w, &x->to, sizeof(ul), d);
    amd_put(w, &x->also, sizeof(m), over);
}

void amd_v_readfirstlane_b32(amd_state *w, const amd_instruction *x)
{
    u a[AMD_LANES];
    const ul exec = amd_exec(w);
    amd_fetch(w, &x->from[0], sizeof(u), a);
    amd_put_scalar(w, x->to.reg, a[exec ? __builtin_ctzll(exec) : 0]);
}

static uint32_t lane_of(const amd_state *w, const amd_operand *o)
{
    u lane;
    amd_fetch_one(w, o, sizeof lane, &lane);
    return lane % w->lanes;
}

/* Whether the lanes are active or not. */
void amd_v_readlane_b32(amd_state *w, const amd_instruction *x)
{
    u a[AMD_LANES];
    amd_fetch(w, &x->from[0], sizeof(u), a);
    amd_put_scalar(w, x->to.reg, a[lane_of(w, &x->from[1])]);
}

void amd_v_writelane_b32(amd_state *w, const amd_instruction *x)
{
    u a;
    amd_fetch_one(w, &x->from[0], sizeof a, &a);
    w->v[x->to.reg][lane_of(w, &x->from[1])] = a;
}

/* number: whether the result is written to the upper half; the other half is kept. */
void amd_v_fma_mix_f16(amd_state *w, const amd_instruction *x)
{
    f a[AMD_LANES], b[AMD_LANES], c[AMD_LANES];
    u d[AMD_LANES];
    const int shift = x->number[0] ? 16 : 0;
    amd_fetch(w, &x->from[0], sizeof(f), a);
    amd_fetch(w, &x->from[1], sizeof(f), b);
    amd_fetch(w, &x->from[2], sizeof(f), c);
    amd_fetch(w, &x->from[3], sizeof(u), d);
    for (int n = 0; n < AMD_LANES; n++)
        d[n] = (d[n] & ~(0xffffu << shift)) | half_of(fmaf(a[n], b[n], c[n])) << shift;
    amd_put_word(w, x->to.reg, d);
}

/* a is b (the divisor) or c. Where it would have to be scaled so that the quotient neither overflows nor becomes a
 * denormal, the emulation ends. */
void amd_v_div_scale_f32(amd_state *w, const amd_instruction *x)
{
    f a[AMD_LANES], b[AMD_LANES], c[AMD_LANES];
    m none[AMD_LANES];
    const ul exec = amd_exec(w);
    amd_fetch(w, &x->from[0], sizeof(f), a);
    amd_fetch(w, &x->from[1], sizeof(f), b);
    amd_fetch(w, &x->from[2], sizeof(f), c);
    for (u n = 0; n < w->lanes; n++) {
        const int below = exponent_of(b[n]), above = exponent_of(c[n]);
        if (b[n] == 0.0f || c[n] == 0.0f)
            a[n] = NAN;
        else if (exec >> n & 1 && isfinite(b[n]) && isfinite(c[n]) &&
                 (above - below >= 96 || above - below < -120 || below > 120 || below < -120 || above < -100))
            amd_stop(w, "%g / %g would be scaled", (double)c[n], (double)b[n]);
    }
    amd_put(w, &x->to, sizeof(f), a);
    memset(none, 0, sizeof none);
    amd_put(w, &x->also, sizeof(m), none);
}

/* ---- Two floats in a lane ---------------------------------------------------------------------------------------- */

static void packed(amd_state *w, const amd_instruction *x, int sources, u (*value)(u a, u b, u c))
{
    u in[3][2][AMD_LANES], out[2][AMD_LANES];
    for (int s = 0; s < sources; s++)
        for (int half = 0; half < 2; half++) {
            amd_operand o = x->from[s];
            if (o.kind == AMD_CONSTANT)
                o.high = o.low;
            if (x->number[2 + half] >> s & 1)
                o.change ^= AMD_NEGATED;
            amd_fetch_word(w, &o, x->number[half] >> s & 1, in[s][half]);
        }
    for (int half = 0; half < 2; half++)
        for (u n = 0; n < w->lanes; n++)
            out[half][n] = value(in[0][half][n], in[1][half][n], sources > 2 ? in[2][half][n] : 0);
    amd_put_word(w, x->to.reg, out[0]);
    amd_put_word(w, x->to.reg + 1, out[1]);
}

static u sum_of(u a, u b, u c)
{
    (void)c;
    return tx_bits_of(tx_float_of(a) + tx_float_of(b));
}

static u product_of(u a, u b, u c)
{
    (void)c;
    return tx_bits_of(tx_float_of(a) * tx_float_of(b));
}

static u fused_of(u a, u b, u c)
{
    return tx_bits_of(fmaf(tx_float_of(a), tx_float_of(b), tx_float_of(c)));
}

void amd_v_pk_add_f32(amd_state *w, const amd_instruction *x)
{
    packed(w, x, 2, sum_of);
}

void amd_v_pk_mul_f32(amd_state *w, const amd_instruction *x)
{
    packed(w, x, 2, product_of);
}

void amd_v_pk_fma_f32(amd_state *w, const amd_instruction *x)
{
    packed(w, x, 3, fused_of);
}

/* The low word is one of a's, the high one of b's. */
void amd_v_pk_mov_b32(amd_state *w, const amd_instruction *x)
{
    u low[AMD_LANES], high[AMD_LANES];
    amd_fetch_word(w, &x->from[0], x->number[0] & 1, low);
    amd_fetch_word(w, &x->from[1], x->number[0] >> 1 & 1, high);
    amd_put_word(w, x->to.reg, low);
    amd_put_word(w, x->to.reg + 1, high);
}

/* ---- By name ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    amd_function function;
} all[] = {
#define VECTOR(name, ...) {#name, name},
#define CARRY(name, ...) {#name, name},
#define SCALAR(name, ...) {#name, name},
#define COMPARE(name, ...) {#name, name},
#define SAVE(name, ...) {#name, name},
#define OTHER(name) {#name, amd_##name},
#include "tests/opencl/amd/amd_wave.def"
};

amd_function amd_function_of(const char *name)
{
    for (size_t n = 0; n < sizeof all / sizeof all[0]; n++)
        if (strcmp(all[n].name, name) == 0)
            return all[n].function;
    return NULL;
}
