/* SPDX-License-Identifier: Apache-2.0
 * Makes the vocabulary, the merges and the parts of a tokenizer.json from a model of SentencePiece. */
#include "models/tokenizer/tokenizer_spm.h"

#include "models/tokenizer/pieces.h"

#include <stdlib.h>

/* ---- Pieces ---------------------------------------------------------------------------------------- */

tx_status tx_spm_name_pieces(tx_spm_making *m)
{
    const size_t count = m->from->count;
    m->text = calloc(count, sizeof *m->text);
    m->names = calloc(count, sizeof *m->names);
    if (!m->text || !m->names)
        return tx_fail(TX_MEMORY, "no memory for %zu pieces", count);
    for (size_t id = 0; id < count; id++) {
        const tx_spm_piece *piece = &m->from->piece[id];
        if (piece->text.size > TX_PIECE_MOST)
            return tx_fail(TX_UNSUPPORTED, "piece %zu: %zu bytes, at most %d are supported", id, piece->text.size,
                           TX_PIECE_MOST);
        m->text[id] = strndup(piece->text.data, piece->text.size);
        if (!m->text[id])
            return tx_fail(TX_MEMORY, "no memory for %zu pieces", count);
        m->names[id] = (tx_named){m->text[id], (int32_t)id};
        m->user_defined = m->user_defined || piece->type == TX_SPM_USER_DEFINED;
    }
    const char *twice = tx_named_sort(m->names, count);
    return twice ? tx_fail(TX_FORMAT, "the piece %.64s occurs twice", twice) : TX_OK;
}

tx_status tx_spm_add_pieces(tx_spm_making *m, bool users)
{
    for (size_t id = 0; id < m->from->count; id++) {
        const tx_spm_type type = m->from->piece[id].type;
        if (type == TX_SPM_CONTROL || (type == TX_SPM_USER_DEFINED && users))
            TX_TRY(tx_making_add(&m->to, m->text[id], (int64_t)id, type == TX_SPM_CONTROL));
    }
    return TX_OK;
}

/* ---- Models ---------------------------------------------------------------------------------------- */

tx_status tx_spm_add_scored(tx_making *m, const char *text, double score)
{
    tx_json *pair = tx_json_array();
    TX_TRY(tx_json_append(m->vocab, pair));
    TX_TRY(tx_json_append_string(pair, text));
    return tx_json_append_number(pair, score);
}

tx_status tx_spm_make_unigram(tx_spm_making *m, const char *const *first, int64_t unk, bool fallback)
{
    TX_TRY(tx_json_set_string(m->to.model, "type", "Unigram"));
    TX_TRY(tx_json_set_int(m->to.model, "unk_id", unk));
    TX_TRY(tx_json_set_bool(m->to.model, "byte_fallback", fallback));
    TX_TRY(tx_json_set(m->to.model, "vocab", m->to.vocab = tx_json_array()));
    for (size_t i = 0; first && first[i]; i++)
        TX_TRY(tx_spm_add_scored(&m->to, first[i], 0));
    for (size_t id = first ? 3 : 0; id < m->from->count; id++)
        TX_TRY(tx_spm_add_scored(&m->to, m->text[id], (double)m->from->piece[id].score));
    return TX_OK;
}

/* Makes the merges from the scores. With `ordered`, as classes do it, from the order of the pieces of all types. */
static tx_status add_merges(const tx_spm_making *m, bool ordered)
{
    const size_t count = m->from->count;
    tx_json *merges = tx_json_array();
    TX_TRY(tx_json_set(m->to.model, "merges", merges));
    double *score = calloc(count, sizeof *score);
    bool *normal = calloc(count, sizeof *normal);
    tx_status status = score && normal ? TX_OK : tx_fail(TX_MEMORY, "no memory for %zu scores", count);
    for (size_t id = 0; id < count && !status; id++) {
        score[id] = ordered ? -(double)id : (double)m->from->piece[id].score;
        normal[id] = ordered || m->from->piece[id].type == TX_SPM_NORMAL;
    }
    TX_THEN(status, tx_pieces_add_merges(&(tx_pieces){m->text, m->names, score, normal, count, true}, merges));
    free(score);
    free(normal);
    return status;
}

tx_status tx_spm_make_bpe(tx_spm_making *m, const char *unk, bool fallback, bool ordered)
{
    tx_json *model = tx_json_pack("{s:s, s:n, s:s?, s:n, s:n, s:b, s:b, s:b, s:{}}", "type", "BPE", "dropout",
                                  "unk_token", unk, "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", true,
                                  "byte_fallback", fallback, "ignore_merges", !ordered && m->user_defined, "vocab");
    m->to.model = model;
    TX_TRY(tx_json_set(m->to.json, "model", model));
    m->to.vocab = tx_json_find(model, "vocab");
    for (size_t id = 0; id < m->from->count; id++)
        TX_TRY(tx_json_set_int(m->to.vocab, m->text[id], (int64_t)id));
    return add_merges(m, ordered);
}

/* ---- Parts ----------------------------------------------------------------------------------------- */

tx_status tx_spm_add_charsmap(tx_spm_making *m)
{
    const tx_spm_text *map = &m->from->charsmap;
    char *text = NULL;
    if (!map->size)
        return TX_OK;
    tx_json *step = tx_json_object();
    TX_TRY(tx_json_append(m->normalizers, step));
    TX_TRY(tx_json_set_string(step, "type", "Precompiled"));
    TX_TRY(tx_charsmap_text(map->data, map->size, &text));
    const tx_status status = tx_json_set_string(step, "precompiled_charsmap", text);
    free(text);
    return status;
}

static int longest_first(const void *a, const void *b)
{
    const size_t x = strlen(*(char *const *)a), y = strlen(*(char *const *)b);
    return x != y ? (x < y) - (x > y) : strcmp(*(char *const *)a, *(char *const *)b);
}

/* Makes an expression of the pieces of users, the longest first. */
static tx_status user_pattern(const tx_spm_making *m, tx_buffer *pattern)
{
    size_t count = 0;
    char **user = calloc(m->from->count, sizeof *user);
    if (!user)
        return tx_fail(TX_MEMORY, "no memory for %zu pieces", m->from->count);
    for (size_t id = 0; id < m->from->count; id++)
        if (m->from->piece[id].type == TX_SPM_USER_DEFINED)
            user[count++] = m->text[id];
    if (count)
        qsort(user, count, sizeof *user, longest_first);
    for (size_t i = 0; i < count; i++) {
        tx_buffer_add(pattern, "|", i > 0);
        for (const char *at = user[i]; *at; at++) {
            tx_buffer_add(pattern, "\\", strchr("\\^$.[]|()?*+{}-", *at) != NULL);
            tx_buffer_add(pattern, at, 1);
        }
    }
    free(user);
    tx_buffer_add(pattern, "", 1);
    return pattern->status;
}

/* Isolates the pieces of users, which are never merged. */
static tx_status add_user_split(const tx_spm_making *m, tx_json *list)
{
    static const char split[] = "{\"type\": \"Split\", \"pattern\": {}, \"behavior\": \"Isolated\", \"invert\": false}";
    tx_buffer pattern = {0};
    tx_json *step;
    TX_TRY(tx_making_append(list, split));
    step = tx_json_find(tx_json_at(list, tx_json_size(list) - 1), "pattern");
    tx_status status = user_pattern(m, &pattern);
    TX_THEN(status, tx_json_set_string(step, "Regex", pattern.data));
    free(pattern.data);
    return status;
}

tx_status tx_spm_make_parts(tx_spm_making *m, bool legacy)
{
    const tx_spm *from = m->from;
    tx_json *pre = NULL, *decoder = NULL;
    TX_TRY(tx_spm_add_charsmap(m));
    if (from->remove_extra_whitespaces) {
        TX_TRY(tx_making_append(m->normalizers, REPLACE("Regex", "\\\\A +| +\\\\z", "")));
        TX_TRY(tx_making_append(m->normalizers, REPLACE("Regex", " {2,}", " ")));
    }
    if (from->escape_whitespaces)
        TX_TRY(tx_making_append(m->normalizers, REPLACE("String", " ", MARK)));
    if (from->add_dummy_prefix && legacy)
        TX_TRY(tx_making_append(m->normalizers, REPLACE("Regex", "\\\\A" MARK, MARK MARK)));
    TX_TRY(tx_making_set(m->to.json, "decoder", SEQUENCE("decoders", REPLACE("String", MARK, " "))));
    TX_TRY(tx_json_get(tx_json_find(m->to.json, "decoder"), "decoders", TX_JSON_ARRAY, &decoder));
    if (from->byte_fallback)
        TX_TRY(tx_making_append(decoder, FALLBACK));
    if (from->byte_fallback || from->add_dummy_prefix)
        TX_TRY(tx_making_append(decoder, FUSE));
    if (from->add_dummy_prefix)
        TX_TRY(tx_making_append(decoder, STRIP));
    if (!from->add_dummy_prefix && !m->user_defined)
        return TX_OK;
    TX_TRY(tx_making_set(m->to.json, "pre_tokenizer", SEQUENCE("pretokenizers", )));
    TX_TRY(tx_json_get(tx_json_find(m->to.json, "pre_tokenizer"), "pretokenizers", TX_JSON_ARRAY, &pre));
    if (from->add_dummy_prefix)
        TX_TRY(tx_making_append(pre, legacy ? METASPACE("always", "false") : METASPACE("first", "false")));
    return m->user_defined ? add_user_split(m, pre) : TX_OK;
}
