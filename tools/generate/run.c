/* SPDX-License-Identifier: Apache-2.0
 * Generates texts and prints them, token by token, and the speed at the end. */
#include "tools/generate/txgen.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tx_status txgen_flush(void)
{
    errno = 0;
    return fflush(stdout) || ferror(stdout)
               ? tx_fail(TX_IO, "standard output: cannot write: %s", strerror(errno ? errno : EIO))
               : TX_OK;
}

/* The state of the output. */
typedef struct display {
    tx_alive *alive;
    const tx_lm_prompt *prompts;
    bool continues;   /* texts continue their prompts, which are printed before them */
    bool first;       /* the next token is the first of its text */
    tx_status status; /* of writing to standard output */
} display;

static void flush(display *d)
{
    tx_alive_printed(d->alive);
    TX_THEN(d->status, txgen_flush());
}

static void begin(void *context, int64_t index)
{
    display *d = context;
    const tx_lm_prompt *prompt = &d->prompts[index];
    tx_alive_doing(d->alive, "generating");
    d->first = true;
    if (index > 0 && prompt->text)
        putchar('\n'); /* an empty line between texts */
    if (prompt->text && d->continues)
        fwrite(prompt->text, 1, prompt->size, stdout);
    flush(d);
}

static void show_id(void *context, int64_t index, int32_t id)
{
    display *d = context;
    (void)index;
    printf("%s%" PRId32, d->first ? "" : " ", id);
    d->first = false;
}

static void show_text(void *context, int64_t index, const char *bytes, size_t size)
{
    (void)context;
    (void)index;
    fwrite(bytes, 1, size, stdout);
}

static void end(void *context, int64_t index)
{
    (void)index;
    putchar('\n');
    flush(context);
}

static bool stop(void *context)
{
    display *d = context;
    flush(d);
    return d->status != TX_OK;
}

static void report(void *context, int64_t tokens, double seconds)
{
    const display *d = context;
    if (!d->status)
        fprintf(stderr, "txgen: %" PRId64 " token%s, %.2f s, %.1f tokens/s\n", tokens, tx_s(tokens), seconds,
                seconds > 0.0 ? (double)tokens / seconds : 0.0);
}

/* Generates and prints continuations. Prompts of ids get ids, prompts of text get text. */
static tx_status show(tx_lm *lm, tx_alive *alive, const tx_generation *how, const tx_lm_prompt *prompts, int64_t count)
{
    display d = {.alive = alive, .prompts = prompts, .continues = !tx_lm_has_source(lm)};
    const bool ids = count > 0 && !prompts[0].text;
    const tx_lm_listener listener = {.size = sizeof listener,
                                     .context = &d,
                                     .begin = begin,
                                     .token = ids ? show_id : NULL,
                                     .text = ids ? NULL : show_text,
                                     .end = end,
                                     .stop = stop,
                                     .done = report};
    TX_TRY(tx_lm_generate(lm, prompts, count, how, &listener));
    return d.status;
}

static void print_limit(const tx_lm *lm, const tx_generation *how)
{
    if (tx_lm_is_limited(lm, how) && !tx_lm_has_source(lm))
        fprintf(stderr,
                "txgen: generation_config.json: max_length %" PRId64 " limits prompt and new tokens together; "
                "use --max_new_tokens to override it\n",
                how->max_length);
}

tx_status txgen_run(tx_lm *lm, tx_alive *alive, const tx_generation *how, const txgen_prompts *prompts)
{
    print_limit(lm, how);
    return show(lm, alive, how, prompts->prompt, prompts->count);
}

/* Continues one line of the user. */
static tx_status answer(tx_lm *lm, tx_alive *alive, const tx_generation *how, const char *line, size_t size)
{
    const bool limited = tx_lm_is_limited(lm, how);
    const int64_t context = limited ? how->max_length : tx_lm_positions(lm);
    tx_generation settings = *how;
    int32_t *ids = NULL;
    int64_t count = 0;
    const tx_status status = tx_lm_encode(lm, line, size, &ids, &count);
    free(ids);
    TX_TRY(status);
    if (count >= context) {
        fprintf(stderr, "txgen: the line has %" PRId64 " tokens, but %s %" PRId64 "%s: shorten it\n", count,
                limited ? "max_length is" : "the model has only", context, limited ? "" : " positions");
        return TX_OK;
    }
    if (settings.max_new_tokens > context - count)
        settings.max_new_tokens = context - count;
    return show(lm, alive, &settings, &(tx_lm_prompt){.text = line, .size = size}, 1);
}

tx_status txgen_talk(tx_lm *lm, tx_alive *alive, const tx_generation *how)
{
    char *line = NULL;
    size_t room = 0, length;
    tx_status status = TX_OK;
    TX_TRY(tx_lm_reserve(lm, 1, how));
    print_limit(lm, how);
    while (!status && txgen_ask(alive, &line, &room, &length))
        if (length > 0)
            status = answer(lm, alive, how, line, length);
    fputc('\n', stderr);
    free(line);
    return status;
}
