/* SPDX-License-Identifier: Apache-2.0
 * Model cards: their text, and odd names. With a folder: writes the two cards there that card.py reads. */
#include "models/train/card.h"
#include "tests/scratch.h"

static const char ordinary[] =
    "{\"base_model\": \"openai-community/gpt2\", \"dataset\": \"wikitext\", \"device\": \"cpu: AMD EPYC\","
    "\"hyperparameters\": {\"learning_rate\": 5e-05, \"seed\": 42, \"lr_scheduler_type\": \"linear\","
    "\"optimizer\": \"adamw with betas=(0.9,0.999)\"},"
    "\"results\": {\"eval_loss\": 3.25, \"eval_runtime\": 1.5, \"eval_samples\": 7, \"perplexity\": 25.79034, "
    "\"train_loss\": 3.5},"
    "\"log\": [{\"step\": 5, \"epoch\": 0.5, \"eval_loss\": 4}, {\"step\": 8, \"epoch\": 0.8, \"loss\": 3.75},"
    "{\"step\": 10, \"epoch\": 1, \"eval_loss\": 3.25}]}";

/* Names that YAML would misread without quotes; card.py expects the first two. */
static const char odd[] = "{\"base_model\": \"./my model: \\\"x\\\" # [y]\", \"dataset\": \"no\\n: - "
                          "\\u0085\\u2028\\u007f\\ufeff\\u00e9\\ud83d\\ude00|\\\\'\","
                          "\"hyperparameters\": {\"a*b\": \"<c>\"}, \"results\": {\"perplexity\": 1.5}}";

static void write_card(const char *folder, const char *text)
{
    tx_json *facts;
    assert_ok(tx_json_parse(text, strlen(text), "facts", &facts));
    assert_ok(tx_card_write(folder, facts));
    tx_json_free(facts);
}

static char *read_card(const char *folder)
{
    char *text, *path = TX_PATH(folder, "README.md");
    size_t size;
    assert_ok(tx_file_read(path, 1 << 20, &text, &size));
    return text;
}

static void holds(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in\n%s", part, text);
}

static void test_ordinary(void **state)
{
    char *folder = make_scratch();
    write_card(folder, ordinary);
    char *text = read_card(folder);
    assert_int_equal(strncmp(text, "---\nlibrary_name: transformers\n", 31), 0);
    holds(text, "\nbase_model: openai-community/gpt2\n");
    holds(text, "\ndatasets:\n- wikitext\n");
    holds(text,
          "fine-tuned version of [openai-community/gpt2](https://huggingface.co/openai-community/gpt2) on the data "
          "of wikitext.\n");
    holds(text, "evaluation set:\n- Loss: 3.2500\n- Samples: 7\n- Perplexity: 25.7903\n");
    holds(text, "during training:\n- learning_rate: 5e-5\n- seed: 42\n- lr_scheduler_type: linear\n- optimizer: adamw "
                "with betas=(0.9,0.999)\n");
    holds(text, "| No log | 0.5000 | 5 | 4 |\n| 3.7500 | 1 | 10 | 3.2500 |\n\n- train_loss: 3.5000\n");
    holds(text, "- TX " TX_VERSION "\n- Device: cpu: AMD EPYC\n");
    free(text);
    remove_scratch(folder);
}

static void test_odd(void **state)
{
    char *folder = make_scratch();
    write_card(folder, odd);
    char *text = read_card(folder);
    assert_null(strstr(text, "base_model:"));
    assert_null(strstr(text, "datasets:"));
    holds(text, "- a\\*b: \\<c\\>\n");
    holds(text, "fine-tuned version of ./my model: \"x\" # \\[y\\] on");
    free(text);
    write_card(folder, "{}");
    text = read_card(folder);
    holds(text, "This model was trained from scratch on an unknown dataset.");
    free(text);
    tx_json *array = tx_json_array();
    assert_refused(tx_card_write(folder, array), TX_INVALID, "not an object");
    tx_json_free(array);
    char *strange = TX_PATH(folder, "\xff: \"");
    assert_ok(tx_folder_create(strange));
    write_card(strange, "{}");
    text = read_card(strange);
    holds(text, "\n- name: \"_: \\\"\"\n");
    free(text);
    tx_json *facts = tx_json_object();
    assert_refused(tx_card_write("/dev/null/x", facts), TX_NOT_FOUND, "README.md");
    tx_json_free(facts);
    remove_scratch(folder);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        write_card(argv[1], ordinary);
        write_card(argv[2], odd);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ordinary),
        cmocka_unit_test(test_odd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
