/* SPDX-License-Identifier: Apache-2.0
 * Generation as txgen does it: batches, texts shown as they grow, the speed at the end. */
#include "tools/generate/txgen.h"

#include "api/base/clock.h"
#include "models/generate/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* New tokens when nothing is said, if the model has positions for so many. */
#define DEFAULT_NEW_TOKENS 200
/* Usual length of a line that is typed. */
#define TYPED_PROMPT 64
/* Prompts at once when nothing is said. */
#define DEFAULT_BATCH 8

/* A text, kept until it may be shown. */
typedef struct text {
    tx_stream stream;
    int32_t *ids;
    int64_t count;
} text;

typedef struct display {
    const txgen_job *job;
    text *text; /* of each row of the batch */
    int64_t room;
    bool at_once; /* the one row is shown as it grows */
    int64_t tokens;
    tx_stop stop;
} display;

static void write_out(void *context, const char *bytes, size_t size)
{
    (void)context;
    fwrite(bytes, 1, size, stdout);
}

/* Prints one token of a text. */
static void show(const display *d, text *t, int32_t id, bool first)
{
    const char *bytes;
    size_t size;
    if (!d->job->tokenizer)
        printf("%s%" PRId32, first ? "" : " ", id);
    else if (tx_tokenizer_piece(d->job->tokenizer, id, true, &bytes, &size) == TX_OK)
        tx_stream_add(&t->stream, bytes, size, write_out, NULL);
}

static bool emit(void *context, int64_t row, int32_t id)
{
    display *d = context;
    text *t = &d->text[row];
    d->tokens++;
    t->ids[t->count++] = id;
    if (d->at_once) {
        show(d, t, id, t->count == 1);
        fflush(stdout);
    }
    return !ferror(stdout);
}

static bool ends(void *context, const int32_t *ids, int64_t count)
{
    const display *d = context;
    return tx_stop_reached(&d->stop, ids, count);
}

/* ---- Texts ------------------------------------------------------------------------------------------- */

static void display_close(display *d, int64_t batch)
{
    for (int64_t r = 0; d->text && r < batch; r++)
        free(d->text[r].ids);
    free(d->text);
    d->text = NULL;
}

static tx_status display_open(display *d, const txgen_job *job, int64_t batch, int64_t room)
{
    *d = (display){.job = job, .text = calloc((size_t)batch, sizeof *d->text), .room = room};
    d->stop = (tx_stop){job->tokenizer, job->set->stop.word, job->set->stop.count};
    bool good = d->text != NULL;
    for (int64_t r = 0; good && r < batch; r++) {
        d->text[r].ids = malloc((size_t)(room + 1) * sizeof *d->text[r].ids);
        good = d->text[r].ids != NULL;
    }
    if (good)
        return TX_OK;
    display_close(d, batch);
    return tx_fail(TX_MEMORY, "txgen: out of memory");
}

static void begin_text(const display *d, int64_t index)
{
    const txgen_prompts *p = &d->job->prompts;
    if (index > 0 && p->text[index])
        putchar('\n'); /* an empty line between texts */
    if (p->text[index])
        fwrite(p->text[index], 1, p->size[index], stdout);
    fflush(stdout);
}

static void end_text(text *t)
{
    tx_stream_end(&t->stream, write_out, NULL);
    putchar('\n');
    fflush(stdout);
}

/* Continues prompts first..first+count-1 and shows them. */
static tx_status run_batch(txgen_job *job, tx_generator *generator, display *d, int64_t first, int64_t count)
{
    const tx_sink sink = {emit, d->stop.count > 0 ? ends : NULL, d};
    for (int64_t r = 0; r < count; r++)
        d->text[r].count = 0;
    d->at_once = count == 1 && job->how.num_beams == 1;
    if (d->at_once)
        begin_text(d, first);
    tx_status status =
        tx_generator_run(generator, job->prompts.prompt + first, count, (uint64_t)first, &job->how, &sink);
    for (int64_t r = 0; r < count && !status; r++) {
        text *t = &d->text[r];
        if (!d->at_once)
            begin_text(d, first + r);
        for (int64_t i = 0; !d->at_once && i < t->count; i++)
            show(d, t, t->ids[i], i == 0);
        end_text(t);
    }
    if (!status && (fflush(stdout) || ferror(stdout)))
        status = tx_fail(TX_IO, "standard output: cannot write: %s", strerror(errno));
    return status;
}

static void report(int64_t tokens, double seconds)
{
    fprintf(stderr, "txgen: %" PRId64 " tokens, %.2f s, %.1f tokens/s\n", tokens, seconds,
            seconds > 0.0 ? (double)tokens / seconds : 0.0);
}

/* ---- The two ways ------------------------------------------------------------------------------------- */

static tx_status create(txgen_job *job, int64_t batch, int64_t prompt, int64_t context, tx_generator **generator)
{
    const tx_generator_options options = {
        .size = sizeof options, .batch = batch, .beams = job->how.num_beams, .prompt = prompt, .context = context};
    tx_generator *made = NULL;
    tx_status status = tx_generator_create(job->model, job->config, &options, &made);
    if (!status)
        status = tx_arch_load(job->model, job->config, job->folder, NULL);
    if (status)
        tx_generator_free(made);
    else
        *generator = made;
    return status;
}

/* Whether the model's own max_length limits the texts. */
static bool is_limited(const txgen_job *job)
{
    const tx_generation *how = &job->how;
    return how->max_new_tokens < 0 && how->max_length >= 0 && how->max_length <= job->config->positions;
}

static void tell_limit(const txgen_job *job)
{
    if (is_limited(job))
        fprintf(stderr,
                "txgen: generation_config.json: max_length %" PRId64 " limits prompt and new tokens together; "
                "--max_new_tokens takes its place\n",
                job->how.max_length);
}

/* As many new tokens as there is room for behind a prompt. */
static int64_t new_tokens(const txgen_job *job, int64_t prompt)
{
    const int64_t room = job->config->positions - prompt;
    const int64_t wanted = job->how.max_length < 0 ? DEFAULT_NEW_TOKENS : job->how.max_length - prompt;
    if (job->how.max_new_tokens >= 0)
        return job->how.max_new_tokens;
    return room < wanted ? (room > 0 ? room : 0) : wanted;
}

tx_status txgen_run(txgen_job *job)
{
    const txgen_prompts *p = &job->prompts;
    int64_t longest = 0, batch = job->set->batch_size > 0 ? job->set->batch_size : DEFAULT_BATCH;
    batch = p->count < batch ? p->count : batch;
    for (int64_t i = 0; i < p->count; i++)
        longest = p->prompt[i].count > longest ? p->prompt[i].count : longest;
    int64_t context = job->how.max_length, room = context;
    tell_limit(job);
    if (!is_limited(job)) { /* the same number for all */
        job->how.max_new_tokens = room = new_tokens(job, longest);
        context = longest + room;
    } else if (longest >= context) {
        return tx_fail(TX_INVALID,
                       "a prompt has %" PRId64 " tokens, max_length of generation_config.json is %" PRId64
                       ": give --max_new_tokens",
                       longest, context);
    }
    tx_generator *generator = NULL;
    display d;
    tx_status status = create(job, batch, longest, context, &generator);
    if (status)
        return status;
    status = display_open(&d, job, batch, room);
    if (!status) {
        const double begin = tx_now();
        for (int64_t i = 0; i < p->count && !status; i += batch)
            status = run_batch(job, generator, &d, i, p->count - i < batch ? p->count - i : batch);
        if (!status)
            report(d.tokens, tx_now() - begin);
        display_close(&d, batch);
    }
    tx_generator_free(generator);
    return status;
}

/* Continues one line that was typed. */
static tx_status answer(txgen_job *job, tx_generator *generator, display *d, const char *line, size_t size)
{
    const int64_t asked = job->how.max_new_tokens;
    const int64_t context = is_limited(job) ? job->how.max_length : job->config->positions;
    txgen_prompts_free(&job->prompts);
    tx_status status = txgen_add_text(&job->prompts, job->encoder, line, size, job->config->bos_token_id);
    if (status)
        return status;
    const int64_t count = job->prompts.prompt[0].count;
    if (count >= context) {
        fprintf(stderr, "txgen: that is %" PRId64 " tokens; %s %" PRId64 "%s\n", count,
                is_limited(job) ? "max_length is" : "the model has", context, is_limited(job) ? "" : " positions");
        return TX_OK;
    }
    const double begin = tx_now();
    d->tokens = 0;
    job->how.max_new_tokens = new_tokens(job, count);
    if (job->how.max_new_tokens > context - count)
        job->how.max_new_tokens = context - count;
    status = run_batch(job, generator, d, 0, 1);
    job->how.max_new_tokens = asked;
    if (!status)
        report(d->tokens, tx_now() - begin);
    return status;
}

tx_status txgen_talk(txgen_job *job)
{
    const int64_t context = job->config->positions;
    tx_generator *generator = NULL;
    display d;
    tx_status status = create(job, 1, TYPED_PROMPT < context ? TYPED_PROMPT : context, context, &generator);
    if (status)
        return status;
    status = display_open(&d, job, 1, context);
    tell_limit(job);
    char *line = NULL;
    size_t room = 0;
    while (!status) {
        fputs("> ", stderr);
        ssize_t length = getline(&line, &room, stdin);
        if (length < 0)
            break;
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            length--;
        if (length > 0)
            status = answer(job, generator, &d, line, (size_t)length);
    }
    fputc('\n', stderr);
    free(line);
    display_close(&d, 1);
    tx_generator_free(generator);
    return status;
}
