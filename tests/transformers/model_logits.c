/* SPDX-License-Identifier: Apache-2.0
 *
 * TX's side of the comparison with transformers (gpt2.py, llama.py, experts.py). It reads a model folder and writes the
 * logits of fixed tokens, or the states of a model without a head, to OUT/logits.safetensors. It also writes the model
 * and its tokenizer to OUT, or the byte vocabulary if there is none. With SHARD_BYTES the weights are written as shards
 * of that size. If it is -1, the gradients of the mean next-token loss are written instead of trained weights, and the
 * loss is printed.
 *
 *     model_logits FOLDER OUT [DEVICE [SHARD_BYTES [LENGTH]]]     LENGTH tokens a row, 2 to 512 */
#include "models/tx_text.h"
#include "tests/transformers/logits.h"

static int64_t length = 24;

static tx_status copy_tokenizer(const char *folder, const char *out, int64_t positions)
{
    tx_tokenizer *tokenizer;
    tx_status status = tx_tokenizer_open(folder, &tokenizer);
    if (status == TX_NOT_FOUND)
        TX_TRY(tx_tokenizer_bytes(&tokenizer));
    status = tx_tokenizer_save(tokenizer, out, positions);
    tx_tokenizer_free(tokenizer);
    return status;
}

/* The model's weights become the gradients of the loss that `plan` leaves. */
static tx_status take_gradients(tx_model *model, tx_plan *plan)
{
    tx_results results = {{0}};
    tx_status status = tx_model_set(model, TX_CONTROL_INVERSE_LABELS, 1.0 / (double)(ROWS * (length - 1)));
    TX_THEN(status, tx_model_set(model, TX_CONTROL_LABEL_SHARE, 1.0));
    TX_THEN(status, tx_plan_run(plan));
    TX_THEN(status, tx_model_fetch(model));
    TX_THEN(status, tx_model_results(model, &results));
    if (!status)
        printf("%.9g\n", (double)results.value[TX_RESULT_LOSS]);
    for (int32_t i = 0; !status && i < tx_model_param_count(model); i++) {
        const char *name;
        const tx_param_spec *spec;
        status = tx_model_param(model, i, &name, &spec);
        if (!status && spec->frozen)
            continue;
        float *gradient = status ? NULL : malloc((size_t)tx_shape_count(&spec->shape) * sizeof *gradient);
        if (!status && !gradient)
            status = tx_fail(TX_MEMORY, "no memory for a gradient");
        TX_THEN(status, tx_model_read(model, TX_PARAM_GRADIENT, i, gradient));
        TX_THEN(status, tx_model_write(model, TX_PARAM_WEIGHT, i, gradient));
        free(gradient);
    }
    return status;
}

/* Everything between the configuration and the files in `out`. */
static tx_status run(const tx_engine *engine, tx_model *model, const tx_config *config, char **argv)
{
    const char *folder = argv[1], *out = argv[2];
    (void)engine;
    const long shard_bytes = argv[3] && argv[4] ? strtol(argv[4], NULL, 10) : 0;
    int32_t ids[ROWS * MOST], next[ROWS * MOST];
    const size_t of_ids = (size_t)(ROWS * length) * sizeof *ids;
    const bool states = config->architecture->head == TX_HEAD_STATES;
    int64_t padded = states ? config->width : tx_arch_padded_vocab(config);
    size_t bytes = (size_t)(ROWS * length * padded) * sizeof(float);
    float *logits = malloc(bytes);
    tx_graph *graph = NULL;
    tx_plan *plan = NULL;
    for (int64_t b = 0; b < ROWS; b++)
        for (int64_t t = 0; t < length; t++)
            ids[b * length + t] = (int32_t)((b * 101 + t * 37) % config->vocab_size);
    for (int64_t i = 0; i < ROWS * length; i++)
        next[i] = i % length < length - 1 ? ids[i + 1] : TX_IGNORE_LABEL;
    tx_status status = logits ? tx_graph_create(model, &graph) : tx_fail(TX_MEMORY, "no memory for the logits");
    if (!status) {
        tx_tensor *tokens = tx_input(graph, "input_ids", TX_I32, TX_SHAPE(ROWS, length));
        tx_tensor *own = NULL;
        const tx_arch_options options = {.size = sizeof options, .own_loss = &own};
        tx_tensor *output = tx_output(tx_arch_logits(graph, config, &options));
        tx_tensor *labels = shard_bytes < 0 ? tx_input(graph, "labels", TX_I32, TX_SHAPE(ROWS, length)) : NULL;
        tx_tensor *loss = labels ? tx_mean_loss(tx_cross_entropy(output, labels, config->vocab_size)) : NULL;
        if (labels)
            status = tx_backward(graph, own ? tx_add(loss, own) : loss);
        TX_THEN(status, tx_plan_create(graph, "logits", &plan));
        TX_THEN(status, tx_arch_load(model, config, folder, NULL));
        TX_THEN(status, tx_plan_write(plan, tokens, ids, of_ids));
        if (!status && labels)
            status = tx_plan_write(plan, labels, next, of_ids);
        if (!status)
            status = labels ? take_gradients(model, plan) : tx_plan_run(plan);
        TX_THEN(status, tx_plan_read(plan, output, logits, bytes));
    }
    TX_THEN(status, tx_arch_save(model, config, out));
    if (!status && shard_bytes > 0)
        status = tx_weights_save(model, out, shard_bytes);
    TX_THEN(status, copy_tokenizer(folder, out, config->positions));
    TX_THEN(status, write_logits(out, logits, length, tx_arch_columns(config), padded));
    tx_plan_free(plan);
    tx_graph_free(graph);
    free(logits);
    return status;
}

int main(int argc, char **argv)
{
    length = argc > 5 ? strtol(argv[5], NULL, 10) : length;
    if (argc < 3 || argc > 6 || length < 2 || length > MOST)
        return fprintf(stderr, "usage: model_logits FOLDER OUT [DEVICE [SHARD_BYTES [LENGTH]]]\n"), 2;
    return on_model(argc > 3 ? argv[3] : "cpu", argv, run);
}
