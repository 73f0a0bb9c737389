/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a JSON file of a program's arguments. Accepted values are within the bounds of the table, which has
 * every kind of option. The messages are written to stderr: run it with -close_fd_mask=2. */
#include "tests/fuzz/fuzz.h"
#include "tools/cli/options.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define NAME "arguments.json"

typedef struct settings {
    bool train;
    int64_t steps;
    double rate;
    const char *output, *resume;
    int32_t schedule;
    uint32_t report;
    tx_words stop;
} settings;

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_HEADING, .help = "all"},
    {TX_OPTION_FLAG, "do_train", AT(train), .help = "train"},
    {TX_OPTION_INTEGER, "max_steps", AT(steps), -1, 1000, "N", "steps"},
    {TX_OPTION_REAL, "learning_rate", AT(rate), 0, 1, "X", "rate"},
    {TX_OPTION_TEXT, "output_dir", AT(output), .choices = "DIR", .help = "folder"},
    {TX_OPTION_OPTIONAL, "resume_from_checkpoint", AT(resume), .choices = "DIR", .help = "resume"},
    {TX_OPTION_CHOICE, "lr_scheduler_type", AT(schedule), .choices = "linear|cosine", .help = "schedule"},
    {TX_OPTION_LIST, "report_to", AT(report), .choices = "none|tensorboard|all", .help = "report"},
    {TX_OPTION_WORDS, "stop", AT(stop), .choices = "TEXT", .help = "stop"},
#define X(word, same, advice) {TX_OPTION_FOREIGN, word, .choices = same, .help = advice},
#include "models/options/foreign.def"
#undef X
};
#undef AT

static const tx_cli program = {
    .name = "fuzz",
    .usage = "fuzz [options]",
    .about = "Does. More.",
    .table = {TX_CLI_OPTIONS(options)},
};

static void check_values(const settings *set)
{
    FUZZ_CHECK(set->steps >= -1 && set->steps <= 1000);
    FUZZ_CHECK(set->rate >= 0 && set->rate <= 1);
    FUZZ_CHECK(!set->output || strlen(set->output) > 0);
    FUZZ_CHECK(!set->resume || strlen(set->resume) < SIZE_MAX);
    FUZZ_CHECK(set->schedule == 0 || set->schedule == 1);
    FUZZ_CHECK(set->report < 8);
    for (int32_t i = 0; i < set->stop.count; i++)
        FUZZ_CHECK(strlen(set->stop.word[i]) < SIZE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    settings set = {.steps = -1, .rate = 0.5};
    tx_fuzz_put(NAME, data, size);
    char *argv[] = {"fuzz", (char *)(uintptr_t)tx_fuzz_path(NAME), NULL};
    tx_option_values values = tx_options_values(&program, &set);
    int status = tx_options_read(&program, 2, argv, &values);
    FUZZ_CHECK(status == TX_GO_ON || status == TX_EXIT_FAILURE || status == TX_EXIT_USAGE);
    if (status == TX_GO_ON)
        check_values(&set);
    tx_option_values_free(&values);
    return 0;
}
