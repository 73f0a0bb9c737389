/* SPDX-License-Identifier: Apache-2.0
 * Serves the page of txplot on localhost, drawn again for every request. */
#include "tools/train/follow.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS 16

typedef struct served {
    tx_follow_draw *draw;
    const void *context;
} served;

/* The answer to a request: the page, or the reason why there is none yet, which the browser asks for again. */
static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *size, void **state)
{
    const served *s = context;
    const bool known = strcmp(method, "GET") == 0 && strcmp(url, "/") == 0;
    char *page = NULL;
    size_t length = 0;
    (void)version;
    (void)data;
    (void)size;
    (void)state;
    const tx_status status = known ? s->draw(s->context, &page, &length) : TX_NOT_FOUND;
    const char *text = known ? tx_error() : "not found: the page is /";
    struct MHD_Response *response =
        status ? MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY)
               : MHD_create_response_from_buffer(length, page, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(page);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type",
                            status ? "text/plain; charset=utf-8" : "text/html; charset=utf-8");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    if (known && status)
        MHD_add_response_header(response, "Refresh", "2");
    const unsigned code = !known ? MHD_HTTP_NOT_FOUND : status ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK;
    const enum MHD_Result queued = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return queued;
}

tx_status tx_follow(int64_t port, tx_follow_draw *draw, const void *context, void (*ready)(int64_t port))
{
    served s = {.draw = draw, .context = context};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    sigset_t ends;
    int caught;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* before the server's threads begin, which inherit it */
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)port, NULL, NULL, answer, &s,
                         MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                         MHD_OPTION_CONNECTION_TIMEOUT, 30u, MHD_OPTION_END);
    if (!daemon)
        return tx_fail(TX_IO, "--follow %" PRId64 ": cannot listen: give another port", port);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    ready(info ? info->port : port);
    sigwait(&ends, &caught);
    MHD_stop_daemon(daemon);
    return TX_OK;
}
