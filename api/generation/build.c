/* SPDX-License-Identifier: Apache-2.0
 * The builder of attention with key-value caches. */
#include "api/base/needs.h"
#include "api/graph/graph.h"
#include "api/model/model.h"

#include <string.h>

/* Rows x end with keys and values. */
static tx_status append(tx_tensor *x, tx_tensor *k_cache, tx_tensor *v_cache, tx_tensor *positions, tx_tensor *sources,
                        tx_tensor *slots, tx_attrs attrs)
{
    if (sources)
        tx_emit(x->graph, &(tx_emit_args){.op = TX_OP_KV_REORDER,
                                          .attrs = TX_PLAIN,
                                          .in = {k_cache, v_cache, sources, positions},
                                          .out = {k_cache, v_cache}});
    tx_emit(x->graph, &(tx_emit_args){.op = TX_OP_KV_APPEND,
                                      .attrs = attrs,
                                      .in = {x, k_cache, v_cache, positions, slots},
                                      .out = {k_cache, v_cache}});
    if (x->graph->status == TX_OK) {
        tx_tensor_narrow(sources, 0, k_cache->shape.dim[0], false);
        tx_tensor_narrow(slots, 0, k_cache->shape.dim[0], false);
        tx_tensor_narrow(positions, 0, k_cache->shape.dim[1] - x->shape.dim[1] + 1, false);
    }
    return x->graph->status;
}

tx_status tx_cache_reorder(tx_tensor *cache, tx_tensor *sources)
{
    TX_NEEDS(cache && sources, TX_INVALID);
    tx_tensor *rows = tx_range(cache->graph, sources->shape, (int32_t)cache->shape.dim[1], 0); /* all of them */
    tx_emit(cache->graph,
            &(tx_emit_args){
                .op = TX_OP_KV_REORDER, .attrs = TX_PLAIN, .in = {cache, cache, sources, rows}, .out = {cache, cache}});
    if (cache->graph->status == TX_OK)
        tx_tensor_narrow(sources, 0, cache->shape.dim[0], false);
    return cache->graph->status;
}

/* A state of the model in this graph. */
static tx_tensor *state_of(tx_graph *graph, const tx_state_record *s)
{
    const bool full = s->dtype == TX_F32 && graph->model->stored != TX_F32;
    return full ? tx_state_full(graph, s->name, s->shape)
                : tx_state(graph, s->name, s->dtype == TX_U8 ? TX_U8 : TX_F32, s->shape);
}

tx_status tx_caches_reorder(tx_graph *graph, const char *prefix, tx_tensor *sources, tx_tensor *positions)
{
    TX_NEEDS(graph && prefix && sources && positions, TX_INVALID);
    const tx_model *m = graph->model;
    for (int32_t i = 0; i < m->states; i++) {
        if (!m->state[i].name || m->state[i].absent || strncmp(m->state[i].name, prefix, strlen(prefix)) != 0)
            continue;
        tx_tensor *cache = state_of(graph, &m->state[i]);
        tx_emit(graph, &(tx_emit_args){.op = TX_OP_KV_REORDER,
                                       .attrs = TX_PLAIN,
                                       .in = {cache, cache, sources, positions},
                                       .out = {cache, cache}});
    }
    if (graph->status == TX_OK)
        tx_tensor_narrow(sources, 0, sources->shape.dim[0], false);
    return graph->status;
}

tx_status tx_cache_append(tx_tensor *kv, tx_tensor *k_cache, tx_tensor *v_cache, tx_tensor *positions,
                          tx_tensor *sources, tx_tensor *slots)
{
    TX_NEEDS(kv && k_cache && v_cache && positions, TX_INVALID);
    return append(kv, k_cache, v_cache, positions, sources, slots, TX_PLAIN);
}

tx_tensor *tx_attention_cached(tx_tensor *qkv, tx_tensor *k_cache, tx_tensor *v_cache, tx_tensor *positions,
                               tx_tensor *sources, tx_tensor *slots, const tx_attention_options *options)
{
    tx_attrs attrs;
    if (!qkv || !k_cache || !v_cache || !positions || !tx_attention_attrs(qkv, options, &attrs))
        return NULL;
    if (!options->kept)
        append(qkv, k_cache, v_cache, positions, sources, slots, attrs);
    return TX_EMIT(qkv, ATTENTION_CACHED, attrs, qkv, k_cache, v_cache, positions, slots, options->sinks);
}
