/* SPDX-License-Identifier: Apache-2.0
 * Whole characters of texts in the making, stop strings, and generation_config.json. */
#include "models/generate/generate.h"
#include "models/generate/stream.h"
#include "tests/arch/config_text.h"

/* ---- Whole characters ---------------------------------------------------------------------------- */

typedef struct parts {
    char text[128];
    size_t size;
} parts;

/* Each part that is written is followed by a bar. */
static void append_piece(void *context, const char *bytes, size_t size)
{
    parts *p = context;
    memcpy(p->text + p->size, bytes, size);
    p->size += size;
    p->text[p->size++] = '|';
}

static void check_parts(const char *bytes, const char *want)
{
    for (size_t piece = 1; piece <= 4; piece++) { /* however the tokens cut them */
        parts p = {{0}, 0};
        tx_stream stream = {{0}, 0};
        size_t size = strlen(bytes);
        for (size_t at = 0; at < size; at += piece)
            tx_stream_add(&stream, bytes + at, size - at < piece ? size - at : piece, append_piece, &p);
        tx_stream_end(&stream, append_piece, &p);
        if (p.size != strlen(want) || memcmp(p.text, want, p.size) != 0)
            fail_msg("%s became %.*s, not %s", bytes, (int)p.size, p.text, want);
    }
}

static void characters_come_whole(void **state)
{
    check_parts("ab", "a|b|");
    check_parts("\xC3\xA9!", "\xC3\xA9|!|");
    check_parts("\xE2\x82\xAC", "\xE2\x82\xAC|");
    check_parts("x\xF0\x9F\x98\x80y", "x|\xF0\x9F\x98\x80|y|");
    /* Invalid bytes pass: a lone continuation, a lead without one, an overlong form, a surrogate, a code too high. */
    check_parts("\x80z", "\x80|z|");
    check_parts("\xC3z", "\xC3|z|");
    check_parts("\xE2\x82z", "\xE2\x82|z|");
    check_parts("\xC0\xAF", "\xC0|\xAF|");
    check_parts("\xE0\x80\x80", "\xE0|\x80|\x80|");
    check_parts("\xED\xA0\x80", "\xED|\xA0|\x80|");
    check_parts("\xF4\x90\x80\x80", "\xF4|\x90|\x80|\x80|");
    check_parts("\xF0\x9F\x98", "\xF0\x9F\x98|"); /* the end of the text */
    check_parts("\xE2\xC3\xA9", "\xE2|\xC3\xA9|");
}

static void nothing_waits_that_is_whole(void **state)
{
    parts p = {{0}, 0};
    tx_stream stream = {{0}, 0};
    tx_stream_add(&stream, "\xE2\x82", 2, append_piece, &p);
    assert_int_equal(p.size, 0);
    tx_stream_add(&stream, "\xAC", 1, append_piece, &p);
    assert_int_equal(p.size, 4);
    tx_stream_end(&stream, append_piece, &p);
    assert_int_equal(p.size, 4);
}

/* ---- Stop strings --------------------------------------------------------------------------------- */

static bool stops(const tx_stop *stop, const char *text)
{
    int32_t ids[64];
    size_t size = strlen(text);
    for (size_t i = 0; i < size; i++)
        ids[i] = (unsigned char)text[i];
    return tx_stop_reached(stop, ids, (int64_t)size);
}

static void stop_strings(void **state)
{
    static const char *const words[] = {"end.", "aab", "\xC3\xA9"};
    tx_tokenizer *tokenizer;
    assert_ok(tx_tokenizer_bytes(&tokenizer));
    tx_stop stop = {tokenizer, words, 3};
    assert_true(stops(&stop, "the end."));
    assert_true(stops(&stop, "end."));
    assert_false(stops(&stop, "nd."));
    assert_false(stops(&stop, "end"));
    assert_false(stops(&stop, "the end. ")); /* the last token is not part of it */
    assert_true(stops(&stop, "aaab"));
    assert_true(stops(&stop, "caf\xC3\xA9"));
    assert_false(stops(&stop, "caf\xC3"));
    assert_false(stops(&stop, ""));
    const int32_t with_end[] = {'e', 'n', 'd', TX_BYTES_END, '.'}, only_end[] = {'e', 'n', 'd', '.', TX_BYTES_END};
    assert_false(tx_stop_reached(&stop, with_end, 5)); /* <|endoftext|> is text between */
    assert_false(tx_stop_reached(&stop, only_end, 5));
    stop.count = 0;
    assert_false(stops(&stop, "the end."));
    tx_tokenizer_free(tokenizer);
}

/* ---- generation_config.json -------------------------------------------------------------------------- */

static void warn(void *context, const char *message)
{
    snprintf(context, 256, "%s", message);
}

/* With a config.json whose eos_token_id is 50256, and with `json` as generation_config.json, unless it is NULL. */
static tx_status read_of(const char *config_text, const char *folder, const char *json, tx_generation *g,
                         char warning[256])
{
    tx_config *config = NULL;
    bool has = false;
    *warning = '\0';
    assert_ok(read_text(config_text, &config));
    if (json)
        assert_ok(tx_file_write(TX_PATH(folder, "generation_config.json"), json, strlen(json)));
    const tx_status status =
        tx_generation_read(config, folder, &(tx_reporter){.warn = warn, .context = warning}, g, &has);
    assert_true(status || has == (json || strstr(config_text, "num_beams")));
    tx_config_free(config);
    return status;
}

static tx_status read_config(const char *folder, const char *json, tx_generation *g, char warning[256])
{
    return read_of("{\"model_type\": \"gpt2\"}", folder, json, g, warning);
}

static void configuration_of_a_folder(void **state)
{
    char *folder = make_scratch(), warning[256];
    tx_generation g;
    assert_ok(read_config(folder, NULL, &g, warning)); /* none: the defaults */
    assert_int_equal(g.top_k, 50);
    assert_int_equal(g.eos_token_id[0], 50256);
    assert_ok(
        read_config(folder,
                    "{\"do_sample\": true, \"temperature\": 0.7, \"top_k\": 10, \"top_p\": 0.9, \"max_new_tokens\": 5,"
                    " \"min_new_tokens\": 2, \"repetition_penalty\": 1.2, \"length_penalty\": null, \"num_beams\": 1,"
                    " \"eos_token_id\": [3, 4], \"early_stopping\": \"never\", \"transformers_version\": \"5.0\"}",
                    &g, warning));
    assert_true(g.do_sample && g.top_k == 10 && g.max_new_tokens == 5 && g.min_new_tokens == 2);
    assert_true(g.temperature == 0.7 && g.top_p == 0.9 && g.repetition_penalty == 1.2 && g.length_penalty == 1.0);
    assert_true(g.eos_count == 2 && g.eos_token_id[1] == 4 && g.early_stopping == TX_EARLY_NEVER);
    assert_true(tx_generation_ends(&g, 3) && !tx_generation_ends(&g, 50256));
    const char *stop[2] = {"", ""};
    tx_generation more = g;
    assert_ok(tx_generation_add_end(&more, 3, NULL, NULL)); /* it is one already */
    assert_ok(tx_generation_add_end(&more, 50256, NULL, NULL));
    assert_true(more.eos_count == 3 && more.eos_token_id[2] == 50256 && more.stop_count == 0);
    more.stop_strings = (const char *const[]){"a"};
    more.stop_count = 1;
    assert_ok(tx_generation_add_end(&more, -1, "b", stop));
    assert_true(more.stop_count == 2 && more.stop_strings == stop && *stop[0] == 'a' && *stop[1] == 'b');
    more.eos_count = TX_GENERATION_EOS;
    assert_refused(tx_generation_add_end(&more, 50255, NULL, NULL), TX_UNSUPPORTED, "eos_token_id");
    assert_string_equal(warning, "");
    assert_ok(
        read_config(folder, "{\"pad_token_id\": 1, \"eos_token_id\": 2, \"no_repeat_ngram_size\": 3}", &g, warning));
    assert_true(g.eos_count == 1 && g.eos_token_id[0] == 2);
    assert_non_null(strstr(warning, "no_repeat_ngram_size"));
    assert_ok(read_config(folder, "{\"no_repeat_ngram_size\": 0, \"early_stopping\": true}", &g, warning));
    assert_non_null(strstr(warning, "has no eos_token_id"));
    assert_int_equal(g.eos_token_id[0], 50256);
    assert_ok(read_config(folder, "{\"max_length\": 20}", &g, warning));
    assert_true(tx_generation_limit(&g, 2) == 18 && tx_generation_limit(&g, 20) == 0);
    assert_ok(read_config(folder, "{\"max_length\": 20, \"max_new_tokens\": 5}", &g, warning));
    assert_true(tx_generation_limit(&g, 2) == 5 && tx_generation_limit(&g, 20) == 5);
    assert_refused(read_config(folder, "{\"num_beams\": ", &g, warning), TX_FORMAT, "generation_config.json");
    remove_scratch(folder);
}

/* A value that cannot be followed is named, and the default holds. Values that contradict each other may be overridden.
 */
static void values_that_are_not_followed(void **state)
{
    static const struct {
        const char *value, *warning;
    } all[] = {
        {"\"max_length\": 0", "max_length"},
        {"\"temperature\": -1", "temperature: -1 is below 0"},
        {"\"temperature\": \"hot\"", "temperature"},
        {"\"top_p\": 1.5", "top_p: 1.5 is not in 0..1"},
        {"\"top_k\": 1.5", "top_k"},
        {"\"min_p\": 2", "min_p: 2 is not in 0..1"},
        {"\"typical_p\": -1", "typical_p: -1 is not in 0..1"},
        {"\"min_length\": -2", "min_length"},
        {"\"do_sample\": 1", "do_sample"},
        {"\"repetition_penalty\": 0", "repetition_penalty: 0 is not above 0"},
        {"\"prompt_lookup_num_tokens\": 10", "prompt_lookup_num_tokens: 10 is not in 0..7"},
        {"\"early_stopping\": \"soon\"", "early_stopping"},
        {"\"forced_bos_token_id\": 0", "forced_bos_token_id is not supported"},
        {"\"top_h\": 1", "top_h is not supported"},
        {"\"bos_token_id\": 1", "bos_token_id differs"},
        {"\"decoder_start_token_id\": 1", "decoder_start_token_id differs"},
        {"\"chat_format\": \"raw\"", "chat_format is no setting"},
        {"\"top_k\": -1, \"top_p\": 0, \"bad_words_ids\": [], \"typical_p\": 1.0, \"min_p\": null", ""},
        {"\"num_beams\": 4, \"do_sample\": true, \"bos_token_id\": 50256, \"use_cache\": true", ""},
    };
    char *folder = make_scratch(), warning[256], json[200];
    tx_generation g;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        snprintf(json, sizeof json, "{\"eos_token_id\": 50256, %s}", all[i].value);
        assert_ok(read_config(folder, json, &g, warning));
        if (*all[i].warning ? !strstr(warning, all[i].warning) : *warning)
            fail_msg("%s: the warning is: %s", json, warning);
        assert_true(!*warning || (g.temperature == 1.0 && g.top_p == 1.0 && g.top_k == 50 && !g.do_sample));
        assert_true(!*warning || (g.max_length == -1 && !g.min_length && g.repetition_penalty == 1.0));
    }
    assert_int_equal(g.num_beams, 4);
    assert_refused(tx_generation_check(&g), TX_UNSUPPORTED, "num_beams");
    remove_scratch(folder);
}

/* Without a generation_config.json its keys in config.json count, as old versions of transformers wrote them. */
static void settings_in_config(void **state)
{
    char *folder = make_scratch(), warning[256];
    tx_generation g;
    assert_ok(read_of("{\"model_type\": \"gpt2\", \"num_beams\": 3, \"min_length\": 12, \"use_cache\": true, "
                      "\"bos_token_id\": 3, \"top_h\": 0.1}",
                      folder, NULL, &g, warning));
    assert_true(g.num_beams == 3 && g.min_length == 12 && g.min_new_tokens == -1);
    assert_int_equal(tx_generation_least(&g, 4), 8);
    assert_non_null(strstr(warning, "config.json: top_h"));
    assert_ok(read_of("{\"model_type\": \"gpt2\", \"num_beams\": 3}", folder,
                      "{\"eos_token_id\": 1, \"min_length\": 9, \"min_new_tokens\": 0}", &g, warning));
    assert_true(g.num_beams == 1 && tx_generation_least(&g, 4) == 0 && !*warning);
    remove_scratch(folder);
}

/* Llama 3.1's config.json has several ids; without a generation_config.json each of them ends a text. */
static void ends_in_config(void **state)
{
    static const struct {
        const char *ids;
        int32_t count, id[3];
    } known[] = {{"[128001, 128008, 128009]", 3, {128001, 128008, 128009}},
                 {"[128001]", 1, {128001}},
                 {"7", 1, {7}},
                 {"null", 0, {0}}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char text[128];
        tx_config *config = NULL;
        tx_generation g;
        snprintf(text, sizeof text, "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"eos_token_id\": %s}",
                 known[i].ids);
        assert_ok(read_text(text, &config));
        assert_ok(tx_generation_read(config, NULL, NULL, &g, NULL));
        assert_int_equal(g.eos_count, known[i].count);
        for (int32_t k = 0; k < g.eos_count; k++)
            assert_int_equal(g.eos_token_id[k], known[i].id[k]);
        tx_config_free(config);
    }
    tx_config *config = NULL;
    tx_generation g;
    assert_ok(read_text("{\"model_type\": \"gpt2\"}", &config)); /* no key: transformers' default */
    assert_ok(tx_generation_read(config, NULL, NULL, &g, NULL));
    assert_true(g.eos_count == 1 && g.eos_token_id[0] == 50256);
    tx_config_free(config);
}

/* One table: values from texts, from the body of a request, and from a program's options. */
static void settings_by_name(void **state)
{
    static const struct {
        const char *name, *value, *refused;
    } all[] = {
        {"max_new_tokens", "5", NULL},
        {"temperature", "0.5", NULL},
        {"top_p", "1.5", "top_p 1.5: too large: must be between 0 and 1"},
        {"num_beams", "0", "num_beams 0: too small"},
        {"early_stopping", "never", NULL},
        {"eos_token_id", "7,9", NULL},
        {"eos_token_id", "7,x", "eos_token_id 7,x: give ids"},
        {"top_k", "many", "top_k many: not a whole number"},
        {"max_new_token", "5", "did you mean max_new_tokens?"},
    };
    tx_generation g = tx_generation_defaults(-1), how = g;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].refused)
            assert_refused(tx_generation_set(&g, all[i].name, all[i].value),
                           i + 1 == sizeof all / sizeof all[0] ? TX_NOT_FOUND : TX_INVALID, all[i].refused);
        else
            assert_ok(tx_generation_set(&g, all[i].name, all[i].value));
    assert_true(g.max_new_tokens == 5 && g.temperature == 0.5 && g.do_sample && g.early_stopping == TX_EARLY_NEVER);
    assert_true(g.eos_count == 2 && g.eos_token_id[1] == 9 && g.top_p == 1.0 && g.num_beams == 1);
    tx_json *body =
        tx_json_pack("{s:I, s:f, s:I}", "max_tokens", INT64_C(6), "temperature", 0.25, "max_length", INT64_C(3));
    assert_ok(tx_generation_read_body(&g, body));
    assert_true(g.max_new_tokens == 6 && g.temperature == 0.25 && g.max_length == -1);
    tx_json_free(body);
    how.top_k = -7;
    how.num_beams = 2;
    how.do_sample = true;
    how.temperature = -1;
    assert_refused(tx_generation_check(&how), TX_INVALID, "temperature: -1 is below 0; top_k: -7 is not in");
    assert_non_null(strstr(tx_error(), "num_beams 2 with do_sample"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_come_whole),
        cmocka_unit_test(nothing_waits_that_is_whole),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(configuration_of_a_folder),
        cmocka_unit_test(values_that_are_not_followed),
        cmocka_unit_test(settings_in_config),
        cmocka_unit_test(ends_in_config),
        cmocka_unit_test(settings_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
