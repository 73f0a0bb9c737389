/* SPDX-License-Identifier: Apache-2.0
 * The part of a dataset that is used, how it is cut into blocks, and the digest of these. */

#include "tests/data/datasets.h"

/* The byte at place i of all texts together is i modulo this. */
#define PERIOD 127

/* Python's results for these texts: datasets' slice in percent, then run_clm's group_texts over batches of `group`. */
static size_t group_texts(const size_t *lengths, size_t texts, const tx_dataset_options *o, uint8_t *out)
{
    size_t first = (size_t)lrint(o->from * (double)texts / 100.0), last = (size_t)lrint(o->to * (double)texts / 100.0);
    size_t block = (size_t)o->block, group = o->group ? (size_t)o->group : texts, count = 0, at = 0;
    for (size_t i = 0; i < first; i++)
        at += lengths[i];
    for (size_t batch = first; batch < last; batch += group) {
        size_t total = 0;
        for (size_t i = batch; i < batch + group && i < last; i++)
            total += lengths[i];
        for (size_t i = 0; i < total / block * block; i++)
            out[count++] = (uint8_t)((at + i) % PERIOD);
        at += total;
    }
    size_t most = (size_t)o->most_blocks * block;
    return most && most < count ? most : count;
}

static void cut_as_python_does(void **state)
{
    enum { TEXTS = 201 };
    static const double parts[][2] = {{0, 100}, {0, 5}, {5, 100}, {12.5, 50}, {99, 100}, {33.3, 66.7}};
    size_t lengths[TEXTS], total = 0, used = 0;
    char *text = malloc(TEXTS * 64 * 8);
    uint64_t random = 3;
    assert_non_null(text);
    for (size_t i = 0; i < TEXTS; i++) {
        lengths[i] = i % 7 == 3 ? 0 : (size_t)(next_random(&random) % 60);
        used += (size_t)sprintf(text + used, "{\"text\":\"");
        for (size_t k = 0; k < lengths[i]; k++)
            used += (size_t)sprintf(text + used, "\\u%04x", (unsigned)((total + k) % PERIOD));
        used += (size_t)sprintf(text + used, "\"}\n");
        total += lengths[i];
    }
    uint8_t *want = malloc(total);
    int compared = 0;
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++)
        for (int64_t group = 0; group < 300; group = group * 3 + 1)
            for (int64_t most = 0; most < 20; most += 9) {
                tx_dataset_options options = plain_options(bytes, 7, NULL);
                options.from = parts[p][0];
                options.to = parts[p][1];
                options.group = group;
                options.most_blocks = most;
                size_t count = group_texts(lengths, TEXTS, &options, want);
                if (count == 0)
                    continue;
                tx_dataset *dataset = open_text("a.jsonl", text, used, &options);
                assert_int_equal(tx_dataset_blocks(dataset) * 7, count);
                int32_t *tokens = all_tokens(dataset);
                for (size_t i = 0; i < count; i++)
                    assert_int_equal(tokens[i], want[i]);
                free(tokens);
                tx_dataset_free(dataset);
                compared++;
            }
    assert_in_range(compared, 80, 126);
    free(want);
    free(text);
}

static void parts_too_short(void **state)
{
    static const char text[] = "ab\ncd\nef\ngh\n";
    tx_dataset_options options = plain_options(bytes, 4, NULL);
    options.group = 1;
    expect_refused("a.txt", text, 12, &options, TX_FORMAT, "no 1 texts in a row fill one block of 4 tokens");
    options.group = 0;
    options.to = 25.0;
    expect_refused("a.txt", text, 12, &options, TX_FORMAT,
                   "3 tokens in the part from 0 to 25 % do not fill one block of 4");
    options.to = 1.0;
    expect_refused("a.txt", text, 12, &options, TX_FORMAT, "no tokens in the part from 0 to 1 %");
}

static void digest_of_the_blocks(void **state)
{
    tx_dataset_options options = plain_options(bytes, 4, NULL), other = plain_options(bytes, 2, NULL);
    tx_dataset *d[] = {open_text("a.txt", "abcdefgh", 8, &options), open_text("b.raw", "abcdefghi", 9, &options),
                       open_text("a.txt", "abcdefgi", 8, &options), open_text("a.txt", "abcdefgh", 8, &other),
                       open_text("a.txt", "abcdefghijkl", 12, &options)};
    assert_string_equal(tx_dataset_digest(d[0]), tx_dataset_digest(d[1]));
    for (size_t i = 2; i < 5; i++)
        assert_string_not_equal(tx_dataset_digest(d[0]), tx_dataset_digest(d[i]));
    for (size_t i = 0; i < 5; i++)
        tx_dataset_free(d[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_as_python_does),
        cmocka_unit_test(parts_too_short),
        cmocka_unit_test(digest_of_the_blocks),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
