/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of txserve. Data flows like this:
 *
 *     http.c (one thread)  reads a request ──▶ worker.c (threads) has request.c parse, render and tokenise it to a call
 *                           with texts, and queues them
 *     engine.c (one thread) puts queued texts into the batch (tx_batch.h), whose callbacks in answer.c append to the
 *                           call's output and wake its connection ──▶ http.c sends the output
 *
 * One lock protects the lists, the counters and the output of all calls. Nobody computes with it, but on a busy machine
 * its holder may wait for a core. Connections therefore have a lock of their own, and /health needs no other. */
#ifndef TX_TOOLS_TXSERVE_H
#define TX_TOOLS_TXSERVE_H

#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tools/cli/ranks.h"
#include "tx_batch.h"
#include "tx_chat.h"
#include "tx_classify.h"
#include "tx_file.h"
#include "tx_grammar.h"

#include <pthread.h>
#include <stdatomic.h>

/* The largest numbers of stop strings, of their bytes, of texts, of inputs of encoders, and of biases, of a request;
 * the number of worker threads. */
enum {
    SERVE_STOPS = 17,
    SERVE_STOP_BYTES = 512,
    SERVE_TEXTS = 128,
    SERVE_INPUTS = 2048,
    SERVE_BIASES = 1024,
    SERVE_WORKERS = 2
};

/* The kinds of models, as --task names them. */
typedef enum serve_task { SERVE_GENERATE, SERVE_EMBEDDING, SERVE_CLASSIFICATION } serve_task;

typedef struct serve_settings {
    tx_lm_options lm; /* open_model sets the members without an option */
    const char *host, *api_key_file, *served_model_name, *chat_template, *allowed_hosts, *cors, *lora_modules;
    tx_words lora;            /* NAME=DIR */
    bool lora_updates;        /* clients may load and unload adapters */
    int32_t task;             /* a serve_task */
    int32_t reasoning_format; /* not 0 if thoughts stay in the content */
    int64_t port, slots, max_length, max_queue, max_body, max_connections, timeout, max_loras, max_lora_rank;
} serve_settings;

extern const tx_cli serve_program;

/* Growing bytes; begin with {0}. */
typedef struct serve_bytes {
    char *data;
    size_t size, room;
} serve_bytes;

/* The kinds of calls: X(NAME, begin of ids, models that answer it as bits of serve_task). /tokenize has three forms. */
#define SERVE_KINDS(X)                                                    \
    X(COMPLETION, "cmpl", 1 << SERVE_GENERATE)                            \
    X(CHAT, "chatcmpl", 1 << SERVE_GENERATE)                              \
    X(RESPONSE, "resp", 1 << SERVE_GENERATE)                              \
    X(EMBED, "embd", 1 << SERVE_EMBEDDING)                                \
    X(CLASSIFY, "classify", 1 << SERVE_CLASSIFICATION)                    \
    X(RERANK, "rerank", 1 << SERVE_EMBEDDING | 1 << SERVE_CLASSIFICATION) \
    X(TOKENIZE, "tokenize", 1 << SERVE_GENERATE)                          \
    X(TOKENIZE_CONTENT, "tokenize", 1 << SERVE_GENERATE)                  \
    X(TOKENIZE_CHAT, "tokenize", 1 << SERVE_GENERATE)                     \
    X(DETOKENIZE, "detokenize", 1 << SERVE_GENERATE)                      \
    X(LOAD, "load", 1 << SERVE_GENERATE)                                  \
    X(UNLOAD, "unload", 1 << SERVE_GENERATE)

typedef enum serve_kind {
#define X(name, id, tasks) SERVE_##name,
    SERVE_KINDS(X)
#undef X
} serve_kind;

typedef struct serve_call serve_call;
typedef struct serve_text serve_text;
typedef tx_status (*serve_writer)(serve_text *text);
typedef struct serve_loading serve_loading; /* adapters.c */
typedef struct serve_key serve_key;         /* keys.c */

/* An adapter of the model. */
typedef struct serve_adapter {
    struct serve_adapter *next;
    char *name;
    tx_adapter *content;     /* until it is loaded */
    int64_t number, created; /* in the batch; time of the reading */
    int64_t calls;           /* that use it */
    bool gone;               /* it has lost its name, and is freed after these calls */
} serve_adapter;

/* A text of a call: choice `index` of its answer. */
struct serve_text {
    serve_call *call;
    struct serve_text *next; /* in the queue */
    int64_t index;
    int32_t *ids; /* the prompt's */
    int64_t count;
    uint64_t sample;
    serve_bytes answer;         /* bytes of the prompt, if it is echoed, and of the new tokens */
    size_t begin, shown, upto;  /* in `answer`: the new tokens; bytes that are sent; and that can be sent */
    size_t clean[SERVE_STOPS];  /* in `answer`, for each stop string: it begins nowhere before */
    int64_t generated, letters; /* new tokens; characters before the next token */
    tx_json *logprobs;          /* not yet sent; or NULL */
    const char *finish;         /* the reason, or NULL while it runs */
    bool greeted;               /* the chunk with the role is sent */
    /* In a chat: divides `answer` up to `shown`, and the special tokens that it lacks. */
    tx_chat_parser *parser;
    serve_writer write;
    struct serve_special {
        size_t at; /* in `answer` */
        int32_t id;
    } * special;
    size_t specials, special_room, special_shown;
    serve_bytes part[TX_CHAT_ARGUMENTS + 1]; /* of the message, by tx_chat_piece_kind, not yet sent */
    tx_json *calls;                          /* not yet sent; or NULL */
    int64_t call_count;
    int64_t parsed; /* new tokens up to `shown` */
    bool done;      /* the request wants no more than one call */
    bool prefixed;  /* the parser has the call's prefix */
};

/* The answer of /v1/responses while it grows. */
typedef struct serve_response {
    tx_json *output;          /* the items; the last one is open unless `kind` is 0 */
    int kind;                 /* of the open item */
    serve_bytes text;         /* of the open item */
    int64_t events, thoughts; /* events that are sent; tokens of thoughts */
} serve_response;

/* A request that is being answered. The connection, the worker and each text that has not ended own it together. */
struct serve_call {
    struct serve_server *server;
    serve_call *next; /* in a list of the workers */
    serve_kind kind;
    serve_bytes raw; /* the body until it is parsed */
    tx_json *body;   /* owns the stop strings */
    tx_json *asked;  /* the body of /v1/responses without its input, if `body` is its translation; or NULL */
    serve_response response;
    tx_encoder *encoder;    /* of the worker */
    const char *model;      /* its name in the request; owned by `body` or the server */
    serve_adapter *adapter; /* of this name; or NULL */
    serve_key *key;         /* of the sender; NULL if the server has none */
    int64_t priority;       /* texts with a lower one come first */
    int64_t retry;          /* seconds after which a refused request may be sent again; 0 if that is unknown */
    uint64_t number;
    char id[48];
    int64_t created;
    double begun, first, deadline; /* seconds: arrival; first token or 0; end of its time */
    bool stream, usage, echo, logprobs;
    int32_t top, count, left, owners; /* texts; those that have not ended */
    const char *stop[SERVE_STOPS];
    tx_generation how;
    tx_logit_bias *bias;        /* of `how` */
    tx_grammar *grammar;        /* of `how`; or NULL */
    tx_breakers *breakers;      /* of `how`; or NULL */
    const tx_json *tools;       /* in `body`; NULL leaves calls in the content */
    bool one_call;              /* parallel_tool_calls is false */
    const char *required;       /* a call of this tool is required; "" for any tool; NULL for none */
    char *prefix;               /* begins the answer; or NULL */
    size_t prefix_ids;          /* its tokens, which end the prompt */
    serve_text *text;           /* the call of an encoder is queued as one text */
    tx_text_input *input;       /* of an encoder */
    int64_t inputs, dimensions; /* numbers of an embedding; 0 for all */
    bool base64;                /* embeddings as base64 */
    int64_t most;               /* documents in the answer of a rerank */
    bool documents;             /* with their texts */
    int64_t prompt_tokens, tokens;
    int64_t cached;   /* of the prompts: tokens that were not computed again */
    void *connection; /* NULL once the client has left */
    int client;       /* its socket */
    bool waits;       /* the connection is suspended */
    bool flows;       /* the output is sent as it grows: a stream, or the client may have left */
    serve_bytes out;  /* an answer, or events that are not yet sent from `sent` on */
    size_t sent;
    bool plain; /* the answer is a text, not JSON */
    int status; /* HTTP's; 0 while there is none */
    char error[512];
};

/* Counters, as /metrics reports them. */
typedef struct serve_counters {
    int64_t prompt_tokens, cached, tokens, texts, cancelled;
    int64_t status[6]; /* responses by hundreds of the status; only of the HTTP thread */
    double seconds, first_seconds;
    int64_t calls, firsts; /* calls in `seconds` and in `first_seconds` */
} serve_counters;

typedef struct serve_server {
    const serve_settings *set;
    tx_alive *alive; /* progress of loading; silent while the server serves */
    tx_lm *lm;
    tx_batch *batch;
    tx_embedder *embedder;     /* instead of `lm` and its parts with --task embed, */
    tx_classifier *classifier; /* or with --task classify */
    const tx_tokenizer *tokenizer;
    tx_vocabulary *vocabulary; /* its tokens, for grammars */
    tx_chat *chat;             /* NULL if the model has no template */
    char *name;
    int64_t context, created;
    serve_key *keys; /* [key_count]: API keys */
    char *key_text;  /* their file */
    int64_t key_count;
    pthread_mutex_t lock;
    pthread_cond_t work;    /* there is work for the engine, or the end */
    pthread_cond_t arrived; /* the same for the workers */
    struct serve_worker {
        struct serve_server *server;
        pthread_t thread;
        tx_encoder *encoder;
    } worker[SERVE_WORKERS];
    serve_call *fresh, **fresh_tail; /* not yet parsed */
    serve_call *dead;                /* to be freed */
    int64_t preparing;               /* calls that are fresh or being parsed */
    bool closes;                     /* the workers end */
    pthread_mutex_t client_lock;     /* of the next one */
    struct serve_client *clients;    /* the connections */
    serve_text *queue, *last;        /* ordered by priority; the last one, unless it is empty */
    int64_t queued, running;         /* texts */
    int64_t open;                    /* calls that exist */
    uint64_t serial;
    atomic_bool drains; /* refuse new requests, and end the engine thread after the accepted ones */
    char failure[512];  /* of ranks that divide the model: why the server ends; else "" */
    serve_adapter *adapters;
    serve_loading *loading; /* that the engine thread completes; or NULL */
    pthread_cond_t loaded;  /* it has completed one */
    serve_counters counters;
    void *daemon;
    /* Set by serve_start, called with the lock: wakes the connection of a call; returns true if its client has left. */
    void (*wake)(serve_call *call);
    bool (*left)(serve_call *call);
    void (*end)(void); /* ends the server as a signal does; any thread may call it */
} serve_server;

/* ---- request.c: JSON to calls --------------------------------------------------------------------------- */

/* Parses the body of a call. Returns 0 or the HTTP status of an error, whose message is tx_error(). */
int serve_parse(serve_call *call);

/* ---- conversation.c: messages to prompts ------------------------------------------------------------------ */

/* Renders the messages of a body, with its tools and variables, and appends the ids of the prompt. The caller frees
 * ids->id. */
tx_status serve_read_conversation(serve_call *call, tx_ids *ids);

/* ---- responses.c, events.c: /v1/responses as chats ------------------------------------------------------- */

/* Replaces the body of a call by that of a chat, and its kind. TX_INVALID, TX_FORMAT or TX_NOT_FOUND if it is invalid.
 */
tx_status serve_read_response(serve_call *call);
/* Adds a choice of the chat, or its unsent part if the call streams, to the items; NULL completes the answer. */
tx_status serve_write_response(serve_call *call, const tx_json *choice);

/* ---- tokens.c: texts as ids ------------------------------------------------------------------------------ */

/* Appends the ids of an array; each must be less than `limit`. `what` starts the messages. The caller frees ids->id. */
tx_status serve_read_ids(const tx_json *list, const char *what, int64_t limit, tx_ids *ids);
/* Write the answer of a call to its output. TX_INVALID, or TX_FORMAT, if the body is invalid. */
tx_status serve_tokenize(serve_call *call);
tx_status serve_detokenize(serve_call *call);

/* ---- grammar.c: constraints of texts -------------------------------------------------------------------- */

/* Reads the grammar or schema of a call, and compiles it into its settings. */
tx_status serve_read_grammar(serve_call *call);

/* ---- worker.c: threads that parse calls ------------------------------------------------------------------ */

/* Makes a call of a body, which it takes, and queues it for the workers, with the lock. The connection owns it. The
 * key has begun a request. Returns NULL if memory runs out. */
serve_call *serve_submit(serve_server *server, serve_kind kind, serve_key *key, serve_bytes *body);
/* Gives up a share in a call; after the last owner a worker frees it. Call it with the lock. */
void serve_release(serve_call *call);
tx_status serve_start_workers(serve_server *server);
void serve_stop_workers(serve_server *server);

/* ---- adapters.c: adapters of the model -------------------------------------------------------------------- */

/* Read the adapters of --lora before the batch is created, and load them after. */
tx_status serve_read_adapters(serve_server *server);
tx_status serve_load_adapters(serve_server *server);
void serve_free_adapters(serve_server *server);
/* Sets the model of a call by its name, which must live as long. TX_NOT_FOUND if there is none. */
tx_status serve_use_model(serve_call *call, const char *name);
/* The call has its answer. Call it with the lock. */
void serve_leave_model(serve_call *call);
/* The answers of /v1/models. NULL if memory runs out, or if there is no such model. */
tx_json *serve_list_models(serve_server *server);
tx_json *serve_find_model(serve_server *server, const char *name);
/* Loads or unloads an adapter, and writes the answer of a call. TX_NOT_FOUND, TX_INVALID, TX_FORMAT or TX_UNSUPPORTED
 * if the request is wrong. */
tx_status serve_change_adapters(serve_call *call);
/* Completes server->loading; only for the engine thread. */
void serve_complete_loading(serve_server *server);

/* ---- engine.c: the batch ------------------------------------------------------------------- */

/* Computes the queue's texts until the server drains and has none. Called by the thread that has loaded the model. */
void serve_engine(serve_server *s);

/* ---- answer.c: tokens to JSON, without the lock ---------------------------------------------------------- */

/* Fails a call with HTTP's status unless it has failed before. */
void serve_fail(serve_call *call, int status, const char *message);
/* Adds a token to a text, and sends events of a stream. False ends the text. */
bool serve_add_token(serve_text *text, const tx_batch_token *token);
/* Completes the output of a text that ends, and of a call with its last text. */
void serve_end_text(serve_text *text, tx_batch_end end);
/* An error as OpenAI's JSON, and the numbers of tokens. The caller frees them; NULL if memory runs out. */
tx_json *serve_error(int status, const char *message);
tx_json *serve_usage(const serve_call *call);

/* ---- output.c: bytes of answers --------------------------------------------------------------------------- */

tx_status serve_append(serve_bytes *to, const char *bytes, size_t size);
/* Moves bytes to the output of a call. */
tx_status serve_put(serve_call *call, serve_bytes *bytes);
/* Appends an answer or an event to the output, and frees the object. NULL is an object that could not be made. */
tx_status serve_write(serve_call *call, tx_json *object);

/* ---- message.c: the messages of chats --------------------------------------------------------------------- */

/* Prepares a text whose prompt is known, and frees what belongs to its message. */
tx_status serve_begin_message(serve_text *text);
void serve_free_message(serve_text *text);
/* Notes a special token, which is no part of the answer. */
tx_status serve_add_special(serve_text *text, int32_t id);
/* Parses the answer up to byte `upto`. In a stream `write` sends the unsent part before a call begins. */
tx_status serve_parse_answer(serve_text *text, size_t upto, serve_writer write);
/* Parses the rest of an answer, whose end is at `upto`, and sets the reason. */
tx_status serve_end_message(serve_text *text, size_t upto, tx_batch_end end, serve_writer write);
/* Whether there is an unsent part. */
bool serve_has_part(const serve_text *text);
/* Returns the message, or its unsent part if the call streams. NULL if memory runs out. */
tx_json *serve_make_message(serve_text *text);

/* ---- encode.c: encoders ---------------------------------------------------------------------------------- */

/* Reads the inputs of a call of an encoder. TX_INVALID, TX_FORMAT or TX_NOT_FOUND if they are invalid; TX_UNSUPPORTED
 * if the model cannot rank. */
tx_status serve_read_inputs(serve_call *call);
/* Computes a call of an encoder and writes its answer. TX_INVALID if an input is invalid. */
tx_status serve_encode(serve_call *call);
/* Returns a list of the names of a classifier's labels, or NULL without memory. */
tx_json *serve_labels(const tx_classifier *classifier);

/* ---- guard.c: who may use the server --------------------------------------------------------------------- */

/* The headers of a request that describe its sender; NULL for a missing one. */
typedef struct serve_sender {
    const char *host, *origin, *type, *authorization;
} serve_sender;

/* Checks Host, Origin, and with `posts` Content-Type. Returns 0 or the HTTP status of an error, whose message is
 * tx_error(). */
int serve_check_sender(const serve_server *server, const serve_sender *sender, bool posts);
/* Returns true if --cors has the sender's origin. */
bool serve_is_shared(const serve_server *server, const serve_sender *sender);

/* ---- keys.c: API keys and their limits ------------------------------------------------------------------- */

/* Reads a file of keys, one a line with its limits. TX_INVALID names the line. */
tx_status serve_read_keys(serve_server *server, const char *path);
void serve_free_keys(serve_server *server);
/* Finds the sender's key. Returns false if the server has keys, but not this one. `*key` is NULL without keys. */
bool serve_find_key(const serve_server *server, const serve_sender *sender, serve_key **key);
/* The next functions need the lock; `key` may be NULL, which has no limits. */

/* Begins a request. Returns false if the key has as many at once as it may; the message is tx_error(). */
bool serve_enter(serve_key *key);
/* Ends it. */
void serve_leave(serve_key *key);
/* Counts tokens of a prompt or an answer. */
void serve_count_tokens(serve_key *key, int64_t tokens);
/* Seconds after which a prompt of so many tokens fits into the last minute: 0 if it does now. A prompt that is larger
 * than the limit fits if there are no others. */
int64_t serve_seconds_until(const serve_key *key, int64_t tokens);

/* ---- http.c --------------------------------------------------------------------------------------------- */

tx_status serve_start(serve_server *server);
void serve_stop(serve_server *server);
/* Closes connections whose requests take too long to arrive. Call it once a second. */
void serve_sweep(serve_server *server);
/* The pages at /, for a model that generates and for an encoder. */
extern const unsigned char serve_page[], serve_encoder_page[];

#endif
