/* SPDX-License-Identifier: Apache-2.0
 * txbench: its commands, and what they share. */
#include "models/arch/find.h"
#include "models/train/trainer.h"
#include "tools/bench/bench.h"
#include "tools/cli/options.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_bench_print(tx_json *figures)
{
    char *text = tx_json_text(figures, TX_JSON_LINE);
    tx_json_free(figures);
    if (!text)
        return TX_MEMORY;
    puts(text);
    free(text);
    return TX_OK;
}

/* By Knuth's linear congruence. */
void tx_bench_tokens(uint64_t *random, int64_t vocab, int64_t batch, int64_t block, int32_t *tokens, int32_t *labels)
{
    const int64_t count = batch * block;
    for (int64_t i = 0; i < count; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((*random >> 33) % (uint64_t)vocab);
    }
    for (int64_t i = 0; i < count; i++)
        labels[i] = (i + 1) % block ? tokens[i + 1] : TX_IGNORE_LABEL;
}

tx_status tx_bench_config(const char *name, int64_t block, tx_config **config)
{
    tx_status status = tx_config_find(name, config);
    if (!status)
        status = tx_config_override(*config, "resid_pdrop=0,embd_pdrop=0,attn_pdrop=0");
    if (status || block <= (*config)->positions)
        return status;
    return tx_fail(TX_INVALID, "block %" PRId64 " is more than the model's %" PRId64 " positions", block,
                   (*config)->positions);
}

tx_trainer_options tx_bench_training(int64_t batch, int64_t block)
{
    return (tx_trainer_options){
        .size = sizeof(tx_trainer_options),
        .task = &tx_causal_lm,
        .batch = batch,
        .block = block,
        .accumulation = 1,
        .max_grad_norm = 1.0,
        .optimizer = {sizeof(tx_optimizer_options), TX_ADAMW, 0.9f, 0.999f, 1e-8f, .weight_decay = 0.0f},
    };
}

char *tx_bench_swap_gemm(const char *value)
{
    const char *before = getenv("TX_GEMM");
    char *kept = before ? strdup(before) : NULL;
    if (value)
        setenv("TX_GEMM", value, 1);
    else
        unsetenv("TX_GEMM");
    return kept;
}

static const tx_cli_command commands[] = {
#define X(name, help) {#name, help, &tx_bench_##name##_program},
    TX_BENCH_MAP(X)
#undef X
};

static int (*const runs[])(int argc, char *const *argv) = {
#define X(name, help) tx_bench_##name,
    TX_BENCH_MAP(X)
#undef X
};

int main(int argc, char **argv)
{
    static const tx_cli program = {
        .name = "txbench",
        .usage = "txbench train|copy|gemm|attention|ops|generate|ddp|comm|scale [options]",
        .about = "Measures speed. txbench train --help, ops --help and so on list the options.",
        .commands = commands,
        .command_count = (int32_t)(sizeof commands / sizeof commands[0]),
    };
    int32_t command;
    int result = tx_options_command(&program, argc, argv, NULL, &command);
    if (result != TX_GO_ON)
        return result;
    signal(SIGPIPE, SIG_IGN); /* a peer that ended is an error message, not the end of this program */
    return runs[command](argc - 1, argv + 1);
}
