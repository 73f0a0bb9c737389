/* SPDX-License-Identifier: Apache-2.0
 * Decides who may use the server. A browser sends requests in the name of any page that its user opens; the headers
 * Host and Origin, which no page can change, tell such requests apart. */
#include "tools/serve/txserve.h"

#include <string.h>
#include <strings.h>

/* Returns true if a list with commas has a word, or "*". */
static bool is_listed(const char *list, const char *word, size_t size)
{
    for (size_t length; list && *list; list += length + (list[length] == ',')) {
        length = strcspn(list, ",");
        const char *item = list + strspn(list, " ");
        const size_t rest = length - (size_t)(item - list);
        if ((rest == 1 && *item == '*') || (rest == size && strncasecmp(item, word, size) == 0))
            return true;
    }
    return false;
}

/* A page of another origin can reach the server under a name that its owner resolves to this host (DNS rebinding). Such
 * a name is public: it has a dot, and is no address. */
static bool is_own_host(const serve_server *s, const char *host)
{
    const size_t size = strcspn(host, ":");
    const bool local = size > 10 && strncasecmp(host + size - 10, ".localhost", 10) == 0;
    return *host == '[' || local || !memchr(host, '.', size) || strspn(host, "0123456789.") == size ||
           is_listed(s->set->host, host, size) || is_listed(s->set->allowed_hosts, host, size);
}

/* Returns true for a page of the server itself. */
static bool is_own_page(const serve_sender *sender)
{
    const char *colon = strstr(sender->origin, "://");
    return colon && sender->host && strcasecmp(colon + 3, sender->host) == 0;
}

bool serve_is_shared(const serve_server *s, const serve_sender *sender)
{
    return sender->origin && is_listed(s->set->cors, sender->origin, strlen(sender->origin));
}

int serve_check_sender(const serve_server *s, const serve_sender *sender, bool posts)
{
    static const char json[] = "application/json", form[] = "application/x-www-form-urlencoded";
    if (sender->host && !is_own_host(s, sender->host)) {
        tx_fail(TX_INVALID, "the host name %.200s is not the server's: add it to --allowed_hosts", sender->host);
        return 403;
    }
    if (sender->origin && !is_own_page(sender) && !serve_is_shared(s, sender)) {
        tx_fail(TX_INVALID, "pages of %.200s may not use this server: add it to --cors", sender->origin);
        return 403;
    }
    const char *type = sender->type ? sender->type : form;
    const size_t size = strcspn(type, "; ");
    /* Programs such as curl name the type of a form unless told; browsers always send an origin. */
    const bool plain = !sender->origin && size == sizeof form - 1 && strncasecmp(type, form, size) == 0;
    if (!posts || plain || (size == sizeof json - 1 && strncasecmp(type, json, size) == 0))
        return 0;
    tx_fail(TX_INVALID, "Content-Type %.100s: use %s", type, json);
    return 415;
}
