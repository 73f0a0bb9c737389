/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the logits of fixed tokens as generation does: pieces of prompts and single tokens in slots, of which
 * another text was forgotten. Writes them to OUT/logits.safetensors, as model_logits does.
 *
 *     cached_logits FOLDER OUT DEVICE LENGTH DTYPE     LENGTH tokens a row; DTYPE float32 or bfloat16 */
#include "models/generate/slots.h"
#include "tests/transformers/logits.h"

enum { SLOTS = 3 };
static const int32_t slot_of[ROWS] = {2, 0};

typedef struct texts {
    tx_slots *slots;
    int64_t length, vocab;
    int32_t ids[ROWS][MOST];
    float *logits; /* [ROWS, length, vocab] */
} texts;

static void take(const texts *t, int64_t row, int64_t at, const float *logits)
{
    memcpy(t->logits + (row * t->length + at) * t->vocab, logits, (size_t)t->vocab * sizeof *logits);
}

/* Computes the first `count` tokens of a row, in pieces. */
static tx_status prefill(const texts *t, int64_t row, int64_t count)
{
    for (int64_t first = 0, before = 0; first < count; before = first) {
        const float *all;
        int64_t stride;
        TX_TRY(tx_slots_prefill(t->slots, slot_of[row], t->ids[row], count, &first, &all, &stride));
        for (int64_t i = before; i < first; i++)
            take(t, row, i, all + (i - before) * stride);
    }
    return TX_OK;
}

/* The rows have prompts of different lengths; then each step computes a token of all that have not ended. */
static tx_status compute(const texts *t)
{
    int64_t at[ROWS] = {t->length / 3 + 1, t->length - t->length / 4};
    for (int64_t row = 0; row < ROWS; row++) {
        tx_slots_keep(t->slots, slot_of[row], 0);
        TX_TRY(prefill(t, row, at[row]));
    }
    for (;;) {
        int32_t slot[ROWS], token[ROWS];
        int64_t count = 0;
        for (int64_t row = 0; row < ROWS; row++)
            if (at[row] < t->length) {
                slot[count] = slot_of[row];
                token[count++] = t->ids[row][at[row]];
            }
        if (!count)
            return TX_OK;
        TX_TRY(tx_slots_step(t->slots, slot, token, count, NULL));
        for (int64_t row = 0; row < ROWS; row++)
            if (at[row] < t->length)
                take(t, row, at[row]++, tx_slots_logits(t->slots, slot_of[row]));
    }
}

/* The planned memory is used, no more and no less. */
static tx_status check_memory(const tx_engine *engine, const tx_model *model)
{
    tx_memory planned, counted;
    TX_TRY(tx_model_memory(model, &planned));
    TX_TRY(tx_engine_memory(engine, &counted));
    const long long want = (long long)tx_memory_total(&planned), got = (long long)tx_memory_total(&counted);
    return want == got ? TX_OK : tx_fail(TX_INTERNAL, "%lld bytes are planned, %lld used", want, got);
}

static tx_status run(const tx_engine *engine, tx_model *model, const tx_config *config, char **argv)
{
    texts t = {.length = strtol(argv[4], NULL, 10), .vocab = config->vocab_size};
    const tx_slots_options sizes = {.count = SLOTS, .context = t.length, .beams = 1};
    tx_status status = strcmp(argv[5], "bfloat16") == 0 ? tx_model_store(model, TX_BF16) : TX_OK;
    t.logits = malloc((size_t)(ROWS * t.length * t.vocab) * sizeof *t.logits);
    if (!t.logits)
        return tx_fail(TX_MEMORY, "no memory for the logits");
    TX_THEN(status, tx_slots_create(model, config, &sizes, &t.slots));
    TX_THEN(status, tx_arch_load(model, config, argv[1], NULL));
    for (int64_t turn = 0; turn < 2; turn++) { /* first another text, whose states must have no effect */
        for (int64_t i = 0; i < ROWS * t.length; i++)
            t.ids[i / t.length][i % t.length] =
                (int32_t)((i / t.length * 101 + i % t.length * (turn ? 37 : 41)) % config->vocab_size);
        TX_THEN(status, compute(&t));
    }
    TX_THEN(status, check_memory(engine, model));
    TX_THEN(status, write_logits(argv[2], t.logits, t.length, t.vocab, t.vocab));
    tx_slots_free(t.slots);
    free(t.logits);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 6 || strtol(argv[4], NULL, 10) < 2 || strtol(argv[4], NULL, 10) > MOST)
        return fprintf(stderr, "usage: cached_logits FOLDER OUT DEVICE LENGTH DTYPE\n"), 2;
    return on_model(argv[3], argv, run);
}
