/* SPDX-License-Identifier: Apache-2.0
 * Makes a tokenizer.json from a model of SentencePiece. Without a class the parts follow from the settings of the
 * model. A class of transformers has its own parts. */
#include "models/tokenizer/tokenizer_spm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char frame[] = "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [],"
                            " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": []}, \"pre_tokenizer\": null,"
                            " \"post_processor\": null, \"decoder\": null, \"model\": {}}";

/* ---- Classes --------------------------------------------------------------------------------------- */

static const char *piece_of(const tx_spm_making *m, int32_t id, const char *other)
{
    return id < 0 ? NULL : (size_t)id < m->from->count ? m->text[id] : other;
}

static tx_status make_plain(tx_spm_making *m)
{
    const tx_spm *from = m->from;
    bool legacy = true;
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "legacy", &legacy));
    TX_TRY(from->kind == TX_SPM_BPE ? tx_spm_make_bpe(m, m->text[from->unk_id], from->byte_fallback, false)
                                    : tx_spm_make_unigram(m, NULL, from->unk_id, from->byte_fallback));
    TX_TRY(tx_spm_make_parts(m, legacy));
    TX_TRY(tx_spm_add_pieces(m, false));
    TX_TRY(tx_making_default(&m->to, "tokenizer_class", "PreTrainedTokenizerFast"));
    const tx_roles roles = {.bos = piece_of(m, from->bos_id, "<s>"),
                            .eos = piece_of(m, from->eos_id, "</s>"),
                            .unk = m->text[from->unk_id]};
    TX_TRY(tx_making_roles(&m->to, &roles));
    return tx_making_ends(&m->to);
}

static tx_status make_llama(tx_spm_making *m)
{
    static const tx_roles roles = {.bos = "<s>", .eos = "</s>", .unk = "<unk>"};
    bool legacy = false, prefix = true;
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "legacy", &legacy));
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "add_prefix_space", &prefix));
    TX_TRY(tx_spm_make_bpe(m, NULL, true, true));
    TX_TRY(tx_json_set_null(m->to.json, "normalizer"));
    TX_TRY(tx_making_set(m->to.json, "pre_tokenizer",
                         !prefix  ? METASPACE("never", "false")
                         : legacy ? METASPACE("always", "false")
                                  : METASPACE("first", "false")));
    TX_TRY(tx_making_set(m->to.json, "decoder",
                         prefix ? SEQUENCE("decoders", REPLACE("String", MARK, " ") ", " FALLBACK ", " FUSE ", " STRIP)
                                : SEQUENCE("decoders", REPLACE("String", MARK, " ") ", " FALLBACK ", " FUSE)));
    TX_TRY(tx_spm_add_pieces(m, true));
    TX_TRY(tx_making_roles(&m->to, &roles));
    return tx_making_ends(&m->to);
}

static tx_status make_gemma(tx_spm_making *m)
{
    static const tx_roles roles = {.bos = "<bos>", .eos = "<eos>", .unk = "<unk>", .pad = "<pad>", .mask = "<mask>"};
    const char *unk;
    TX_TRY(tx_making_roles(&m->to, &roles));
    TX_TRY(tx_tokenizer_role(m->to.config, "unk_token", &unk));
    TX_TRY(tx_spm_make_bpe(m, unk, true, true));
    TX_TRY(tx_making_set(m->to.json, "normalizer", REPLACE("String", " ", MARK)));
    TX_TRY(tx_making_set(m->to.json, "pre_tokenizer",
                         "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, \"behavior\": \"MergedWithPrevious\","
                         " \"invert\": false}"));
    TX_TRY(tx_making_set(m->to.json, "decoder",
                         SEQUENCE("decoders", REPLACE("String", MARK, " ") ", " FALLBACK ", " FUSE)));
    TX_TRY(tx_spm_add_pieces(m, true));
    return tx_making_ends(&m->to);
}

/* Sets the parts of classes that split a text at spaces. */
static tx_status set_words(tx_spm_making *m)
{
    TX_TRY(tx_making_set(m->to.json, "pre_tokenizer",
                         SEQUENCE("pretokenizers", "{\"type\": \"WhitespaceSplit\"}, " METASPACE("always", "true"))));
    return tx_making_set(m->to.json, "decoder", METASPACE("always", "true"));
}

static tx_status make_t5(tx_spm_making *m)
{
    static const tx_roles roles = {.eos = "</s>", .unk = "<unk>", .pad = "<pad>"};
    static const char *const single[] = {"$A", "eos_token", NULL}, *const pair[] = {"$A", "eos_token", "$B",
                                                                                    "eos_token", NULL};
    int64_t extra = 100;
    TX_TRY(TX_JSON_OPTIONAL(int, m->to.config, "extra_ids", 0, 10000, &extra));
    TX_TRY(tx_spm_make_unigram(m, NULL, 2, false));
    TX_TRY(tx_spm_add_charsmap(m));
    TX_TRY(tx_spm_add_pieces(m, true));
    for (int64_t i = extra; i-- > 0;) {
        char text[40];
        snprintf(text, sizeof text, "<extra_id_%" PRId64 ">", i);
        TX_TRY(tx_making_add(&m->to, text, (int64_t)tx_json_size(m->to.vocab), true));
        TX_TRY(tx_spm_add_scored(&m->to, text, 0));
    }
    TX_TRY(tx_making_roles(&m->to, &roles));
    TX_TRY(set_words(m));
    return tx_making_template(&m->to, single, "00", pair, "0000");
}

static tx_status make_xlm_roberta(tx_spm_making *m)
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
    TX_TRY(tx_spm_make_unigram(m, first, 3, false));
    TX_TRY(tx_tokenizer_role(m->to.config, "mask_token", &mask));
    TX_TRY(mask ? tx_spm_add_scored(&m->to, mask, 0) : TX_OK);
    TX_TRY(tx_spm_add_charsmap(m));
    TX_TRY(set_words(m));
    return tx_making_template(&m->to, single, "000", pair, "000000");
}

static const char *const cls_single[] = {"cls_token", "$A", "sep_token", NULL};
static const char *const cls_pair[] = {"cls_token", "$A", "sep_token", "$B", "sep_token", NULL};

static tx_status make_albert(tx_spm_making *m)
{
    static const tx_roles roles = {"[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"};
    bool lower = true, accents = false;
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "do_lower_case", &lower));
    TX_TRY(TX_JSON_OPTIONAL(bool, m->to.config, "keep_accents", &accents));
    TX_TRY(tx_spm_make_unigram(m, NULL, 1, false));
    TX_TRY(tx_making_append(m->normalizers, REPLACE("String", "``", "\\\"")));
    TX_TRY(tx_making_append(m->normalizers, REPLACE("String", "''", "\\\"")));
    TX_TRY(accents ? TX_OK : tx_making_append(m->normalizers, "{\"type\": \"NFKD\"}"));
    TX_TRY(accents ? TX_OK : tx_making_append(m->normalizers, "{\"type\": \"StripAccents\"}"));
    TX_TRY(lower ? tx_making_append(m->normalizers, "{\"type\": \"Lowercase\"}") : TX_OK);
    TX_TRY(tx_spm_add_charsmap(m));
    TX_TRY(tx_spm_add_pieces(m, true));
    TX_TRY(tx_making_roles(&m->to, &roles));
    TX_TRY(set_words(m));
    return tx_making_template(&m->to, cls_single, "000", cls_pair, "00011");
}

static tx_status make_deberta(tx_spm_making *m)
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
    TX_TRY(tx_spm_make_unigram(m, NULL, id >= 0 && m->from->piece[id].score == 0 ? id : m->from->unk_id, false));
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
    TX_TRY(tx_spm_add_pieces(m, true));
    return tx_making_template(&m->to, cls_single, "000", cls_pair, "00011");
}

/* Classes of transformers; kind 0 means both. */
static const struct {
    const char *name;
    int32_t kind;
    tx_status (*make)(tx_spm_making *m);
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

static tx_status make(tx_spm_making *m)
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
    TX_TRY(tx_spm_name_pieces(m));
    return classes[i].make(m);
}

tx_status tx_make_of_spm(const char *data, size_t size, tx_making *to)
{
    tx_spm from = {0};
    TX_TRY(tx_spm_read(data, size, &from));
    tx_spm_making m = {.to = *to, .from = &from};
    const tx_status status = make(&m);
    *to = m.to;
    for (size_t id = 0; id < from.count && m.text; id++)
        free(m.text[id]);
    free(m.text);
    free(m.names);
    tx_spm_free(&from);
    return status;
}
