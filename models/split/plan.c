/* SPDX-License-Identifier: Apache-2.0
 * Gets the figures of a model from the planner, for the performance model of divided training. */
#include "comm/comm.h"
#include "models/split/pretend.h"
#include "models/split/split.h"

#define RANKS 8        /* number of data-parallel ranks in the plans that measure buckets */
#define SMALL_LAYERS 2 /* layers of the smaller plan; the larger has twice as many */

/* ---- Plans ------------------------------------------------------------------------------------------------ */

/* Plans rank 0. In a pipeline this is the first stage, which keeps activations of at most as many micro-batches as
 * there are stages, so the plan needs no more than twice as many. */
static tx_status foresee(tx_engine *engine, const tx_config *config, const tx_trainer_options *base, const tx_split *s,
                         const int32_t *stage_blocks, int64_t host, tx_forecast *forecast)
{
    tx_comm *data = NULL, *tensor = NULL, *pipeline = NULL, *ends = NULL, *shards = NULL, *replicate = NULL;
    const tx_split_machine machine = {.host = host};
    tx_trainer_options options = *base;
    tx_status status = tx_fake_comm_open((int32_t)s->data, (int32_t)host, &data);
    TX_THEN(status, tx_fake_comm_open((int32_t)s->tensor, (int32_t)host, &tensor));
    TX_THEN(status, tx_fake_comm_open((int32_t)s->pipeline, (int32_t)host, &pipeline));
    TX_THEN(status, tx_fake_comm_open(2, (int32_t)host, &ends));
    options.batch = s->batch;
    options.all_rows = s->batch * s->data;
    options.rows_before = 0;
    options.accumulation = s->pipeline > 1 && s->micro > 2 * s->pipeline ? 2 * s->pipeline : s->micro;
    options.comm = data;
    options.parallel.zero_stage = s->zero;
    options.parallel.tensor = s->tensor > 1 ? tensor : NULL;
    options.parallel.pipeline = s->pipeline > 1 ? pipeline : NULL;
    options.parallel.ends = ends;
    if (s->hybrid) {
        const int32_t size = (int32_t)tx_split_shards(&machine, s);
        TX_THEN(status, tx_fake_comm_open(size, size, &shards));
        TX_THEN(status, tx_fake_comm_open((int32_t)s->data / size, 1, &replicate));
    }
    options.parallel.shards = shards;
    options.parallel.replicate = replicate;
    options.parallel.context = options.parallel.expert = options.parallel.replicas = NULL;
    options.parallel.schedule = s->chunks > 1 ? TX_PIPELINE_INTERLEAVED : TX_PIPELINE_1F1B;
    options.parallel.chunks = (int32_t)s->chunks;
    options.parallel.stage_blocks = stage_blocks;
    options.checkpointing =
        s->again ? (tx_checkpointing){sizeof options.checkpointing, 0, INT32_MAX, 0} : (tx_checkpointing){0};
    TX_THEN(status, tx_trainer_forecast(engine, config, &options, forecast));
    tx_fake_comm_close(replicate);
    tx_fake_comm_close(shards);
    tx_fake_comm_close(ends);
    tx_fake_comm_close(pipeline);
    tx_fake_comm_close(tensor);
    tx_fake_comm_close(data);
    return status;
}

tx_status tx_split_plan(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                        const tx_split_model *model, const tx_split_machine *machine, const tx_split *split,
                        tx_memory *memory)
{
    int32_t blocks[TX_SPLIT_STAGES];
    tx_forecast forecast;
    tx_split_stages(model, split, machine->room, blocks);
    TX_TRY(foresee(engine, config, base, split, blocks, machine->host, &forecast));
    *memory = forecast.memory;
    return TX_OK;
}

bool tx_split_is_built(const tx_split *s)
{
    return s->context == 1 && s->expert == 1 &&
           (s->pipeline == 1 || (s->schedule != TX_PIPELINE_GPIPE && s->zero <= 1));
}

/* ---- Pieces ----------------------------------------------------------------------------------------------- */

static double per_layer(double small, double large)
{
    return (large - small) / SMALL_LAYERS;
}

static tx_status measure(tx_engine *engine, const tx_config *config, const tx_trainer_options *base, int64_t tensor,
                         bool again, tx_split_piece *layer, tx_split_piece *ends)
{
    const tx_split split = {1, tensor, 1, 1, 1, 0, TX_PIPELINE_1F1B, 1, 1, 1, again, false};
    tx_forecast f[2];
    tx_config *copy = NULL;
    TX_TRY(tx_config_copy(config, &copy));
    tx_status status = TX_OK;
    for (int i = 0; i < 2 && !status; i++) {
        copy->layers = SMALL_LAYERS << i;
        status = foresee(engine, copy, base, &split, NULL, tensor, &f[i]);
    }
    tx_config_free(copy);
    if (status)
        return status;
    layer->flops = per_layer(f[0].product_flops, f[1].product_flops);
    layer->moved = per_layer(f[0].other_bytes, f[1].other_bytes);
    layer->update = per_layer(f[0].update_bytes, f[1].update_bytes);
    ends->flops = f[0].product_flops - SMALL_LAYERS * layer->flops;
    ends->moved = f[0].other_bytes - SMALL_LAYERS * layer->moved;
    ends->update = f[0].update_bytes - SMALL_LAYERS * layer->update;
    for (int k = 0; k < TX_MEMORY_OFFLOADED; k++) {
        layer->bytes[k] = per_layer((double)f[0].memory.bytes[k], (double)f[1].memory.bytes[k]);
        ends->bytes[k] = (double)f[0].memory.bytes[k] - SMALL_LAYERS * layer->bytes[k];
    }
    return TX_OK;
}

/* The memory of ZeRO's buckets: the difference to a plan without sharded gradients and weights. */
static tx_status measure_buckets(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                                 tx_split_model *m)
{
    tx_config *copy = NULL;
    TX_TRY(tx_config_copy(config, &copy));
    copy->layers = 2 * SMALL_LAYERS;
    tx_status status = TX_OK;
    for (int again = 0; again < 2; again++)
        for (int32_t zero = 1; zero < 4 && !status; zero++) {
            const tx_split split = {RANKS, 1, 1, 1, 1, zero, TX_PIPELINE_1F1B, 1, 1, 1, again, false};
            tx_forecast f;
            status = foresee(engine, copy, base, &split, NULL, RANKS, &f);
            const double bytes =
                status ? 0.0
                       : (double)(f.memory.bytes[TX_MEMORY_EXCHANGE] + f.memory.bytes[TX_MEMORY_ACTIVATIONS] +
                                  f.memory.bytes[TX_MEMORY_TEMPORARY]);
            for (int32_t after = 2; after < 4; after++) /* stage 1 has no buckets */
                m->buckets[after - 2][again] += zero == 1 ? -bytes : zero == after ? bytes : 0.0;
        }
    tx_config_free(copy);
    return status;
}

/* Measures all tensor-parallel sizes that the planner supports. */
static tx_status measure_all(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                             tx_split_model *m)
{
    for (int power = 0; power < TX_SPLIT_TENSOR_POWER; power++) {
        const int64_t tensor = INT64_C(1) << power;
        tx_status status = TX_OK;
        for (int again = 0; again < 2 && !status; again++)
            status = measure(engine, config, base, tensor, again, &m->layer[power][again], &m->ends[power][again]);
        if (status)
            return power && status == TX_UNSUPPORTED ? TX_OK : status;
        m->tensor = tensor;
    }
    return TX_OK;
}

/* ---- Shape ------------------------------------------------------------------------------------------------ */

/* The value of a key of config.json, which may have several names. `absent` if there is none. */
static int64_t key(const tx_json *json, const char *const *names, int64_t absent)
{
    int64_t value;
    for (; *names; names++)
        if (tx_json_has(json, *names) && !tx_json_get_int(json, *names, 1, INT32_MAX, &value))
            return value;
    return absent;
}

#define KEY(json, absent, ...) key(json, (const char *const[]){__VA_ARGS__, NULL}, absent)

/* The fraction of the layers' weights that belongs to experts. */
static tx_status share_of_experts(const tx_config *config, tx_split_model *m)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    double experts = 0.0, all = 0.0;
    for (int32_t i = 0; i < tx_arch_params(config); i++) {
        TX_TRY(tx_arch_param(config, i, name, &spec));
        double count = 1.0;
        for (int32_t d = 0; d < spec.shape.rank; d++)
            count *= (double)spec.shape.dim[d];
        experts += spec.experts ? count : 0.0;
        all += spec.table ? 0.0 : count;
    }
    m->expert_share = experts / all;
    return TX_OK;
}

static tx_status find_shape(const tx_config *config, const tx_trainer_options *base, tx_split_model *model)
{
    tx_json *json = NULL;
    TX_TRY(tx_config_json(config, &json));
    *model = (tx_split_model){.layers = config->layers,
                              .width = config->width,
                              .heads = config->heads,
                              .kv_heads = KEY(json, config->heads, "num_key_value_heads"),
                              .vocab = tx_arch_padded_vocab(config),
                              .block = base->block,
                              .bucket =
                                  (double)(base->parallel.bucket_bytes ? base->parallel.bucket_bytes : TX_BUCKET_BYTES),
                              .experts = KEY(json, 0, "num_local_experts", "num_experts", "n_routed_experts"),
                              .chosen = KEY(json, 1, "num_experts_per_tok")};
    if (base->parallel.wire)
        model->sent = (double)tx_comm_bytes(TX_COMM_BLOCK, base->parallel.wire) / (double)TX_COMM_BLOCK;
    model->kv_width = model->kv_heads * KEY(json, config->width / config->heads, "head_dim");
    tx_json_free(json);
    return model->experts ? share_of_experts(config, model) : TX_OK;
}

tx_status tx_split_model_make(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                              tx_split_model *model)
{
    TX_TRY(find_shape(config, base, model));
    TX_TRY(measure_buckets(engine, config, base, model));
    return measure_all(engine, config, base, model);
}

tx_status tx_split_model_of(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                            const tx_split *split, tx_split_model *model)
{
    const int power = tx_split_power(split->tensor);
    TX_TRY(find_shape(config, base, model));
    model->tensor = split->tensor;
    return measure(engine, config, base, split->tensor, split->again, &model->layer[power][split->again],
                   &model->ends[power][split->again]);
}
