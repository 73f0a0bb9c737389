/* SPDX-License-Identifier: Apache-2.0
 * A program outside TX that continues a text: consumer_generate MODEL TEXT */
#include <stdio.h>
#include <tx_generate.h>

static void show(void *context, int64_t index, const char *bytes, size_t size)
{
    (void)context;
    (void)index;
    fwrite(bytes, 1, size, stdout);
}

int main(int argc, char **argv)
{
    const tx_lm_options options = {.size = sizeof options, .model = argc == 3 ? argv[1] : ""};
    const tx_lm_listener listener = {.size = sizeof listener, .text = show};
    const tx_lm_prompt prompt = {.text = argc == 3 ? argv[2] : ""};
    tx_lm *lm = NULL;
    tx_status status = tx_lm_open(&options, &lm);
    if (!status)
        status = tx_lm_generate(lm, &prompt, 1, NULL, &listener);
    if (status)
        fprintf(stderr, "consumer_generate: %s\n", tx_error());
    tx_lm_free(lm);
    return status != 0;
}
