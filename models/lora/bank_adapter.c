/* SPDX-License-Identifier: Apache-2.0
 * Reads adapters into host memory, and writes them to the places of a bank. */
#include "comm/comm.h"
#include "models/arch/find.h"
#include "models/lora/bank.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The largest value of A and B. Outputs of other rows times 0 must be 0, so that no product may overflow; all storage
 * types hold it. */
#define LARGEST 65504.0f

/* A module of an adapter. */
typedef struct adapted {
    int32_t param, section;
    char name[TX_WEIGHTS_NAME];
    int64_t rank, in, out;
    float *a, *b; /* [rank, in], and [out, rank] with its scale */
} adapted;

struct tx_adapter {
    tx_lora *lora;
    char *folder;
    int64_t rank;
    adapted *module;
    size_t count, room;
};

void tx_lora_adapter_free(tx_adapter *adapter)
{
    if (!adapter)
        return;
    for (size_t i = 0; i < adapter->count; i++) {
        free(adapter->module[i].a);
        free(adapter->module[i].b);
    }
    tx_lora_free(adapter->lora);
    free(adapter->folder);
    free(adapter->module);
    free(adapter);
}

const tx_lora *tx_lora_adapter_config(const tx_adapter *adapter)
{
    return adapter->lora;
}

int64_t tx_lora_adapter_rank(const tx_adapter *adapter)
{
    return adapter->rank;
}

/* ---- Reading ------------------------------------------------------------------------------------------------ */

/* Refuses settings that change more than outputs of linear layers by B A. */
static tx_status refuse(const tx_lora *lora, const char *folder)
{
    const char *what = lora->dora                                ? "use_dora"
                       : lora->saved                             ? "modules_to_save"
                       : lora->tokens                            ? TX_LORA_TOKEN_INDICES
                       : lora->parameters                        ? "target_parameters"
                       : strcmp(tx_lora_bias(lora), "none") != 0 ? "bias"
                       : tx_lora_takes_principal(lora)           ? "init_lora_weights"
                                                                 : NULL;
    return what ? tx_fail(TX_UNSUPPORTED,
                          "%s: %s: such an adapter cannot share the model with others: merge it into the model", folder,
                          what)
                : TX_OK;
}

/* Fails if the adapter belongs to another model, as far as its folder describes the model, or enlarges the vocabulary.
 */
static tx_status check_base(const char *base, const char *folder)
{
    tx_config *config;
    TX_TRY(tx_config_of_folder(base, &config));
    const int64_t before = config->vocab_size;
    tx_status status = tx_lora_adapted_config(folder, &config);
    if (!status && config->vocab_size != before)
        status = tx_fail(TX_UNSUPPORTED,
                         "%s: its vocabulary has %" PRId64 " tokens, the model's %" PRId64 ": merge it into the model",
                         folder, config->vocab_size, before);
    tx_config_free(config);
    return status;
}

/* Reads a matrix of a module, times `scale`. tx_lora_check_files has compared its shape. */
static tx_status read_matrix(const tx_weights *weights, const tx_weights_names *names, const char *module,
                             const char *part, double scale, float **data, int64_t dim[2])
{
    char name[TX_WEIGHTS_NAME];
    snprintf(name, sizeof name, "%.230s.%s", module, part);
    const int32_t index = tx_weights_find(weights, names, name);
    const tx_st_tensor *t = index < 0 ? NULL : tx_weights_tensor_at(weights, index);
    if (!t || t->rank != 2)
        return tx_fail(TX_FORMAT, "%s: has no matrix %s", tx_weights_path(weights), name);
    const int64_t count = tx_st_elements(t);
    dim[0] = t->dim[0];
    dim[1] = t->dim[1];
    *data = malloc((size_t)count * sizeof **data);
    TX_TRY(*data ? tx_weights_read_f32(weights, index, 0, count, *data)
                 : tx_fail(TX_MEMORY, "%s: no memory for a tensor", tx_weights_path(weights)));
    for (int64_t i = 0; i < count; i++) {
        (*data)[i] = (float)(scale * (double)(*data)[i]);
        if (!(fabsf((*data)[i]) <= LARGEST))
            return tx_fail(TX_FORMAT, "%s: %s holds %g: values are at most %g", tx_weights_path(weights), name,
                           (double)(*data)[i], (double)LARGEST);
    }
    return TX_OK;
}

static tx_status read_module(tx_adapter *a, const tx_weights *weights, const tx_weights_names *names, int32_t param,
                             const tx_lora_modules *m, int32_t i)
{
    int64_t of_a[2], of_b[2];
    TX_TRY(tx_array_reserve(&a->module, &a->room, a->count + 1, sizeof *a->module, "modules of an adapter"));
    adapted *to = &a->module[a->count++];
    *to = (adapted){.param = param, .section = m->section[i], .rank = m->rank[i]};
    memcpy(to->name, m->name[i], sizeof to->name);
    TX_TRY(read_matrix(weights, names, to->name, "lora_A.weight", 1.0, &to->a, of_a));
    TX_TRY(read_matrix(weights, names, to->name, "lora_B.weight", m->scale[i], &to->b, of_b));
    to->in = of_a[1];
    to->out = of_b[0];
    a->rank = to->rank > a->rank ? to->rank : a->rank;
    return TX_OK;
}

static tx_status read_modules(tx_adapter *a, const tx_config *config, const tx_weights *weights)
{
    const tx_weights_names names = {.rename = tx_lora_rename, .context = config, .quiet_if_missing = true};
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_lora_modules m;
    for (int32_t p = 0; p < tx_arch_params(config); p++) {
        TX_TRY(tx_arch_param(config, p, name, &spec));
        TX_TRY(tx_lora_modules_of(a->lora, config, p, &m));
        if (m.count && spec.logical.rank == 2)
            return tx_fail(TX_UNSUPPORTED,
                           "%s: %s: an adapter of an embedding or an output head cannot share the model with others: "
                           "merge it into the model",
                           a->folder, m.name[0]);
        for (int32_t i = 0; i < m.count; i++)
            TX_TRY(read_module(a, weights, &names, p, &m, i));
    }
    return TX_OK;
}

tx_status tx_lora_adapter_read(const tx_config *config, const char *base, const char *folder, tx_adapter **adapter)
{
    tx_weights *weights = NULL;
    TX_TRY(tx_lora_check_folder(folder));
    tx_adapter *a = calloc(1, sizeof *a);
    tx_status status = a && (a->folder = strdup(folder)) ? TX_OK : tx_fail(TX_MEMORY, "no memory for an adapter");
    TX_THEN(status, tx_lora_read(folder, &a->lora));
    TX_THEN(status, refuse(a->lora, folder));
    TX_THEN(status, check_base(base, folder));
    TX_THEN(status, tx_lora_check_files(a->lora, config, folder));
    TX_THEN(status, tx_lora_open_weights(folder, &weights));
    TX_THEN(status, read_modules(a, config, weights));
    tx_weights_close(weights);
    return TX_RETURN(status, a, adapter, tx_lora_adapter_free);
}

/* ---- Writing ------------------------------------------------------------------------------------------------ */

/* The module's number among those of the bank, or -1. */
static int32_t find_module(const tx_lora_bank *bank, const adapted *module)
{
    const tx_lora_modules *m = &bank->modules[module->param];
    int32_t i = m->count - 1;
    while (i >= 0 && m->section[i] != module->section)
        i--;
    return i;
}

tx_status tx_lora_bank_check(const tx_lora_bank *bank, const tx_adapter *a)
{
    if (a->rank > bank->rank)
        return tx_fail(TX_INVALID, "%s: its rank is %" PRId64 "; there is room for %" PRId64 " (max_lora_rank)",
                       a->folder, a->rank, bank->rank);
    for (size_t i = 0; i < a->count; i++)
        if (find_module(bank, &a->module[i]) < 0)
            return tx_fail(TX_INVALID, "%s: there is no room for module %s: name it in lora_target_modules", a->folder,
                           a->module[i].name);
    return TX_OK;
}

/* The first output of a section of a weight. */
static int64_t first_output(const tx_param_spec *spec, int32_t section)
{
    int64_t first = 0;
    for (int32_t s = 0; s < section; s++)
        first += spec->sections.size[s];
    return first;
}

/* Copies the modules of one weight to the rows of a place: A to a [rows, in], B to b [rows, out]. */
static void copy_modules(const tx_lora_bank *bank, const tx_adapter *adapter, int32_t param, const tx_param_spec *spec,
                         float *a, int64_t in, float *b, int64_t out)
{
    for (size_t i = 0; i < adapter->count; i++) {
        const adapted *m = &adapter->module[i];
        if (m->param != param)
            continue;
        const int64_t row = find_module(bank, m) * bank->rank;
        const int64_t first = bank->modules[param].divided ? first_output(spec, m->section) : 0;
        memcpy(a + row * in, m->a, (size_t)(m->rank * in) * sizeof *a);
        for (int64_t k = 0; k < m->rank; k++)
            for (int64_t o = 0; o < m->out; o++)
                b[(row + k) * out + first + o] = m->b[o * m->rank + k];
    }
}

static tx_status find_param(const tx_model *model, const char *name, int32_t *index, int64_t *columns)
{
    const tx_param_spec *spec;
    const char *same;
    TX_TRY(tx_model_find(model, name, index));
    TX_TRY(tx_model_param(model, *index, &same, &spec));
    *columns = spec->shape.dim[1];
    return TX_OK;
}

/* Writes the rows of a place for one weight: zeros if the adapter does not change it. Rank 0 sends them to the others,
 * which have no adapter. */
static tx_status write_param(const tx_lora_bank *bank, const tx_config *config, tx_model *model, int64_t place,
                             const tx_adapter *adapter, int32_t param, tx_comm *ranks)
{
    const int64_t rows = bank->modules[param].count * bank->rank;
    char name_a[TX_WEIGHTS_NAME], name_b[TX_WEIGHTS_NAME];
    tx_param_spec spec;
    int32_t of_a, of_b;
    int64_t in, out;
    TX_TRY(tx_lora_bank_params(config, param, name_a, name_b, &spec));
    TX_TRY(find_param(model, name_a, &of_a, &in));
    TX_TRY(find_param(model, name_b, &of_b, &out));
    float *a = calloc((size_t)(rows * in), sizeof *a), *b = calloc((size_t)(rows * out), sizeof *b);
    tx_status status = a && b ? TX_OK : tx_fail(TX_MEMORY, "no memory for an adapter");
    if (!status && adapter)
        copy_modules(bank, adapter, param, &spec, a, in, b, out);
    if (ranks) {
        TX_THEN(status, tx_comm_collect(ranks, TX_BROADCAST, a, rows * in, TX_F32, 0));
        TX_THEN(status, tx_comm_collect(ranks, TX_BROADCAST, b, rows * out, TX_F32, 0));
    }
    TX_THEN(status, tx_model_write_range(model, TX_PARAM_WEIGHT, of_a, place * rows * in, rows * in, a));
    TX_THEN(status, tx_model_write_range(model, TX_PARAM_WEIGHT, of_b, place * rows * out, rows * out, b));
    free(a);
    free(b);
    return status;
}

tx_status tx_lora_bank_write(const tx_lora_bank *bank, const tx_config *config, tx_model *model, int64_t place,
                             const tx_adapter *adapter, tx_comm *ranks)
{
    for (int32_t p = 0; p < bank->params; p++)
        if (bank->modules[p].count)
            TX_TRY(write_param(bank, config, model, place, adapter, p, ranks));
    return TX_OK;
}

tx_status tx_lora_bank_fill(tx_lora_bank *bank, const tx_config *config, tx_model *model)
{
    char name[2][TX_WEIGHTS_NAME];
    tx_param_spec spec;
    int32_t index;
    memset(bank->adapter, 0, (size_t)bank->places * sizeof *bank->adapter);
    for (int32_t p = 0; p < bank->params; p++) {
        if (!bank->modules[p].count)
            continue;
        TX_TRY(tx_lora_bank_params(config, p, name[0], name[1], &spec));
        for (int i = 0; i < 2; i++) /* a model without masks has none of them */
            if (tx_model_find(model, name[i], &index) == TX_OK)
                TX_TRY(tx_model_init_param(model, index, 1));
    }
    return TX_OK;
}
