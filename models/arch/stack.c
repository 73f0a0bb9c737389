/* SPDX-License-Identifier: Apache-2.0
 * Parameters and graphs of architectures that are a stack of equal blocks. */
#include "models/arch/stack.h"

#include "models/lora/lora.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Parameters -------------------------------------------------------------------------------------- */

static bool is_set(const tx_config *config, size_t offset)
{
    bool flag;
    memcpy(&flag, (const char *)config + offset, sizeof flag);
    return flag;
}

static bool has(const tx_config *config, const tx_stack_row *row)
{
    return (!row->heads || row->heads >> config->architecture->head & 1) && (!row->with || is_set(config, row->with)) &&
           (!row->without || !is_set(config, row->without));
}

/* The first block that may have the parameter. */
static int64_t first_of(const tx_config *config, const tx_stack_row *row)
{
    int64_t first = 0;
    if (row->first)
        memcpy(&first, (const char *)config + row->first, sizeof first);
    return first;
}

static bool has_param(const tx_config *config, const tx_stack_row *row, int64_t block)
{
    return has(config, row) && block >= first_of(config, row) && (!row->in || row->in(config, block));
}

static bool is_in_block(const tx_stack_row *row)
{
    return row->name && strstr(row->name, "%d");
}

/* Adjacent rows of one kind: before the blocks, inside them, or after them. */
typedef struct row_part {
    const tx_stack_row *end; /* the first row of the next part */
    int32_t count;           /* number of rows that the block has */
    bool differs;            /* blocks have different rows */
} row_part;

static row_part part_of(const tx_config *config, const tx_stack_row *row, int64_t block)
{
    const bool in_block = is_in_block(row);
    row_part found = {.end = row};
    for (; row->name && is_in_block(row) == in_block; row++) {
        found.count += has_param(config, row, block);
        found.differs = found.differs || ((row->in || row->first) && has(config, row));
    }
    found.end = row;
    return found;
}

/* Returns parameter `index` of the table, and its block. If there is none it returns NULL and subtracts the number of
 * all parameters from *index. */
static const tx_stack_row *walk(const tx_config *config, const tx_stack_row *rows, int64_t *index, int64_t *block)
{
    for (const tx_stack_row *row = rows; row->name;) {
        const int64_t blocks = is_in_block(row) ? config->layers : 1;
        row_part now = part_of(config, row, 0);
        *block = 0;
        if (!now.differs && now.count > 0) { /* equal blocks are skipped at once */
            *block = *index / now.count < blocks ? *index / now.count : blocks;
            *index -= *block * now.count;
        }
        for (; *block < blocks; ++*block) {
            now = part_of(config, row, *block);
            if (*index < now.count) {
                while (!has_param(config, row, *block) || (*index)-- > 0)
                    row++;
                return row;
            }
            *index -= now.count;
        }
        row = now.end;
    }
    return NULL;
}

int32_t tx_stack_params(const tx_config *config, const tx_stack_row *rows)
{
    int64_t left = INT32_MAX, block;
    walk(config, rows, &left, &block);
    return (int32_t)(INT32_MAX - left);
}

const tx_stack_row *tx_stack_row_of(const tx_config *config, const tx_stack_row *rows, int32_t index, int64_t *number)
{
    int64_t left = index, block;
    const tx_stack_row *row = walk(config, rows, &left, &block);
    *number = is_in_block(row) ? block - first_of(config, row) : -1;
    return row;
}

/* The value of tx_param_spec.block. */
static int32_t block_of(const tx_stack_row *rows, const tx_stack_row *row, int64_t block)
{
    if (is_in_block(row))
        return (int32_t)block + 1;
    while (rows < row && !is_in_block(rows))
        rows++;
    return rows < row ? -1 : 0;
}

/* Finds the row of parameter `index`, its name and its block. */
static const tx_stack_row *find_row(const tx_config *config, const tx_stack_row *rows, int64_t index,
                                    char name[TX_ARCH_NAME], int32_t *of)
{
    int64_t block;
    const tx_stack_row *row = walk(config, rows, &index, &block);
    *of = block_of(rows, row, block);
    const char *number = strstr(row->name, "%d");
    if (number)
        snprintf(name, TX_ARCH_NAME, "%.*s%" PRId64 "%s", (int)(number - row->name), row->name,
                 block - first_of(config, row), number + 2);
    else
        snprintf(name, TX_ARCH_NAME, "%s", row->name);
    return row;
}

/* Sets the members that follow from the row and the shape. */
static void set_rest(const tx_config *config, const tx_stack_row *row, double initializer_range, tx_param_spec *spec)
{
    const bool residual = row->init == TX_STACK_RESIDUAL;
    spec->decay = (spec->shape.rank > 1) != row->other_decay;
    spec->table = spec->shape.rank > 1 && (row->router || !is_in_block(row));
    spec->frozen = row->frozen;
    static const tx_init inits[] = {[TX_STACK_NORMAL] = TX_INIT_NORMAL,
                                    [TX_STACK_RESIDUAL] = TX_INIT_NORMAL,
                                    [TX_STACK_ZERO] = TX_INIT_ZERO,
                                    [TX_STACK_ONE] = TX_INIT_ONE,
                                    [TX_STACK_LOG_UNIFORM] = TX_INIT_LOG_UNIFORM,
                                    [TX_STACK_LOG_RANGE] = TX_INIT_LOG_RANGE,
                                    [TX_STACK_CONSTANT] = TX_INIT_CONSTANT,
                                    [TX_STACK_LOG_STEPS] = TX_INIT_LOG_STEPS,
                                    [TX_STACK_BY_INPUTS] = TX_INIT_UNIFORM};
    spec->init = inits[row->init];
    spec->scalar = row->scalar;
    if (spec->init == TX_INIT_LOG_UNIFORM)
        spec->scale = 16.0f;
    if (spec->init == TX_INIT_CONSTANT)
        spec->scale = (float)row->value;
    if (spec->init == TX_INIT_UNIFORM)
        spec->scale = (float)(1 / sqrt((double)(tx_shape_count(&spec->shape) / spec->shape.dim[0])));
    /* Residual projections are scaled by the 2 n_layer additions to the residual stream (Radford et al., 2019, section
     * 2.3). */
    if (spec->init == TX_INIT_NORMAL)
        spec->scale = (float)(initializer_range / (residual ? sqrt(2.0 * (double)config->layers) : 1.0));
}

void tx_stack_param(const tx_config *config, const tx_stack_row *rows, tx_stack_extent *extent_of,
                    double initializer_range, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    int32_t block;
    const tx_stack_row *row = find_row(config, rows, index, name, &block);
    *spec = (tx_param_spec){.block = block};
    for (int32_t i = 0; i < 3 && row->extent[i] != TX_EXTENT_NONE; i++) {
        int64_t *size = &spec->shape.dim[spec->shape.rank++];
        if (row->extent[i] == TX_EXTENT_VOCAB)
            *size = config->vocab_size;
        else if (row->extent[i] == TX_EXTENT_WIDTH)
            *size = config->width;
        else
            *size = extent_of(config, block > 0 ? block - 1 : 0, row->extent[i], i, &spec->sections);
    }
    if (row->extent[0] == TX_EXTENT_VOCAB) {
        spec->logical = spec->shape;
        spec->shape.dim[0] = tx_arch_padded_vocab(config);
    }
    spec->split = row->split;
    spec->experts = row->experts;
    spec->apart = strpbrk(row->name, "|*") != NULL;
    set_rest(config, row, initializer_range, spec);
}

/* ---- Graph ------------------------------------------------------------------------------------------- */

int64_t tx_stack_row_length(const tx_graph *graph, const tx_tensor *tokens)
{
    int32_t chunk;
    const tx_tensor *sequences = tx_find_input(graph, "sequences");
    return tx_tensor_shape(sequences ? sequences : tokens)->dim[1] * tx_graph_cp_size(graph, &chunk);
}

static tx_status check_call(const tx_graph *graph, const tx_config *c, const tx_arch_options *o)
{
    const tx_tensor *tokens = tx_find_input(graph, "input_ids");
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "options.size is %zu, expected %zu", o->size, sizeof *o);
    if (!tokens || tx_tensor_shape(tokens)->rank != 2 || tx_tensor_dtype(tokens) != TX_I32)
        return tx_fail(TX_INVALID, "the graph must have an input input_ids, I32 [B, T]");
    const int64_t tokens_in_row = tx_stack_row_length(graph, tokens);
    const int64_t positions = o->cache > tokens_in_row ? o->cache : tokens_in_row;
    if (positions > c->positions)
        return tx_fail(TX_INVALID, "%" PRId64 " positions requested, but the model has only %" PRId64, positions,
                       c->positions);
    int32_t chunk;
    const tx_head head = c->architecture->head;
    const bool of_tokens =
        head == TX_HEAD_CAUSAL_LM || head == TX_HEAD_MASKED_LM || head == TX_HEAD_TOKEN_CLASSIFICATION;
    if (tx_graph_cp_size(graph, &chunk) > 1 && !of_tokens)
        return tx_fail(TX_UNSUPPORTED, "context parallelism divides rows, and %s reads whole ones",
                       c->architecture->class_name);
    if (o->cache > 0 && head != TX_HEAD_CAUSAL_LM && head != TX_HEAD_SEQ2SEQ)
        return tx_fail(TX_UNSUPPORTED, "%s cannot generate text%s", c->architecture->class_name,
                       head == TX_HEAD_SEQUENCE_CLASSIFICATION
                           ? ": use txgen --classify or txserve --task classify to label texts"
                       : head == TX_HEAD_TOKEN_CLASSIFICATION ? ": use txgen --classify to label words"
                       : head == TX_HEAD_STATES               ? ": use txgen --embed or txserve --task embed"
                                                              : "");
    if (o->cache > 0 && (tx_find_input(graph, "attention_starts") || tx_find_input(graph, "position_ids")))
        return tx_fail(TX_INVALID, "attention_starts and position_ids cannot be used with a cache");
    if (tx_find_input(graph, "sequences") &&
        (o->cache > 0 || tx_arch_recurs(c) || !tx_find_input(graph, "position_ids")))
        return tx_fail(TX_INVALID, "sequences need position_ids, and neither a cache nor recurrent layers");
    const bool lengths = tx_find_input(graph, "attention_lengths") && head != TX_HEAD_SEQ2SEQ;
    if (o->cache > 0 && (o->train || lengths || tokens_in_row > o->cache))
        return tx_fail(TX_INVALID,
                       "a cache of %" PRId64 " positions allows neither training, nor lengths, nor more tokens a row",
                       o->cache);
    if ((o->cache > 0) != (tx_find_input(graph, "positions") != NULL) ||
        ((tx_find_input(graph, "sources") || tx_find_input(graph, "slots")) && !o->cache))
        return tx_fail(TX_INVALID, "a cache needs the input positions; positions, sources and slots need a cache");
    return tx_config_check(c);
}

tx_status tx_stack_open(tx_graph *graph, const tx_config *config, const tx_arch_options *options,
                        const tx_stack_row *rows, tx_stack *stack)
{
    tx_status status = check_call(graph, config, options);
    if (status)
        return tx_graph_fail(graph, tx_fail_in(status, "%s", config->architecture->type));
    *stack = (tx_stack){.graph = graph,
                        .config = config,
                        .options = options,
                        .rows = rows,
                        .tokens = tx_find_input(graph, "input_ids"),
                        .padding = -1,
                        .positions = tx_find_input(graph, options->cache > 0 ? "positions" : "position_ids")};
    stack->parts = tx_graph_tp_size(graph, &stack->part);
    tx_graph_set_sequence(graph, true);
    return TX_OK;
}

/* The number of parameters in the first `blocks` blocks of a part. */
static int64_t count_of(const tx_config *config, const tx_stack_row *part, int64_t blocks)
{
    const row_part first = part_of(config, part, 0);
    int64_t count = first.differs ? 0 : blocks * first.count;
    for (int64_t block = 0; first.differs && block < blocks; block++)
        count += part_of(config, part, block).count;
    return count;
}

/* The index of the parameter in a slot; -1 if the model, or the current block, has none. */
static int32_t index_of(const tx_stack *s, int32_t slot)
{
    int64_t before = 0;
    const tx_stack_row *end;
    for (const tx_stack_row *part = s->rows; part->name; part = end) {
        const bool in_block = is_in_block(part);
        const int64_t block = in_block ? s->block : 0;
        int64_t index = before + count_of(s->config, part, block);
        end = part_of(s->config, part, block).end;
        for (const tx_stack_row *row = part; row < end; row++) {
            const bool there = has_param(s->config, row, block);
            if (there && row->slot == slot)
                return (int32_t)index;
            index += there;
        }
        before += count_of(s->config, part, in_block ? s->config->layers : 1);
    }
    return -1;
}

bool tx_stack_has(const tx_stack *stack, int32_t slot)
{
    return index_of(stack, slot) >= 0;
}

static tx_tensor *param_at(const tx_stack *stack, int32_t index)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_tensor *param = tx_arch_param(stack->config, index, name, &spec) ? NULL : tx_param(stack->graph, name, &spec);
    return tx_lora_replace_rows(stack->graph, stack->config, stack->options, index, param);
}

tx_tensor *tx_stack_weight(const tx_stack *stack, int32_t slot)
{
    const int32_t index = index_of(stack, slot);
    if (index >= 0)
        return param_at(stack, index);
    tx_graph_fail(stack->graph,
                  tx_fail(TX_INTERNAL, "%s has no weight in slot %" PRId32, stack->config->architecture->type, slot));
    return NULL;
}

int32_t tx_stack_heads_per_rank(tx_stack *stack, int64_t heads, const char *what)
{
    if (heads % stack->parts != 0)
        tx_graph_fail(stack->graph, tx_fail(TX_UNSUPPORTED, "%s: %" PRId64 " cannot be divided among %" PRId32 " ranks",
                                            what, heads, stack->parts));
    return (int32_t)(heads / stack->parts);
}

int32_t tx_stack_kv_heads_per_rank(tx_stack *stack, int64_t heads, const char *what)
{
    return stack->parts % heads == 0 ? 1 : tx_stack_heads_per_rank(stack, heads, what);
}

/* Whether tensor-parallel ranks divide a matrix, and whether by its outputs. */
static bool is_split(const tx_stack *stack, int32_t index, bool *by_outputs)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec = {0};
    const bool split = stack->parts > 1 && !tx_arch_param(stack->config, index, name, &spec) && spec.split;
    *by_outputs = split && spec.split == (tx_arch_inputs_first(stack->config, &spec) ? 2 : 1);
    return split;
}

/* Reports inputs of a product, and returns them. */
static tx_tensor *seen(const tx_stack *s, int32_t index, tx_tensor *x, tx_tensor *offsets)
{
    if (s->options->inputs && x)
        s->options->inputs->add(s->options->inputs->context, index, x, offsets);
    return x;
}

tx_tensor *tx_stack_linear(const tx_stack *stack, tx_tensor *x, int32_t weight_slot, int32_t bias_slot)
{
    const int32_t index = index_of(stack, weight_slot), of_bias = index_of(stack, bias_slot);
    bool by_outputs;
    const bool split = is_split(stack, index, &by_outputs), by_inputs = split && !by_outputs;
    tx_tensor *weight = tx_stack_weight(stack, weight_slot), *bias = of_bias < 0 ? NULL : param_at(stack, of_bias);
    if (!split) {
        weight = tx_tp_param(weight);
        bias = tx_tp_param(bias);
    }
    x = seen(stack, index, by_outputs ? tx_tp_all_gather(x) : x, NULL);
    tx_tensor *y =
        tx_lora_linear(stack->graph, stack->config, stack->options, index, x, weight, by_inputs ? NULL : bias);
    if (!by_inputs)
        return y;
    y = tx_tp_reduce_scatter(y);
    return y && bias ? tx_add(y, tx_broadcast(tx_tp_param(bias), *tx_tensor_shape(y), TX_AXIS_ROWS)) : y;
}

tx_tensor *tx_stack_columns(const tx_stack *stack, tx_tensor *x, int32_t weight)
{
    const int32_t index = index_of(stack, weight);
    return tx_lora_linear(stack->graph, stack->config, stack->options, index, seen(stack, index, x, NULL),
                          tx_stack_weight(stack, weight), NULL);
}

tx_tensor *tx_stack_grouped(const tx_stack *stack, tx_tensor *x, int32_t weight, tx_tensor *offsets, bool inputs_first)
{
    const int32_t index = index_of(stack, weight);
    return tx_lora_grouped(stack->graph, stack->config, stack->options, index, seen(stack, index, x, offsets),
                           tx_stack_weight(stack, weight), offsets, inputs_first);
}

tx_tensor *tx_stack_lookup(const tx_stack *stack, tx_tensor *table, tx_tensor *position_table)
{
    const int32_t first = 0; /* every table of rows begins with the token table */
    tx_tensor *x = tx_embedding_padded(stack->tokens, table, stack->padding, position_table,
                                       position_table ? stack->positions : NULL);
    return tx_lora_embedding(stack->graph, stack->config, stack->options, first, stack->tokens, x);
}

tx_tensor *tx_stack_rows_of(const tx_stack *stack, int32_t slot, tx_tensor *tokens)
{
    tx_tensor *x = tx_embedding_padded(tokens, tx_stack_weight(stack, slot), stack->padding, NULL, NULL);
    return tx_lora_embedding(stack->graph, stack->config, stack->options, index_of(stack, slot), tokens, x);
}

tx_tensor *tx_stack_embed(const tx_stack *stack, tx_tensor *table, tx_tensor *position_table)
{
    return tx_arch_noise(stack->graph, tx_stack_lookup(stack, table, position_table), stack->options);
}

tx_tensor *tx_stack_head(const tx_stack *stack, tx_tensor *x, tx_tensor *weight, tx_tensor *bias, int32_t slot)
{
    return tx_lora_linear(stack->graph, stack->config, stack->options, index_of(stack, slot), tx_tp_all_gather(x),
                          weight, bias);
}

tx_tensor *tx_stack_dropout(tx_stack *stack, tx_tensor *x, double p)
{
    const int32_t site = stack->next_site++;
    return stack->options->train && !stack->options->no_dropout && p > 0 ? tx_dropout(x, (float)p, site) : x;
}

tx_tensor *tx_stack_clip(const tx_stack *stack, tx_tensor *x, double limit)
{
    if (!x || !(limit > 0))
        return x;
    tx_tensor *limits = tx_fill(stack->graph, *tx_tensor_shape(x), (float)-limit);
    tx_tensor *above = tx_relu(tx_add(x, limits)), *below = tx_relu(tx_add(tx_scale(x, -1.0f), limits));
    return tx_add(tx_add(x, tx_scale(above, -1.0f)), below);
}

tx_tensor *tx_stack_whole_norms(tx_tensor *qkv, tx_tensor *gamma, int64_t q, float eps)
{
    if (!qkv || !gamma)
        return NULL;
    const int64_t all = tx_shape_last(tx_tensor_shape(qkv)), k = (all - q) / 2, width[] = {q, k, k};
    tx_tensor *gammas = tx_reshape(gamma, TX_SHAPE(1, q + k)), *sum = NULL;
    if (q == k)
        return tx_head_norm(qkv, gamma, 1, 1, eps);
    for (int64_t i = 0, at = 0; i < 3; at += width[i++]) {
        tx_tensor *part = tx_shift_rows(qkv, width[i], at, 0);
        if (i < 2)
            part = tx_rms_norm(part, tx_reshape(tx_shift_rows(gammas, width[i], at, 0), TX_SHAPE(width[i])), eps);
        part = tx_shift_rows(part, all, -at, 0);
        sum = sum ? tx_add(sum, part) : part;
    }
    return sum;
}

tx_tensor *tx_stack_range(tx_stack *stack, tx_tensor *x, int64_t first, int64_t end, tx_stack_block *block)
{
    for (int64_t i = first; i < end; i++) {
        if (!stack->config->teacher && !stack->options->base) /* they need no recomputation */
            tx_graph_block(stack->graph, (int32_t)i + 1);
        stack->block = i;
        x = block(stack, x, i);
    }
    tx_graph_block(stack->graph, 0);
    return x;
}

tx_tensor *tx_stack_blocks(tx_stack *stack, tx_tensor *x, tx_stack_block *block)
{
    return tx_stack_range(stack, x, 0, stack->config->layers, block);
}

bool tx_stack_decodes(const tx_config *config)
{
    const tx_architecture *a = config->architecture;
    return a->head == TX_HEAD_CAUSAL_LM || a->reads_last || a->decodes;
}

tx_tensor *tx_stack_whole(const tx_stack *stack, tx_tensor *x)
{
    x = tx_tp_replicate(x);
    tx_graph_set_sequence(stack->graph, false);
    return x;
}

/* The rows of x [B, T, C] that the input last_token marks, [B, C]. */
static tx_tensor *last_of(const tx_stack *stack, tx_tensor *x)
{
    const tx_shape *shape = tx_tensor_shape(x);
    tx_tensor *last = tx_find_input(stack->graph, "last_token");
    if (!last) {
        tx_graph_fail(stack->graph, tx_fail(TX_UNSUPPORTED, "%s: the graph must have an input last_token, F32 [B, T]",
                                            stack->config->architecture->class_name));
        return NULL;
    }
    tx_tensor *picked = tx_matmul(tx_reshape(last, TX_SHAPE(shape->dim[0], 1, shape->dim[1])), x, false, false);
    return tx_reshape(picked, TX_SHAPE(shape->dim[0], shape->dim[2]));
}

tx_tensor *tx_stack_rows(const tx_stack *stack, tx_tensor *x)
{
    const tx_architecture *a = stack->config->architecture;
    tx_tensor *rows = tx_find_input(stack->graph, "rows");
    if (!x || !(rows || a->reads_last || a->head == TX_HEAD_STATES))
        return x;
    x = tx_stack_whole(stack, x);
    if (a->reads_last)
        return last_of(stack, x);
    return rows ? tx_gather(tx_reshape(x, TX_SHAPE(tx_shape_rows(tx_tensor_shape(x)), stack->config->width)), rows) : x;
}
