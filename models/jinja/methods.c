/* SPDX-License-Identifier: Apache-2.0
 * The table of filters, tests, global functions and methods. */
#include "models/jinja/method.h"

#include <string.h>

static const tx_jinja_method methods[] = {
#define TX_JINJA_METHOD_ROW(kind, name, function, form, ...) {kind, name, tx_jinja_do_##function, form},
#include "models/jinja/methods.def"
#undef TX_JINJA_METHOD_ROW
};

const tx_jinja_method *tx_jinja_method_find(tx_jinja_method_kind kind, const tx_jinja_string *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (methods[i].kind == kind && strlen(methods[i].name) == name->size &&
            memcmp(methods[i].name, name->bytes, name->size) == 0)
            return &methods[i];
    return NULL;
}
