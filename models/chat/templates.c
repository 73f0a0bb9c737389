/* SPDX-License-Identifier: Apache-2.0
 * The built-in chat templates: files in templates/, which the build embeds. */
#include "models/chat/templates.h"

#include "models/chat/chat.h"

#include <string.h>

static const struct {
    const char *name;
    const unsigned char *text;
} templates[] = {
#define X(name) {#name, tx_chat_template_##name},
    TX_CHAT_TEMPLATES(X)
#undef X
};

static const char names[] =
#define X(name) ", " #name
    TX_CHAT_TEMPLATES(X)
#undef X
    ;

const char *tx_chat_template_find(const char *name)
{
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++)
        if (strcmp(templates[i].name, name) == 0)
            return (const char *)templates[i].text;
    return NULL;
}

const char *tx_chat_template_names(void)
{
    return names + 2;
}
