/* SPDX-License-Identifier: Apache-2.0
 * Magnitude pruning, unstructured and N:M. */
#include "models/arch/prune.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_pruning_read(const char *structure, double sparsity, tx_pruning *pruning)
{
    int kept, group, end = 0;
    *pruning = (tx_pruning){.sparsity = sparsity};
    if (strcmp(structure, "unstructured") == 0)
        return sparsity > 0 ? TX_OK : tx_fail(TX_INVALID, "unstructured: needs a sparsity above 0");
    if (sscanf(structure, "%2d:%2d%n", &kept, &group, &end) != 2 || structure[end] || kept < 1 || group <= kept ||
        group > TX_PRUNE_GROUP_MOST)
        return tx_fail(TX_INVALID,
                       "\"%.40s\" is neither unstructured nor N:M (such as 2:4) with N below M and M at most %d",
                       structure, TX_PRUNE_GROUP_MOST);
    *pruning = (tx_pruning){1.0 - (double)kept / group, kept, group};
    if (sparsity > 0 && fabs(sparsity - pruning->sparsity) > 1e-6)
        return tx_fail(TX_INVALID, "%s keeps %d of every %d weights: its sparsity is %g, not %g", structure, kept,
                       group, pruning->sparsity, sparsity);
    return TX_OK;
}

static bool is_pruned(const tx_param_spec *spec)
{
    return spec->shape.rank == 2 && !spec->table && !spec->frozen;
}

tx_status tx_pruning_check(const tx_pruning *pruning, const tx_config *config)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    for (int32_t i = 0; i < tx_arch_params(config) && pruning->group; i++) {
        TX_TRY(tx_arch_param(config, i, name, &spec));
        const int64_t inputs = spec.shape.dim[config->architecture->inputs_first ? 0 : 1];
        if (is_pruned(&spec) && inputs % pruning->group != 0)
            return tx_fail(TX_UNSUPPORTED,
                           "%" PRId32 ":%" PRId32 ": %s has %" PRId64 " inputs, which is not a multiple of %" PRId32,
                           pruning->kept, pruning->group, name, inputs, pruning->group);
    }
    return TX_OK;
}

/* ---- Choosing ---------------------------------------------------------------------------------------- */

/* An integer with the same order as the magnitude. */
static uint32_t key_of(float weight)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return bits & 0x7FFFFFFFu;
}

/* One step of a radix selection, over the keys whose high 16 bits are `prefix` (all keys for shift 16). Returns the
 * 16-bit digit at `shift` of the key with rank *rank, counted from 0. *rank becomes the rank among keys with this
 * digit. */
static uint32_t find_digit(const float *w, int64_t count, int shift, uint32_t prefix, int64_t *counts, int64_t *rank)
{
    memset(counts, 0, ((size_t)1 << 16) * sizeof *counts);
    for (int64_t i = 0; i < count; i++)
        if (shift || key_of(w[i]) >> 16 == prefix)
            counts[key_of(w[i]) >> shift & 0xFFFFu]++;
    uint32_t digit = 0;
    for (; *rank >= counts[digit]; digit++)
        *rank -= counts[digit];
    return digit;
}

/* Zeroes the `zeros` weights of least magnitude. The radix selection avoids sorting. */
static void prune_share(float *w, int64_t count, int64_t zeros, int64_t *counts)
{
    if (zeros == 0)
        return;
    int64_t rank = zeros - 1;
    const uint32_t high = find_digit(w, count, 16, 0, counts, &rank);
    const uint32_t limit = high << 16 | find_digit(w, count, 0, high, counts, &rank);
    int64_t ties = rank + 1; /* weights equal to the limit that are pruned */
    for (int64_t i = 0; i < count; i++)
        if (key_of(w[i]) < limit || (key_of(w[i]) == limit && ties-- > 0))
            w[i] = 0.0f;
}

/* Zeroes all except `kept` of `group` weights, which are `stride` elements apart. */
static void prune_group(float *w, int64_t stride, int32_t kept, int32_t group)
{
    bool pruned[TX_PRUNE_GROUP_MOST] = {false};
    for (int32_t n = kept; n < group; n++) {
        int32_t least = -1;
        for (int32_t i = 0; i < group; i++)
            if (!pruned[i] && (least < 0 || key_of(w[i * stride]) < key_of(w[least * stride])))
                least = i;
        pruned[least] = true;
        w[least * stride] = 0.0f;
    }
}

/* Prunes a matrix [rows, columns] whose dimension `input` is the input dimension. */
static void prune_matrix(float *w, const tx_shape *shape, int input, const tx_pruning *p, int64_t *counts)
{
    const int64_t columns = shape->dim[1], count = tx_shape_count(shape);
    const int64_t stride = input == 0 ? columns : 1, outputs = shape->dim[1 - input];
    if (!p->group) {
        prune_share(w, count, llrint(p->sparsity * (double)count), counts);
        return;
    }
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t i = 0; i < shape->dim[input]; i += p->group)
            prune_group(w + o * (input == 0 ? 1 : columns) + i * stride, stride, p->kept, p->group);
}

/* ---- Models -------------------------------------------------------------------------------------------- */

static tx_status prune_piece(tx_model *model, const tx_weights_piece *piece, int input, const tx_pruning *p,
                             int64_t *counts, tx_pruned *pruned)
{
    const int64_t count = tx_shape_count(&piece->shape);
    float *w = malloc((size_t)count * sizeof *w);
    if (!w)
        return tx_fail(TX_MEMORY, "no memory to prune %s", piece->name);
    tx_status status = tx_model_read_range(model, TX_PARAM_WEIGHT, piece->param, piece->first, count, w);
    if (status == TX_OK) {
        prune_matrix(w, &piece->shape, input, p, counts);
        status = tx_model_write_range(model, TX_PARAM_WEIGHT, piece->param, piece->first, count, w);
        pruned->matrices++;
        pruned->weights += count;
        for (int64_t i = 0; i < count; i++)
            pruned->zeros += w[i] == 0.0f;
    }
    free(w);
    return status;
}

tx_status tx_prune(tx_model *model, const tx_config *config, const tx_pruning *pruning, tx_pruned *pruned)
{
    tx_weights_piece pieces[TX_MAX_SECTIONS];
    const char *name;
    const tx_param_spec *spec;
    tx_pruned sums = {0};
    int64_t *counts = malloc(((size_t)1 << 16) * sizeof *counts);
    tx_status status = counts ? tx_pruning_check(pruning, config) : tx_fail(TX_MEMORY, "no memory to prune");
    for (int32_t i = 0; i < tx_model_param_count(model) && status == TX_OK; i++) {
        status = tx_model_param(model, i, &name, &spec);
        const int32_t count =
            status == TX_OK && is_pruned(spec) ? tx_weights_pieces(name, spec, i, TX_MAX_SECTIONS, pieces) : 0;
        for (int32_t k = 0; k < count && status == TX_OK; k++)
            status = prune_piece(model, &pieces[k], config->architecture->inputs_first ? 0 : 1, pruning, counts, &sums);
    }
    free(counts);
    if (status == TX_OK)
        *pruned = sums;
    return status;
}
