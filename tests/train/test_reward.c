/* SPDX-License-Identifier: Apache-2.0
 * The built-in rewards: values by hand, and by the definitions of TRL (think_format_reward) and DAPO (equation 13). */
#include "models/reward/reward.h"
#include "tests/scratch.h"

#include <float.h>
#include <string.h>

/* A completion, the column "answer" of its row as JSON, its number of tokens, and the reward; NaN if none applies. */
typedef struct example {
    const char *text, *answer;
    int64_t tokens;
    double reward;
} example;

/* Computes the rewards of one function. */
static void expect(const char *name, const char *config, const example *examples, int64_t count)
{
    tx_job_settings set = tx_job_defaults;
    static const int32_t ids[8] = {5, 6, 7, 5, 6, 7, 5, 6};
    tx_rewards *rewards = NULL;
    set.reward_funcs = name;
    set.reward_config = config;
    assert_ok(tx_rewards_open(&set, &(tx_reward_caller){.rank = 0}, &rewards));
    assert_int_equal(tx_rewards_names(rewards)->count, 1);
    for (int64_t i = 0; i < count; i++) {
        const example *e = &examples[i];
        char row[128];
        tx_json *object = NULL;
        double reward = -77.0;
        snprintf(row, sizeof row, "{\"prompt\": \"p\", \"answer\": %s}", e->answer ? e->answer : "null");
        assert_ok(tx_json_parse(row, strlen(row), "row", &object));
        const tx_reward_sample sample = {object, e->text, strlen(e->text), ids, e->tokens};
        assert_ok(tx_rewards_compute(rewards, NULL, 1, &sample, 1, &reward));
        const bool same = isnan(e->reward) ? isnan(reward) : fabs(reward - e->reward) <= 1e-12;
        if (!same)
            print_error("%s of \"%s\": %g, not %g\n", name, e->text, reward, e->reward);
        assert_true(same);
        tx_json_free(object);
    }
    tx_rewards_free(rewards);
}
#define EXPECT(name, config, ...)                                                      \
    do {                                                                               \
        const example examples[] = {__VA_ARGS__};                                      \
        expect(name, config, examples, (int64_t)(sizeof examples / sizeof *examples)); \
    } while (0)

static void answers(void **state)
{
    (void)state;
    EXPECT("exact", NULL, {" Paris\n", "\"Paris\"", 2, 1}, {"paris", "\"Paris\"", 2, 0}, {"Paris.", "\"Paris\"", 2, 0},
           {"12", "12", 1, 1}, {"x", NULL, 1, (double)NAN});
    EXPECT("exact", "{\"exact\": {\"strip\": false, \"ignore_case\": true}}", {" Paris", "\"Paris\"", 2, 0},
           {"pARIS", "\"Paris\"", 2, 1});
    EXPECT("number", NULL, {"so it is 12.", "12", 3, 1}, {"$1,234.50", "\"1234.5\"", 3, 1}, {"3/4", "0.75", 3, 1},
           {"\\boxed{-7} of 8", "-7", 3, 1}, {"9\n#### 4\n5", "4", 3, 1}, {"<answer> 6 </answer> 7", "6", 3, 1},
           {"none", "1", 1, 0}, {"", "1", 1, 0}, {"12", "\"a = 12\"", 1, 1}, {"50%", "50", 1, 1}, {"-", "0", 1, 0},
           {"1", NULL, 1, (double)NAN}, {"3/0", "3", 1, 0}, {"1.0000001", "1", 1, 1}, {"1.1", "1", 1, 0});
    EXPECT("number", "{\"number\": {\"from\": \"boxed\"}}", {"7", "7", 1, 0}, {"\\boxed{1} \\boxed{7}", "7", 1, 1});
}

static void forms(void **state)
{
    (void)state;
    EXPECT("regex", "{\"regex\": {\"pattern\": \"^yes|no$\"}}", {"yes it is", NULL, 1, 1}, {"oh no", NULL, 1, 1},
           {"oh yes", NULL, 1, 0}, {"", NULL, 1, 0});
    EXPECT("think_format", NULL, {"<think>a\nb</think>c", NULL, 1, 1}, {" <think>a</think>", NULL, 1, 0},
           {"<think>a<think>b</think>", NULL, 1, 0}, {"<think>a", NULL, 1, 0}, {"</think><think>", NULL, 1, 0});
    EXPECT("tag_count", NULL, {"<think></think><answer></answer>", NULL, 1, 1},
           {"<think><think></think>", NULL, 1, .25}, {"", NULL, 1, 0});
    EXPECT("json", "{\"json\": {\"schema\": {\"type\": \"object\", \"required\": [\"a\"]}}}",
           {"{\"a\": 1}", NULL, 1, 1}, {"{\"b\": 1}", NULL, 1, 0}, {"[1]", NULL, 1, 0}, {"{\"a\": ", NULL, 1, 0},
           {"", NULL, 1, 0});
    EXPECT("json", "{\"json\": {\"schema\": {\"enum\": [1, \"x\"]}}}", {"\"x\"", NULL, 1, 1}, {"2", NULL, 1, 0});
    EXPECT("json", NULL, {"[1, 2]", NULL, 1, 1}, {"[1, 2", NULL, 1, 0});
}

static void lengths(void **state)
{
    (void)state;
    EXPECT("length", "{\"length\": {\"target\": 4}}", {"", NULL, 4, 0}, {"", NULL, 1, -.75}, {"", NULL, 8, -1});
    EXPECT("overlong", "{\"overlong\": {\"max\": 6, \"cache\": 4}}", {"", NULL, 2, 0}, {"", NULL, 3, -.25},
           {"", NULL, 6, -1}, {"", NULL, 7, -1});
    EXPECT("repetition", NULL, {"", NULL, 2, 0}, {"", NULL, 3, 0}, {"", NULL, 8, -.5});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(forms),
        cmocka_unit_test(lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
