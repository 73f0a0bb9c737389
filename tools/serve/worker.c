/* SPDX-License-Identifier: Apache-2.0
 * Threads that parse, render and tokenise requests, and free calls. The HTTP thread does none of this, because a
 * hostile request can make it slow. */
#include "tools/serve/txserve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

serve_call *serve_submit(serve_server *s, serve_kind kind, serve_key *key, serve_bytes *body)
{
#define X(name, id, tasks) id,
    static const char *const names[] = {SERVE_KINDS(X)};
#undef X
    serve_call *c = calloc(1, sizeof *c);
    if (!c) {
        serve_leave(key);
        return NULL;
    }
    *c = (serve_call){.server = s,
                      .key = key,
                      .kind = kind,
                      .raw = *body,
                      .number = s->serial++,
                      .owners = 2,
                      .client = -1,
                      .created = (int64_t)time(NULL),
                      .begun = tx_now()};
    *body = (serve_bytes){0};
    c->deadline = s->set->timeout > 0 ? c->begun + (double)s->set->timeout : 0.0;
    snprintf(c->id, sizeof c->id, "%s-%" PRIx64 "-%" PRIx64, names[kind], (uint64_t)s->created, c->number);
    s->open++;
    s->preparing++;
    *s->fresh_tail = c;
    s->fresh_tail = &c->next;
    pthread_cond_signal(&s->arrived);
    return c;
}

void serve_release(serve_call *call)
{
    if (!call || --call->owners > 0)
        return;
    serve_leave_model(call);
    serve_leave(call->key);
    serve_server *s = call->server;
    s->open--;
    call->next = s->dead;
    s->dead = call;
    pthread_cond_signal(&s->arrived);
}

static void destroy(serve_call *call)
{
    for (int32_t i = 0; i < call->count; i++) {
        free(call->text[i].ids);
        free(call->text[i].answer.data);
        tx_json_free(call->text[i].logprobs);
        serve_free_message(&call->text[i]);
    }
    for (int64_t i = 0; i < call->inputs; i++)
        free((void *)(uintptr_t)call->input[i].ids);
    free(call->text);
    free(call->bias);
    free(call->prefix);
    tx_grammar_free(call->grammar);
    tx_breakers_free(call->breakers);
    free(call->input);
    free(call->out.data);
    free(call->raw.data);
    tx_json_free(call->body);
    tx_json_free(call->asked);
    tx_json_free(call->response.output);
    free(call->response.text.data);
    free(call);
}

/* Puts a text into the queue after all that are not later by their priority. */
static void insert(serve_server *s, serve_text *t)
{
    serve_text **at = &s->queue;
    if (s->queue && s->last->call->priority <= t->call->priority)
        at = &s->last->next;
    while (*at && (*at)->call->priority <= t->call->priority)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    s->last = t->next ? s->last : t;
}

/* Queues the texts of a call, with the lock. Returns false if the queue has no room for them, or if the tokens of the
 * API key are used up; the message is tx_error(). */
static bool queue(serve_call *c)
{
    serve_server *s = c->server;
    if (s->queued + c->count > s->set->max_queue) {
        tx_fail(TX_INVALID, "the queue is full: try again later");
        return false;
    }
    c->retry = c->count ? serve_seconds_until(c->key, c->prompt_tokens) : 0;
    if (c->retry) {
        tx_fail(TX_INVALID, "the API key has used its tokens of a minute: try again in %" PRId64 " s", c->retry);
        return false;
    }
    c->left = c->count;
    c->owners += c->count;
    for (int32_t i = 0; i < c->count; i++)
        insert(s, &c->text[i]);
    s->queued += c->count;
    s->counters.prompt_tokens += c->prompt_tokens;
    serve_count_tokens(c->key, c->prompt_tokens);
    pthread_cond_signal(&s->work);
    return true;
}

/* Parses a call and queues its texts. */
static void prepare(serve_call *c)
{
    serve_server *s = c->server;
    int status = serve_parse(c);
    pthread_mutex_lock(&s->lock);
    if (!status && !queue(c))
        status = 429;
    if (status)
        serve_fail(c, status, tx_error());
    c->flows = !status && c->stream;
    s->preparing--;
    pthread_cond_signal(&s->work);
    s->wake(c);
    serve_release(c);
    pthread_mutex_unlock(&s->lock);
}

static void *run(void *worker)
{
    const struct serve_worker *w = worker;
    serve_server *s = w->server;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->fresh && !s->dead && !s->closes)
            pthread_cond_wait(&s->arrived, &s->lock);
        serve_call *dead = s->dead, *c = dead ? dead : s->fresh;
        if (!c)
            break;
        if (dead)
            s->dead = dead->next;
        else
            s->fresh = c->next;
        s->fresh_tail = s->fresh ? s->fresh_tail : &s->fresh;
        pthread_mutex_unlock(&s->lock);
        c->encoder = w->encoder;
        if (dead)
            destroy(dead);
        else
            prepare(c);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

tx_status serve_start_workers(serve_server *s)
{
    s->fresh_tail = &s->fresh;
    for (int i = 0; i < SERVE_WORKERS; i++) {
        struct serve_worker *w = &s->worker[i];
        if (s->tokenizer)
            TX_TRY(tx_encoder_create(s->tokenizer, &w->encoder));
        w->server = s;
        if (pthread_create(&w->thread, NULL, run, w)) {
            w->server = NULL;
            return tx_fail(TX_MEMORY, "cannot start a thread");
        }
    }
    return TX_OK;
}

void serve_stop_workers(serve_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->closes = true;
    pthread_cond_broadcast(&s->arrived);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < SERVE_WORKERS; i++) {
        if (s->worker[i].server)
            pthread_join(s->worker[i].thread, NULL);
        tx_encoder_free(s->worker[i].encoder);
    }
}
