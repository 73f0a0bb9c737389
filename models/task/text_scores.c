/* SPDX-License-Identifier: Apache-2.0
 * ROUGE and BLEU of written texts. Called by seq2seq.c. */
#include "models/task/text_scores.h"

#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

#include <math.h>
#include <stdlib.h>

/* ---- Words --------------------------------------------------------------------------------------------- */

typedef struct word {
    size_t at;    /* in the bytes */
    int32_t id;   /* equal words of both texts have the same */
    int32_t line; /* of the text */
} word;

/* The words of a text, with a NUL after each. */
typedef struct words {
    tx_buffer bytes;
    word *word;
    size_t count, room;
} words;

static void free_words(words *w)
{
    free(w->bytes.data);
    free(w->word);
}

static void add_word(words *w, const char *text, size_t size, int32_t line)
{
    tx_buffer *bytes = &w->bytes;
    const size_t at = bytes->size;
    tx_buffer_add(bytes, text, size);
    tx_buffer_add(bytes, "", 1);
    if (!bytes->status)
        bytes->status = tx_array_reserve(&w->word, &w->room, w->count + 1, sizeof *w->word, "words");
    if (!bytes->status)
        w->word[w->count++] = (word){at, -1, line};
}

/* Finds the words of rouge_score: runs of a-z and 0-9 after conversion to lower case, stemmed if longer than 3. */
static void read_rouge(const char *text, words *w)
{
    const size_t size = strlen(text);
    tx_buffer lower = {0};
    for (size_t i = 0; i < size;) {
        uint32_t code = 0;
        const size_t length = tx_utf8_read(text + i, size - i, &code);
        tx_unicode_lower(code, &lower);
        i += length ? length : 1;
    }
    tx_buffer_add(&lower, "", 1);
    w->bytes.status = lower.status;
    int32_t line = 0;
    for (size_t i = 0, begin = 0; i < lower.size; i++) {
        const char c = lower.data[i];
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
            continue;
        const size_t length = i - begin;
        if (length)
            add_word(w, lower.data + begin, length > 3 ? tx_stem(lower.data + begin, length) : length, line);
        begin = i + 1;
        line += c == '\n';
    }
    free(lower.data);
}

/* Replaces each `from` by `to`, which is not longer. */
static void replace(tx_buffer *text, const char *from, const char *to)
{
    const size_t cut = strlen(from), put = strlen(to);
    size_t size = 0;
    for (size_t i = 0; i < text->size;) {
        const bool found = text->size - i >= cut && memcmp(text->data + i, from, cut) == 0;
        memmove(text->data + size, found ? to : text->data + i, found ? put : 1);
        size += found ? put : 1;
        i += found ? cut : 1;
    }
    text->size = size;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_stop(char c)
{
    return c == '.' || c == ',';
}

/* Pairs of characters that mteval-v13a separates: a stop that follows or precedes no digit, and a dash after a digit.
 * The last byte of a character decides as all of it would. */
static bool after_other(char a, char b)
{
    return !is_digit(a) && is_stop(b);
}

static bool before_other(char a, char b)
{
    return is_stop(a) && !is_digit(b);
}

static bool dash(char a, char b)
{
    return is_digit(a) && b == '-';
}

/* Separates pairs from left to right: "a b " or, with `before`, " a b". */
static void separate(tx_buffer *text, bool (*is_pair)(char a, char b), bool before, tx_buffer *out)
{
    tx_buffer_clear(out);
    for (size_t i = 0; i < text->size; i++) {
        const bool pair = i + 1 < text->size && is_pair(text->data[i], text->data[i + 1]);
        if (pair && before)
            tx_buffer_add(out, " ", 1);
        tx_buffer_add(out, text->data + i, 1);
        if (!pair)
            continue;
        tx_buffer_add(out, " ", 1);
        tx_buffer_add(out, text->data + ++i, 1);
        if (!before)
            tx_buffer_add(out, " ", 1);
    }
    const tx_buffer old = *text;
    *text = *out;
    *out = old;
}

/* White space of Python. */
static bool is_space(uint32_t code)
{
    return tx_unicode_is_space(code) || (code >= 0x1c && code <= 0x1f);
}

/* Adds a text with spaces around ASCII punctuation except ' , - . */
static void add_text(const char *text, size_t size, tx_buffer *out)
{
    for (size_t i = 0; i < size; i++) {
        const bool alone = strchr("{|}~[\\]^_`!\"#$%&()*+:;<=>?@/", text[i]) != NULL;
        if (alone)
            tx_buffer_add(out, " ", 1);
        tx_buffer_add(out, text + i, 1);
        if (alone)
            tx_buffer_add(out, " ", 1);
    }
}

/* Finds the words of sacrebleu's tokenizer 13a. */
static void read_bleu(const char *text, words *w)
{
    size_t size = strlen(text), length;
    uint32_t code;
    tx_buffer line = {0}, room = {0};
    while ((length = tx_utf8_read_last(text, size, &code)) && is_space(code))
        size -= length;
    tx_buffer_add(&line, text, size);
    replace(&line, "<skipped>", "");
    replace(&line, "-\n", "");
    replace(&line, "\n", " ");
    replace(&line, "&quot;", "\"");
    replace(&line, "&amp;", "&");
    replace(&line, "&lt;", "<");
    replace(&line, "&gt;", ">");
    tx_buffer_add(&room, " ", 1);
    add_text(line.data, line.size, &room);
    tx_buffer_add(&room, " ", 1);
    separate(&room, after_other, false, &line);
    separate(&room, before_other, true, &line);
    separate(&room, dash, false, &line);
    w->bytes.status = room.status;
    for (size_t i = 0, begin = 0; i < room.size; i += length) {
        length = tx_utf8_read(room.data + i, room.size - i, &code);
        const bool space = length && is_space(code);
        length = length ? length : 1;
        if (space && i > begin)
            add_word(w, room.data + begin, i - begin, 0);
        begin = space ? i + length : begin;
    }
    free(line.data);
    free(room.data);
}

/* The id of the first of `count` words with this text, or -1. */
static int32_t find(const words *w, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(w->bytes.data + w->word[i].at, text) == 0)
            return w->word[i].id;
    return -1;
}

/* Numbers the words of a text and of its reference from 0 on. */
static void number(words *text, words *reference)
{
    int32_t next = 0;
    for (int side = 0; side < 2; side++) {
        words *w = side ? reference : text;
        for (size_t i = 0; i < w->count; i++) {
            const char *of = w->bytes.data + w->word[i].at;
            int32_t id = side ? find(text, text->count, of) : -1;
            id = id < 0 ? find(w, i, of) : id;
            w->word[i].id = id < 0 ? next++ : id;
        }
    }
}

static tx_status read_both(void (*read)(const char *text, words *w), const char *text, const char *reference,
                           words both[2])
{
    read(text, &both[0]);
    read(reference, &both[1]);
    TX_TRY(both[0].bytes.status);
    TX_TRY(both[1].bytes.status);
    number(&both[0], &both[1]);
    return TX_OK;
}

/* ---- Common parts -------------------------------------------------------------------------------------- */

static double grams_of(const words *w, size_t order)
{
    return w->count < order ? 0.0 : (double)(w->count - order + 1);
}

/* The number of n-grams of a text that its reference has, each as often as both have it. `used` has room for one flag
 * for each word of the text. */
static double common_grams(const words *text, const words *reference, size_t order, bool *used)
{
    double count = 0.0;
    memset(used, 0, text->count * sizeof *used);
    for (size_t r = 0; r + order <= reference->count; r++)
        for (size_t t = 0; t + order <= text->count; t++) {
            size_t same = 0;
            while (same < order && reference->word[r + same].id == text->word[t + same].id)
                same++;
            if (same == order && !used[t]) {
                used[t] = true;
                count++;
                break;
            }
        }
    return count;
}

/* Fills a table [n + 1, m + 1] with lengths of longest common subsequences of the first words of two lists. */
static void fill_table(const word *a, size_t n, const word *b, size_t m, int32_t *table)
{
    const size_t row = m + 1;
    memset(table, 0, row * sizeof *table);
    for (size_t i = 1; i <= n; i++) {
        int32_t *to = table + i * row, *above = to - row;
        to[0] = 0;
        for (size_t j = 1; j <= m; j++)
            to[j] = a[i - 1].id == b[j - 1].id ? above[j - 1] + 1 : above[j] > to[j - 1] ? above[j] : to[j - 1];
    }
}

/* Marks the words of `a` in one of the longest common subsequences, the one that rouge_score finds. */
static void mark_common(const word *a, size_t n, const word *b, size_t m, int32_t *table, bool *marks)
{
    fill_table(a, n, b, m, table);
    for (size_t i = n, j = m; i > 0 && j > 0;) {
        const int32_t *at = table + i * (m + 1) + j;
        if (a[i - 1].id == b[j - 1].id) {
            marks[--i] = true;
            j--;
        } else if (at[-1] > at[-(ptrdiff_t)(m + 1)]) {
            j--;
        } else {
            i--;
        }
    }
}

/* The end of the line of word `first`. */
static size_t line_end(const words *w, size_t first)
{
    size_t end = first;
    while (end < w->count && w->word[end].line == w->word[first].line)
        end++;
    return end;
}

/* The number of words of the reference's lines that belong to a common subsequence with a line of the text, each as
 * often as both have it. `left` has room for two numbers for each word of both. */
static double common_of_lines(const words *text, const words *reference, int32_t *table, int32_t *left, bool *marks)
{
    int32_t *left_r = left + text->count + reference->count;
    double count = 0.0;
    memset(left, 0, 2 * (text->count + reference->count) * sizeof *left);
    memset(marks, 0, reference->count * sizeof *marks);
    for (size_t i = 0; i < text->count; i++)
        left[text->word[i].id]++;
    for (size_t i = 0; i < reference->count; i++)
        left_r[reference->word[i].id]++;
    for (size_t r = 0, r_end; r < reference->count; r = r_end) {
        r_end = line_end(reference, r);
        for (size_t t = 0, t_end; t < text->count; t = t_end) {
            t_end = line_end(text, t);
            mark_common(reference->word + r, r_end - r, text->word + t, t_end - t, table, marks + r);
        }
    }
    for (size_t i = 0; i < reference->count; i++) {
        const int32_t id = reference->word[i].id;
        if (!marks[i] || left[id] == 0 || left_r[id] == 0)
            continue;
        left[id]--;
        left_r[id]--;
        count++;
    }
    return count;
}

/* ---- Scores -------------------------------------------------------------------------------------------- */

static double f1(double same, double one, double other)
{
    return same > 0.0 ? 2.0 * same / (one + other) : 0.0;
}

static tx_status add_rouge(tx_text_scores *scores, const words *text, const words *reference)
{
    const size_t n = text->count, m = reference->count;
    int32_t *table = malloc((n + 1) * (m + 1) * sizeof *table), *left = malloc((2 * (n + m) + 1) * sizeof *left);
    bool *marks = malloc((n + m + 1) * sizeof *marks);
    if (table && left && marks) {
        for (size_t order = 1; order <= 2; order++)
            scores->rouge[TX_ROUGE_1 + order - 1] +=
                f1(common_grams(text, reference, order, marks), grams_of(text, order), grams_of(reference, order));
        fill_table(text->word, n, reference->word, m, table);
        scores->rouge[TX_ROUGE_L] += f1((double)table[n * (m + 1) + m], (double)n, (double)m);
        scores->rouge[TX_ROUGE_LSUM] += f1(common_of_lines(text, reference, table, left, marks), (double)n, (double)m);
    }
    const bool failed = !table || !left || !marks;
    free(table);
    free(left);
    free(marks);
    return failed ? tx_fail(TX_MEMORY, "no memory for the scores of a text of %zu words", n) : TX_OK;
}

static tx_status add_bleu(tx_text_scores *scores, const words *text, const words *reference)
{
    bool *used = malloc(text->count + 1);
    if (!used)
        return tx_fail(TX_MEMORY, "no memory for the scores of a text of %zu words", text->count);
    for (size_t order = 1; order <= TX_BLEU_ORDERS; order++) {
        scores->matches[order - 1] += common_grams(text, reference, order, used);
        scores->grams[order - 1] += grams_of(text, order);
    }
    scores->words += (double)text->count;
    scores->reference_words += (double)reference->count;
    free(used);
    return TX_OK;
}

tx_status tx_text_scores_add(tx_text_scores *scores, const char *text, const char *reference)
{
    words rouge[2] = {{.count = 0}}, bleu[2] = {{.count = 0}};
    tx_status status = read_both(read_rouge, text, reference, rouge);
    TX_THEN(status, read_both(read_bleu, text, reference, bleu));
    TX_THEN(status, add_rouge(scores, &rouge[0], &rouge[1]));
    TX_THEN(status, add_bleu(scores, &bleu[0], &bleu[1]));
    for (int side = 0; side < 2; side++) {
        free_words(&rouge[side]);
        free_words(&bleu[side]);
    }
    return status;
}

double tx_text_scores_bleu(const tx_text_scores *scores)
{
    double sum = 0.0, smooth = 1.0;
    if (!(scores->matches[0] > 0.0)) /* then there are none of longer n-grams either */
        return 0.0;
    for (int n = 0; n < TX_BLEU_ORDERS; n++) {
        if (!(scores->grams[n] > 0.0))
            return 0.0;
        smooth *= scores->matches[n] > 0.0 ? 1.0 : 2.0;
        sum +=
            log(scores->matches[n] > 0.0 ? scores->matches[n] / scores->grams[n] : 1.0 / (smooth * scores->grams[n]));
    }
    const double brief = scores->words < scores->reference_words ? 1.0 - scores->reference_words / scores->words : 0.0;
    return 100.0 * exp(brief + sum / TX_BLEU_ORDERS);
}
