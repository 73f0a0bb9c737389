/* SPDX-License-Identifier: Apache-2.0
 * HTTP by libmicrohttpd: reads requests, and sends answers, events, errors, metrics and the page. One thread serves all
 * connections; a connection that waits for its answer is suspended. */
#include "tools/serve/txserve.h"

#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Seconds after which a connection is closed: without traffic, or since the last answer without complete headers; and
 * with an incomplete body, for which --max_body adds a second a MiB. */
#define IDLE_SECONDS 30
#define BODY_SECONDS 60

/* A connection. */
typedef struct serve_client {
    struct serve_client *next;
    int socket;
    double due; /* the end of the time for its headers or body; 0 while it is answered */
    bool cut;   /* the client sends no more, although its request is not complete */
} serve_client;

/* A request while it is read and answered. */
typedef struct exchange {
    serve_server *server;
    struct MHD_Connection *connection;
    const char *rest; /* of the path, for the * of the route */
    serve_kind kind;  /* of the route */
    serve_bytes body;
    serve_call *call;
    serve_client *client;
    serve_sender sender;
    serve_key *key; /* of the sender; or NULL */
    int status;
} exchange;

/* ---- Responses ------------------------------------------------------------------------------------------ */

static enum MHD_Result respond(exchange *e, int status, struct MHD_Response *response, const char *type)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (serve_is_shared(e->server, &e->sender)) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", e->sender.origin);
        MHD_add_response_header(response, "Vary", "Origin");
    }
    if (status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    char seconds[24];
    snprintf(seconds, sizeof seconds, "%" PRId64, e->call && e->call->retry ? e->call->retry : 1);
    if (status == 429 || status == 503)
        MHD_add_response_header(response, "Retry-After", seconds);
    e->status = status;
    const enum MHD_Result result = MHD_queue_response(e->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_bytes(exchange *e, int status, const char *type, const char *bytes, size_t size)
{
    return respond(e, status, MHD_create_response_from_buffer(size, (void *)(uintptr_t)bytes, MHD_RESPMEM_MUST_COPY),
                   type);
}

/* Frees the object. NULL is a failed allocation, which closes the connection. */
static enum MHD_Result send_json(exchange *e, int status, tx_json *object)
{
    char *text = tx_json_text(object, TX_JSON_LINE);
    const enum MHD_Result result = text ? send_bytes(e, status, "application/json", text, strlen(text)) : MHD_NO;
    tx_json_free(object);
    free(text);
    return result;
}

static enum MHD_Result send_error(exchange *e, int status, const char *message)
{
    return send_json(e, status, serve_error(status, message));
}

/* ---- Streams -------------------------------------------------------------------------------------------- */

static void wake(serve_call *call)
{
    if (!call->connection || !call->waits || (!call->flows && call->left))
        return;
    call->waits = false;
    MHD_resume_connection(call->connection);
}

/* A client that has closed its connection looks like one that has only closed its sending half, until it is sent
 * something: the kernel then resets the connection. An answer that is not a stream begins with a space for this. */
static bool has_left(serve_call *call)
{
    char byte;
    if (!call->connection)
        return true;
    const ssize_t size = recv(call->client, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (size == 0 && !call->flows && !serve_append(&call->out, " ", 1)) {
        call->flows = true;
        wake(call);
    }
    return size < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
}

static void suspend(serve_call *c)
{
    c->waits = true;
    MHD_suspend_connection(c->connection);
}

/* Sends events as they are made. */
static ssize_t read_events(void *context, uint64_t position, char *to, size_t room)
{
    serve_call *c = context;
    (void)position;
    pthread_mutex_lock(&c->server->lock);
    size_t size = c->out.size - c->sent;
    size = size < room ? size : room;
    if (size)
        memcpy(to, c->out.data + c->sent, size);
    c->sent += size;
    if (c->sent == c->out.size)
        c->sent = c->out.size = 0;
    ssize_t result = (ssize_t)size;
    if (!size && !c->left)
        result = MHD_CONTENT_READER_END_OF_STREAM;
    else if (!size)
        suspend(c);
    pthread_mutex_unlock(&c->server->lock);
    return result;
}

/* ---- Completions ---------------------------------------------------------------------------------------- */

/* Answers a call that has ended or whose output flows. */
static enum MHD_Result send_answer(exchange *e)
{
    serve_call *c = e->call;
    pthread_mutex_lock(&c->server->lock);
    const bool flows = c->flows;
    pthread_mutex_unlock(&c->server->lock);
    if (!flows && c->status >= 400)
        return send_error(e, c->status, c->error);
    const char *type = c->stream ? "text/event-stream" : c->plain ? "text/plain; charset=utf-8" : "application/json";
    struct MHD_Response *response =
        flows ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_events, c, NULL)
              : MHD_create_response_from_buffer(c->out.size, c->out.data, MHD_RESPMEM_MUST_FREE);
    if (!flows && response)
        c->out = (serve_bytes){0};
    if (flows && !c->stream && response) /* without chunks; the client can send no other request */
        MHD_set_response_options(response, MHD_RF_HTTP_VERSION_1_0_ONLY, MHD_RO_END);
    if (c->stream && response)
        MHD_add_response_header(response, "Cache-Control", "no-cache");
    return respond(e, 200, response, type);
}

static enum MHD_Result post_call(exchange *e)
{
    serve_server *s = e->server;
#define X(name, id, tasks) tasks,
    static const int tasks[] = {SERVE_KINDS(X)};
#undef X
    if (!(tasks[e->kind] & 1 << s->set->task))
        return send_error(e, 400, "the server runs another --task: this path does not fit its model");
    pthread_mutex_lock(&s->lock);
    const bool drains = s->drains, room = s->preparing < s->set->max_queue;
    const bool enters = !drains && room && serve_enter(e->key);
    serve_call *c = enters ? serve_submit(s, e->kind, e->key, &e->body) : NULL;
    e->call = c;
    if (c) {
        c->connection = e->connection;
        c->client = e->client->socket;
        suspend(c);
    }
    pthread_mutex_unlock(&s->lock);
    if (c)
        return MHD_YES;
    return drains    ? send_error(e, 503, "the server is shutting down")
           : !room   ? send_error(e, 429, "the queue is full: try again later")
           : !enters ? send_error(e, 429, tx_error())
                     : send_error(e, 500, "out of memory");
}

/* ---- Everything else ------------------------------------------------------------------------------------ */

static enum MHD_Result get_page(exchange *e)
{
    const char *page = (const char *)(e->server->set->task == SERVE_GENERATE ? serve_page : serve_encoder_page);
    return send_bytes(e, 200, "text/html; charset=utf-8", page, strlen(page));
}

static enum MHD_Result get_health(exchange *e)
{
    const bool drains = e->server->drains;
    return send_json(e, drains ? 503 : 200, tx_json_pack("{s:s}", "status", drains ? "draining" : "ok"));
}

static enum MHD_Result get_models(exchange *e)
{
    tx_json *found = *e->rest ? serve_find_model(e->server, e->rest) : serve_list_models(e->server);
    if (found || !*e->rest)
        return send_json(e, 200, found);
    tx_fail(TX_NOT_FOUND, "the model %.200s does not exist", e->rest);
    return send_error(e, 404, tx_error());
}

static enum MHD_Result get_metrics(exchange *e)
{
    serve_server *s = e->server;
    char text[4096];
    pthread_mutex_lock(&s->lock);
    const serve_counters c = s->counters;
    const struct {
        const char *type, *name, *help;
        double value;
    } rows[] = {
        {"gauge", "requests_running", "Texts in slots.", (double)s->running},
        {"gauge", "requests_waiting", "Texts in the queue.", (double)s->queued},
        {"gauge", "requests_open", "Requests that are not answered in full.", (double)s->open},
        {"gauge", "slots", "Slots of the batch.", (double)s->set->slots},
        {"counter", "texts_total", "Texts that ended.", (double)c.texts},
        {"counter", "texts_cancelled_total", "Texts that were cancelled.", (double)c.cancelled},
        {"counter", "prompt_tokens_total", "Tokens of prompts.", (double)c.prompt_tokens},
        {"counter", "prompt_tokens_cached_total", "Tokens of prompts whose caches were there.", (double)c.cached},
        {"counter", "generation_tokens_total", "New tokens.", (double)c.tokens},
        {"counter", "request_seconds_sum", "Seconds from arrival to the end of requests.", c.seconds},
        {"counter", "request_seconds_count", "Requests in txserve_request_seconds_sum.", (double)c.calls},
        {"counter", "first_token_seconds_sum", "Seconds from arrival to the first token.", c.first_seconds},
        {"counter", "first_token_seconds_count", "Requests in txserve_first_token_seconds_sum.", (double)c.firsts},
    };
    pthread_mutex_unlock(&s->lock);
    size_t size = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        size += (size_t)snprintf(text + size, sizeof text - size,
                                 "# HELP txserve_%s %s\n# TYPE txserve_%s %s\ntxserve_%s %.17g\n", rows[i].name,
                                 rows[i].help, rows[i].name, rows[i].type, rows[i].name, rows[i].value);
    size += (size_t)snprintf(text + size, sizeof text - size,
                             "# HELP txserve_responses_total Responses by status.\n"
                             "# TYPE txserve_responses_total counter\n");
    for (int i = 2; i < 6; i++)
        size += (size_t)snprintf(text + size, sizeof text - size,
                                 "txserve_responses_total{status=\"%dxx\"} %" PRId64 "\n", i, c.status[i]);
    return send_bytes(e, 200, "text/plain; version=0.0.4", text, size);
}

/* ---- Routes --------------------------------------------------------------------------------------------- */

/* A path that ends with * matches any rest. */
static const struct {
    const char *method, *path;
    bool secret; /* needs an API key, if the server has any */
    enum MHD_Result (*answer)(exchange *e);
    serve_kind kind; /* of post_call */
} routes[] = {
    {"GET", "/", false, get_page, 0},
    {"GET", "/health", false, get_health, 0},
    {"GET", "/metrics", true, get_metrics, 0},
    {"GET", "/v1/models", true, get_models, 0},
    {"POST", "/v1/completions", true, post_call, SERVE_COMPLETION},
    {"POST", "/v1/chat/completions", true, post_call, SERVE_CHAT},
    {"POST", "/v1/responses", true, post_call, SERVE_RESPONSE},
    {"POST", "/v1/embeddings", true, post_call, SERVE_EMBED},
    {"POST", "/v1/classify", true, post_call, SERVE_CLASSIFY},
    {"POST", "/v1/rerank", true, post_call, SERVE_RERANK},
    {"POST", "/rerank", true, post_call, SERVE_RERANK},
    {"POST", "/tokenize", true, post_call, SERVE_TOKENIZE},
    {"POST", "/detokenize", true, post_call, SERVE_DETOKENIZE},
    {"POST", "/v1/load_lora_adapter", true, post_call, SERVE_LOAD},
    {"POST", "/v1/unload_lora_adapter", true, post_call, SERVE_UNLOAD},
    {"GET", "/v1/models/*", true, get_models, 0},
};
enum { ROUTES = sizeof routes / sizeof routes[0] };

static bool matches(const char *path, const char *url, const char **rest)
{
    const size_t size = strlen(path);
    const bool open = path[size - 1] == '*';
    *rest = open ? url + (strlen(url) < size - 1 ? strlen(url) : size - 1) : "";
    return open ? strncmp(path, url, size - 1) == 0 : strcmp(path, url) == 0;
}

/* Answers OPTIONS: a browser asks whether a page of another origin may send a request. */
static enum MHD_Result send_options(exchange *e)
{
    const char *headers = MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, "Access-Control-Request-Headers");
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (response)
        MHD_add_response_header(response, "Allow", "GET, HEAD, POST, OPTIONS");
    if (response && serve_is_shared(e->server, &e->sender)) {
        MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
        MHD_add_response_header(response, "Access-Control-Allow-Headers", headers ? headers : "*");
        MHD_add_response_header(response, "Access-Control-Allow-Private-Network", "true");
        MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    }
    return respond(e, 204, response, "text/plain");
}

/* Answers a complete request. */
static enum MHD_Result dispatch(exchange *e, const char *url, const char *method)
{
    bool known = false;
    if (strcmp(method, "OPTIONS") == 0)
        return send_options(e);
    method = strcmp(method, "HEAD") == 0 ? "GET" : method; /* libmicrohttpd leaves the body out */
    for (int i = 0; i < ROUTES; i++) {
        if (!matches(routes[i].path, url, &e->rest))
            continue;
        known = true;
        if (strcmp(method, routes[i].method) != 0)
            continue;
        if (routes[i].secret && !serve_find_key(e->server, &e->sender, &e->key))
            return send_error(e, 401, "the API key is missing or wrong: send Authorization: Bearer KEY");
        e->kind = routes[i].kind;
        return routes[i].answer(e);
    }
    return known ? send_error(e, 405, "this path has another method")
                 : send_error(e, 404, "unknown path: see docs/guides/serve.md");
}

/* ---- Connections ---------------------------------------------------------------------------------------- */

/* Sets the time after which a connection is closed unless it makes progress; 0 for none. */
static void set_due(serve_server *s, serve_client *client, double seconds)
{
    pthread_mutex_lock(&s->client_lock);
    client->due = seconds > 0.0 ? tx_now() + seconds : 0.0;
    pthread_mutex_unlock(&s->client_lock);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    serve_server *s = context;
    serve_client *client = code == MHD_CONNECTION_NOTIFY_STARTED ? calloc(1, sizeof *client) : *state;
    pthread_mutex_lock(&s->client_lock);
    if (client && code == MHD_CONNECTION_NOTIFY_STARTED) {
        client->socket = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        client->due = tx_now() + IDLE_SECONDS;
        client->next = s->clients;
        s->clients = client;
        *state = client;
    } else if (client) {
        serve_client **at = &s->clients;
        while (*at != client)
            at = &(*at)->next;
        *at = client->next;
        free(client);
    }
    pthread_mutex_unlock(&s->client_lock);
}

void serve_sweep(serve_server *s)
{
    const double now = tx_now();
    pthread_mutex_lock(&s->client_lock);
    for (serve_client *client = s->clients; client; client = client->next) {
        char byte;
        const bool before = client->cut;
        client->cut = client->due > 0.0 && recv(client->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
        if ((client->due > 0.0 && now > client->due) || (client->cut && before)) /* twice: it may be read just now */
            shutdown(client->socket, SHUT_RDWR);
    }
    pthread_mutex_unlock(&s->client_lock);
}

/* Answers before the body arrives if the sender or the size is refused. */
static enum MHD_Result begin(struct MHD_Connection *connection, serve_server *s, const char *method, void **state)
{
#define HEADER(name) MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name)
    const char *length = HEADER("Content-Length");
    exchange *e = calloc(1, sizeof *e);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    serve_client *client = info ? info->socket_context : NULL;
    if (!e || !client) {
        free(e);
        return MHD_NO;
    }
    *e = (exchange){.server = s,
                    .connection = connection,
                    .client = client,
                    .sender = {HEADER("Host"), HEADER("Origin"), HEADER("Content-Type"), HEADER("Authorization")}};
#undef HEADER
    *state = e;
    set_due(s, client, BODY_SECONDS + (double)s->set->max_body);
    const int status = serve_check_sender(s, &e->sender, strcmp(method, "POST") == 0);
    if (status)
        return send_error(e, status, tx_error());
    if (!length || !(strtod(length, NULL) > (double)(s->set->max_body << 20)))
        return MHD_YES;
    tx_fail(TX_INVALID, "the body is larger than %" PRId64 " MiB", s->set->max_body);
    return send_error(e, 413, tx_error());
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *bytes, size_t *size, void **state)
{
    serve_server *s = context;
    exchange *e = *state;
    (void)version;
    if (!e)
        return begin(connection, s, method, state);
    if (*size) {
        if (e->body.size + *size > (size_t)s->set->max_body << 20 || serve_append(&e->body, bytes, *size))
            return MHD_NO; /* closes the connection */
        *size = 0;
        return MHD_YES;
    }
    set_due(s, e->client, 0.0);
    return e->call ? send_answer(e) : dispatch(e, url, method);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    serve_server *s = context;
    exchange *e = *state;
    (void)connection;
    (void)code;
    if (!e)
        return;
    set_due(s, e->client, IDLE_SECONDS);
    if (e->status)
        s->counters.status[e->status / 100]++;
    if (e->call) {
        pthread_mutex_lock(&s->lock);
        e->call->connection = NULL;
        serve_release(e->call);
        pthread_mutex_unlock(&s->lock);
    }
    free(e->body.data);
    free(e);
    *state = NULL;
}

/* ---- The daemon ----------------------------------------------------------------------------------------- */

tx_status serve_start(serve_server *s)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char port[16];
    s->wake = wake;
    s->left = has_left;
    snprintf(port, sizeof port, "%" PRId64, s->set->port);
    const int error = getaddrinfo(s->set->host, port, &hints, &found);
    if (error)
        return tx_fail(TX_INVALID, "--host %s: %s", s->set->host, gai_strerror(error));
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME;
    flags |= found->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0u;
    s->daemon =
        MHD_start_daemon(flags, (uint16_t)s->set->port, NULL, NULL, on_request, s, MHD_OPTION_SOCK_ADDR, found->ai_addr,
                         MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->set->max_connections,
                         MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)(s->set->max_connections + 1) / 2,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    freeaddrinfo(found);
    if (!s->daemon)
        return tx_fail(TX_IO, "cannot listen on %s:%" PRId64 ": choose another --port", s->set->host, s->set->port);
    return TX_OK;
}

void serve_stop(serve_server *server)
{
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    server->daemon = NULL;
}
