/* SPDX-License-Identifier: Apache-2.0
 * The tensors of a parameter in files: the parameter, its sections, or those of each of its experts. */
#include "api/model/optimizer.h"

#include <string.h>

static int32_t sections_of(const tx_param_spec *spec)
{
    return spec->apart && spec->sections.count > 0 ? spec->sections.count : 1;
}

int32_t tx_param_tensors(const tx_param_spec *spec)
{
    return sections_of(spec) * (spec->apart && spec->experts ? (int32_t)spec->logical.dim[0] : 1);
}

tx_param_tensor tx_param_tensor_of(const tx_param_spec *spec, int32_t number)
{
    const int32_t sections = sections_of(spec), section = number % sections;
    const int64_t of_experts = number / sections;
    tx_shape shape = spec->logical;
    if (spec->apart && spec->experts)
        memmove(shape.dim, shape.dim + 1, (size_t)--shape.rank * sizeof shape.dim[0]);
    const int64_t all = tx_shape_count(&shape), row = all / shape.dim[0];
    int64_t first = of_experts * all;
    for (int32_t i = 0; i < section; i++)
        first += spec->sections.size[i] * row;
    if (sections > 1)
        shape.dim[0] = spec->sections.size[section];
    return (tx_param_tensor){first, shape};
}
