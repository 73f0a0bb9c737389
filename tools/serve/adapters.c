/* SPDX-License-Identifier: Apache-2.0
 * Adapters (LoRA) of the model: requests name one as their model. The server lists them, and loads and unloads them
 * while it runs. */
#include "tools/serve/txserve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME_BYTES 255

/* A loading, which the engine thread completes between two steps. */
struct serve_loading {
    serve_adapter *adapter;
    bool replaces; /* an adapter of this name, if there is one */
    bool done;
    tx_status status;
    char error[512];
};

/* ---- The list ----------------------------------------------------------------------------------------------- */

/* Returns the adapter that has a name now, or NULL. Call it with the lock. */
static serve_adapter *find(const serve_server *s, const char *name)
{
    serve_adapter *a = s->adapters;
    while (a && (a->gone || strcmp(a->name, name) != 0))
        a = a->next;
    return a;
}

static void destroy(serve_adapter *a)
{
    if (!a)
        return;
    tx_adapter_free(a->content);
    free(a->name);
    free(a);
}

/* Reads an adapter from a folder. */
static tx_status read_adapter(const serve_server *s, const char *name, size_t size, const char *folder,
                              serve_adapter **adapter)
{
    if (size < 1 || size > NAME_BYTES)
        return tx_fail(TX_INVALID, "the name of an adapter has 1 to %d bytes", NAME_BYTES);
    serve_adapter *a = calloc(1, sizeof *a);
    tx_status status = a && (a->name = strndup(name, size)) ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
    TX_THEN(status, tx_adapter_read(s->lm, folder, &a->content));
    if (!status)
        a->created = (int64_t)time(NULL);
    return TX_RETURN(status, a, adapter, destroy);
}

/* Appends an adapter to the list. TX_INVALID if its name is in use. */
static tx_status append(serve_server *s, serve_adapter *a)
{
    serve_adapter **end = &s->adapters;
    if (strcmp(a->name, s->name) == 0 || find(s, a->name))
        return tx_fail(TX_INVALID, "the name %s is in use", a->name);
    while (*end)
        end = &(*end)->next;
    *end = a;
    return TX_OK;
}

/* ---- At the start ------------------------------------------------------------------------------------------- */

/* Reads NAME=DIR. */
static tx_status read_word(serve_server *s, const char *word)
{
    const char *equals = strchr(word, '=');
    serve_adapter *a = NULL;
    if (!equals)
        return tx_fail(TX_INVALID, "--lora %s: write NAME=DIR", word);
    TX_TRY(tx_fail_in(read_adapter(s, word, (size_t)(equals - word), equals + 1, &a), "--lora"));
    const tx_status status = append(s, a);
    if (status)
        destroy(a);
    return tx_fail_in(status, "--lora");
}

tx_status serve_read_adapters(serve_server *s)
{
    const serve_settings *set = s->set;
    if (!set->lora.count && !set->lora_updates)
        return TX_OK;
    tx_adapter **all = calloc((size_t)set->lora.count + 1, sizeof *all);
    tx_status status = all ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
    for (int32_t i = 0; i < set->lora.count && !status; i++)
        status = read_word(s, set->lora.word[i]);
    int32_t count = 0;
    for (const serve_adapter *a = s->adapters; a && !status; a = a->next)
        all[count++] = a->content;
    TX_THEN(status, tx_lm_reserve_adapters(s->lm, &(tx_adapters_options){.size = sizeof(tx_adapters_options),
                                                                         .adapters = all,
                                                                         .count = count,
                                                                         .places = set->max_loras,
                                                                         .rank = set->max_lora_rank,
                                                                         .modules = set->lora_modules}));
    free(all);
    return status;
}

static tx_status load(serve_server *s, serve_adapter *a)
{
    TX_TRY(tx_batch_load(s->batch, a->content, &a->number));
    tx_adapter_free(a->content);
    a->content = NULL;
    return TX_OK;
}

tx_status serve_load_adapters(serve_server *s)
{
    tx_status status = TX_OK;
    for (serve_adapter *a = s->adapters; a; a = a->next)
        TX_THEN(status, load(s, a));
    return status;
}

void serve_free_adapters(serve_server *s)
{
    for (serve_adapter *a = s->adapters, *next; a; a = next) {
        next = a->next;
        destroy(a);
    }
    s->adapters = NULL;
}

/* ---- Models of requests --------------------------------------------------------------------------------------- */

tx_status serve_use_model(serve_call *c, const char *name)
{
    serve_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    c->adapter = find(s, name);
    if (c->adapter)
        c->adapter->calls++;
    pthread_mutex_unlock(&s->lock);
    c->model = name;
    return c->adapter || strcmp(name, s->name) == 0
               ? TX_OK
               : tx_fail(TX_NOT_FOUND, "the model %.200s does not exist; this server has %s", name, s->name);
}

void serve_leave_model(serve_call *c)
{
    if (c->adapter)
        c->adapter->calls--;
    c->adapter = NULL;
}

static tx_json *model_of(const serve_server *s, const char *id, int64_t created, const char *parent)
{
    tx_json *model = tx_json_pack("{s:s, s:s, s:I, s:s, s:s?}", "id", id, "object", "model", "created", created,
                                  "owned_by", "txserve", "parent", parent);
    if (model && s->context) /* encoders have no slots */
        tx_json_set_int(model, "max_model_len", s->context);
    if (model && s->classifier)
        tx_json_set(model, "labels", serve_labels(s->classifier));
    return model;
}

tx_json *serve_list_models(serve_server *s)
{
    tx_json *list = tx_json_array();
    pthread_mutex_lock(&s->lock);
    tx_status status = tx_json_append(list, model_of(s, s->name, s->created, NULL));
    for (const serve_adapter *a = s->adapters; a; a = a->next)
        if (!a->gone)
            TX_THEN(status, tx_json_append(list, model_of(s, a->name, a->created, s->name)));
    pthread_mutex_unlock(&s->lock);
    return tx_json_pack("{s:s, s:o}", "object", "list", "data", list);
}

tx_json *serve_find_model(serve_server *s, const char *name)
{
    pthread_mutex_lock(&s->lock);
    const serve_adapter *a = find(s, name);
    tx_json *model = a                            ? model_of(s, a->name, a->created, s->name)
                     : strcmp(name, s->name) == 0 ? model_of(s, s->name, s->created, NULL)
                                                  : NULL;
    pthread_mutex_unlock(&s->lock);
    return model;
}

/* ---- The engine thread ---------------------------------------------------------------------------------------- */

/* Frees the places of unloaded adapters that no call uses. */
static void sweep(serve_server *s)
{
    for (serve_adapter **at = &s->adapters; *at;) {
        serve_adapter *a = *at;
        if (!a->gone || a->calls || tx_batch_unload(s->batch, a->number)) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        destroy(a);
    }
}

/* Fails if the name of a new adapter is in use. Call it with the lock. */
static tx_status check_name(const serve_server *s, const serve_loading *l)
{
    const char *name = l->adapter->name;
    if (strcmp(name, s->name) == 0)
        return tx_fail(TX_INVALID, "lora_name %s: it is the name of the model", name);
    return !l->replaces && find(s, name)
               ? tx_fail(TX_INVALID, "lora_name %s: an adapter has this name: unload it, or set load_inplace", name)
               : TX_OK;
}

/* Loads an adapter, and gives it its name. An adapter that it replaces answers the calls that use it. */
static tx_status complete(serve_server *s, const serve_loading *l)
{
    pthread_mutex_lock(&s->lock);
    sweep(s);
    tx_status status = check_name(s, l);
    pthread_mutex_unlock(&s->lock);
    TX_THEN(status, load(s, l->adapter));
    TX_TRY(status);
    pthread_mutex_lock(&s->lock);
    serve_adapter *old = find(s, l->adapter->name);
    if (old)
        old->gone = true;
    append(s, l->adapter);
    pthread_mutex_unlock(&s->lock);
    return TX_OK;
}

void serve_complete_loading(serve_server *s)
{
    serve_loading *l = s->loading;
    const tx_status status = complete(s, l);
    if (status)
        snprintf(l->error, sizeof l->error, "%s", tx_error());
    pthread_mutex_lock(&s->lock);
    l->status = status;
    l->done = true;
    s->loading = NULL;
    pthread_cond_broadcast(&s->loaded);
    pthread_mutex_unlock(&s->lock);
}

/* ---- Requests ------------------------------------------------------------------------------------------------- */

/* Waits until the engine thread has loaded an adapter, which the list then owns. */
static tx_status wait_for(serve_server *s, serve_loading *l)
{
    pthread_mutex_lock(&s->lock);
    while (s->loading)
        pthread_cond_wait(&s->loaded, &s->lock);
    s->loading = l;
    pthread_cond_signal(&s->work);
    while (!l->done)
        pthread_cond_wait(&s->loaded, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return l->status ? tx_fail(l->status, "%s", l->error) : TX_OK;
}

static tx_status load_adapter(serve_call *c, const char *name, const char *folder, bool replaces)
{
    serve_loading l = {.replaces = replaces};
    TX_TRY(read_adapter(c->server, name, strlen(name), folder, &l.adapter));
    const tx_status status = wait_for(c->server, &l);
    if (status)
        destroy(l.adapter);
    return status;
}

/* The adapter loses its name. Its place is free after the calls that use it. */
static tx_status unload_adapter(serve_call *c, const char *name)
{
    serve_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    serve_adapter *a = find(s, name);
    if (a)
        a->gone = true;
    pthread_mutex_unlock(&s->lock);
    return a ? TX_OK : tx_fail(TX_NOT_FOUND, "lora_name %.200s: there is no such adapter", name);
}

tx_status serve_change_adapters(serve_call *c)
{
    const bool loads = c->kind == SERVE_LOAD;
    bool replaces = false;
    const char *name, *folder = NULL;
    char text[NAME_BYTES + 64];
    serve_bytes answer = {0};
    c->status = c->server->set->lora_updates ? 0 : 403;
    if (c->status)
        return tx_fail(TX_INVALID, "the server was started without --allow_runtime_lora_updating");
    TX_TRY(tx_json_get_string(c->body, "lora_name", &name));
    if (loads)
        TX_TRY(tx_json_get_string(c->body, "lora_path", &folder));
    TX_TRY(TX_JSON_OPTIONAL(bool, c->body, "load_inplace", &replaces));
    const tx_status status = loads ? load_adapter(c, name, folder, replaces) : unload_adapter(c, name);
    c->status = status == TX_NOT_FOUND ? 404 : 0;
    TX_TRY(status);
    const int size =
        snprintf(text, sizeof text, "Success: LoRA adapter '%s' %s successfully.", name, loads ? "added" : "removed");
    c->plain = true;
    TX_TRY(serve_append(&answer, text, (size_t)size));
    return serve_put(c, &answer);
}
