/* SPDX-License-Identifier: Apache-2.0
 * k steps, a checkpoint, another process' engine and the rest give the bits of the run that was never interrupted: the
 * optimizer's states, Adam's t and the backend's choices are all there. Leaving any out is seen.
 *
 *     test_resume DEVICE      exit status 77: there is no such device */
#include "models/files/checkpoint.h"
#include "models/files/safetensors.h"
#include "tests/checkpoint/tiny.h"
#include "tests/scratch.h"

enum { STEPS = 7 };

static const char *device = "cpu";

#define OF(kind) sizeof(tx_optimizer_options), TX_##kind
#define DECAYS .weight_decay = 0.1f
static const struct {
    tx_optimizer_options options;
    int32_t states;      /* of up.weight */
    const char *name[3]; /* of these */
    tx_st_dtype dtype[3];
} optimizers[] = {
    {{OF(ADAMW), 0.9f, 0.95f, 1e-8f, DECAYS}, 2, {"exp_avg", "exp_avg_sq"}, {TX_ST_F32, TX_ST_F32}},
    {{OF(SGD), .momentum = 0.9f, DECAYS}, 1, {"exp_avg"}, {TX_ST_F32}},
    {{OF(SGD), .weight_decay = 0.0f}, 0, {NULL}, {TX_ST_F32}},
    {{OF(LION), 0.9f, 0.99f, DECAYS}, 1, {"exp_avg"}, {TX_ST_F32}},
    {{OF(ADAFACTOR), DECAYS}, 2, {"exp_avg_sq_row", "exp_avg_sq_col"}, {TX_ST_F32, TX_ST_F32}},
    {{OF(ADAMW_8BIT), 0.9f, 0.95f, 1e-8f, DECAYS},
     3,
     {"exp_avg_8bit", "exp_avg_sq_8bit", "absmax"},
     {TX_ST_U8, TX_ST_U8, TX_ST_F32}},
    {{OF(ADAMW_ANYPRECISION), 0.9f, 0.95f, 1e-8f, .momentum_dtype = TX_BF16, .compensation_dtype = TX_BF16,
      .kahan = true},
     3,
     {"exp_avg", "exp_avg_sq", "compensation"},
     {TX_ST_BF16, TX_ST_F32, TX_ST_BF16}},
    {{OF(MUON), 0.9f, 0.95f, 1e-8f, 0.95f, .nesterov = true}, 1, {"momentum_buffer"}, {TX_ST_F32}},
    {{OF(LION_8BIT), 0.9f, 0.99f, DECAYS}, 2, {"exp_avg_8bit", "absmax"}, {TX_ST_U8, TX_ST_F32}},
    {{OF(ADEMAMIX), 0.9f, 0.95f, 1e-8f, .beta3 = 0.9999f, .slow_weight = 5, .slow_weight_steps = 5, .beta3_steps = 5},
     3,
     {"exp_avg", "exp_avg_slow", "exp_avg_sq"},
     {TX_ST_F32, TX_ST_F32, TX_ST_F32}},
    {{OF(SCHEDULE_FREE_ADAMW), 0.9f, 0.95f, 1e-8f, DECAYS, .warmup_steps = 3},
     3,
     {"y", "z", "exp_avg_sq"},
     {TX_ST_F32, TX_ST_F32, TX_ST_F32}},
    {{OF(SCHEDULE_FREE_SGD), .momentum = 0.9f, DECAYS}, 2, {"y", "z"}, {TX_ST_F32, TX_ST_F32}},
    {{OF(STABLE_ADAMW), 0.9f, 0.95f, 1e-8f, DECAYS}, 2, {"exp_avg", "exp_avg_sq"}, {TX_ST_F32, TX_ST_F32}},
    {{OF(APOLLO), 0.9f, 0.95f, 1e-8f, DECAYS, .rank = 4, .update_proj_gap = 3, .scale = 1},
     3,
     {"exp_avg", "exp_avg_sq", "scaled_grad"},
     {TX_ST_F32, TX_ST_F32, TX_ST_F32}},
};
enum { ADAM, MOMENTUM, PLAIN, OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

static void create(int optimizer, const char *choices, tiny *t)
{
    assert_ok(tiny_create(device, &optimizers[optimizer].options, choices, t));
}

static char *choices_of(const tiny *t)
{
    char *text = NULL;
    assert_ok(tx_engine_choices(t->engine, &text));
    assert_non_null(text);
    return text;
}

/* ---- Exactness ----------------------------------------------------------------------------------- */

/* Everything after STEPS steps without interruption. */
static float *unbroken(int optimizer, int64_t *count, tx_results *results, char **choices)
{
    tiny t;
    create(optimizer, NULL, &t);
    assert_ok(tiny_train(&t, 0, STEPS, results));
    float *all = tiny_read(&t, count);
    assert_non_null(all);
    *choices = choices_of(&t);
    tiny_free(&t);
    return all;
}

static void resumed_run_has_the_same_bits(void **state)
{
    for (int o = 0; o < OPTIMIZERS; o++) {
        int64_t count, resumed_count;
        tx_results wanted, results;
        char *choices = NULL;
        float *all = unbroken(o, &count, &wanted, &choices);
        for (int k = 0; k <= STEPS; k += k < 2 ? 1 : STEPS - 2) {
            char *folder = make_scratch();
            tiny t;
            create(o, choices, &t);
            assert_ok(tiny_train(&t, 0, k, NULL));
            assert_ok(tiny_save(&t, folder));
            tiny_free(&t);
            create(o, choices, &t);
            assert_ok(tiny_train(&t, 100, 103, NULL)); /* the state before the load has no effect */
            assert_ok(tiny_load(&t, folder));
            assert_ok(tiny_train(&t, k, STEPS, k < STEPS ? &results : NULL));
            float *resumed = tiny_read(&t, &resumed_count);
            assert_non_null(resumed);
            assert_int_equal(count, resumed_count);
            assert_memory_equal(all, resumed, (size_t)count * sizeof *all);
            if (k < STEPS) {
                assert_memory_equal(&wanted.value[TX_RESULT_UPDATES], &results.value[TX_RESULT_UPDATES], sizeof(float));
                assert_memory_equal(&wanted.value[TX_RESULT_GRAD_NORM], &results.value[TX_RESULT_GRAD_NORM],
                                    sizeof(float));
            }
            free(resumed);
            tiny_free(&t);
            remove_scratch(folder);
        }
        free(choices);
        free(all);
    }
}

typedef enum part_left_out { ADAMS_T, FIRST_STATES, SECOND_STATES, PARTS_LEFT_OUT } part_left_out;

static void spoil(tiny *t, part_left_out what)
{
    const char *name;
    const tx_param_spec *spec;
    const tx_results none = {{0}};
    if (what == ADAMS_T) {
        assert_ok(tx_model_restore(t->model, &none));
        return;
    }
    assert_ok(tx_model_param(t->model, 0, &name, &spec));
    float *zero = calloc((size_t)tx_shape_count(&spec->shape), sizeof *zero);
    assert_non_null(zero);
    assert_ok(tx_model_write(t->model, what == FIRST_STATES ? TX_PARAM_STATE : TX_PARAM_STATE + 1, 0, zero));
    free(zero);
}

/* The comparison above would see any of them missing. */
static void what_is_left_out_is_seen(void **state)
{
    int64_t count, resumed_count;
    tx_results results;
    char *choices = NULL;
    float *all = unbroken(ADAM, &count, &results, &choices);
    for (int what = 0; what < PARTS_LEFT_OUT; what++) {
        tiny t;
        create(ADAM, choices, &t);
        assert_ok(tiny_train(&t, 0, 3, NULL));
        spoil(&t, (part_left_out)what);
        assert_ok(tiny_train(&t, 3, STEPS, NULL));
        float *resumed = tiny_read(&t, &resumed_count);
        assert_non_null(resumed);
        assert_memory_not_equal(all, resumed, (size_t)count * sizeof *all);
        free(resumed);
        tiny_free(&t);
    }
    free(choices);
    free(all);
}

/* UPDATES and SKIPPED continue from the restored values; the other results start again. */
static void results_go_on(void **state)
{
    tiny t;
    tx_results results, restored = {{0}};
    for (int i = 0; i < TX_RESULT_COUNT; i++)
        restored.value[i] = 100.0f + (float)i;
    restored.value[TX_RESULT_UPDATES] = 41.0f;
    restored.value[TX_RESULT_SKIPPED] = 5.0f;
    restored.value[TX_RESULT_LOSS_SCALE] = 64.0f;
    restored.value[TX_RESULT_SCALE_STEPS] = 3.0f;
    create(ADAM, NULL, &t);
    assert_ok(tiny_train(&t, 0, 2, &results));
    assert_true(results.value[TX_RESULT_UPDATES] == 2.0f && results.value[TX_RESULT_SKIPPED] == 0.0f);
    assert_ok(tx_model_restore(t.model, &restored));
    assert_ok(tx_model_fetch(t.model));
    assert_ok(tx_model_results(t.model, &results));
    for (int i = 0; i < TX_RESULT_COUNT; i++) {
        const bool lasts =
            i == TX_RESULT_UPDATES || i == TX_RESULT_SKIPPED || i == TX_RESULT_LOSS_SCALE || i == TX_RESULT_SCALE_STEPS;
        assert_true(results.value[i] == (lasts ? restored.value[i] : 0.0f));
    }
    assert_ok(tiny_train(&t, 2, 3, &results));
    assert_true(results.value[TX_RESULT_UPDATES] == 42.0f && results.value[TX_RESULT_SKIPPED] == 5.0f);
    assert_true(results.value[TX_RESULT_LOSS_SCALE] == 64.0f && results.value[TX_RESULT_SCALE_STEPS] == 3.0f);
    /* Not finite, so the update is left out. */
    restored.value[TX_RESULT_LOSS_SCALE] = 0x1p127f;
    assert_ok(tx_model_restore(t.model, &restored));
    assert_ok(tx_model_set(t.model, TX_CONTROL_GROWTH_INTERVAL, 4.0));
    assert_ok(tiny_train(&t, 3, 4, &results));
    assert_true(results.value[TX_RESULT_UPDATES] == 41.0f && results.value[TX_RESULT_SKIPPED] == 6.0f);
    assert_true(results.value[TX_RESULT_LOSS_SCALE] == 0x1p126f && results.value[TX_RESULT_SCALE_STEPS] == 0.0f);
    restored.value[TX_RESULT_LOSS_SCALE] = -1.0f;
    assert_int_equal(tx_model_restore(t.model, &restored), TX_INVALID);
    tiny_free(&t);
}

/* ---- The optimizer's file ---------------------------------------------------------------------------- */

/* The file has a state under that name, as the model has it. */
static void compare_state(const tx_st_file *file, tx_model *model, int32_t param, int32_t k)
{
    char name[64];
    const char *of;
    const tx_param_spec *spec;
    tx_state_info info;
    int32_t index;
    assert_ok(tx_model_param(model, param, &of, &spec));
    assert_ok(tx_model_state(model, param, k, &info));
    snprintf(name, sizeof name, "%s.%s", of, info.name);
    assert_ok(tx_st_find(file, name, &index));
    const tx_shape shape = tx_st_shape(tx_st_tensor_at(file, index));
    const int64_t count = tx_shape_count(&shape);
    assert_true(tx_shape_equal(&shape, &info.shape));
    float *saved = malloc(2 * (size_t)count * sizeof *saved);
    assert_non_null(saved);
    assert_ok(tx_st_read_f32(file, index, 0, count, saved));
    assert_ok(tx_model_read(model, (tx_param_role)(TX_PARAM_STATE + k), param, saved + count));
    assert_memory_equal(saved, saved + count, (size_t)count * sizeof *saved);
    free(saved);
}

static void states_have_their_names(void **state)
{
    for (int o = 0; o < OPTIMIZERS; o++) {
        char *folder = make_scratch(), *path = TX_PATH(folder, "optimizer.safetensors");
        tiny t;
        tx_st_file *file = NULL;
        int32_t all = 0, up;
        create(o, NULL, &t);
        assert_ok(tiny_train(&t, 0, 2, NULL));
        assert_ok(tx_optimizer_save(t.model, path));
        assert_ok(tx_st_open(path, &file));
        for (int32_t p = 0; p < tx_model_param_count(t.model); p++)
            for (int32_t k = 0; k < tx_model_states(t.model, p); k++, all++)
                compare_state(file, t.model, p, k);
        assert_int_equal(tx_st_count(file), all);
        assert_ok(tx_model_find(t.model, "up.weight", &up));
        assert_int_equal(tx_model_states(t.model, up), optimizers[o].states);
        for (int32_t k = 0; k < optimizers[o].states; k++) {
            char name[64];
            int32_t index;
            snprintf(name, sizeof name, "up.weight.%s", optimizers[o].name[k]);
            assert_ok(tx_st_find(file, name, &index));
            assert_int_equal(tx_st_tensor_at(file, index)->dtype, optimizers[o].dtype[k]);
        }
        tx_st_close(file);
        tiny_free(&t);
        remove_scratch(folder);
    }
}

/* A file with tensors of the given names and a first dimension; all of it zero. */
static void write_states(const char *path, const char *const *tensor, int count, tx_st_dtype dtype, int64_t rows)
{
    tx_st_tensor list[16];
    tx_st_writer *writer = NULL;
    static const char zeros[24 * 172 * 4];
    for (int i = 0; i < count; i++) {
        list[i] = (tx_st_tensor){.name = tensor[i], .dtype = dtype, .rank = 2, .dim = {50, 24}};
        if (strncmp(tensor[i], "up", 2) == 0)
            list[i] = (tx_st_tensor){.name = tensor[i], .dtype = dtype, .rank = 2, .dim = {24, 172}};
        if (strncmp(tensor[i], "down", 4) == 0)
            list[i] = (tx_st_tensor){.name = tensor[i], .dtype = dtype, .rank = 2, .dim = {172, 24}};
        if (strstr(tensor[i], "bias"))
            list[i] = (tx_st_tensor){.name = tensor[i], .dtype = dtype, .rank = 1, .dim = {list[i].dim[1]}};
        if (rows && i == 0)
            list[i].dim[0] = rows;
    }
    assert_ok(tx_st_create(path, list, count, &writer));
    for (int i = 0; i < count; i++)
        assert_ok(tx_st_append(writer, zeros, (size_t)tx_st_bytes(&list[i])));
    assert_ok(tx_st_commit(writer));
}

static void other_states_are_refused(void **state)
{
    static const char *const good[] = {
        "table.exp_avg",     "table.exp_avg_sq",     "up.weight.exp_avg",   "up.weight.exp_avg_sq",
        "up.bias.exp_avg",   "up.bias.exp_avg_sq",   "down.weight.exp_avg", "down.weight.exp_avg_sq",
        "down.bias.exp_avg", "down.bias.exp_avg_sq", "more.exp_avg"};
    char *folder = make_scratch(), *path = TX_PATH(folder, "optimizer.safetensors");
    tiny adam, momentum, plain;
    create(ADAM, NULL, &adam);
    create(MOMENTUM, NULL, &momentum);
    create(PLAIN, NULL, &plain);
    assert_refused(tx_optimizer_load(adam.model, path), TX_NOT_FOUND, path);
    write_states(path, good, 10, TX_ST_F32, 0);
    assert_ok(tx_optimizer_load(adam.model, path));
    assert_refused(tx_optimizer_load(momentum.model, path), TX_FORMAT,
                   "has 10 tensors, the optimizer of this model needs 5");
    assert_refused(tx_optimizer_load(plain.model, path), TX_FORMAT, "needs 0");
    write_states(path, good, 11, TX_ST_F32, 0);
    assert_refused(tx_optimizer_load(adam.model, path), TX_FORMAT, "has 11 tensors");
    write_states(path, good, 9, TX_ST_F32, 0);
    assert_refused(tx_optimizer_load(adam.model, path), TX_FORMAT, "down.bias.exp_avg_sq");
    write_states(path, good + 1, 9, TX_ST_F32, 0);
    assert_refused(tx_optimizer_load(adam.model, path), TX_FORMAT, "has no tensor table.exp_avg,");
    write_states(path, good, 10, TX_ST_I32, 0);
    assert_refused(tx_optimizer_load(adam.model, path), TX_FORMAT, "is I32, should be F32");
    write_states(path, good, 10, TX_ST_F32, 64); /* with its padding */
    assert_refused(tx_optimizer_load(adam.model, path), TX_FORMAT,
                   "table.exp_avg is [64, 24], the model's is [50, 24]: another model's or version's optimizer");
    assert_ok(tx_optimizer_save(plain.model, path));
    assert_ok(tx_optimizer_load(plain.model, path));
    assert_refused(tx_optimizer_load(adam.model, path), TX_FORMAT, "has no tensor");
    assert_ok(tx_file_write(path, "{}", 2));
    assert_refused(tx_optimizer_load(adam.model, path), TX_FORMAT, path);
    char *nowhere = TX_PATH(folder, "no/where");
    assert_refused(tx_optimizer_save(adam.model, nowhere), TX_NOT_FOUND, nowhere);
    tiny_free(&plain);
    tiny_free(&momentum);
    tiny_free(&adam);
    remove_scratch(folder);
}

/* Saves the states with one element of them changed. */
static void save_with(tiny *t, const char *param, tx_param_role part, int64_t element, float value, const char *path)
{
    float moment[24 * 172], changed[24 * 172];
    int32_t p;
    assert_ok(tx_model_find(t->model, param, &p));
    assert_ok(tx_model_read(t->model, part, p, moment));
    memcpy(changed, moment, sizeof changed);
    changed[element] = value;
    assert_ok(tx_model_write(t->model, part, p, changed));
    assert_ok(tx_optimizer_save(t->model, path));
    assert_ok(tx_model_write(t->model, part, p, moment));
}

static void impossible_states_are_refused(void **state)
{
    static const struct {
        const char *param;
        tx_param_role part;
        int64_t element;
        float value;
        const char *says; /* part of the error message, or NULL if the tensor is accepted */
    } cases[] = {
        {"table", TX_PARAM_STATE, 0, NAN, "tensor table.exp_avg holds nan at element 0,"},
        {"up.weight", TX_PARAM_STATE, 4127, -INFINITY, "tensor up.weight.exp_avg holds -inf at element 4127,"},
        {"table", TX_PARAM_STATE + 1, 1199, INFINITY, "tensor table.exp_avg_sq holds inf at element 1199,"},
        {"down.bias", TX_PARAM_STATE + 1, 3, NAN, "tensor down.bias.exp_avg_sq holds nan at element 3,"},
        {"down.bias", TX_PARAM_STATE + 1, 23, -1e-30f, "tensor down.bias.exp_avg_sq holds -1e-30 at element 23,"},
        {"down.bias", TX_PARAM_STATE + 1, 23, -0.0f, NULL},
        {"down.bias", TX_PARAM_STATE, 23, -1.0f, NULL},
    };
    char *folder = make_scratch(), *path = TX_PATH(folder, "optimizer.safetensors");
    tiny t;
    create(ADAM, NULL, &t);
    assert_ok(tiny_train(&t, 0, 2, NULL));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        save_with(&t, cases[i].param, cases[i].part, cases[i].element, cases[i].value, path);
        if (!cases[i].says) {
            assert_ok(tx_optimizer_load(t.model, path));
        } else {
            assert_refused(tx_optimizer_load(t.model, path), TX_FORMAT, cases[i].says);
            assert_non_null(strstr(tx_error(), path));
        }
    }
    tiny_free(&t);
    remove_scratch(folder);
}

/* ---- Choices --------------------------------------------------------------------------------------- */

/* The variant of each matrix product of the plan is `wanted`, in the beginning of its name. */
static void expect_products(const tiny *t, const char *wanted)
{
    int products = 0;
    for (int32_t i = 0; i < tx_plan_length(t->train); i++) {
        tx_profile_entry entry;
        assert_ok(tx_plan_profile_entry(t->train, i, &entry));
        if (strcmp(entry.op, "matmul") != 0)
            continue;
        products++;
        if (strncmp(entry.variant, wanted, strlen(wanted)) != 0)
            fail_msg("a product runs on %s, not on %s", entry.variant, wanted);
    }
    assert_true(products >= 6);
}

/* `text` with the provider of every line replaced. */
static char *with_provider(const char *text, const char *provider)
{
    char *out = calloc(1, 64 * strlen(text) + 1);
    assert_non_null(out);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        sprintf(out + strlen(out), "%.*s\t%s\n", (int)strcspn(line, "\t"), line, provider);
    return out;
}

static void opencl_choices_are_made_again(void)
{
    static const char *const providers[] = {"clblast", "portable-vector"};
    tiny t, other;
    create(ADAM, NULL, &t);
    char *text = choices_of(&t);
    assert_true(strlen(text) > 0 && text[strlen(text) - 1] == '\n');
    for (int i = 0; i < 2; i++) {
        char *wanted = with_provider(text, providers[i]);
        const tx_status status = tiny_create(device, &optimizers[ADAM].options, wanted, &other);
        if (status == TX_UNSUPPORTED) { /* of the two portable ones a device has one */
            assert_non_null(strstr(tx_error(), providers[i]));
            assert_int_equal(i, 1);
        } else {
            assert_int_equal(status, TX_OK);
            expect_products(&other, providers[i]);
            char *again = choices_of(&other);
            assert_string_equal(again, wanted);
            free(again);
        }
        tiny_free(&other);
        free(wanted);
    }
    static const struct {
        const char *text, *says;
        tx_status status;
    } bad[] = {{"00 0 0 0 3 3 3\tcublas\n", "\"cublas\"", TX_UNSUPPORTED},
               {"00 0 0 0 3 3 3\tclblast\n00 0 0 0 3 3 4\t\n", "\"\"", TX_UNSUPPORTED},
               {"00 0 0 0 3 3 3 clblast\n", "a tab", TX_FORMAT},
               {"\tclblast\n", "a tab", TX_FORMAT},
               {"attention forward d64\tcpu-1x1\n", "form of attention \"cpu-1x1\"", TX_UNSUPPORTED},
               {"variant\tavx2\n", "\"avx2\"", TX_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(tx_engine_choose(t.engine, bad[i].text), bad[i].status, bad[i].says);
        char *after = choices_of(&t);
        assert_string_equal(after, text); /* nothing has changed */
        free(after);
    }
    assert_ok(tx_engine_choose(t.engine, ""));
    free(text);
    tiny_free(&t);
}

static void cpu_choices_are_compared(void)
{
    tx_engine_options options = {.size = sizeof options, .device = "cpu", .threads = 1};
    tx_engine *one = NULL, *two = NULL;
    char *text = NULL, changed[512];
    assert_ok(tx_engine_create(&options, &one));
    options.threads = 2;
    assert_ok(tx_engine_create(&options, &two));
    assert_ok(tx_engine_choices(one, &text));
    assert_non_null(strstr(text, "variant\t"));
    assert_non_null(strstr(text, "products\t"));
    assert_non_null(strstr(text, "threads\t1\n"));
    assert_ok(tx_engine_choose(one, text));
    assert_ok(tx_engine_choose(one, ""));
    assert_refused(tx_engine_choose(two, text), TX_UNSUPPORTED, "threads 1, this run uses");
    assert_non_null(strstr(tx_error(), "threads 2"));
    assert_non_null(strstr(tx_error(), "may differ in the last bits"));
    snprintf(changed, sizeof changed, "%scolour\tblue\n", text);
    assert_refused(tx_engine_choose(one, changed), TX_UNSUPPORTED, "colour blue");
    snprintf(changed, sizeof changed, "variant\tz80\n%s", strchr(text, '\n') + 1);
    assert_refused(tx_engine_choose(one, changed), TX_UNSUPPORTED, "used variant z80,");
    memset(changed, 'x', sizeof changed);
    changed[sizeof changed - 1] = '\0';
    assert_refused(tx_engine_choose(one, changed), TX_UNSUPPORTED, "xxx");
    free(text);
    tx_engine_free(two);
    tx_engine_free(one);
}

static void choices_are_made_again(void **state)
{
    if (strcmp(device, "cpu") == 0)
        cpu_choices_are_compared();
    else
        opencl_choices_are_made_again();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_run_has_the_same_bits),
        cmocka_unit_test(what_is_left_out_is_seen),
        cmocka_unit_test(results_go_on),
        cmocka_unit_test(states_have_their_names),
        cmocka_unit_test(other_states_are_refused),
        cmocka_unit_test(impossible_states_are_refused),
        cmocka_unit_test(choices_are_made_again),
    };
    int32_t index;
    device = argc > 1 ? argv[1] : device;
    if (tx_device_find(device, &index)) {
        printf("skipped: %s\n", tx_error());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
