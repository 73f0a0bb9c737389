/* SPDX-License-Identifier: Apache-2.0
 * Datasets: selects a part of a file's tokens and cuts it into blocks. */
#include "models/tx_text.h"

#include "api/base/needs.h"
#include "api/base/number.h"
#include "models/data/lines.h"
#include "models/data/tokens.h"
#include "models/names.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A sequence of adjacent blocks, or STRIDE texts of which each may be a block. */
typedef struct run {
    int64_t first; /* number of its first block */
    int64_t token; /* its first token */
    int64_t text;  /* its first text */
} run;

/* If each text is a block, the index has one entry for so many texts, and the lengths of these find a text. */
#define STRIDE TX_TOKENS_PIECE

struct tx_dataset {
    tx_tokens tokens;
    int64_t begin, end; /* tokens of the part used */
    int64_t vocab, block, blocks;
    int64_t least; /* tokens that make a text a block of its own; 0 if texts are concatenated */
    int64_t last;  /* text after the part used */
    run *runs;
    int64_t run_count;
    char digest[TX_DIGEST_TEXT];
};

/* ---- Files ----------------------------------------------------------------------------------------- */

typedef enum file_kind { FILE_TEXT, FILE_JSONL, FILE_BIN } file_kind;

/* Refuses files whose name shows that they are neither text nor tokens. */
static tx_status kind_of(const char *path, file_kind *kind)
{
    static const char *const others[] = {".parquet", ".csv", ".tsv", ".npy", ".pt",          ".pth",  ".gz",
                                         ".zip",     ".zst", ".xz",  ".bz2", ".safetensors", ".arrow"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (tx_ends_with(path, others[i]))
            return tx_fail(TX_UNSUPPORTED,
                           "%s: TX does not read %s files; it reads texts, one a line, .jsonl files of "
                           "{\"text\": ...} and .bin files of tokens",
                           path, others[i]);
    *kind = tx_ends_with(path, ".bin")                                    ? FILE_BIN
            : tx_ends_with(path, ".jsonl") || tx_ends_with(path, ".json") ? FILE_JSONL
                                                                          : FILE_TEXT;
    return TX_OK;
}

/* Refuses files whose first bytes show that they are something else. */
static tx_status check_contents(const tx_data_file *file, file_kind kind)
{
    char begin[TX_TEXT_BEGIN];
    size_t size = file->size < TX_TEXT_BEGIN ? (size_t)file->size : TX_TEXT_BEGIN, at;
    if (size == 0)
        return tx_fail(TX_FORMAT, "%s: the file is empty; give a text to train on", file->path);
    TX_TRY(tx_data_file_read(file, 0, begin, size));
    return tx_fail_in(tx_text_begin(begin, size, kind == FILE_BIN, &at), "%s", file->path);
}

static tx_status check_options(const char *path, const tx_dataset_options *o)
{
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "dataset: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    if (o->block < 2)
        return tx_fail(TX_INVALID, "%s: a block of %" PRId64 " tokens has no label; block_size must be 2 or more", path,
                       o->block);
    if (!(o->from >= 0.0 && o->from < o->to && o->to <= 100.0))
        return tx_fail(TX_INVALID, "%s: the part from %g to %g %% is invalid; 0 <= from < to <= 100 is required", path,
                       o->from, o->to);
    if (o->vocab < 1 || o->vocab > INT32_MAX || o->group < 0 || o->most_blocks < 0 || o->skip_bad < 0 || o->part < 0 ||
        o->threads < 1)
        return tx_fail(TX_INVALID,
                       "%s: vocabulary %" PRId64 " and threads %" PRId32
                       " must be 1 or more (and fit 31 bits), group %" PRId64 ", most blocks %" PRId64
                       " and lines to skip %" PRId64 " 0 or more",
                       path, o->vocab, o->threads, o->group, o->most_blocks, o->skip_bad);
    return TX_OK;
}

static tx_status read_tokens(const char *path, const tx_dataset_options *o, tx_tokens *tokens)
{
    file_kind kind = FILE_TEXT;
    tx_data_file file = {0};
    TX_TRY(kind_of(path, &kind));
    TX_TRY(tx_data_file_open(path, &file));
    const tx_text_range texts = {
        .file = &file,
        .form = kind == FILE_JSONL ? TX_TEXT_JSONL
                : o->bare_lines    ? TX_TEXT_BARE
                                   : TX_TEXT_LINES,
        .end = file.size,
    };
    tx_status status = check_contents(&file, kind);
    if (!status && kind == FILE_BIN && o->by_text)
        status = tx_fail(TX_INVALID, "%s: a file of tokens has no lines", path);
    else if (!status && kind == FILE_BIN)
        status = tx_tokens_of_bin(&file, tokens);
    else if (!status && !o->tokenizer)
        status = tx_fail(TX_INVALID, "%s: a text needs a tokenizer", path);
    else if (!status && o->cache)
        status = tx_tokens_cached(&texts, o, tokens);
    else if (!status)
        status = tx_tokens_of_text(&texts, o, tokens);
    tx_data_file_close(&file);
    return status;
}

/* ---- Lengths of the texts ----------------------------------------------------------------------------- */

/* Iterates over the lengths of texts. Begin with {.tokens, .next, .last}. */
typedef struct lengths {
    const tx_tokens *tokens;
    int64_t next, last; /* texts; the last is excluded */
    int64_t held;       /* text after those in `piece` */
    int64_t in_piece;
    uint32_t piece[TX_TOKENS_PIECE];
} lengths;

/* The length of the next text. There must be one. */
static tx_status next_length(lengths *l, uint32_t *length)
{
    if (l->next >= l->held) {
        const int64_t left = l->last - l->next;
        l->in_piece = left < TX_TOKENS_PIECE ? left : TX_TOKENS_PIECE;
        TX_TRY(tx_tokens_lengths(l->tokens, l->next, l->in_piece, l->piece));
        l->held = l->next + l->in_piece;
    }
    *length = l->piece[l->in_piece - (l->held - l->next)];
    l->next++;
    return TX_OK;
}

/* ---- Checks of the tokens -------------------------------------------------------------------------- */

/* Fails with the position of an id outside the vocabulary. */
static tx_status fail_id(const char *path, const tx_tokens *t, int64_t at, uint32_t id, int64_t vocab)
{
    lengths l = {.tokens = t, .last = t->texts};
    uint32_t length = 0;
    if (!t->of_texts)
        return tx_fail(TX_FORMAT,
                       "%s: token %" PRId64 " (byte %" PRId64 ") is %" PRIu32 ", outside the vocabulary of %" PRId64
                       ": the file was made with another tokenizer",
                       path, at, t->header + at * t->width, id, vocab);
    for (int64_t left = at; left >= 0; left -= length)
        TX_TRY(next_length(&l, &length));
    return tx_fail(TX_INVALID,
                   "%s: text %" PRId64 " has the id %" PRIu32 ", outside the model's vocabulary of %" PRId64
                   ": model and tokenizer do not belong together",
                   path, l.next, id, vocab);
}

static tx_status check_ids(const char *path, const tx_tokens *t, int64_t vocab)
{
    uint32_t ids[TX_TOKENS_PIECE];
    const int64_t unknown = t->ids_end && t->ids_end <= vocab ? 0 : t->count;
    for (int64_t at = 0, count; at < unknown; at += count) {
        count = t->count - at < TX_TOKENS_PIECE ? t->count - at : TX_TOKENS_PIECE;
        TX_TRY(tx_tokens_read(t, at, count, ids));
        for (int64_t i = 0; i < count; i++)
            if (ids[i] >= vocab)
                return fail_id(path, t, at + i, ids[i], vocab);
    }
    return TX_OK;
}

/* ---- Cutting --------------------------------------------------------------------------------------- */

/* Cuts the texts, `group` at a time. */
static tx_status cut_groups(tx_dataset *d, int64_t first, int64_t group)
{
    lengths l = {.tokens = &d->tokens, .next = first, .last = d->last};
    int64_t token = d->begin;
    while (l.next < l.last) {
        const int64_t begin = token, text = l.next;
        for (int64_t i = 0; i < group && l.next < l.last; i++) {
            uint32_t length;
            TX_TRY(next_length(&l, &length));
            token += length;
        }
        const int64_t blocks = (token - begin) / d->block;
        if (blocks)
            d->runs[d->run_count++] = (run){.first = d->blocks, .token = begin, .text = text};
        d->blocks += blocks;
    }
    return TX_OK;
}

/* Makes each text of at least `least` tokens a block. */
static tx_status list_texts(tx_dataset *d, int64_t first)
{
    lengths l = {.tokens = &d->tokens, .next = first, .last = d->last};
    int64_t token = d->begin;
    while (l.next < l.last) {
        uint32_t length;
        if ((l.next - first) % STRIDE == 0)
            d->runs[d->run_count++] = (run){.first = d->blocks, .token = token, .text = l.next};
        TX_TRY(next_length(&l, &length));
        d->blocks += length >= d->least;
        token += length;
    }
    return TX_OK;
}

/* Selects the part of the tokens. `first` and d->last are its range of texts, or of tokens in a .bin file. */
static tx_status find_part(tx_dataset *d, const tx_dataset_options *o, int64_t *first)
{
    const tx_tokens *t = &d->tokens;
    const int64_t all = t->of_texts ? t->texts : t->count;
    *first = (int64_t)rint(o->from * (double)all / 100.0); /* a half to even, as Python's round */
    d->last = o->to < 100.0 ? (int64_t)rint(o->to * (double)all / 100.0) : all;
    d->begin = t->of_texts ? 0 : *first;
    d->end = t->of_texts ? 0 : d->last;
    lengths l = {.tokens = t, .last = d->last};
    while (t->of_texts && l.next < l.last) {
        uint32_t length;
        TX_TRY(next_length(&l, &length));
        d->begin += l.next <= *first ? length : 0;
        d->end += length;
    }
    return TX_OK;
}

static tx_status fail_short(const char *path, const tx_dataset *d, const tx_dataset_options *o)
{
    int64_t count = d->end - d->begin;
    char part[64] = "";
    if (o->from > 0.0 || o->to < 100.0)
        tx_format(part, sizeof part, " in the part from %g to %g %%", o->from, o->to);
    if (count == 0 || o->by_text)
        return tx_fail(TX_FORMAT, "%s: no tokens%s; give a longer text", path, part);
    if (count >= d->block)
        return tx_fail(TX_FORMAT,
                       "%s: no %" PRId64 " texts in a row%s fill one block of %" PRId64
                       " tokens; give longer texts or a "
                       "smaller block_size",
                       path, o->group, part, d->block);
    return tx_fail(TX_FORMAT,
                   "%s: %" PRId64 " tokens%s do not fill one block of %" PRId64
                   "; give a longer text or a block_size of at most %" PRId64,
                   path, count, part, d->block, count);
}

static tx_status cut(const char *path, tx_dataset *d, const tx_dataset_options *o)
{
    int64_t first;
    TX_TRY(find_part(d, o, &first));
    d->least = o->by_text;
    const int64_t a_run = d->least ? STRIDE : d->tokens.of_texts && o->group ? o->group : INT64_MAX;
    const int64_t runs = (d->last - first) / a_run + 1;
    d->runs = calloc((size_t)runs, sizeof *d->runs);
    if (!d->runs)
        return tx_fail(TX_MEMORY, "%s: no memory for %" PRId64 " groups of texts", path, runs);
    if (d->least) {
        TX_TRY(list_texts(d, first));
    } else if (a_run != INT64_MAX) {
        TX_TRY(cut_groups(d, first, a_run));
    } else {
        d->runs[d->run_count++] = (run){.token = d->begin};
        d->blocks = (d->end - d->begin) / d->block;
    }
    if (d->blocks == 0)
        return fail_short(path, d, o);
    if (o->most_blocks && o->most_blocks < d->blocks)
        d->blocks = o->most_blocks;
    while (d->runs[d->run_count - 1].first >= d->blocks)
        d->run_count--;
    return TX_OK;
}

/* Adds tokens to a digest as they are stored in memory or in the file. */
static void digest_tokens(tx_digest *digest, const tx_tokens *t, int64_t first, int64_t count,
                          const tx_reporter *report)
{
    const int64_t begin = first * t->width, bytes = count * t->width;
    if (t->ids)
        tx_digest_add(digest, (const char *)t->ids + begin, (size_t)bytes);
    else
        tx_data_file_digest(&t->file, t->header + begin, t->header + begin + bytes, digest, report);
}

/* Adds the texts that are blocks, each with its length. */
static tx_status digest_texts(tx_digest *digest, const tx_dataset *d, const tx_reporter *report)
{
    lengths l = {.tokens = &d->tokens, .next = d->runs[0].text, .last = d->last};
    int64_t token = d->runs[0].token;
    for (int64_t block = 0; block < d->blocks;) {
        uint32_t length;
        TX_TRY(next_length(&l, &length));
        const int64_t count = length;
        if (count >= d->least) {
            digest_tokens(digest, &d->tokens, token, count, report);
            tx_digest_add(digest, &count, sizeof count);
            block++;
        }
        token += count;
    }
    return TX_OK;
}

static tx_status digest_blocks(tx_dataset *d, const tx_reporter *report)
{
    char shape[96];
    int length = snprintf(shape, sizeof shape, "%" PRId64 " blocks of %" PRId64 " ids of %" PRId32 " bytes\n",
                          d->blocks, d->block, d->tokens.width);
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, shape, (size_t)length);
    for (int64_t i = 0; i < d->run_count && !d->least; i++) {
        const run *r = &d->runs[i];
        const int64_t end = i + 1 < d->run_count ? r[1].first : d->blocks;
        digest_tokens(digest, &d->tokens, r->token, (end - r->first) * d->block, report);
    }
    tx_digest_fail(digest, d->least ? digest_texts(digest, d, report) : TX_OK);
    return tx_digest_finish(digest, d->digest);
}

/* ---- Creating -------------------------------------------------------------------------------------- */

/* Makes a dataset, which takes ownership of `tokens`, also on failure. */
static tx_status make(const char *path, const tx_dataset_options *o, tx_tokens *tokens, tx_dataset **dataset)
{
    tx_dataset *created = calloc(1, sizeof *created);
    if (!created) {
        tx_tokens_free(tokens);
        return tx_fail(TX_MEMORY, "%s: no memory for the dataset", path);
    }
    *created = (tx_dataset){.tokens = *tokens, .vocab = o->vocab, .block = o->block};
    tx_status status = check_ids(path, &created->tokens, o->vocab);
    TX_THEN(status, cut(path, created, o));
    TX_THEN(status, digest_blocks(created, &o->report));
    if (status) {
        tx_dataset_free(created);
        return status;
    }
    tx_lines_report(&o->report, path, tokens->bad, "line", tokens->first_bad);
    *dataset = created;
    return TX_OK;
}

tx_status tx_dataset_open(const char *path, const tx_dataset_options *options, tx_dataset **dataset)
{
    TX_NEEDS(path && options && dataset, TX_INVALID);
    tx_tokens tokens = {0};
    TX_TRY(check_options(path, options));
    TX_TRY(read_tokens(path, options, &tokens));
    return make(path, options, &tokens, dataset);
}

void tx_dataset_free(tx_dataset *dataset)
{
    if (!dataset)
        return;
    tx_tokens_free(&dataset->tokens);
    free(dataset->runs);
    free(dataset);
}

int64_t tx_dataset_block(const tx_dataset *dataset)
{
    TX_NEEDS(dataset, 0);
    return dataset->block;
}

int64_t tx_dataset_blocks(const tx_dataset *dataset)
{
    TX_NEEDS(dataset, 0);
    return dataset->blocks;
}

int64_t tx_dataset_tokens(const tx_dataset *dataset)
{
    TX_NEEDS(dataset, 0);
    return dataset->end - dataset->begin;
}

const char *tx_dataset_digest(const tx_dataset *dataset)
{
    TX_NEEDS(dataset, NULL);
    return dataset->digest;
}

/* ---- Blocks ------------------------------------------------------------------------------------------ */

/* The run of block `number`. */
static const run *find_run(const tx_dataset *d, int64_t number)
{
    int64_t low = 0, high = d->run_count; /* finds the last run that begins at or before the block */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (d->runs[middle].first <= number)
            low = middle;
        else
            high = middle;
    }
    return &d->runs[low];
}

/* Finds the first token of block `number`, and its tokens: those of a whole text, or one block. */
static tx_status find_block(const tx_dataset *d, int64_t number, int64_t *first, int64_t *count)
{
    const run *r = find_run(d, number);
    *first = r->token + (number - r->first) * d->block;
    *count = d->block;
    if (!d->least)
        return TX_OK;
    lengths l = {.tokens = &d->tokens, .next = r->text, .last = d->last};
    *first = r->token;
    for (int64_t block = r->first; block <= number;) {
        uint32_t length;
        TX_TRY(next_length(&l, &length));
        *count = length;
        if (length < d->least || block++ < number)
            *first += length;
    }
    return TX_OK;
}

int64_t tx_dataset_length(const tx_dataset *dataset, int64_t number)
{
    TX_NEEDS(dataset, -1);
    int64_t first, length;
    return find_block(dataset, number, &first, &length) ? -1 : length;
}

/* Checks the ids again, because the file may have changed since it was opened. */
tx_status tx_dataset_read(const tx_dataset *dataset, int64_t number, int32_t *tokens)
{
    TX_NEEDS(dataset && tokens, TX_INVALID);
    const tx_dataset *d = dataset;
    int64_t first, wanted;
    TX_TRY(find_block(d, number, &first, &wanted));
    wanted = wanted < d->block ? wanted : d->block;
    for (int64_t at = 0, count; at < wanted; at += count) {
        uint32_t *ids = (uint32_t *)(tokens + at);
        count = wanted - at < TX_TOKENS_PIECE ? wanted - at : TX_TOKENS_PIECE;
        TX_TRY(tx_tokens_read(&d->tokens, first + at, count, ids));
        for (int64_t i = 0; i < count; i++)
            if (ids[i] >= d->vocab)
                return tx_fail(TX_FORMAT,
                               "%s: token %" PRId64 " is %" PRIu32 " now, outside the vocabulary of %" PRId64
                               ": the file was changed since it was opened",
                               d->tokens.file.path, first + at + i, ids[i], d->vocab);
    }
    return TX_OK;
}
