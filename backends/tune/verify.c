/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs single commands and compares a backend with the cpu backend (proof.h).
 */
#include "backends/tune/verify.h"

#include "api/base/half.h"
#include "api/graph/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Data ------------------------------------------------------------------------------------------------ */

tx_command tx_probe_command(tx_op op, const tx_attrs *attrs)
{
    tx_command c = {.op = op, .attrs = *attrs};
    for (int i = 0; i < TX_MAX_IN; i++)
        c.in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c.out[i].dtype = TX_DTYPE_COUNT;
    return c;
}

/* Returns operand i; inputs come first, then outputs. */
static tx_operand *operand_of(tx_command *c, int i)
{
    return i < TX_MAX_IN ? &c->in[i] : &c->out[i - TX_MAX_IN];
}

tx_status tx_probe_create(tx_probe *probe)
{
    tx_word *word = probe->controls.word;
    word[TX_CONTROL_SEED_LO].u32 = 7;
    word[TX_CONTROL_SEED_HI].u32 = 3;
    word[TX_CONTROL_STEP].u32 = 5;
    word[TX_CONTROL_SAMPLE].u32 = 11;
    probe->bytes = TX_ALIGNMENT;
    for (int i = 0; i < TX_MAX_IN + TX_MAX_OUT; i++) {
        tx_operand *o = operand_of(&probe->command, i);
        if (!tx_present(o))
            continue;
        o->arena = TX_ARENA_PLANNED;
        o->chunk = 0;
        o->offset = probe->bytes;
        probe->bytes += (tx_operand_bytes(o) / TX_ALIGNMENT + 2) * TX_ALIGNMENT;
    }
    probe->data = malloc((size_t)probe->bytes);
    if (!probe->data)
        return tx_fail(TX_MEMORY, "out of host memory");
    memset(probe->data, 0xFF, (size_t)probe->bytes);
    return TX_OK;
}

void tx_probe_free(tx_probe *probe)
{
    free(probe->data);
    probe->data = NULL;
}

static float number(tx_probe_numbers numbers, int operand, int64_t index)
{
    uint64_t h = ((uint64_t)index + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)(operand + 1) * 0xC2B2AE3D27D4EB4Fu;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    h >>= 40;
    return numbers == TX_PROBE_EXACT ? ((float)(h % 17) - 8.0f) / 8.0f : ((float)h - 8388607.5f) / 8388608.0f;
}

void tx_probe_fill(tx_probe *probe, tx_probe_numbers numbers, int32_t integers)
{
    const int operands = probe->command.attrs.accumulate == TX_STORE ? TX_MAX_IN : TX_MAX_IN + TX_MAX_OUT;
    for (int i = 0; i < operands; i++) {
        const tx_operand *o = operand_of(&probe->command, i);
        const bool real = o->dtype == TX_F32 || o->dtype == TX_BF16 || o->dtype == TX_F16;
        for (int64_t k = 0; real && k < tx_operand_count(o); k++)
            tx_probe_put(probe->data, o, k, number(numbers, i, k));
        for (int64_t k = 0; o->dtype == TX_I32 && k < tx_operand_count(o); k++)
            ((int32_t *)(void *)(probe->data + o->offset))[k] = integers;
    }
}

void tx_probe_put(unsigned char *data, const tx_operand *operand, int64_t i, float v)
{
    if (operand->dtype == TX_F32)
        ((float *)(void *)(data + operand->offset))[i] = v;
    else
        ((uint16_t *)(void *)(data + operand->offset))[i] =
            operand->dtype == TX_BF16 ? tx_f32_to_bf16(v) : tx_f32_to_f16(v);
}

float tx_probe_get(const unsigned char *data, const tx_operand *operand, int64_t i)
{
    if (operand->dtype == TX_F32)
        return ((const float *)(const void *)(data + operand->offset))[i];
    const uint16_t h = ((const uint16_t *)(const void *)(data + operand->offset))[i];
    return operand->dtype == TX_BF16 ? tx_bf16_to_f32(h) : tx_f16_to_f32(h);
}

/* ---- Runs ------------------------------------------------------------------------------------------------- */

static tx_status allocate(const tx_probe_run *run, int64_t bytes, tx_buffer **buffer)
{
    return run->backend->allocate(run->context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, bytes, buffer);
}

static tx_status write(const tx_probe_run *run, tx_buffer *to, const void *data, int64_t bytes)
{
    return run->backend->write(run->context, TX_QUEUE_COMPUTE, to, 0, data, bytes);
}

tx_status tx_probe_open(tx_probe_run *run, const tx_backend *backend, tx_context *context, const tx_probe *probe,
                        const void *trial)
{
    int64_t scratch = 0;
    *run = (tx_probe_run){.backend = backend, .context = context, .probe = probe};
    run->program = (tx_program){.length = 1, .commands = &probe->command, .trial = trial};
    TX_TRY(backend->prepare(context, &run->program, &run->executable, &scratch));
    TX_TRY(allocate(run, probe->bytes, &run->memory));
    TX_TRY(allocate(run, sizeof probe->controls, &run->control));
    if (scratch > 0)
        TX_TRY(allocate(run, scratch, &run->scratch));
    const tx_bindings bindings = {.arena = {[TX_ARENA_PLANNED] = {1, &run->memory},
                                            [TX_ARENA_CONTROL] = {1, &run->control},
                                            [TX_ARENA_SCRATCH] = {scratch > 0, &run->scratch}}};
    TX_TRY(backend->bind(run->executable, &bindings));
    TX_TRY(write(run, run->control, &probe->controls, sizeof probe->controls));
    TX_TRY(write(run, run->memory, probe->data, probe->bytes));
    return backend->finish(context);
}

tx_status tx_probe_launch(const tx_probe_run *run)
{
    TX_TRY(run->backend->run(run->executable, 0, 1, &run->probe->controls, NULL));
    return run->backend->finish(run->context);
}

tx_status tx_probe_read(const tx_probe_run *run, unsigned char *data)
{
    return run->backend->read(run->context, run->memory, 0, data, run->probe->bytes);
}

void tx_probe_close(tx_probe_run *run)
{
    if (run->executable)
        run->backend->destroy(run->executable);
    tx_buffer *const buffers[] = {run->memory, run->scratch, run->control};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i])
            run->backend->release(run->context, buffers[i]);
    *run = (tx_probe_run){.backend = run->backend, .context = run->context};
}

/* ---- Comparison ------------------------------------------------------------------------------ */

static const tx_backend *cpu(void)
{
    int32_t count;
    return tx_backends(&count)[0];
}

/* Uses one thread, which leaves the other processors free and starts no threads. */
static tx_status run_reference(tx_context **reference, const tx_probe *probe, unsigned char *data)
{
    const tx_open_options options = {.threads = 1};
    tx_probe_run run;
    if (!*reference)
        TX_TRY(cpu()->open(0, &options, reference));
    tx_status status = tx_probe_open(&run, cpu(), *reference, probe, NULL);
    TX_THEN(status, tx_probe_launch(&run));
    TX_THEN(status, tx_probe_read(&run, data));
    tx_probe_close(&run);
    return status;
}

/* Returns a unit in the last place of a type, relative to the number. fp32 results need none: those of
 * TX_PROBE_EXACT are exact. */
static double unit_of(tx_dtype type)
{
    return type == TX_F32 ? 0.0 : type == TX_BF16 ? 0x1p-7 : 0x1p-10;
}

static tx_status compare(const tx_probe *probe, int out, tx_columns part, const unsigned char *got,
                         const unsigned char *want)
{
    const tx_operand *o = &probe->command.out[out];
    const int64_t count = tx_operand_count(o), width = tx_shape_last(&o->shape), end = part.first + part.count;
    double greatest = 0.0;
    for (int64_t i = 0; i < count; i++)
        if (i % width >= part.first && i % width < end)
            greatest = fmax(greatest, fabs((double)tx_probe_get(want, o, i)));
    for (int64_t i = 0; i < count; i++) {
        const double y = (double)tx_probe_get(got, o, i), right = (double)tx_probe_get(want, o, i);
        const double allowed = probe->tolerance[out] * greatest + unit_of(o->dtype) * fabs(right);
        if (i % width >= part.first && i % width < end && !(fabs(y - right) <= allowed))
            return tx_fail(TX_DEVICE, "element %lld of row %lld of %s is %.9g and should be %.9g",
                           (long long)(i % width), (long long)(i / width), tx_op_info_of(probe->command.op)->name, y,
                           right);
    }
    return TX_OK;
}

static tx_status compare_parts(const tx_probe *probe, int out, const unsigned char *got, const unsigned char *want)
{
    const tx_columns all = {0, tx_shape_last(&probe->command.out[out].shape)};
    const bool whole = out > 0 || (probe->part[0].count == 0 && probe->part[1].count == 0);
    TX_TRY(compare(probe, out, whole ? all : probe->part[0], got, want));
    return whole ? TX_OK : compare(probe, out, probe->part[1], got, want);
}

/* Compares the outputs. Then checks that all bytes outside them are unchanged. */
static tx_status judge(const tx_probe *probe, unsigned char *got, const unsigned char *want)
{
    for (int i = 0; i < TX_MAX_OUT; i++) {
        const tx_operand *o = &probe->command.out[i];
        if (!tx_present(o))
            continue;
        if (probe->tolerance[i] >= 0.0)
            TX_TRY(compare_parts(probe, i, got, want));
        memcpy(got + o->offset, probe->data + o->offset, (size_t)tx_operand_bytes(o));
    }
    if (memcmp(probe->data, got, (size_t)probe->bytes) != 0)
        return tx_fail(TX_DEVICE, "%s wrote outside its result", tx_op_info_of(probe->command.op)->name);
    return TX_OK;
}

tx_status tx_verify(const tx_probe_run *run, tx_context **reference)
{
    unsigned char *got = malloc((size_t)run->probe->bytes), *want = malloc((size_t)run->probe->bytes);
    tx_status status = got && want ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
    TX_THEN(status, tx_probe_launch(run));
    TX_THEN(status, tx_probe_read(run, got));
    TX_THEN(status, run_reference(reference, run->probe, want));
    TX_THEN(status, judge(run->probe, got, want));
    free(got);
    free(want);
    return status;
}

void tx_verify_close(tx_context *reference)
{
    if (reference)
        cpu()->close(reference);
}
