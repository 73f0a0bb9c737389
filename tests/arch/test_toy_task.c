/* SPDX-License-Identifier: Apache-2.0
 *
 * A task of one's own: a row of the table and the functions that it names, nothing else, and an architecture that knows
 * its fields. It is trained, evaluated and judged by the loader, trainer and run of every other task.
 *
 * Texts of 3 to 12 letters are to be told apart by whether 1 or 2 occurs in them more often. Behind a text a row is
 * padded with ones, so that whoever reads the padding is misled; where both occur as often, it has no label.
 *
 *     test_toy_task [DEVICE]      exit status 77: there is no such device */

#include "models/train/run.h"
#include "tests/scratch.h"

enum { TEXTS = 203, BLOCK = 12, LETTERS = 8, WIDTH = 16, CLASSES = 2, BATCH = 8, STEPS = 80, EVERY = 20 };

static const char *device = "cpu";

/* ---- The task ------------------------------------------------------------------------------------------ */

typedef struct text {
    int32_t letter[BLOCK], length, label;
} text;

static text texts[TEXTS];

static void write_texts(void)
{
    uint32_t random = 1;
    for (int32_t i = 0; i < TEXTS; i++) {
        text *t = &texts[i];
        int32_t more = 0; /* ones than twos */
        t->length = 3 + i % (BLOCK - 2);
        for (int32_t k = 0; k < t->length; k++) {
            random = random * 1664525u + 1013904223u;
            t->letter[k] = 1 + (int32_t)(random >> 24) % 3;
            more += (t->letter[k] == 1) - (t->letter[k] == 2);
        }
        t->label = more == 0 ? TX_IGNORE_LABEL : more > 0;
    }
}

enum { INPUT_IDS, LENGTHS, LABELS };

static const tx_field fields[] = {
    [INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = 1},
    [LENGTHS] = {"attention_lengths", TX_I32, .padding = 1},
    [LABELS] = {"labels", TX_I32, .padding = TX_IGNORE_LABEL},
    {.name = NULL},
};

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const text *t = (const text *)samples->data + number;
    int32_t *ids = to->field[INPUT_IDS];
    memcpy(ids, t->letter, (size_t)t->length * sizeof *ids);
    tx_field_pad(&fields[INPUT_IDS], ids + t->length, samples->block - t->length);
    *(int32_t *)to->field[LENGTHS] = t->length;
    *(int32_t *)to->field[LABELS] = t->label;
    return TX_OK;
}

static tx_tensor *loss(const tx_loss_operands *of, tx_tensor **rows)
{
    return tx_mean_loss(tx_cross_entropy(of->output, tx_find_input(of->graph, "labels"), CLASSES));
}

enum { RIGHT = TX_SUM_OWN };

static tx_status measure(const tx_samples *all, const float *outputs, int64_t columns, double sums[TX_SUMS_MAX])
{
    for (int64_t r = 0; r < all->count; r++) {
        const float *logit = outputs + r * columns;
        sums[RIGHT] += texts[r].label == (logit[1] > logit[0]);
    }
    return TX_OK;
}

static double mean_loss(const double sums[TX_SUMS_MAX])
{
    return sums[TX_SUM_LOSS] / sums[TX_SUM_LABELS];
}

static double accuracy(const double sums[TX_SUMS_MAX])
{
    return sums[RIGHT] / sums[TX_SUM_LABELS];
}

static const tx_metric metrics[] = {
    {"eval_loss", .value = mean_loss},
    {"eval_accuracy", .greater_is_better = true, .value = accuracy},
    {.name = NULL},
};

static const tx_task classification = {
    .name = "telling texts apart", .fields = fields, .row = row, .loss = loss, .measure = measure, .metrics = metrics};

static const tx_samples samples = {.task = &classification, .data = texts, .count = TEXTS, .block = BLOCK};

/* ---- The architecture ---------------------------------------------------------------------------------- */

static tx_tensor *param(tx_graph *graph, const char *name, tx_shape shape)
{
    const tx_param_spec spec = {.shape = shape, .init = TX_INIT_NORMAL, .scale = 0.2f};
    return tx_param(graph, name, &spec);
}

/* The features that all positions gather from the letters of their text, next to each other. */
static tx_tensor *logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    (void)options;
    const tx_attention_options attention = {.size = sizeof attention, .heads = 1, .kv_heads = 1};
    tx_tensor *ids = tx_find_input(graph, "input_ids"), *lengths = tx_find_input(graph, "attention_lengths");
    tx_tensor *x = tx_embedding(ids, param(graph, "letters", TX_SHAPE(LETTERS, WIDTH)), NULL, NULL);
    x = tx_linear(x, param(graph, "attention", TX_SHAPE(WIDTH, 3 * WIDTH)), NULL, false);
    x = tx_reshape(tx_attention(x, lengths, NULL, &attention), TX_SHAPE(tx_tensor_shape(ids)->dim[0], BLOCK * WIDTH));
    return tx_linear(x, param(graph, "classes", TX_SHAPE(BLOCK * WIDTH, CLASSES)), NULL, false);
}

static const tx_architecture toy = {.type = "toy", .logits = logits};
static const tx_config config = {.architecture = &toy, .vocab_size = LETTERS, .positions = BLOCK, .width = WIDTH};

/* ---- The tests ----------------------------------------------------------------------------------------- */

typedef struct fixture {
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
} fixture;

static fixture open_fixture(int64_t eval_batch)
{
    const tx_engine_options on = {.size = sizeof on, .device = device, .threads = 1};
    const tx_trainer_options options = {
        .size = sizeof options,
        .task = &classification,
        .batch = BATCH / 2,
        .block = BLOCK,
        .accumulation = 2,
        .eval_batch = eval_batch,
        .optimizer = {sizeof(tx_optimizer_options), TX_ADAMW, 0.9f, 0.999f, 1e-8f, .weight_decay = 0.0f}};
    fixture f = {0};
    assert_ok(tx_engine_create(&on, &f.engine));
    assert_ok(tx_model_create(f.engine, &f.model));
    assert_ok(tx_trainer_create(f.model, &config, &options, &f.trainer));
    assert_ok(tx_model_init(f.model, 3));
    return f;
}

static void close_fixture(fixture *f)
{
    tx_trainer_free(f->trainer);
    tx_model_free(f->model);
    tx_engine_free(f->engine);
}

typedef struct course {
    int count;
    double loss[STEPS / EVERY], accuracy[STEPS / EVERY];
} course;

static void keep(void *context, int64_t step, const tx_figure *figures, int32_t count)
{
    course *c = context;
    assert_true(count > 2);
    assert_string_equal(figures[0].name, "eval_loss");
    assert_string_equal(figures[1].name, "eval_accuracy");
    c->loss[c->count] = figures[0].value;
    c->accuracy[c->count++] = figures[1].value;
}

static tx_status write_nothing(void *context, const char *folder)
{
    (void)folder;
    return TX_OK;
}

/* The log and the history have the metrics by their names. */
static void expect_names(const char *folder, const tx_run_state *state)
{
    char *path = TX_PATH(folder, TX_RUN_LOG), *log = NULL;
    size_t size;
    assert_ok(tx_file_read(path, 1 << 20, &log, &size));
    const char *line = strstr(log, "\"eval_loss\": ");
    assert_non_null(line);
    assert_non_null(strstr(line, ", \"eval_accuracy\": "));
    const tx_json *last = tx_json_at(state->history, tx_json_size(state->history) - 1);
    assert_true(tx_json_has(last, "eval_loss") && tx_json_has(last, "eval_accuracy"));
    free(log);
}

static void trains(void **state)
{
    fixture f = open_fixture(BATCH);
    course c = {0};
    char *folder = make_scratch();
    const tx_job_settings set = {
        .evaluation = TX_STRATEGY_STEPS, .max_bad_steps = 1, .output_dir = folder, .workers = 2};
    tx_run_options run = {.size = sizeof run,
                          .set = &set,
                          .facts = {.eval_steps = EVERY},
                          .train = samples,
                          .validation = samples,
                          .schedule = tx_schedule_default(TX_SCHEDULE_LINEAR, 0.01, 0, STEPS),
                          .best_metric = "accuracy",
                          .write = write_nothing,
                          .listener = {.context = &c, .evaluation = keep}};
    tx_run_state reached;
    tx_run_summary summary;
    double best = 0.0;
    assert_ok(tx_run_state_create(&reached));
    assert_ok(tx_run(f.engine, f.model, f.trainer, &run, &reached, &summary));
    assert_int_equal(c.count, STEPS / EVERY);
    for (int i = 0; i < c.count; i++) {
        print_message("loss %.4f, accuracy %.3f\n", c.loss[i], c.accuracy[i]);
        best = c.accuracy[i] > best ? c.accuracy[i] : best;
    }
    assert_true(c.loss[c.count - 1] < 0.5 * c.loss[0] && c.loss[c.count - 1] < 0.2);
    assert_true(best > 0.95 && reached.best == best); /* the greatest, not the least */
    expect_names(folder, &reached);
    run.best_metric = "perplexity";
    assert_refused(tx_run(f.engine, f.model, f.trainer, &run, &reached, &summary), TX_INVALID, "no metric perplexity");
    run.train.block--;
    run.best_metric = NULL;
    assert_refused(tx_run(f.engine, f.model, f.trainer, &run, &reached, &summary), TX_INVALID, "with 11 positions");
    tx_run_state_free(&reached);
    remove_scratch(folder);
    close_fixture(&f);
}

/* The results do not depend on the batch size; the last batch is padded. */
static void evaluates_the_same_in_any_batch(void **state)
{
    const int64_t batches[] = {TEXTS, 1, 5, 64};
    tx_run_evaluation whole = {0}, e = {0};
    for (int i = 0; i < 4; i++) {
        fixture f = open_fixture(batches[i]);
        assert_ok(tx_run_evaluate(f.trainer, &samples, NULL, &e));
        whole = i ? whole : e;
        assert_int_equal(e.samples, TEXTS);
        assert_true(fabs(e.value[0] - whole.value[0]) < 1e-5);
        assert_true(e.value[1] == whole.value[1]);
        close_fixture(&f);
    }
}

/* With many ranks each rank knows the labels of all rows of a step, and has its own rows. */
static void ranks_count_all_labels(void **state)
{
    enum { MICRO = 6, STEP = 24 };
    tx_job_settings set = {.data_seed = 5};
    tx_loader_options options = {.size = sizeof options, .set = &set, .step_rows = STEP, .batch = MICRO};
    tx_loader *all, *share;
    const tx_step_batch *whole, *part;
    for (int64_t first = 0; first < MICRO; first += 2) {
        options.first = 0;
        options.rows = 0;
        assert_ok(tx_loader_create(&samples, &options, 0, &all));
        options.first = first;
        options.rows = 2;
        set.workers = first;
        assert_ok(tx_loader_create(&samples, &options, 0, &share));
        int64_t in_epoch = 0;
        for (int64_t step = 0; step < tx_loader_epoch_steps(TEXTS, STEP); step++) {
            int64_t labels = 0;
            assert_ok(tx_loader_next(all, &whole));
            assert_ok(tx_loader_next(share, &part));
            const int32_t *label = whole->batch.field[LABELS], *own = part->batch.field[LABELS];
            for (int64_t r = 0; r < whole->batch.rows; r++)
                labels += label[r] != TX_IGNORE_LABEL;
            in_epoch += labels;
            assert_int_equal(whole->labels, labels);
            assert_int_equal(part->labels, labels);
            for (int64_t r = 0; r < part->batch.rows; r++)
                assert_int_equal(own[r], label[r / 2 * MICRO + first + r % 2]);
        }
        for (int i = 0; i < TEXTS; i++)
            in_epoch -= texts[i].label != TX_IGNORE_LABEL;
        assert_int_equal(in_epoch, 0);
        tx_loader_free(all);
        tx_loader_free(share);
    }
}

/* Fields of all shapes and types: their positions, padding, and the labels that count. */
static void fields_of_numbers(void **state)
{
    static const tx_field numbers[] = {{"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = 7},
                                       {"features", TX_F32, 3, .padding = 0.5},
                                       {"labels", TX_F32, 0, .padding = (double)NAN},
                                       {.name = NULL}};
    const tx_task task = {.name = "numbers", .fields = numbers, .metrics = metrics};
    const tx_samples none = {.task = &task, .block = 2};
    int32_t memory[4 * (2 + 3 + 1)];
    assert_int_equal(4 * tx_task_row_bytes(&task, 2), sizeof memory);
    const tx_batch batch = tx_batch_of(&task, 2, 4, memory);
    const int32_t *ids = batch.field[0];
    float *features = batch.field[1], *labels = batch.field[2];
    assert_ptr_equal(features, memory + 8);
    assert_ptr_equal(labels, memory + 20);
    assert_ok(tx_samples_rows(&none, &(tx_sample_order){0}, 0, &batch));
    assert_int_equal(tx_batch_labels(&task, 2, &batch), 0);
    assert_true(ids[7] == 7 && features[11] == 0.5f && isnan(labels[3]));
    labels[1] = -100.0f;
    labels[3] = 0.0f;
    assert_int_equal(tx_batch_labels(&task, 2, &batch), 2);
    const tx_batch part = tx_batch_rows(&task, 2, &batch, 2, 2);
    assert_int_equal(tx_batch_labels(&task, 2, &part), 1);
    assert_true(tx_shape_equal(&TX_SHAPE(4), &(tx_shape[]){tx_field_shape(&numbers[2], 4, 2)}[0]));
    assert_true(tx_shape_equal(&TX_SHAPE(4, 3), &(tx_shape[]){tx_field_shape(&numbers[1], 4, 2)}[0]));
    assert_int_equal(tx_task_metric(&task, "accuracy"), 1);
    assert_int_equal(tx_task_metric(&task, "eval_loss"), 0);
    assert_int_equal(tx_task_metric(&task, "perplexity"), -1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trains),
        cmocka_unit_test(evaluates_the_same_in_any_batch),
        cmocka_unit_test(ranks_count_all_labels),
        cmocka_unit_test(fields_of_numbers),
    };
    int32_t index;
    device = argc > 1 ? argv[1] : device;
    if (tx_device_find(device, &index))
        return 77;
    write_texts();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
