/* SPDX-License-Identifier: Apache-2.0
 * A program outside TX, built by pkg-config against the installed library. */
#include <stdio.h>
#include <tx.h>

int main(void)
{
    tx_engine *engine = NULL;
    tx_engine_options options = {.size = sizeof options, .device = "cpu", .threads = 1};
    if (tx_engine_create(&options, &engine)) {
        fprintf(stderr, "consumer: %s\n", tx_error());
        return 1;
    }
    printf("%s\n", tx_engine_device(engine)->id);
    tx_engine_free(engine);
    return 0;
}
