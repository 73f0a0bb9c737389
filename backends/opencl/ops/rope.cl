/* SPDX-License-Identifier: Apache-2.0
 *
 * Angles of rotary position embeddings.
 */

#define TURN 0x28BE60DB9391054AUL /* 1 / (2 pi) as a fraction of 2^64 */

/* Converts an angle in radians to turns, as a fraction of 2^64. Whole turns vanish. */
static ulong turns_of(float angle)
{
    const uint bits = as_uint(angle);
    const ulong mantissa = (bits & 0x7FFFFFu) | 0x800000u;
    /* Not mul_hi: NVIDIA's compiler 470 takes it for 0 if a factor is a constant. The mantissa has 24 bits. */
    const ulong low = mantissa * TURN,
                high = (mantissa * (TURN >> 32) + (mantissa * (TURN & 0xFFFFFFFFUL) >> 32)) >> 32;
    const int exponent = (int)(bits >> 23) - 150; /* angle = mantissa * 2^exponent */
    if (exponent >= 0)
        return exponent < 64 ? low << exponent : 0;
    return exponent > -64 ? low >> -exponent | high << (64 + exponent) : exponent > -128 ? high >> (-64 - exponent) : 0;
}

/* The host defines TX_NO_SINCOS if the driver has no sincos. Returns the sine of x and sets *c to the cosine, for x in
 * [-pi, pi]: polynomials (Cephes, Moshier) for the difference from the nearest multiple of pi / 2. */
#ifdef TX_NO_SINCOS
static float own_sincos(float x, float *c)
{
    const int quarter = (int)(x * 0.63661977f + (x < 0.0f ? -0.5f : 0.5f));
    const float r = (x - (float)quarter * 1.5703125f) - (float)quarter * 4.8382679e-4f, r2 = r * r;
    const float sine = r + r * r2 * (-1.6666654611e-1f + r2 * (8.3321608736e-3f - r2 * 1.9515295891e-4f));
    const float cosine = 1.0f - 0.5f * r2 +
                         r2 * r2 * (4.166664568298827e-2f + r2 * (-1.388731625493765e-3f + r2 * 2.443315711809948e-5f));
    const float s = quarter & 1 ? cosine : sine, k = quarter & 1 ? sine : cosine;
    *c = (quarter + 1) & 2 ? -k : k;
    return quarter & 2 ? -s : s;
}
#undef sincos
#define sincos own_sincos
#endif

typedef struct {
    float frequency[128]; /* of TX_MAX_ROTARY / 2 pairs */
} rope_table;

/* Returns `sine` times the sine of an angle, and sets *c to `cosine` times its cosine. Angles are turns in fractions of
 * 2^64, where position times frequency wraps exactly. So high positions lose no precision. */
static float rope_sincos(float frequency, ulong position, float sine, float cosine, float *c)
{
    const long phase = (long)(turns_of(frequency) * position);
    const float s = sincos((float)phase * (6.2831853071795865f / 18446744073709551616.0f), c);
    *c *= cosine;
    return s * sine;
}
