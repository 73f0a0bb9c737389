/* SPDX-License-Identifier: Apache-2.0
 *
 * Beam search as in transformers. For each prompt the candidates are the best continuations of its beams: num_beams
 * times (1 + number of end-of-text ids, at least 2). Candidates that end become finished texts if they are among the
 * best num_beams. The best of the others become the next beams. Scores are sums of log-probabilities in fp32; those of
 * finished texts are divided by length^length_penalty. */
#include "models/generate/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FAR (-1.0e9f) /* below every score */

typedef struct candidate {
    float score;
    int32_t beam, id;
    bool hit; /* the text ends with it */
} candidate;

/* A finished text. */
typedef struct finished {
    float score;
    bool is_finished;
    int64_t count;
    int32_t *ids; /* [context] */
} finished;

/* The search of one prompt. */
typedef struct search {
    float *score;    /* of each beam */
    finished *best;  /* [beams], best first */
    bool open, done; /* open: a running beam may still beat the finished texts */
} search;

typedef struct beams {
    const tx_run *run;
    int64_t width, keep;  /* number of beams, and of candidates */
    search *search;       /* of each prompt */
    float *score;         /* [prompts, width]: the arrays of all searches, like the next two */
    finished *best;       /* [prompts, width] */
    int32_t *ids;         /* [prompts, width, context] */
    candidate *candidate; /* [keep] */
    float *scores;        /* [vocab] */
    int32_t *text;        /* [width, context]: texts of the next beams */
} beams;

/* ---- Candidates ------------------------------------------------------------------------------------------ */

/* scores = log softmax of logits. */
static void log_softmax(const float *logits, int64_t vocab, float *scores)
{
    float largest = logits[0];
    for (int64_t i = 1; i < vocab; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    double sum = 0.0;
    for (int64_t i = 0; i < vocab; i++)
        sum += (double)expf(logits[i] - largest);
    const float shift = largest + (float)log(sum);
    for (int64_t i = 0; i < vocab; i++)
        scores[i] = logits[i] - shift;
}

/* Inserts a candidate into a list of the best `keep`, best first. Of equal ones the first stays first. */
static int64_t insert(candidate *list, int64_t count, int64_t keep, candidate c)
{
    if (count == keep && !(c.score > list[keep - 1].score))
        return count;
    int64_t at = count < keep ? count : keep - 1;
    for (; at > 0 && c.score > list[at - 1].score; at--)
        list[at] = list[at - 1];
    list[at] = c;
    return count < keep ? count + 1 : keep;
}

static int32_t *row_of(const beams *b, int64_t prompt, int64_t beam)
{
    return b->run->g->ids + (prompt * b->width + beam) * b->run->g->context;
}

static tx_status find_candidates(beams *b, int64_t p, int64_t generated, int64_t *found)
{
    const tx_run *run = b->run;
    const int64_t vocab = run->g->choice.vocab, before = run->prompts[p].count + generated;
    int64_t count = 0;
    for (int64_t beam = 0; beam < b->width; beam++) {
        const float *logits = tx_slots_logits(run->g->slots, p * b->width + (generated ? beam : 0));
        TX_TRY(tx_scores_check(logits, vocab));
        const tx_history history = {row_of(b, p, beam), before, generated, 0, NULL};
        log_softmax(logits, vocab, b->scores);
        TX_TRY(tx_scores_adjust(run->how, &history, b->scores, vocab, run->g->choice.scores));
        for (int64_t i = 0; i < vocab; i++) {
            const float score = run->g->choice.scores[i] + b->search[p].score[beam];
            count = insert(b->candidate, count, b->keep, (candidate){score, (int32_t)beam, (int32_t)i, false});
        }
    }
    *found = count;
    return TX_OK;
}

/* ---- A step ------------------------------------------------------------------------------------------------ */

static float length_factor(const tx_generation *how, int64_t length)
{
    return (float)pow((double)length, how->length_penalty);
}

static bool all_finished(const beams *b, const search *s)
{
    for (int64_t i = 0; i < b->width; i++)
        if (!s->best[i].is_finished)
            return false;
    return true;
}

/* Copies a beam and one more token to `text`. */
static void extend(const beams *b, int64_t p, const candidate *c, int64_t before, int32_t *text)
{
    memcpy(text, row_of(b, p, c->beam), (size_t)before * sizeof *text);
    text[before] = c->id;
}

static bool ends(const tx_run *run, const int32_t *ids, int64_t count)
{
    return tx_generation_ends(run->how, ids[count - 1]) ||
           (run->sink->ends && run->sink->ends(run->sink->context, ids, count));
}

/* Marks the candidates that end. Returns true if all do. */
static bool find_hits(const beams *b, int64_t p, int64_t found, int64_t generated)
{
    const int64_t before = b->run->prompts[p].count + generated;
    bool all = true;
    for (int64_t k = 0; k < found; k++) {
        candidate *c = &b->candidate[k];
        extend(b, p, c, before, b->text);
        c->hit = generated + 1 == tx_run_limit(b->run, p) || ends(b->run, b->text, before + 1);
        all = all && c->hit;
    }
    return all;
}

/* Adds the best candidates that end to the finished texts. */
static void add_finished(const beams *b, int64_t p, int64_t generated)
{
    search *s = &b->search[p];
    const int64_t before = b->run->prompts[p].count + generated;
    if (!s->open || (b->run->how->early_stopping == TX_EARLY_TRUE && all_finished(b, s)))
        return;
    for (int64_t k = 0; k < b->width; k++) {
        const candidate *c = &b->candidate[k];
        const float score = c->score / length_factor(b->run->how, generated + 1);
        int64_t at = b->width - 1;
        if (!c->hit || !(score > s->best[at].score))
            continue;
        finished result = {score, true, before + 1, s->best[at].ids};
        for (; at > 0 && score > s->best[at - 1].score; at--)
            s->best[at] = s->best[at - 1];
        extend(b, p, c, before, result.ids);
        s->best[at] = result;
    }
}

/* Makes the best candidates that do not end the next beams: texts, scores, and inputs of the decoder's next step. */
static void continue_beams(const beams *b, int64_t p, int64_t found, int64_t generated)
{
    tx_generator *g = b->run->g;
    const int64_t before = b->run->prompts[p].count + generated, first = p * b->width;
    int64_t beam = 0;
    for (int round = 0; round < 2; round++) /* those that end only if there are too few others */
        for (int64_t k = 0; k < found && beam < b->width; k++) {
            const candidate *c = &b->candidate[k];
            if (c->hit != (round == 1))
                continue;
            extend(b, p, c, before, b->text + beam * g->context);
            b->search[p].score[beam] = c->hit ? c->score + FAR : c->score;
            g->tokens[first + beam] = c->id;
            g->sources[first + beam] = (int32_t)first + (generated ? c->beam : 0); /* the first has the prompt */
            beam++;
        }
    for (beam = 0; beam < b->width; beam++)
        memcpy(row_of(b, p, beam), b->text + beam * g->context, (size_t)(before + 1) * sizeof *b->text);
}

/* Returns true if a running beam may still become better than the worst of the finished texts. */
static bool may_improve(const beams *b, int64_t p, int64_t generated)
{
    const tx_generation *how = b->run->how;
    const search *s = &b->search[p];
    const bool longest = how->early_stopping == TX_EARLY_NEVER && how->length_penalty > 0.0;
    const float possible = s->score[0] / length_factor(how, longest ? tx_run_limit(b->run, p) : generated);
    return !s->best[b->width - 1].is_finished || possible > s->best[b->width - 1].score;
}

static tx_status step_prompt(beams *b, int64_t p, int64_t generated)
{
    search *s = &b->search[p];
    int64_t found = 0;
    TX_TRY(find_candidates(b, p, generated, &found));
    bool all_end = find_hits(b, p, found, generated);
    add_finished(b, p, generated);
    continue_beams(b, p, found, generated);
    s->open = s->open && may_improve(b, p, generated + 1);
    s->done = !s->open || all_end || (b->run->how->early_stopping == TX_EARLY_TRUE && all_finished(b, s));
    return TX_OK;
}

/* ---- The search --------------------------------------------------------------------------------------------- */

/* Computes each prompt in its first slot, whose cache the first step copies to its other beams. */
static tx_status start(const beams *b)
{
    const tx_run *run = b->run;
    for (int64_t i = 0; i < run->g->batch * b->width; i++)
        tx_slots_keep(run->g->slots, i, 0);
    for (int64_t p = 0; p < run->count; p++) {
        const tx_prompt *prompt = &run->prompts[p];
        for (int64_t done = 0; done < prompt->count;)
            TX_TRY(tx_slots_prefill(run->g->slots, p * b->width, prompt->ids, prompt->count, &done, NULL, NULL));
        for (int64_t beam = 0; beam < b->width; beam++)
            memcpy(row_of(b, p, beam), prompt->ids, (size_t)prompt->count * sizeof *prompt->ids);
    }
    return TX_OK;
}

static tx_status run_steps(beams *b)
{
    tx_generator *g = b->run->g;
    for (int64_t n = 0;; n++) {
        int64_t count = 0;
        for (int64_t r = 0; r < g->batch * b->width; r++)
            g->sources[r] = (int32_t)r;
        for (int64_t p = 0; p < b->run->count; p++) {
            if (b->search[p].done)
                continue;
            TX_TRY(step_prompt(b, p, n));
            for (int64_t beam = 0; beam < b->width && !b->search[p].done; beam++, count++) {
                g->slot[count] = (int32_t)(p * b->width + beam);
                g->tokens[count] = g->tokens[g->slot[count]];
            }
        }
        if (!count)
            return TX_OK;
        TX_TRY(tx_run_step(g->slots, g->comm, g->slot, g->tokens, count, g->sources));
    }
}

static tx_status allocate(beams *b)
{
    const tx_generator *g = b->run->g;
    const size_t width = (size_t)b->width, context = (size_t)g->context, prompts = (size_t)b->run->count;
    b->search = calloc(prompts, sizeof *b->search);
    b->score = malloc(prompts * width * sizeof *b->score);
    b->best = calloc(prompts * width, sizeof *b->best);
    b->ids = malloc(prompts * width * context * sizeof *b->ids);
    b->candidate = malloc((size_t)b->keep * sizeof *b->candidate);
    b->scores = malloc((size_t)g->choice.vocab * sizeof *b->scores);
    b->text = malloc(width * context * sizeof *b->text);
    if (!b->search || !b->score || !b->best || !b->ids || !b->candidate || !b->scores || !b->text)
        return tx_fail(TX_MEMORY, "generate: no memory for %lld beams", (long long)b->width);
    for (size_t p = 0; p < prompts; p++)
        b->search[p] = (search){.score = b->score + p * width,
                                .best = b->best + p * width,
                                .open = true,
                                .done = tx_run_limit(b->run, (int64_t)p) == 0};
    for (size_t i = 0; i < prompts * width; i++) {
        b->score[i] = i % width ? FAR : 0.0f; /* at first all beams are equal, so only the first one counts */
        b->best[i] = (finished){.score = FAR, .ids = b->ids + i * context};
    }
    return TX_OK;
}

static void release(beams *b)
{
    free(b->search);
    free(b->score);
    free(b->best);
    free(b->ids);
    free(b->candidate);
    free(b->scores);
    free(b->text);
}

tx_status tx_run_beams(const tx_run *run)
{
    const int64_t each = run->how->eos_count > 1 ? 1 + run->how->eos_count : 2;
    beams b = {.run = run, .width = run->g->beams, .keep = each * run->g->beams};
    tx_status status = allocate(&b);
    TX_THEN(status, start(&b));
    TX_THEN(status, run_steps(&b));
    for (int64_t p = 0; p < run->count && !status; p++) {
        const finished *best = &b.search[p].best[0];
        for (int64_t i = run->prompts[p].count; i < best->count; i++)
            if (!run->sink->emit(run->sink->context, run->row + p, best->ids[i]))
                break;
        if (run->sink->end && !run->sink->end(run->sink->context, run->row + p))
            break;
    }
    release(&b);
    return status;
}
