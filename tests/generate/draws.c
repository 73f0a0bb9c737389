/* SPDX-License-Identifier: Apache-2.0
 * Prints how often each token is drawn from random logits, for warpers.py:
 *
 *     draws COUNT SEED VOCAB [NAME=VALUE ...]
 *
 * The first line has the logits, the second one the tokens before, the third one the counts. */
#include "models/generate/sample.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE = 12, PROMPT = 5 };

static int fail(void)
{
    fprintf(stderr, "%s\n", tx_error());
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const int64_t draws = strtol(argv[1], NULL, 10), vocab = strtol(argv[3], NULL, 10);
    uint64_t x = strtoul(argv[2], NULL, 10);
    float *logits = malloc((size_t)vocab * sizeof *logits);
    int64_t *count = calloc((size_t)vocab, sizeof *count);
    int32_t before[BEFORE];
    tx_choice choice = {0};
    tx_generation how = tx_generation_defaults(-1);
    how.top_k = 0;
    how.do_sample = true;
    for (int i = 4; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        *value++ = 0;
        if (tx_generation_set(&how, argv[i], value))
            return fail();
    }
    if (!logits || !count || tx_choice_create(vocab, &choice))
        return fail();
    for (int64_t i = 0; i < vocab; i++, x = x * 6364136223846793005u + 1442695040888963407u)
        logits[i] = (float)((double)(x >> 40) / (1 << 24) * 6.0 - 3.0);
    for (int i = 0; i < BEFORE; i++, x = x * 6364136223846793005u + 1442695040888963407u)
        before[i] = (int32_t)(x >> 33) % 16;
    for (int64_t i = 0; i < draws; i++) {
        int32_t id = 0;
        const tx_history history = {before, BEFORE, BEFORE - PROMPT, (uint64_t)i, NULL};
        if (tx_sample(&how, &history, logits, &choice, &id))
            return fail();
        count[id]++;
    }
    for (int64_t i = 0; i < vocab; i++)
        printf("%.9g ", (double)logits[i]);
    printf("\n");
    for (int i = 0; i < BEFORE; i++)
        printf("%d ", (int)before[i]);
    printf("\n");
    for (int64_t i = 0; i < vocab; i++)
        printf("%" PRId64 " ", count[i]);
    printf("\n");
    tx_choice_free(&choice);
    free(logits);
    free(count);
    return 0;
}
