/* SPDX-License-Identifier: Apache-2.0
 * Tables of memory by category and of the tensors at the peak. */
#include "tools/train/progress.h"

#include <inttypes.h>
#include <stdlib.h>

#define MIB 1048576.0
/* The number of tensors that are listed at the peak. */
#define LARGEST 6

/* ---- Categories ------------------------------------------------------------------------------------------ */

static void print_bytes(FILE *to, const char *name, int64_t planned, int64_t counted, bool both, int64_t params)
{
    fprintf(to, "  %-26s %15" PRId64 " %11.1f MiB %11.3f", name, planned, (double)planned / MIB,
            (double)planned / (double)params);
    if (both)
        fprintf(to, " %15" PRId64, counted);
    fputc('\n', to);
}

void tx_print_memory(FILE *to, const tx_memory *planned, const tx_memory *counted, int64_t params)
{
    fprintf(to, "memory %37s %15s %11s%s\n", "planned, bytes", "", "a parameter", counted ? "  counted, bytes" : "");
    for (int k = 0; k < TX_MEMORY_OFFLOADED; k++) {
        /* The backend counts activations and temporaries as one block, printed after the second. */
        const bool arena = k == TX_MEMORY_ACTIVATIONS || k == TX_MEMORY_TEMPORARY;
        print_bytes(to, tx_memory_name((tx_memory_kind)k), planned->bytes[k], counted ? counted->bytes[k] : 0,
                    counted && !arena, params);
        if (k == TX_MEMORY_TEMPORARY && counted)
            print_bytes(to, "activations and temporary",
                        planned->bytes[TX_MEMORY_ACTIVATIONS] + planned->bytes[TX_MEMORY_TEMPORARY],
                        counted->bytes[TX_MEMORY_ACTIVATIONS] + counted->bytes[TX_MEMORY_TEMPORARY], true, params);
    }
    print_bytes(to, "total", tx_memory_total(planned), counted ? tx_memory_total(counted) : 0, counted != NULL, params);
    if (planned->bytes[TX_MEMORY_OFFLOADED])
        print_bytes(to, tx_memory_name(TX_MEMORY_OFFLOADED), planned->bytes[TX_MEMORY_OFFLOADED],
                    counted ? counted->bytes[TX_MEMORY_OFFLOADED] : 0, counted != NULL, params);
}

/* ---- The peak ---------------------------------------------------------------------------------------------- */

static bool is_live(const tx_plan_tensor *t, int32_t node)
{
    return t->first <= node && node <= t->last;
}

/* Finds the first node at which the most bytes are live, and these bytes. */
static tx_status find_peak(const tx_plan *plan, int32_t *node, int64_t *bytes)
{
    const int32_t nodes = tx_plan_node_count(plan), tensors = tx_plan_tensor_count(plan);
    int64_t *change = calloc((size_t)nodes + 2, sizeof *change), alive = 0;
    tx_status status = change ? TX_OK : tx_fail(TX_MEMORY, "no memory to find the peak");
    tx_plan_tensor t;
    for (int32_t i = 0; i < tensors && !status; i++) {
        status = tx_plan_tensor_at(plan, i, &t);
        if (status)
            break;
        change[t.first] += t.bytes;
        change[t.last + 1] -= t.bytes;
    }
    *node = 0;
    *bytes = 0;
    for (int32_t i = 0; i < nodes && !status; i++) {
        alive += change[i];
        if (alive > *bytes) {
            *bytes = alive;
            *node = i;
        }
    }
    free(change);
    return status;
}

static int larger_first(const void *a, const void *b)
{
    const tx_plan_tensor *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : (x->first > y->first) - (x->first < y->first);
}

/* Prints a node as "block 12, backward: matmul". */
static void print_node(FILE *to, const tx_plan *plan, int32_t index)
{
    tx_plan_node n;
    if (tx_plan_node_at(plan, index, &n))
        return;
    if (n.block)
        fprintf(to, "block %" PRId32 ", ", n.block);
    fprintf(to, "%s: %s", tx_direction_name(n.direction), n.op);
}

static void print_tensor(FILE *to, const tx_plan *plan, const tx_plan_tensor *t)
{
    char shape[96];
    fprintf(to, "  %-26s %15" PRId64 " %11.1f MiB  ", tx_memory_name(t->kind), t->bytes, (double)t->bytes / MIB);
    if (t->node < 0)
        fprintf(to, "input %s", t->name);
    else
        print_node(to, plan, t->node);
    fprintf(to, ", %s %s\n", tx_dtype_name(t->dtype), tx_shape_text(&t->shape, shape, sizeof shape));
}

tx_status tx_print_peak(FILE *to, const tx_plan *plan)
{
    const int32_t tensors = tx_plan_tensor_count(plan);
    int32_t node = 0, count = 0;
    int64_t bytes = 0;
    tx_plan_tensor *alive = calloc((size_t)tensors + 1, sizeof *alive);
    tx_status status = alive ? find_peak(plan, &node, &bytes) : tx_fail(TX_MEMORY, "no memory to find the peak");
    for (int32_t i = 0; i < tensors && !status; i++) {
        status = tx_plan_tensor_at(plan, i, &alive[count]);
        count += !status && is_live(&alive[count], node);
    }
    if (!status && count > 0) {
        qsort(alive, (size_t)count, sizeof *alive, larger_first);
        fprintf(to,
                "peak of activations and temporaries: %" PRId64 " bytes, %.1f MiB, in %" PRId32
                " tensors at node %" PRId32 " of %" PRId32 " (",
                bytes, (double)bytes / MIB, count, node, tx_plan_node_count(plan));
        print_node(to, plan, node);
        fputs("); the largest:\n", to);
    }
    for (int32_t i = 0; i < count && i < LARGEST && !status; i++)
        print_tensor(to, plan, &alive[i]);
    free(alive);
    return status;
}
