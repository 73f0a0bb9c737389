/* SPDX-License-Identifier: Apache-2.0
 * txbench attention: forward and backward at any shape. */
#include "tools/bench/bench.h"
#include "tools/bench/roofline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef struct settings {
    tx_bench_common common;
    int64_t batch, block, heads, kv_heads, head_size, window;
    int32_t dtype; /* a tx_dtype */
    bool causal;
} settings;

static const tx_option options[] = {
    TX_BENCH_OPTIONS,
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 1 << 20, "N", "rows of the batch"},
    {TX_OPTION_INTEGER, "block", AT(block), 0, 1 << 24, "N", "tokens of a row; 0 measures 256 and 1024"},
    {TX_OPTION_INTEGER, "heads", AT(heads), 1, 1 << 16, "N", "number of query heads"},
    {TX_OPTION_INTEGER, "kv_heads", AT(kv_heads), 0, 1 << 16, "N",
     "number of key and value heads, a divisor of heads; 0 means the same as heads"},
    {TX_OPTION_INTEGER, "head_size", AT(head_size), 1, 1 << 16, "N", "elements of a head"},
    {TX_OPTION_INTEGER, "window", AT(window), 0, 1 << 24, "N",
     "sliding window of causal attention in tokens; 0 means no window"},
    {TX_OPTION_CHOICE, "dtype", AT(dtype), .choices = "fp32|bf16|fp16", .help = "type of the operands"},
    {TX_OPTION_FLAG, "causal", AT(causal), .help = "causal attention: a token attends only to itself and earlier ones"},
};

static const settings defaults = {
    .common = TX_BENCH_DEFAULTS, .batch = 4, .heads = 12, .head_size = 64, .causal = true};

/* Fills in the command of self-attention, forward or backward. */
static void fill_command(int64_t batch, int64_t block, int64_t heads, int64_t kv_heads, int64_t head_size, bool causal,
                         tx_dtype dtype, bool backward, tx_command *command)
{
    const tx_operand qkv = {
        .dtype = dtype,
        .shape = TX_SHAPE(batch, block, (heads + 2 * kv_heads) * head_size),
        .arena = TX_ARENA_PLANNED,
    };
    tx_operand o = qkv, lse = qkv;
    o.shape = TX_SHAPE(batch, block, heads * head_size);
    lse.dtype = TX_F32;
    lse.shape = TX_SHAPE(batch, heads, block);
    tx_command c = {
        .op = backward ? TX_OP_ATTENTION_GRAD : TX_OP_ATTENTION,
        .direction = backward ? TX_BACKWARD : TX_FORWARD,
        .attrs = {.attention.heads = (int32_t)heads,
                  .attention.kv_heads = (int32_t)kv_heads,
                  .attention.causal = causal,
                  .control = -1,
                  .scale = (float)(1.0 / sqrt((double)head_size))},
    };
    for (int i = 0; i < TX_MAX_IN; i++)
        c.in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c.out[i] = (tx_operand){.dtype = TX_DTYPE_COUNT, .arena = TX_ARENA_PLANNED};
    const tx_operand gradient[] = {o, qkv, o, lse};
    c.in[0] = qkv;
    for (int i = 0; i < 4 && backward; i++)
        c.in[i] = gradient[i];
    *command = c;
}

static tx_status measure_block(tx_roofline *report, const settings *set, int64_t block)
{
    for (int backward = 0; backward < 2; backward++) {
        const char *name = tx_direction_name(backward ? TX_BACKWARD : TX_FORWARD);
        const int64_t kv_heads = set->kv_heads ? set->kv_heads : set->heads;
        tx_command c;
        fill_command(set->batch, block, set->heads, kv_heads, set->head_size, set->causal, (tx_dtype)set->dtype,
                     backward == 1, &c);
        c.attrs.attention.window = (int32_t)set->window;
        char label[96], window[24] = "";
        if (set->window)
            snprintf(window, sizeof window, " window %" PRId64, set->window);
        snprintf(label, sizeof label, "b%" PRId64 " t%" PRId64 " h%" PRId64 "/%d d%" PRId64 "%s%s %s", set->batch,
                 block, set->heads, c.attrs.attention.kv_heads, set->head_size, set->causal ? " causal" : "", window,
                 tx_dtype_name((tx_dtype)set->dtype));
        TX_TRY(tx_roofline_time(report, &c, name, name, label, 0));
    }
    return TX_OK;
}

static tx_status measure(tx_roofline *report, const void *user)
{
    const settings *set = user;
    TX_TRY(measure_block(report, set, set->block ? set->block : 256));
    return set->block ? TX_OK : measure_block(report, set, 1024);
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    if (set->kv_heads && set->heads % set->kv_heads)
        return tx_fail(TX_INVALID, "--kv_heads %" PRId64 " must divide --heads %" PRId64, set->kv_heads, set->heads);
    if (set->window && !set->causal)
        return tx_fail(TX_INVALID, "--window %" PRId64 " needs --causal", set->window);
    return tx_roofline_run("attention", argv, &set->common, measure, set);
}

TX_BENCH_COMMAND(attention, "",
                 "Times attention, forward and backward, with the shape of GPT-2 124M or another one. Only\n"
                 "unmasked pairs of query and key count as arithmetic: causal attention has half." TX_BENCH_ABOUT);
