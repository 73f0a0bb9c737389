/* SPDX-License-Identifier: Apache-2.0
 * Lists of words as model input. */
#include "models/tokenizer/joined.h"
#include "tests/text/folders.h"

/* The words of a list have a space before them where run_ner.py with transformers 5.23 has it. */
static void test_words(void **state)
{
    static const struct {
        const char *config, *type;
        bool spaces;
    } cases[] = {
        {"{}", "roberta", true},
        {"{\"tokenizer_class\": \"RobertaTokenizer\"}", "roberta", true},
        {"{\"tokenizer_class\": \"RobertaTokenizer\"}", "bert", false},
        {"{\"tokenizer_class\": \"RobertaTokenizer\", \"add_prefix_space\": true}", "bert", true},
        {"{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}", "roberta", false},
        {"{\"tokenizer_class\": \"TokenizersBackend\", \"add_prefix_space\": true}", "roberta", false},
        {"{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}", "modernbert", false},
        {"{}", "modernbert", false},
    };
    char *folder = small_folder();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tx_ids ids = {0}, types = {0}, word = {0};
        tx_joiner joiner;
        bool used;
        write_in(folder, "tokenizer_config.json", cases[i].config);
        tx_tokenizer *t = open_tokenizer(folder);
        assert_ok(tx_joiner_open(t, &joiner));
        tx_joiner_follow(&joiner, cases[i].type);
        tx_joiner_begin(&joiner);
        assert_ok(tx_joiner_word(&joiner, "the", 3, 8, &used));
        assert_ok(tx_joiner_word(&joiner, " the", 4, 8, &used));
        assert_ok(tx_joiner_end(&joiner, 8, &(tx_joined_words){&ids, &types, &word}));
        assert_int_equal(ids.id[0] == tx_tokenizer_find(t, " the"), cases[i].spaces);
        assert_int_equal(ids.id[ids.count - 1], tx_tokenizer_find(t, " the"));
        free(ids.id);
        free(types.id);
        free(word.id);
        tx_joiner_close(&joiner);
        tx_tokenizer_free(t);
    }
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
