/* SPDX-License-Identifier: Apache-2.0
 * Reads files of tokens: llm.c's and nanoGPT's. */
#include "models/data/tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* llm.c's header consists of this number of int32. */
#define HEADER_WORDS 256
#define HEADER_BYTES ((int64_t)sizeof(int32_t) * HEADER_WORDS)

/* The files that llm.c writes. Their magics, read as uint16, are ids outside GPT-2's vocabulary, so they cannot be
 * confused with nanoGPT's files. */
static const struct {
    int32_t magic, version, width;
    const char *what; /* contents other than training tokens, or NULL */
} kinds[] = {
    {20240520, 1, 2, NULL},
    {20240801, 7, 4, NULL},
    {20240522, 0, 0, "questions of an evaluation"},
    {20240326, 0, 0, "a model's weights"},
    {20240328, 0, 0, "a tokenizer"},
    {20240527, 0, 0, "a training state"},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

void tx_tokens_free(tx_tokens *tokens)
{
    free(tokens->ids);
    free(tokens->lengths);
    tx_data_file_close(&tokens->file);
    *tokens = (tx_tokens){0};
}

tx_status tx_tokens_read(const tx_tokens *tokens, int64_t first, int64_t count, uint32_t *ids)
{
    union {
        uint16_t narrow[TX_TOKENS_PIECE];
        uint32_t wide[TX_TOKENS_PIECE];
    } raw;
    const size_t width = (size_t)tokens->width;
    if (tokens->ids) {
        memcpy(&raw, (const char *)tokens->ids + (size_t)first * width, (size_t)count * width);
    } else {
        TX_TRY(tx_data_file_read(&tokens->file, tokens->header + first * tokens->width, &raw, (size_t)count * width));
    }
    for (int64_t i = 0; i < count; i++)
        ids[i] = width == 2 ? raw.narrow[i] : raw.wide[i];
    return TX_OK;
}

tx_status tx_tokens_lengths(const tx_tokens *tokens, int64_t first, int64_t count, uint32_t *lengths)
{
    const size_t bytes = (size_t)count * sizeof *lengths;
    if (!tokens->lengths)
        return tx_data_file_read(&tokens->file, tokens->lengths_at + first * (int64_t)sizeof *lengths, lengths, bytes);
    memcpy(lengths, tokens->lengths + first, bytes);
    return TX_OK;
}

/* ---- llm.c's and nanoGPT's files ----------------------------------------------------------------------- */

/* Returns true for a header like llm.c's with an unknown magic: its words after the third are 0. */
static bool is_unknown_header(int64_t size, const int32_t *head)
{
    int32_t rest = 0;
    if (size < HEADER_BYTES || !(head[0] | head[1] | head[2]))
        return false;
    for (int i = 3; i < HEADER_WORDS; i++)
        rest |= head[i];
    return rest == 0;
}

static tx_status check_llmc(const tx_data_file *file, const int32_t *head, size_t kind)
{
    const char *path = file->path;
    if (kinds[kind].what)
        return tx_fail(TX_FORMAT, "%s: llm.c's file of %s (magic %" PRId32 "), not tokens to train on", path,
                       kinds[kind].what, head[0]);
    if (file->size < HEADER_BYTES)
        return tx_fail(TX_FORMAT, "%s: cut off: %" PRId64 " bytes, less than the header of %" PRId64, path, file->size,
                       HEADER_BYTES);
    if (head[1] != kinds[kind].version)
        return tx_fail(TX_FORMAT, "%s: version %" PRId32 " of magic %" PRId32 "; TX supports version %" PRId32, path,
                       head[1], head[0], kinds[kind].version);
    int64_t count = head[2], bytes = file->size - HEADER_BYTES;
    if (count < 0 || bytes != count * kinds[kind].width)
        return tx_fail(TX_FORMAT,
                       "%s: the header says %" PRId64 " tokens of %" PRId32 " bytes, the file has %" PRId64
                       " bytes of them: it is cut off or damaged",
                       path, count, kinds[kind].width, bytes);
    return TX_OK;
}

tx_status tx_tokens_of_bin(tx_data_file *file, tx_tokens *tokens)
{
    int32_t head[HEADER_WORDS] = {0};
    const int64_t size = file->size;
    TX_TRY(tx_data_file_read(file, 0, head, (size_t)(size < HEADER_BYTES ? size : HEADER_BYTES)));
    tx_tokens result = {.width = 2, .count = size / 2};
    size_t kind = 0;
    while (kind < KINDS && (size < (int64_t)sizeof *head || head[0] != kinds[kind].magic))
        kind++;
    if (kind < KINDS) {
        TX_TRY(check_llmc(file, head, kind));
        result = (tx_tokens){.width = kinds[kind].width, .count = head[2], .header = HEADER_BYTES};
    } else if (is_unknown_header(size, head)) {
        return tx_fail(TX_FORMAT,
                       "%s: begins with a header like llm.c's whose magic is %" PRId32
                       "; TX reads 20240520 and 20240801, and uint16 tokens without a header",
                       file->path, head[0]);
    } else if (size % 2) {
        return tx_fail(TX_FORMAT, "%s: %" PRId64 " bytes, an odd number: not a file of uint16 tokens", file->path,
                       size);
    }
    result.file = *file;
    *file = (tx_data_file){0};
    *tokens = result;
    return TX_OK;
}
