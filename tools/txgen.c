/* SPDX-License-Identifier: Apache-2.0
 * txgen: continues a text with a model folder, or writes the logits of a sequence of ids. */
#include "models/text/bytes.h"
#include "models/generate/generate.h"
#include "models/files/safetensors.h"
#include "tools/config.h"
#include "tools/options.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* New tokens when nothing is said, if the model has positions for so many. */
#define DEFAULT_NEW_TOKENS 200

typedef struct settings {
    const char *model, *device, *prompt, *ids, *logits;
    int64_t most, top_k, seed, threads;
    double temperature;
} settings;

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_TEXT, "model", AT(model), .choices = "DIR", .help = "Hugging Face model folder"},
    {TX_OPTION_TEXT, "device", AT(device), .choices = "D", .help = "cpu, opencl, opencl:N, opencl:NAME or gpu"},
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N", "of the cpu backend; 0: all that this process may use"},
    {TX_OPTION_HEADING, .help = "text"},
    {TX_OPTION_TEXT, "prompt", AT(prompt), .choices = "TEXT", .help = "what to continue; without it: standard input"},
    {TX_OPTION_INTEGER, "max_new_tokens", AT(most), -1, 1 << 24, "N",
     "tokens to add; -1: 200, or as many as the model has positions for"},
    {TX_OPTION_REAL, "temperature", AT(temperature), 0, FLT_MAX, "X", "0: always the likeliest token"},
    {TX_OPTION_INTEGER, "top_k", AT(top_k), 0, 1 << 24, "N", "draw among the N likeliest tokens; 0: among all"},
    {TX_OPTION_INTEGER, "seed", AT(seed), 0, (double)INT64_MAX, "N", "the same seed gives the same text"},
    {TX_OPTION_HEADING, .help = "ids in place of text (needs no tokenizer)"},
    {TX_OPTION_TEXT, "ids", AT(ids), .choices = "\"1 2 3\"", .help = "token ids to continue; the new ids are printed"},
    {TX_OPTION_TEXT, "logits", AT(logits), .choices = "FILE",
     .help = "with --ids: one forward pass; writes tensor logits, F32 [1, T, vocab_size], as safetensors"},
};
#undef AT

static const tx_cli program = {
    .name = "txgen",
    .usage = "txgen --model DIR [--prompt TEXT] [options]",
    .about = "Continues a text with a model. In names of options - and _ are the same.",
    .options = options,
    .count = (int32_t)(sizeof options / sizeof options[0]),
};

typedef struct job {
    const settings *set;
    tx_gpt2_config config;
    tx_engine *engine;
    tx_model *model;
    int32_t *ids;
    int64_t count;
} job;

/* ---- input ------------------------------------------------------------------------------------- */

static tx_status parse_ids(job *j)
{
    const char *at = j->set->ids, *separators = " ,\t\n";
    j->ids = malloc((strlen(at) / 2 + 1) * sizeof *j->ids);
    if (!j->ids)
        return tx_fail(TX_MEMORY, "--ids: out of memory");
    for (at += strspn(at, separators); *at; at += strspn(at, separators)) {
        char *end;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX || (*end && !strchr(separators, *end)))
            return tx_fail(TX_INVALID, "--ids: \"%.20s\" does not begin with a token id", at);
        j->ids[j->count++] = (int32_t)id;
        at = end;
    }
    return j->count ? TX_OK : tx_fail(TX_INVALID, "--ids: no token id given");
}

/* All of standard input; nothing where that is a terminal. */
static char *read_input(size_t *size)
{
    size_t room = 1 << 16;
    char *text = malloc(room);
    *size = 0;
    while (text && !isatty(STDIN_FILENO)) {
        *size += fread(text + *size, 1, room - *size, stdin);
        if (*size < room)
            break;
        char *larger = realloc(text, room *= 2);
        if (!larger)
            free(text);
        text = larger;
    }
    return text;
}

static tx_status encode(job *j, const char *text, size_t size)
{
    j->ids = malloc((size + 1) * sizeof *j->ids);
    if (!j->ids)
        return tx_fail(TX_MEMORY, "prompt: no memory for %zu tokens", size);
    j->count = (int64_t)tx_bytes_encode(text, size, true, j->ids);
    if (j->count == 0)
        j->ids[j->count++] = TX_BYTES_END; /* a text begins after the end of another */
    return TX_OK;
}

static tx_status read_prompt(job *j)
{
    tx_status status = tx_bytes_check(j->set->model);
    if (status)
        return status;
    if (j->set->prompt)
        return encode(j, j->set->prompt, strlen(j->set->prompt));
    size_t size;
    char *text = read_input(&size);
    status = text ? encode(j, text, size) : tx_fail(TX_MEMORY, "prompt: no memory for the standard input");
    free(text);
    return status;
}

/* ---- logits -------------------------------------------------------------------------------------- */

static tx_status write_logits(const job *j, const float *logits)
{
    tx_st_tensor tensor = {"logits", TX_ST_F32, 3, {1, j->count, j->config.vocab_size}};
    tx_st_writer *writer = NULL;
    tx_status status = tx_st_create(j->set->logits, &tensor, 1, NULL, &writer);
    if (status)
        return status;
    status = tx_st_append(writer, logits, (size_t)tx_st_bytes(&tensor));
    if (status) {
        tx_st_discard(writer);
        return status;
    }
    return tx_st_commit(writer);
}

static tx_status forward(job *j)
{
    tx_forward *pass = NULL;
    tx_status status = tx_forward_create(j->model, &j->config, j->count, &pass);
    if (!status)
        status = tx_gpt2_load(j->model, &j->config, j->set->model, NULL);
    float *logits = status ? NULL : malloc((size_t)(j->count * j->config.vocab_size) * sizeof *logits);
    if (!status && !logits)
        status = tx_fail(TX_MEMORY, "--logits: out of memory");
    if (!status)
        status = tx_forward_run(pass, j->ids, logits);
    if (!status)
        status = write_logits(j, logits);
    free(logits);
    tx_forward_free(pass);
    return status;
}

/* ---- generation ------------------------------------------------------------------------------------ */

static bool print_text(void *context, int32_t id)
{
    (void)context;
    if (id < TX_BYTES_END)
        putchar(id);
    fflush(stdout);
    return !ferror(stdout);
}

static bool print_id(void *context, int32_t id)
{
    int64_t *printed = context;
    printf("%s%" PRId32, (*printed)++ ? " " : "", id);
    fflush(stdout);
    return !ferror(stdout);
}

static tx_status generate(job *j)
{
    int64_t room = j->config.n_positions - j->count, most = j->set->most, printed = 0;
    if (most < 0)
        most = room < DEFAULT_NEW_TOKENS ? room : DEFAULT_NEW_TOKENS;
    tx_generator *generator = NULL;
    tx_status status = tx_generator_create(j->model, &j->config, j->count, j->count + most, &generator);
    if (!status)
        status = tx_gpt2_load(j->model, &j->config, j->set->model, NULL);
    if (status) {
        tx_generator_free(generator);
        return status;
    }
    tx_sampling sampling = {j->set->temperature, j->set->top_k, (uint64_t)j->set->seed};
    for (int64_t i = 0; i < j->count && !j->set->ids; i++)
        print_text(NULL, j->ids[i]);
    status =
        tx_generator_run(generator, j->ids, j->count, most, &sampling, j->set->ids ? print_id : print_text, &printed);
    putchar('\n');
    tx_generator_free(generator);
    if (!status && (fflush(stdout) || ferror(stdout)))
        status = tx_fail(TX_IO, "standard output: cannot write: %s", strerror(errno));
    return status;
}

static tx_status open_model(job *j)
{
    tx_status status = tx_config_of_folder(j->set->model, &j->config);
    if (!status)
        status = j->set->ids ? parse_ids(j) : read_prompt(j);
    tx_engine_options engine = {sizeof engine, j->set->device, (int32_t)j->set->threads, false};
    if (!status)
        status = tx_engine_create(&engine, &j->engine);
    return status ? status : tx_model_create(j->engine, &j->model);
}

int main(int argc, char **argv)
{
    settings set = {.device = "cpu", .most = -1, .temperature = 1.0, .seed = 42};
    int result = tx_options_parse(&program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    if (!set.model)
        return tx_complain(&program, TX_EXIT_USAGE, "--model is missing: which model folder?");
    if (set.ids && set.prompt)
        return tx_complain(&program, TX_EXIT_USAGE, "--ids and --prompt exclude each other");
    if (set.logits && !set.ids)
        return tx_complain(&program, TX_EXIT_USAGE, "--logits needs --ids");
    job j = {.set = &set};
    tx_status status = open_model(&j);
    if (!status)
        status = set.logits ? forward(&j) : generate(&j);
    tx_model_free(j.model);
    tx_engine_free(j.engine);
    tx_gpt2_config_free(&j.config);
    free(j.ids);
    return status ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}
