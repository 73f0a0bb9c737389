/* SPDX-License-Identifier: Apache-2.0
 * Makes a tokenizer.json from a model of SentencePiece. Without a class the parts follow from the settings of the
 * model. A class of transformers has its own parts. */
#include "models/text/pieces.h"
#include "models/text/tokenizer_make.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MARK "\xE2\x96\x81"
#define REPLACE(kind, pattern, content) \
    "{\"type\": \"Replace\", \"pattern\": {\"" kind "\": \"" pattern "\"}, \"content\": \"" content "\"}"
#define METASPACE(scheme, split) \
    "{\"type\": \"Metaspace\", \"replacement\": \"" MARK "\", \"prepend_scheme\": \"" scheme "\", \"split\": " split "}"
#define SEQUENCE(list, ...) "{\"type\": \"Sequence\", \"" list "\": [" __VA_ARGS__ "]}"
#define STRIP "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"
#define FALLBACK "{\"type\": \"ByteFallback\"}"
#define FUSE "{\"type\": \"Fuse\"}"

static const char frame[] = "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [],"
                            " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": []}, \"pre_tokenizer\": null,"
                            " \"post_processor\": null, \"decoder\": null, \"model\": {}}";

typedef struct making {
    tx_making to;
    const tx_spm *from;
    char **text;     /* of each piece, with a NUL */
    tx_named *names; /* of the pieces, sorted */
    tx_json *normalizers;
    bool user_defined; /* some pieces are */
} making;

/* ---- Pieces ---------------------------------------------------------------------------------------- */

static tx_status name_pieces(making *m)
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

/* Adds control pieces and the unknown one as special tokens, and those of users, unless Split isolates them. */
static tx_status add_pieces(making *m, bool users)
{
    for (size_t id = 0; id < m->from->count; id++) {
        const tx_spm_type type = m->from->piece[id].type;
        if (type == TX_SPM_CONTROL || (type == TX_SPM_USER_DEFINED && users))
            TX_TRY(tx_making_add(&m->to, m->text[id], (int64_t)id, type == TX_SPM_CONTROL));
    }
    return TX_OK;
}

/* ---- Models ---------------------------------------------------------------------------------------- */

static tx_status add_scored(tx_making *m, const char *text, double score)
{
    tx_json *pair = tx_json_array();
    TX_TRY(tx_json_append(m->vocab, pair));
    TX_TRY(tx_json_append_string(pair, text));
    return tx_json_append_number(pair, score);
}

/* Makes a model of pieces with scores. The first ones may be replaced by the tokens of `first`. */
static tx_status make_unigram(making *m, const char *const *first, int64_t unk, bool fallback)
{
    TX_TRY(tx_json_set_string(m->to.model, "type", "Unigram"));
    TX_TRY(tx_json_set_int(m->to.model, "unk_id", unk));
    TX_TRY(tx_json_set_bool(m->to.model, "byte_fallback", fallback));
    TX_TRY(tx_json_set(m->to.model, "vocab", m->to.vocab = tx_json_array()));
    for (size_t i = 0; first && first[i]; i++)
        TX_TRY(add_scored(&m->to, first[i], 0));
    for (size_t id = first ? 3 : 0; id < m->from->count; id++)
        TX_TRY(add_scored(&m->to, m->text[id], (double)m->from->piece[id].score));
    return TX_OK;
}

/* Makes the merges from the scores. With `ordered`, as classes do it, from the order of the pieces of all types. */
static tx_status add_merges(const making *m, bool ordered)
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

static tx_status make_bpe(making *m, const char *unk, bool fallback, bool ordered)
{
    tx_json *model = m->to.model;
    TX_TRY(tx_json_set_string(model, "type", "BPE"));
    TX_TRY(tx_json_set_null(model, "dropout"));
    TX_TRY(unk ? tx_json_set_string(model, "unk_token", unk) : tx_json_set_null(model, "unk_token"));
    TX_TRY(tx_json_set_null(model, "continuing_subword_prefix"));
    TX_TRY(tx_json_set_null(model, "end_of_word_suffix"));
    TX_TRY(tx_json_set_bool(model, "fuse_unk", true));
    TX_TRY(tx_json_set_bool(model, "byte_fallback", fallback));
    TX_TRY(tx_json_set_bool(model, "ignore_merges", !ordered && m->user_defined));
    TX_TRY(tx_json_set(model, "vocab", m->to.vocab = tx_json_object()));
    for (size_t id = 0; id < m->from->count; id++)
        TX_TRY(tx_json_set_int(m->to.vocab, m->text[id], (int64_t)id));
    return add_merges(m, ordered);
}

/* ---- Parts ----------------------------------------------------------------------------------------- */

static tx_status add_charsmap(making *m)
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
static tx_status user_pattern(const making *m, tx_buffer *pattern)
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
static tx_status add_user_split(const making *m, tx_json *list)
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

/* Makes the parts that follow from the settings of the model. */
static tx_status make_parts(making *m, bool legacy)
{
    const tx_spm *from = m->from;
    tx_json *pre = NULL, *decoder = NULL;
    TX_TRY(add_charsmap(m));
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

/* ---- Classes --------------------------------------------------------------------------------------- */

static const char *piece_of(const making *m, int32_t id, const char *other)
{
    return id < 0 ? NULL : (size_t)id < m->from->count ? m->text[id] : other;
}

static tx_status make_plain(making *m)
{
    const tx_spm *from = m->from;
    bool legacy = true;
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "legacy", &legacy));
    TX_TRY(from->kind == TX_SPM_BPE ? make_bpe(m, m->text[from->unk_id], from->byte_fallback, false)
                                    : make_unigram(m, NULL, from->unk_id, from->byte_fallback));
    TX_TRY(make_parts(m, legacy));
    TX_TRY(add_pieces(m, false));
    TX_TRY(tx_making_default(&m->to, "tokenizer_class", "PreTrainedTokenizerFast"));
    const tx_roles roles = {.bos = piece_of(m, from->bos_id, "<s>"),
                            .eos = piece_of(m, from->eos_id, "</s>"),
                            .unk = m->text[from->unk_id]};
    TX_TRY(tx_making_roles(&m->to, &roles));
    return tx_making_ends(&m->to);
}

static tx_status make_llama(making *m)
{
    static const tx_roles roles = {.bos = "<s>", .eos = "</s>", .unk = "<unk>"};
    bool legacy = false, prefix = true;
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "legacy", &legacy));
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "add_prefix_space", &prefix));
    TX_TRY(make_bpe(m, NULL, true, true));
    TX_TRY(tx_json_set_null(m->to.json, "normalizer"));
    TX_TRY(tx_making_set(m->to.json, "pre_tokenizer",
                         !prefix  ? METASPACE("never", "false")
                         : legacy ? METASPACE("always", "false")
                                  : METASPACE("first", "false")));
    TX_TRY(tx_making_set(m->to.json, "decoder",
                         prefix ? SEQUENCE("decoders", REPLACE("String", MARK, " ") ", " FALLBACK ", " FUSE ", " STRIP)
                                : SEQUENCE("decoders", REPLACE("String", MARK, " ") ", " FALLBACK ", " FUSE)));
    TX_TRY(add_pieces(m, true));
    TX_TRY(tx_making_roles(&m->to, &roles));
    return tx_making_ends(&m->to);
}

static tx_status make_gemma(making *m)
{
    static const tx_roles roles = {.bos = "<bos>", .eos = "<eos>", .unk = "<unk>", .pad = "<pad>", .mask = "<mask>"};
    const char *unk;
    TX_TRY(tx_making_roles(&m->to, &roles));
    TX_TRY(tx_tokenizer_role(m->to.config, "unk_token", &unk));
    TX_TRY(make_bpe(m, unk, true, true));
    TX_TRY(tx_making_set(m->to.json, "normalizer", REPLACE("String", " ", MARK)));
    TX_TRY(tx_making_set(m->to.json, "pre_tokenizer",
                         "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, \"behavior\": \"MergedWithPrevious\","
                         " \"invert\": false}"));
    TX_TRY(tx_making_set(m->to.json, "decoder",
                         SEQUENCE("decoders", REPLACE("String", MARK, " ") ", " FALLBACK ", " FUSE)));
    TX_TRY(add_pieces(m, true));
    return tx_making_ends(&m->to);
}

/* Sets the parts of classes that split a text at spaces. */
static tx_status set_words(making *m)
{
    TX_TRY(tx_making_set(m->to.json, "pre_tokenizer",
                         SEQUENCE("pretokenizers", "{\"type\": \"WhitespaceSplit\"}, " METASPACE("always", "true"))));
    return tx_making_set(m->to.json, "decoder", METASPACE("always", "true"));
}

static tx_status make_t5(making *m)
{
    static const tx_roles roles = {.eos = "</s>", .unk = "<unk>", .pad = "<pad>"};
    static const char *const single[] = {"$A", "eos_token", NULL}, *const pair[] = {"$A", "eos_token", "$B",
                                                                                    "eos_token", NULL};
    int64_t extra = 100;
    TX_TRY(TX_JSON_OPTIONAL(int, m->to.config, "extra_ids", 0, 10000, &extra));
    TX_TRY(make_unigram(m, NULL, 2, false));
    TX_TRY(add_charsmap(m));
    TX_TRY(add_pieces(m, true));
    for (int64_t i = extra; i-- > 0;) {
        char text[40];
        snprintf(text, sizeof text, "<extra_id_%" PRId64 ">", i);
        TX_TRY(tx_making_add(&m->to, text, (int64_t)tx_json_size(m->to.vocab), true));
        TX_TRY(add_scored(&m->to, text, 0));
    }
    TX_TRY(tx_making_roles(&m->to, &roles));
    TX_TRY(set_words(m));
    return tx_making_template(&m->to, single, "00", pair, "0000");
}

static tx_status make_xlm_roberta(making *m)
{
    static const tx_roles roles = {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"};
    static const char *const single[] = {"bos_token", "$A", "eos_token", NULL};
    static const char *const pair[] = {"bos_token", "$A", "eos_token", "eos_token", "$B", "eos_token", NULL};
    static const char *const keys[] = {"bos_token", "pad_token", "eos_token", "unk_token"};
    const char *first[5] = {NULL}, *mask;
    TX_TRY(tx_making_roles(&m->to, &roles));
    for (int i = 0; i < 4; i++) {
        TX_TRY(tx_tokenizer_role(m->to.config, keys[i], &first[i]));
        if (!first[i])
            return tx_fail(TX_FORMAT, "%s is missing", keys[i]);
    }
    TX_TRY(make_unigram(m, first, 3, false));
    TX_TRY(tx_tokenizer_role(m->to.config, "mask_token", &mask));
    TX_TRY(mask ? add_scored(&m->to, mask, 0) : TX_OK);
    TX_TRY(add_charsmap(m));
    TX_TRY(set_words(m));
    return tx_making_template(&m->to, single, "000", pair, "000000");
}

static const char *const cls_single[] = {"cls_token", "$A", "sep_token", NULL};
static const char *const cls_pair[] = {"cls_token", "$A", "sep_token", "$B", "sep_token", NULL};

static tx_status make_albert(making *m)
{
    static const tx_roles roles = {"[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"};
    bool lower = true, accents = false;
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "do_lower_case", &lower));
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "keep_accents", &accents));
    TX_TRY(make_unigram(m, NULL, 1, false));
    TX_TRY(tx_making_append(m->normalizers, REPLACE("String", "``", "\\\"")));
    TX_TRY(tx_making_append(m->normalizers, REPLACE("String", "''", "\\\"")));
    TX_TRY(accents ? TX_OK : tx_making_append(m->normalizers, "{\"type\": \"NFKD\"}"));
    TX_TRY(accents ? TX_OK : tx_making_append(m->normalizers, "{\"type\": \"StripAccents\"}"));
    TX_TRY(lower ? tx_making_append(m->normalizers, "{\"type\": \"Lowercase\"}") : TX_OK);
    TX_TRY(add_charsmap(m));
    TX_TRY(add_pieces(m, true));
    TX_TRY(tx_making_roles(&m->to, &roles));
    TX_TRY(set_words(m));
    return tx_making_template(&m->to, cls_single, "000", cls_pair, "00011");
}

static tx_status make_deberta(making *m)
{
    static const tx_roles roles = {"[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};
    bool lower = false, split = false, prefix = true;
    const char *unk, *metaspace;
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "do_lower_case", &lower));
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "split_by_punct", &split));
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "add_prefix_space", &prefix));
    TX_TRY(tx_making_roles(&m->to, &roles));
    TX_TRY(tx_tokenizer_role(m->to.config, "unk_token", &unk));
    const int32_t id = unk ? tx_named_find(m->names, m->from->count, unk) : -1;
    TX_TRY(make_unigram(m, NULL, id >= 0 && m->from->piece[id].score == 0 ? id : m->from->unk_id, false));
    TX_TRY(lower ? tx_making_append(m->normalizers, "{\"type\": \"Lowercase\"}") : TX_OK);
    TX_TRY(tx_making_append(m->normalizers, REPLACE("Regex", "\\\\s{2,}|[\\\\n\\\\r\\\\t]", " ")));
    TX_TRY(tx_making_append(m->normalizers, "{\"type\": \"NFC\"}"));
    TX_TRY(tx_making_append(m->normalizers, "{\"type\": \"Strip\", \"strip_left\": false, \"strip_right\": true}"));
    metaspace = prefix ? METASPACE("always", "true") : METASPACE("first", "true");
    TX_TRY(tx_making_set(m->to.json, "decoder", metaspace));
    TX_TRY(tx_making_set(m->to.json, "pre_tokenizer", SEQUENCE("pretokenizers", )));
    tx_json *pre = tx_json_find(tx_json_find(m->to.json, "pre_tokenizer"), "pretokenizers");
    TX_TRY(split ? tx_making_append(pre, "{\"type\": \"Punctuation\", \"behavior\": \"Isolated\"}") : TX_OK);
    TX_TRY(tx_making_append(pre, metaspace));
    TX_TRY(add_pieces(m, true));
    return tx_making_template(&m->to, cls_single, "000", cls_pair, "00011");
}

/* Classes of transformers; kind 0 means both. */
static const struct {
    const char *name;
    int32_t kind;
    tx_status (*make)(making *m);
} classes[] = {
    {"", 0, make_plain},
    {"PreTrainedTokenizer", 0, make_plain},
    {"TokenizersBackend", 0, make_plain},
    {"LlamaTokenizer", TX_SPM_BPE, make_llama},
    {"GemmaTokenizer", TX_SPM_BPE, make_gemma},
    {"T5Tokenizer", TX_SPM_UNIGRAM, make_t5},
    {"XLMRobertaTokenizer", TX_SPM_UNIGRAM, make_xlm_roberta},
    {"AlbertTokenizer", TX_SPM_UNIGRAM, make_albert},
    {"DebertaV2Tokenizer", TX_SPM_UNIGRAM, make_deberta},
};

static tx_status make(making *m)
{
    char name[64];
    size_t i = 0;
    TX_TRY(tx_making_class(&m->to, name));
    while (i < sizeof classes / sizeof classes[0] && strcmp(classes[i].name, name) != 0)
        i++;
    if (i == sizeof classes / sizeof classes[0])
        return tx_fail(TX_UNSUPPORTED, "tokenizer_class %s: save the tokenizer as tokenizer.json", name);
    if (classes[i].kind && classes[i].kind != m->from->kind)
        return tx_fail(TX_UNSUPPORTED, "tokenizer_class %s with model type %" PRId32 " is not supported", name,
                       m->from->kind);
    TX_TRY(tx_making_begin(&m->to, frame));
    TX_TRY(tx_json_get(tx_json_find(m->to.json, "normalizer"), "normalizers", TX_JSON_ARRAY, &m->normalizers));
    TX_TRY(name_pieces(m));
    return classes[i].make(m);
}

tx_status tx_make_of_spm(const char *data, size_t size, tx_making *to)
{
    tx_spm from = {0};
    TX_TRY(tx_spm_read(data, size, &from));
    making m = {.to = *to, .from = &from};
    const tx_status status = make(&m);
    *to = m.to;
    for (size_t id = 0; id < from.count && m.text; id++)
        free(m.text[id]);
    free(m.text);
    free(m.names);
    tx_spm_free(&from);
    return status;
}
