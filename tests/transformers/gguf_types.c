/* SPDX-License-Identifier: Apache-2.0
 * The types that TX chooses for tensors, for gguf_mixes.py:
 *
 *     gguf_types OUTTYPE ARCHITECTURE LAYERS HEADS KEY-VALUE-HEADS EXPERTS TIED WEIGHTED < TENSORS
 *
 * reads lines of a name, a rank and the dimensions, and prints ggml's number of each type. */
#include "models/gguf/gguf_mix.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 4096
#define NAME 96

static tx_convert_type type_of(const char *word)
{
    static const char *const words[] = {
#define X(name, word) word,
        TX_CONVERT_MAP(X)
#undef X
    };
    int type = 0;
    while (type < TX_CONVERT_TYPES && strcmp(words[type], word) != 0)
        type++;
    return (tx_convert_type)type;
}

static bool read_tensor(tx_gguf_tensor *t, char name[NAME])
{
    bool good = scanf("%95s %" SCNd32, name, &t->rank) == 2 && t->rank >= 1 && t->rank <= TX_GGUF_MAX_RANK;
    for (int32_t d = 0; good && d < t->rank; d++)
        good = scanf("%" SCNd64, &t->dim[d]) == 1;
    t->name = name;
    return good;
}

int main(int argc, char **argv)
{
    static tx_gguf_tensor tensor[MOST];
    static char name[MOST][NAME];
    int32_t count = 0, values = 0;
    if (argc != 9 || type_of(argv[1]) == TX_CONVERT_TYPES)
        return 2;
    tx_gguf_model model = {argv[2],        atoll(argv[3]),        atoll(argv[4]),           atoll(argv[5]),
                           atoll(argv[6]), .tied = atoi(argv[7]), .weighted = atoi(argv[8])};
    for (; count < MOST && read_tensor(&tensor[count], name[count]); count++)
        model.values += tx_gguf_is_values(name[count]);
    for (int32_t i = 0; i < count; i++) {
        printf("%d\n", (int)tx_gguf_type_number(tx_gguf_choose(&model, type_of(argv[1]), &tensor[i], values)));
        values += tx_gguf_is_values(name[i]);
    }
    return 0;
}
