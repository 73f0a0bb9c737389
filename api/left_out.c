/* SPDX-License-Identifier: Apache-2.0
 * The public functions of extensions in a build of the core (tools/extensions.cmake). They fail with TX_UNSUPPORTED. A
 * function that adds an op records the failure in the graph of its operand. A function that every program calls returns
 * the value for one device. */
#include "api/packed/packed.h"
#include "api/residency/residency.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define UNSUPPORTED(extension) \
    tx_fail(TX_UNSUPPORTED, "%s: TX was built without it (extension " #extension ")", __func__)

/* Defines a function that adds an op to the graph of operand `x`. */
#define LEFT_OUT_OP(extension, x, ...)                                         \
    __VA_ARGS__                                                                \
    {                                                                          \
        return x ? tx_graph_refuse((x)->graph, UNSUPPORTED(extension)) : NULL; \
    }

#define LEFT_OUT(extension, ...)       \
    __VA_ARGS__                        \
    {                                  \
        return UNSUPPORTED(extension); \
    }

#define LEFT_OUT_VALUE(value, ...) \
    __VA_ARGS__                    \
    {                              \
        return value;              \
    }

/* clang-format off */

LEFT_OUT(checkpointing, tx_status tx_graph_checkpointing(tx_graph *graph, const tx_checkpointing *options))

LEFT_OUT_OP(experts, x, tx_tensor *tx_top_k(tx_tensor *x, int64_t k, tx_tensor **indices))
LEFT_OUT_OP(experts, x, tx_tensor *tx_choose(tx_tensor *x, int64_t k, const tx_expert_choice *how, tx_tensor **indices))
LEFT_OUT_OP(experts, choices, bool tx_route(tx_tensor *choices, tx_tensor *ids, int64_t experts, float capacity,
    tx_routes *routes))
LEFT_OUT_OP(experts, x, tx_tensor *tx_grouped_linear(tx_tensor *x, tx_tensor *w, tx_tensor *offsets, bool transpose))
LEFT_OUT_OP(experts, x, tx_tensor *tx_grouped_sums(tx_tensor *x, tx_tensor *offsets))
LEFT_OUT_OP(experts, x, tx_tensor *tx_combine(tx_tensor *x, tx_tensor *weights, const tx_routes *routes))
LEFT_OUT_OP(experts, x, tx_tensor *tx_ep_dispatch(tx_tensor *x, const tx_routes *routes, int64_t chosen,
    float capacity, tx_arrivals *arrivals))
LEFT_OUT_OP(experts, x, tx_tensor *tx_ep_collect(tx_tensor *x, const tx_routes *routes, const tx_arrivals *arrivals))

LEFT_OUT_OP(packed, w, tx_tensor *tx_add_low_rank(tx_tensor *w, tx_tensor *a, int32_t parts, tx_tensor *const *b,
    const int64_t *first, float scale, bool inputs_first))
LEFT_OUT(packed, tx_status tx_rounding_check(const char *name, const tx_param_spec *spec))
LEFT_OUT(packed, tx_status tx_packed_check(const char *name, const tx_param_spec *spec))
LEFT_OUT(packed, tx_status tx_packed_write(tx_model *model, int32_t index, int64_t first, int64_t count,
    const float *data, const uint8_t *blocks))
LEFT_OUT(packed, tx_status tx_model_write_blocks(tx_model *model, int32_t index, int64_t first, int64_t count,
    tx_dtype dtype, const void *blocks))
LEFT_OUT(packed, tx_status tx_packed_read(tx_model *model, int32_t index, int64_t first, int64_t count, float *data))

tx_status tx_model_parallel(tx_model *model, tx_comm *comm, const tx_parallel_options *options)
{
    return tx_comm_size_of(comm) == 1 ? TX_OK : UNSUPPORTED(parallel);
}
LEFT_OUT(parallel, tx_status tx_model_divide(tx_model *model, tx_engine *const *engines, const int32_t *blocks,
    int32_t count))
LEFT_OUT_VALUE(TX_OK, tx_status tx_model_synchronize(tx_model *model, bool on))
LEFT_OUT_VALUE(TX_OK, tx_status tx_model_read_alone(tx_model *model, bool on))
LEFT_OUT_VALUE(TX_OK, tx_status tx_model_serve_reads(tx_model *model))
LEFT_OUT_VALUE(TX_UNSUPPORTED, tx_status tx_model_read_within(tx_model *model, tx_comm *comm))
LEFT_OUT_VALUE(false, bool tx_model_gathers(const tx_model *model))
LEFT_OUT_VALUE(0, uint64_t tx_model_written(const tx_model *model))
LEFT_OUT_VALUE(, void tx_model_vote(tx_model *model, float mine))
LEFT_OUT_VALUE(0, float tx_model_votes(const tx_model *model))
LEFT_OUT_VALUE(0, int32_t tx_model_bucket_count(const tx_model *model))
LEFT_OUT_VALUE(0, int64_t tx_model_bucket_elements(const tx_model *model, int32_t index))
LEFT_OUT_VALUE((*rank = 0, 1), int32_t tx_graph_tp_size(const tx_graph *graph, int32_t *rank))
LEFT_OUT_VALUE((*rank = 0, 1), int32_t tx_graph_cp_size(const tx_graph *graph, int32_t *rank))
LEFT_OUT_VALUE((*rank = 0, 1), int32_t tx_graph_dp_size(const tx_graph *graph, int32_t *rank))
LEFT_OUT_VALUE(x, tx_tensor *tx_dp_all_gather(tx_tensor *x))
LEFT_OUT_VALUE(false, bool tx_graph_sequence(const tx_graph *graph))
LEFT_OUT_VALUE(, void tx_graph_set_sequence(tx_graph *graph, bool on))
LEFT_OUT_VALUE(x, tx_tensor *tx_tp_input(tx_tensor *x))
LEFT_OUT_VALUE(x, tx_tensor *tx_tp_all_reduce(tx_tensor *x))
LEFT_OUT_VALUE(x, tx_tensor *tx_tp_all_gather(tx_tensor *x))
LEFT_OUT_VALUE(x, tx_tensor *tx_tp_reduce_scatter(tx_tensor *x))
LEFT_OUT_VALUE(x, tx_tensor *tx_tp_replicate(tx_tensor *x))
LEFT_OUT_VALUE(x, tx_tensor *tx_tp_own_chunk(tx_tensor *x))
LEFT_OUT_VALUE(param, tx_tensor *tx_tp_param(tx_tensor *param))
LEFT_OUT_VALUE(0, int64_t tx_tp_columns(const tx_tensor *x))

LEFT_OUT_OP(generation, qkv, tx_tensor *tx_attention_cached(tx_tensor *qkv, tx_tensor *k_cache, tx_tensor *v_cache,
    tx_tensor *positions, tx_tensor *sources, tx_tensor *slots, const tx_attention_options *options))
LEFT_OUT(generation, tx_status tx_cache_reorder(tx_tensor *cache, tx_tensor *sources))
LEFT_OUT(generation, tx_status tx_caches_reorder(tx_graph *graph, const char *prefix, tx_tensor *sources,
    tx_tensor *positions))
LEFT_OUT(generation, tx_status tx_cache_append(tx_tensor *kv, tx_tensor *k_cache, tx_tensor *v_cache,
    tx_tensor *positions, tx_tensor *sources, tx_tensor *slots))

LEFT_OUT(residency, tx_status tx_graph_offload_activations(tx_graph *graph))
LEFT_OUT(residency, tx_status tx_model_offload_weights(tx_model *model))
LEFT_OUT(residency, tx_status tx_model_offload_params(tx_model *model, tx_offload_place place, const char *folder,
    bool frozen_alone))
LEFT_OUT(residency, tx_status tx_model_offload_states(tx_model *model, const tx_optimizer_options *options))

LEFT_OUT_OP(scan, x, tx_tensor *tx_short_conv(tx_tensor *x, tx_tensor *w, tx_tensor *bias, tx_tensor *starts,
    bool silu))
LEFT_OUT_OP(scan, x, tx_tensor *tx_short_conv_cached(tx_tensor *x, tx_tensor *w, tx_tensor *bias, tx_tensor *tail,
    tx_tensor *spans, bool silu))
LEFT_OUT_OP(scan, x, tx_tensor *tx_scan_rates(tx_tensor *x, tx_tensor *a_log, tx_tensor *dt_bias,
    const tx_scan_options *options))
LEFT_OUT_OP(scan, qkv, tx_tensor *tx_linear_scan(tx_tensor *qkv, tx_tensor *rates, tx_tensor *skip, tx_tensor *starts,
    const tx_scan_options *options))
LEFT_OUT_OP(scan, qkv, tx_tensor *tx_linear_scan_cached(tx_tensor *qkv, tx_tensor *rates, tx_tensor *skip,
    tx_tensor *state, tx_tensor *spans, const tx_scan_options *options))

LEFT_OUT(watching, tx_status tx_plan_watch(tx_plan *plan, const tx_reporter *report))

/* clang-format on */
