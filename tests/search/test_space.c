/* SPDX-License-Identifier: Apache-2.0
 * Reading the space of options. */
#include "models/job/settings.h"
#include "tests/scratch.h"
#include "tools/search/study.h"

static tx_status read_all(const char *const *texts, int32_t count, tx_space *space)
{
    const tx_words words = {texts, count};
    return tx_space_read(&words, &(tx_option_values){.table = tx_job_table}, space);
}

static void check_default(const tx_space *space)
{
    static const struct {
        const char *name;
        tx_spread spread;
        double low, high, step;
        int32_t count;
    } wanted[] = {{"learning_rate", TX_SPREAD_LOGUNIFORM, 1e-6, 1e-4, 0, 0},
                  {"num_train_epochs", TX_SPREAD_INT, 1, 5, 1, 0},
                  {"seed", TX_SPREAD_INT, 1, 40, 1, 0},
                  {"per_device_train_batch_size", TX_SPREAD_CHOICE, 0, 4, 1, 5}};
    assert_int_equal(space->count, 4);
    for (int32_t i = 0; i < 4; i++) {
        const tx_dimension *d = &space->dimension[i];
        assert_string_equal(d->name, wanted[i].name);
        assert_int_equal(d->spread, wanted[i].spread);
        assert_int_equal(d->count, wanted[i].count);
        assert_true(d->low >= wanted[i].low && d->low <= wanted[i].low);
        assert_true(d->high >= wanted[i].high && d->high <= wanted[i].high);
        assert_true(d->step >= wanted[i].step && d->step <= wanted[i].step);
    }
    assert_string_equal(space->dimension[3].choice[4], "64");
}

/* One text, several, a file, and the name of Trainer's space. */
static void test_forms(void **state)
{
    static const char file[] = "{\"learning_rate\": \"loguniform:1e-6:1e-4\", \"num_train_epochs\": \"int:1:5\", "
                               "\"seed\": \"int:1:40\", \"per_device_train_batch_size\": [4, 8, 16, \"32\", 64]}";
    char *folder = make_scratch(), *path = tx_path_join(folder, "space.json");
    assert_int_equal(tx_file_write(path, file, strlen(file)), TX_OK);
    const char *const forms[][4] = {{"default"},
                                    {path},
                                    {"learning_rate=loguniform:1e-6:1e-4, num_train_epochs=int:1:5, seed=int:1:40, "
                                     "per_device_train_batch_size=choice:4,8,16,32,64"},
                                    {"learning-rate=loguniform:1e-6:1e-4,", "num_train_epochs=int:1:5",
                                     "seed=int:1:40:1,", "per_device_train_batch_size=choice:4, 8, 16,32,64"}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        tx_space space;
        int32_t count = 0;
        while (count < 4 && forms[i][count])
            count++;
        if (read_all(forms[i], count, &space))
            fail_msg("%s: %s", forms[i][0], tx_error());
        check_default(&space);
        tx_space_free(&space);
    }
    remove_scratch(folder);
    free(path);
}

static void test_mistakes(void **state)
{
    static const struct {
        const char *text, *says;
    } mistakes[] = {
        {"", "missing"},
        {"learning_rate", "NAME=RANGE"},
        {"=int:1:2", "NAME=RANGE"},
        {"gone.json", "gone.json"},
        {"learning_rat=uniform:0:1", "learning_rate"},
        {"learning_rate=1e-5", "loguniform:"},
        {"learning_rate=gauss:0:1", "loguniform:"},
        {"learning_rate=uniform:1", "LOW:HIGH"},
        {"learning_rate=uniform:0:1:2:3", "LOW:HIGH"},
        {"learning_rate=uniform:0:nan", "LOW:HIGH"},
        {"learning_rate=uniform:0:inf", "LOW:HIGH"},
        {"learning_rate=uniform:a:b", "LOW:HIGH"},
        {"learning_rate=uniform:0:1:0", "LOW:HIGH"},
        {"learning_rate=uniform:0:1:2", "step"},
        {"learning_rate=uniform:1:0", "LOW must be less"},
        {"learning_rate=uniform:1:1", "LOW must be less"},
        {"learning_rate=loguniform:0:1", "above 0"},
        {"learning_rate=loguniform:1e-5:1e-4:1e-5", "LOW:HIGH"},
        {"learning_rate=uniform:-1:1", "too small"},
        {"learning_rate=loguniform:1:1e9", "too large"},
        {"seed=uniform:1:4", "integer"},
        {"seed=int:1:4.5", "integer"},
        {"seed=logint:0:4", "above 0"},
        {"seed=int:1:1e300", "large"},
        {"seed=choice:1", "two values"},
        {"seed=choice:1,,2", "empty"},
        {"seed=choice:1,x", "not a whole number"},
        {"optim=int:1:2", "choice"},
        {"optim=choice:sgd,adam_of_mine", "adam_of_mine"},
        {"lr_scheduler_type=choice:linear,cosin", "cosine"},
        {"torch_compile=choice:a,b", "TX does not have"},
        {"seed=int:1:4,seed=int:5:9", "twice"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        tx_space space;
        const tx_status status = read_all(&mistakes[i].text, 1, &space);
        if (!status || !strstr(tx_error(), mistakes[i].says))
            fail_msg("%s: %s", mistakes[i].text, status ? tx_error() : "it is taken");
        assert_int_equal(space.count, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
