/* SPDX-License-Identifier: Apache-2.0
 * The conditions that rows of optimizers.def use to choose a parameter's form. */
#include "api/optimizers/optimizers.h"

bool tx_optimizer_with_kahan(const tx_optimizer_options *options)
{
    return options->kahan;
}

bool tx_optimizer_is_matrix(const tx_param_spec *spec)
{
    return tx_param_tensor_of(spec, 0).shape.rank == 2;
}

bool tx_optimizer_is_hidden_matrix(const tx_param_spec *spec)
{
    return tx_optimizer_is_matrix(spec) && !spec->table;
}

bool tx_optimizer_is_large(const tx_param_spec *spec)
{
    bool large = !spec->table;
    for (int32_t i = 0; i < tx_param_tensors(spec) && large; i++) {
        const tx_param_tensor t = tx_param_tensor_of(spec, i);
        large = tx_shape_count(&t.shape) >= 4096;
    }
    return large;
}
