/* SPDX-License-Identifier: Apache-2.0
 * The output of calls: growing bytes, which http.c sends. */
#include "tools/serve/txserve.h"

#include <stdlib.h>
#include <string.h>

tx_status serve_append(serve_bytes *to, const char *bytes, size_t size)
{
    TX_TRY(tx_array_reserve(&to->data, &to->room, to->size + size + 1, 1, "bytes of an answer"));
    if (size)
        memcpy(to->data + to->size, bytes, size);
    to->size += size;
    to->data[to->size] = 0;
    return TX_OK;
}

tx_status serve_put(serve_call *c, serve_bytes *created)
{
    pthread_mutex_lock(&c->server->lock);
    const serve_bytes old = c->out;
    const tx_status status = old.size ? serve_append(&c->out, created->data, created->size) : TX_OK;
    if (!old.size) {
        c->out = *created;
        *created = old;
    }
    if (c->flows)
        c->server->wake(c);
    pthread_mutex_unlock(&c->server->lock);
    free(created->data);
    return status;
}

tx_status serve_write(serve_call *c, tx_json *object)
{
    serve_bytes result = {0};
    const char *type;
    char *text = object ? tx_json_text(object, TX_JSON_LINE) : NULL;
    tx_status status = text ? TX_OK : TX_MEMORY;
    if (c->stream && c->asked && !status && !tx_json_get_string(object, "type", &type)) { /* responses name events */
        status = serve_append(&result, "event: ", 7);
        TX_THEN(status, serve_append(&result, type, strlen(type)));
        TX_THEN(status, serve_append(&result, "\n", 1));
    }
    tx_json_free(object);
    if (c->stream)
        TX_THEN(status, serve_append(&result, "data: ", 6));
    TX_THEN(status, serve_append(&result, text, strlen(text)));
    TX_THEN(status, serve_append(&result, "\n\n", c->stream ? 2 : 1));
    free(text);
    if (!status)
        return serve_put(c, &result);
    free(result.data);
    return status;
}
