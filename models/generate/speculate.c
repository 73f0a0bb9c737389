/* SPDX-License-Identifier: Apache-2.0
 * Proposes the next tokens of a text: copies them from an earlier place, or generates them by a smaller model. */
#include "models/generate/speculate.h"

#include <inttypes.h>
#include <string.h>

/* The smaller model computes more new tokens than this as a prompt. */
#define MIN_PREFILL 8

tx_status tx_speculator_check(const tx_tokenizer *draft, const tx_tokenizer *tokenizer)
{
    const int64_t size = tx_tokenizer_size(tokenizer), other = tx_tokenizer_size(draft);
    if (size != other)
        return tx_fail(TX_INVALID, "its tokenizer has %" PRId64 " ids, the model's %" PRId64, other, size);
    for (int32_t id = 0; id < size; id++) {
        const char *a = "", *b = "";
        size_t a_size = 0, b_size = 0;
        const tx_status one = tx_tokenizer_piece(tokenizer, id, false, &a, &a_size);
        const tx_status two = tx_tokenizer_piece(draft, id, false, &b, &b_size);
        if (one != two || a_size != b_size || memcmp(a, b, a_size) != 0)
            return tx_fail(TX_INVALID, "id %" PRId32 " is another token than in the model", id);
    }
    return TX_OK;
}

tx_status tx_speculator_open(tx_speculator *speculator, tx_slots *draft, int64_t vocab)
{
    speculator->draft = draft;
    speculator->vocab = vocab;
    return draft ? tx_choice_create(tx_slots_vocab(draft), &speculator->choice) : TX_OK;
}

void tx_speculator_close(tx_speculator *speculator)
{
    tx_choice_free(&speculator->choice);
}

/* Copies the tokens after the latest earlier place of the last two tokens, or of the last one (Saxena, Prompt lookup
 * decoding, 2023). Returns false if there is no such place. */
static bool look_up(int32_t *ids, int64_t count, int64_t most)
{
    for (int64_t same = 2; same > 0; same--)
        for (int64_t end = count - 1; end >= same; end--) {
            if (memcmp(ids + end - same, ids + count - same, (size_t)same * sizeof *ids) != 0)
                continue;
            for (int64_t i = 0; i < most; i++)
                ids[count + i] = ids[end + i]; /* copies draft tokens, too, if the place is near the end */
            return true;
        }
    return false;
}

/* Brings the smaller model's cache to the tokens ids[0..count-1]. */
static tx_status follow(tx_slots *draft, const int32_t *ids, int64_t count)
{
    int64_t done = tx_slots_same(draft, 0, 0, ids, count);
    TX_TRY(tx_slots_go_back(draft, 0, &done));
    while (count - done > MIN_PREFILL)
        TX_TRY(tx_slots_prefill(draft, 0, ids, count, &done, NULL, NULL));
    for (; done < count; done++)
        TX_TRY(tx_slots_step(draft, &(int32_t){0}, ids + done, 1, NULL));
    return TX_OK;
}

tx_status tx_speculate(tx_speculator *speculator, const tx_generation *how, tx_history at, int32_t *ids, int64_t *count)
{
    const tx_speculator *g = speculator;
    const int64_t first = at.count, most = *count;
    *count = 0;
    if (!g->draft) {
        *count = most > 0 && look_up(ids, first, most) ? most : 0;
        return TX_OK;
    }
    const int64_t room = tx_slots_context(g->draft) - first;
    if (tx_check_ids(ids, first, tx_slots_vocab(g->draft))) /* a token that only the larger model has */
        return TX_OK;
    for (; *count < most && *count < room; at.count++, at.generated++, (*count)++) {
        TX_TRY(tx_fail_in(follow(g->draft, ids, at.count), "assistant_model"));
        if (at.count == first)
            TX_TRY(tx_fail_in(tx_slots_mark(g->draft, 0), "assistant_model"));
        TX_TRY(tx_fail_in(tx_sample(how, &at, tx_slots_logits(g->draft, 0), &speculator->choice, &ids[at.count]),
                          "assistant_model"));
        if (ids[at.count] >= g->vocab)
            break;
    }
    return TX_OK;
}
