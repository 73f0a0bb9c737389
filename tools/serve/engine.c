/* SPDX-License-Identifier: Apache-2.0
 * The thread that owns the batch: takes texts from the queue and computes them. */
#include "tools/serve/txserve.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* Seconds after which idle ranks show each other that they serve. */
#define IDLE_SECONDS 60

/* ---- The callbacks of the batch ---------------------------------------------------------------------------- */

static bool on_token(void *context, const tx_batch_token *token)
{
    serve_text *text = context;
    serve_call *c = text->call;
    const double now = tx_now();
    pthread_mutex_lock(&c->server->lock);
    c->server->counters.tokens += !token->prompt;
    serve_count_tokens(c->key, !token->prompt);
    if (c->first <= 0.0) {
        c->first = now;
        c->server->counters.first_seconds += now - c->begun;
        c->server->counters.firsts++;
    }
    pthread_mutex_unlock(&c->server->lock);
    return serve_add_token(text, token);
}

/* Cancels a text if its client has left, its time is over, or another text of the call failed. */
static bool on_cancelled(void *context)
{
    serve_call *c = ((serve_text *)context)->call;
    pthread_mutex_lock(&c->server->lock);
    if (c->deadline > 0.0 && tx_now() > c->deadline) {
        tx_fail(TX_INVALID, "the request took longer than the server's timeout of %" PRId64 " s",
                c->server->set->timeout);
        serve_fail(c, 504, tx_error());
    }
    const bool cancelled = c->status >= 400 || c->server->left(c);
    pthread_mutex_unlock(&c->server->lock);
    return cancelled;
}

static void on_end(void *context, tx_batch_end end)
{
    serve_text *text = context;
    serve_call *c = text->call;
    serve_server *s = c->server;
    end = text->done && end == TX_BATCH_CANCELLED ? TX_BATCH_STOPPED : end;
    serve_end_text(text, end);
    pthread_mutex_lock(&s->lock);
    s->running--;
    s->counters.texts++;
    s->counters.cancelled += end == TX_BATCH_CANCELLED;
    if (--c->left == 0) {
        serve_leave_model(c);
        s->counters.cached += c->cached;
        s->counters.seconds += tx_now() - c->begun;
        s->counters.calls++;
    }
    s->wake(c);
    serve_release(c);
    pthread_mutex_unlock(&s->lock);
}

/* ---- The queue ------------------------------------------------------------------------------------------- */

/* Computes the call of an encoder. */
static void encode(serve_text *t)
{
    serve_call *c = t->call;
    serve_server *s = c->server;
    const tx_status status = serve_encode(c);
    if (status)
        serve_fail(c, status == TX_INVALID ? 400 : 500, tx_error());
    pthread_mutex_lock(&s->lock);
    s->counters.prompt_tokens += c->prompt_tokens;
    serve_count_tokens(c->key, c->prompt_tokens);
    pthread_mutex_unlock(&s->lock);
    on_end(t, TX_BATCH_STOPPED);
}

/* Puts a text into the batch. */
static tx_status add(serve_server *s, serve_text *t)
{
    const serve_call *c = t->call;
    const tx_batch_request request = {.size = sizeof request,
                                      .ids = t->ids,
                                      .count = t->count,
                                      .how = &c->how,
                                      .sample = t->sample,
                                      .logprobs = c->logprobs,
                                      .top = c->top,
                                      .echo = c->echo,
                                      .adapter = c->adapter ? c->adapter->number : 0,
                                      .context = t,
                                      .token = on_token,
                                      .cancelled = on_cancelled,
                                      .end = on_end};
    return tx_batch_add(s->batch, &request);
}

/* Takes a text from the queue, or returns NULL. */
static serve_text *take(serve_server *s)
{
    pthread_mutex_lock(&s->lock);
    serve_text *t = s->queue;
    if (t) {
        s->queue = t->next;
        s->queued--;
        s->running++;
    }
    pthread_mutex_unlock(&s->lock);
    return t;
}

/* Moves texts from the queue into free slots. Texts of clients that left are ended at once. */
static void refill(serve_server *s)
{
    int64_t room = s->batch ? tx_batch_free_slots(s->batch) : 1;
    for (serve_text *t; room > 0 && (t = take(s)) != NULL;) {
        if (on_cancelled(t))
            on_end(t, TX_BATCH_CANCELLED);
        else if (!s->batch)
            encode(t);
        else if (add(s, t))
            on_end(t, TX_BATCH_FAILED);
        else
            room--;
    }
}

/* Waits with the lock for a signal. Returns true if ranks that divide the model waited long. */
static bool wait_for_work(serve_server *s)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += IDLE_SECONDS;
    if (s->set->lm.ranks)
        return pthread_cond_timedwait(&s->work, &s->lock, &end) != 0;
    pthread_cond_wait(&s->work, &s->lock);
    return false;
}

/* All requests of the batch have ended with an error. Ranks that divide the model no longer agree on the next pass, so
 * that the server ends; its other requests get errors, too. */
static void report_failure(serve_server *s)
{
    if (!s->set->lm.ranks) {
        tx_print_line(stderr, "txserve: %s", tx_error());
        return;
    }
    pthread_mutex_lock(&s->lock);
    if (!*s->failure)
        snprintf(s->failure, sizeof s->failure, "%s", tx_error());
    s->drains = true;
    pthread_mutex_unlock(&s->lock);
    s->end();
}

void serve_engine(serve_server *s)
{
    bool running = false;
    for (;;) {
        bool late = false;
        pthread_mutex_lock(&s->lock);
        while (!s->queue && !running && !s->loading && !late && (!s->drains || s->preparing))
            late = wait_for_work(s);
        const bool loads = s->loading != NULL, ends = !s->queue && !running && !loads && !late;
        pthread_mutex_unlock(&s->lock);
        if (ends)
            return;
        if (loads)
            serve_complete_loading(s);
        refill(s);
        if (s->batch && tx_batch_step(s->batch, &running))
            report_failure(s);
    }
}
