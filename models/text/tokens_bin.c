/* SPDX-License-Identifier: Apache-2.0
 * Files of tokens: llm.c's and nanoGPT's. */
#include "models/text/tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* llm.c: so many int32 before the tokens. */
#define HEADER_WORDS 256
#define HEADER_BYTES ((int64_t)sizeof(int32_t) * HEADER_WORDS)

/* The files that llm.c writes. Their magics read as uint16 are ids that GPT-2 does not have, so nanoGPT's files cannot
 * be taken for them. */
static const struct {
    int32_t magic, version, width;
    const char *what; /* of no tokens to train on; NULL */
} kinds[] = {
    {20240520, 1, 2, NULL},
    {20240801, 7, 4, NULL},
    {20240522, 0, 0, "questions of an evaluation"},
    {20240326, 0, 0, "a model's weights"},
    {20240328, 0, 0, "a tokenizer"},
    {20240527, 0, 0, "a training state"},
};

void tx_tokens_free(tx_tokens *tokens)
{
    free(tokens->own_ids);
    free(tokens->own_lengths);
    tx_view_close(&tokens->view);
    *tokens = (tx_tokens){0};
}

/* Whether it begins like a header of llm.c, whose words after the third are 0, with another magic. */
static bool is_strange_header(const tx_view *view, const int32_t *head)
{
    int32_t rest = 0;
    if ((int64_t)view->size < HEADER_BYTES || !(head[0] | head[1] | head[2]))
        return false;
    for (int i = 3; i < HEADER_WORDS; i++)
        rest |= head[i];
    return rest == 0;
}

static tx_status read_llmc(const char *path, const tx_view *view, size_t kind, tx_tokens *tokens)
{
    const int32_t *head = (const void *)view->data;
    if (kinds[kind].what)
        return tx_fail(TX_FORMAT, "%s: llm.c's file of %s (magic %" PRId32 "), not tokens to train on", path,
                       kinds[kind].what, head[0]);
    if ((int64_t)view->size < HEADER_BYTES)
        return tx_fail(TX_FORMAT, "%s: cut off: %zu bytes, less than the header of %" PRId64, path, view->size,
                       HEADER_BYTES);
    if (head[1] != kinds[kind].version)
        return tx_fail(TX_FORMAT, "%s: version %" PRId32 " of magic %" PRId32 "; TX knows %" PRId32, path, head[1],
                       head[0], kinds[kind].version);
    int64_t count = head[2], bytes = (int64_t)view->size - HEADER_BYTES;
    if (count < 0 || bytes != count * kinds[kind].width)
        return tx_fail(TX_FORMAT,
                       "%s: the header says %" PRId64 " tokens of %" PRId32 " bytes, the file has %" PRId64
                       " bytes of them: it is cut off or damaged",
                       path, count, kinds[kind].width, bytes);
    *tokens = (tx_tokens){
        .ids = view->data + HEADER_BYTES, .width = kinds[kind].width, .count = count, .header = HEADER_BYTES};
    return TX_OK;
}

tx_status tx_tokens_of_bin(const char *path, tx_view *view, tx_tokens *tokens)
{
    const int32_t *head = (const void *)view->data;
    tx_tokens made = {.ids = view->data, .width = 2, .count = (int64_t)(view->size / 2)};
    size_t kind = sizeof kinds / sizeof kinds[0];
    for (size_t i = 0; view->size >= sizeof *head && i < sizeof kinds / sizeof kinds[0]; i++)
        if (head[0] == kinds[i].magic)
            kind = i;
    tx_status status = TX_OK;
    if (kind < sizeof kinds / sizeof kinds[0])
        status = read_llmc(path, view, kind, &made);
    else if (is_strange_header(view, head))
        status = tx_fail(TX_FORMAT,
                         "%s: begins with a header like llm.c's whose magic is %" PRId32
                         "; TX reads 20240520 and 20240801, and uint16 tokens without a header",
                         path, head[0]);
    else if (view->size % 2)
        status = tx_fail(TX_FORMAT, "%s: %zu bytes, an odd number: not a file of uint16 tokens", path, view->size);
    if (status)
        return status;
    made.view = *view;
    *view = (tx_view){0};
    *tokens = made;
    return TX_OK;
}
