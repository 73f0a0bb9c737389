/* SPDX-License-Identifier: Apache-2.0
 * Registers of a wave, as instructions read and write them. */
#include "tests/opencl/amd/amd_internal.h"

#include "api/base/half.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void amd_stop(const amd_state *w, const char *format, ...)
{
    const amd_program *p = w->group->launch->program;
    va_list rest;
    va_start(rest, format);
    fprintf(stderr, "amd_wave: kernel %s, %s at 0x%x: ", w->group->launch->kernel->name, p->name[w->now->name],
            w->now->at);
    vfprintf(stderr, format, rest);
    fprintf(stderr, "\n");
    va_end(rest);
    abort();
}

/* ---- Operands ---------------------------------------------------------------------------------------------------- */

float amd_half(uint32_t bits)
{
    return tx_f16_to_f32((uint16_t)bits);
}

uint64_t amd_exec(const amd_state *w)
{
    return w->lanes == 32 ? w->s[AMD_EXEC] : amd_two(w->s[AMD_EXEC], w->s[AMD_EXEC + 1]);
}

uint32_t amd_scalar(const amd_state *w, uint32_t reg)
{
    return reg == AMD_NULL ? 0 : w->s[reg];
}

static uint32_t half_as_float(uint32_t bits)
{
    const float x = amd_half(bits);
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t changed(const amd_operand *o, uint32_t x)
{
    const bool extends = o->change & AMD_SIGNED;
    if (o->part >= AMD_BYTE) {
        x = x >> 8 * (o->part - AMD_BYTE) & 0xff;
        x = extends ? (uint32_t)(int8_t)x : x;
    } else if (o->part != AMD_WHOLE) {
        x = o->part == AMD_LOW_WORD || o->part == AMD_LOW_HALF ? x & 0xffff : x >> 16;
        x = extends ? (uint32_t)(int16_t)x : x;
    }
    if (o->part == AMD_LOW_HALF || o->part == AMD_HIGH_HALF)
        x = half_as_float(x);
    if (o->change & AMD_ABSOLUTE)
        x &= 0x7fffffff;
    return o->change & AMD_NEGATED ? x ^ 0x80000000 : x;
}

/* Word `word` of an operand in all lanes. */
void amd_fetch_word(const amd_state *w, const amd_operand *o, uint32_t word, uint32_t out[AMD_LANES])
{
    if (o->kind == AMD_VECTOR) {
        memcpy(out, w->v[o->reg + word], sizeof w->v[0]);
    } else {
        const uint32_t x = o->kind == AMD_SCALAR ? amd_scalar(w, o->reg + word) : word ? o->high : o->low;
        for (uint32_t n = 0; n < w->lanes; n++)
            out[n] = x;
    }
    if (o->part || o->change)
        for (uint32_t n = 0; n < w->lanes; n++)
            out[n] = changed(o, out[n]);
}

static uint64_t mask_at(const amd_state *w, const amd_operand *o)
{
    const uint32_t low = o->kind == AMD_SCALAR ? amd_scalar(w, o->reg) : o->low;
    return w->lanes == 32 || o->kind != AMD_SCALAR ? low : amd_two(low, amd_scalar(w, o->reg + 1));
}

/* An operand of elements of `size` bytes; 1: bits of a mask. */
void amd_fetch(const amd_state *w, const amd_operand *o, size_t size, void *out)
{
    uint32_t low[AMD_LANES], high[AMD_LANES];
    if (size == sizeof(bool)) {
        const uint64_t mask = mask_at(w, o);
        for (uint32_t n = 0; n < w->lanes; n++)
            ((bool *)out)[n] = mask >> n & 1;
        return;
    }
    if (size == sizeof(uint32_t)) {
        amd_fetch_word(w, o, 0, out);
        return;
    }
    if (o->change || o->part || (o->kind == AMD_CONSTANT && o->high == 0 && o->low >> 31))
        amd_stop(w, "a 64-bit operand that is not emulated");
    amd_fetch_word(w, o, 0, low);
    amd_fetch_word(w, o, 1, high);
    for (uint32_t n = 0; n < w->lanes; n++)
        ((uint64_t *)out)[n] = amd_two(low[n], high[n]);
}

void amd_put_scalar(amd_state *w, uint32_t reg, uint32_t x)
{
    if (reg != AMD_NULL)
        w->s[reg] = x;
}

static void put_mask(amd_state *w, const amd_operand *o, uint64_t mask)
{
    amd_put_scalar(w, o->reg, (uint32_t)mask);
    if (w->lanes == 64 && o->reg != AMD_NULL)
        amd_put_scalar(w, o->reg + 1, (uint32_t)(mask >> 32));
}

void amd_put_word(amd_state *w, uint32_t reg, const uint32_t x[AMD_LANES])
{
    const uint64_t exec = amd_exec(w);
    for (uint32_t n = 0; n < w->lanes; n++)
        w->v[reg][n] = exec >> n & 1 ? x[n] : w->v[reg][n];
}

void amd_put(amd_state *w, const amd_operand *o, size_t size, const void *x)
{
    uint32_t low[AMD_LANES], high[AMD_LANES];
    uint64_t mask = 0;
    if (size == sizeof(bool)) {
        for (uint32_t n = 0; n < w->lanes; n++)
            mask |= (uint64_t)((const bool *)x)[n] << n;
        put_mask(w, o, mask & amd_exec(w));
        return;
    }
    if (o->kind != AMD_VECTOR)
        amd_stop(w, "a result that is not emulated");
    if (size == sizeof(uint32_t)) {
        amd_put_word(w, o->reg, x);
        return;
    }
    for (uint32_t n = 0; n < w->lanes; n++) {
        low[n] = (uint32_t)((const uint64_t *)x)[n];
        high[n] = (uint32_t)(((const uint64_t *)x)[n] >> 32);
    }
    amd_put_word(w, o->reg, low);
    amd_put_word(w, o->reg + 1, high);
}

/* The same for scalars. */
void amd_fetch_one(const amd_state *w, const amd_operand *o, size_t size, void *out)
{
    const bool scalar = o->kind == AMD_SCALAR, wide = size == sizeof(uint64_t);
    if (o->kind == AMD_VECTOR || o->part || (wide && o->kind == AMD_CONSTANT && o->high == 0 && o->low >> 31))
        amd_stop(w, "an operand that is not emulated");
    const uint32_t low = changed(o, scalar ? amd_scalar(w, o->reg) : o->low);
    const uint64_t both = amd_two(low, !wide ? 0 : scalar ? amd_scalar(w, o->reg + 1) : o->high);
    memcpy(out, &both, size);
}

void amd_put_one(amd_state *w, const amd_operand *o, size_t size, const void *x)
{
    uint32_t words[2];
    memcpy(words, x, size);
    amd_put_scalar(w, o->reg, words[0]);
    if (size == sizeof(uint64_t))
        amd_put_scalar(w, o->reg + 1, words[1]);
}
