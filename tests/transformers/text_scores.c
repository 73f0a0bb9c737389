/* SPDX-License-Identifier: Apache-2.0
 * Scores texts for text_scores.py. Each line of JSON is ["text", "reference"], answered by the four ROUGE of this pair
 * and by BLEU of all pairs so far, or ["word"], answered by its stem. */
#include "models/task/text_scores.h"
#include "tx_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tx_status answer(const tx_json *line, tx_text_scores *all)
{
    tx_text_scores one = {0};
    const char *text, *reference;
    TX_TRY(tx_json_as_string(tx_json_at(line, 0), "text", &text));
    if (tx_json_size(line) < 2) {
        char *word = strdup(text);
        printf("%.*s\n", (int)tx_stem(word, strlen(word)), word);
        free(word);
        return TX_OK;
    }
    TX_TRY(tx_json_as_string(tx_json_at(line, 1), "reference", &reference));
    TX_TRY(tx_text_scores_add(&one, text, reference));
    TX_TRY(tx_text_scores_add(all, text, reference));
    for (int i = 0; i < TX_ROUGES; i++)
        printf("%.17g ", one.rouge[i]);
    printf("%.17g\n", tx_text_scores_bleu(all));
    return TX_OK;
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    tx_text_scores all = {0};
    for (ssize_t size; (size = getline(&line, &room, stdin)) > 0;) {
        tx_json *json = NULL;
        tx_status status = tx_json_parse_line(line, (size_t)size - 1, "line", &json);
        TX_THEN(status, answer(json, &all));
        tx_json_free(json);
        if (status) {
            fprintf(stderr, "%s\n", tx_error());
            return 1;
        }
    }
    free(line);
    return 0;
}
