/* SPDX-License-Identifier: Apache-2.0
 * Stems of English words: M. F. Porter, An algorithm for suffix stripping (1980), with the changes that nltk's
 * PorterStemmer makes by default. Called by text_scores.c. */
#include "models/task/text_scores.h"

#include <stdbool.h>
#include <string.h>

typedef struct stem {
    char *text;
    size_t size;
} stem;

typedef struct rule {
    const char *from, *to;
} rule;

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* ---- The shape of a stem ------------------------------------------------------------------------------- */

/* Whether a letter is a vowel, given whether the one before it is. Letter y is one after a consonant. */
static bool is_vowel(const char *text, size_t i, bool before)
{
    return memchr("aeiou", text[i], 5) || (text[i] == 'y' && i > 0 && !before);
}

static bool vowel_at(const char *text, size_t at)
{
    bool vowel = false;
    for (size_t i = 0; i <= at; i++)
        vowel = is_vowel(text, i, vowel);
    return vowel;
}

static bool has_vowel(const char *text, size_t size)
{
    bool vowel = false;
    for (size_t i = 0; i < size && !vowel; i++)
        vowel = is_vowel(text, i, vowel);
    return vowel;
}

/* The number of times that consonants follow vowels. */
static int measure(const char *text, size_t size)
{
    int count = 0;
    bool vowel = false;
    for (size_t i = 0; i < size; i++) {
        const bool before = vowel;
        vowel = is_vowel(text, i, before);
        count += before && !vowel;
    }
    return count;
}

/* Consonant, vowel and consonant other than w, x and y; or only vowel and consonant. */
static bool ends_short(const char *text, size_t size)
{
    if (size < 2 || !vowel_at(text, size - 2) || vowel_at(text, size - 1))
        return false;
    return size == 2 || (!vowel_at(text, size - 3) && !memchr("wxy", text[size - 1], 3));
}

/* ---- Rules --------------------------------------------------------------------------------------------- */

static bool ends(const stem *s, const char *suffix)
{
    const size_t size = strlen(suffix);
    return size <= s->size && memcmp(s->text + s->size - size, suffix, size) == 0;
}

/* Replaces the last `size` letters. No step makes a word longer. */
static void replace(stem *s, size_t size, const char *to)
{
    memcpy(s->text + s->size - size, to, strlen(to));
    s->size = s->size - size + strlen(to);
}

/* Applies the first rule whose suffix the word has, if the rest has a measure above `above`. */
static void apply(stem *s, const rule *rules, size_t count, int above)
{
    for (size_t i = 0; i < count; i++)
        if (ends(s, rules[i].from)) {
            if (measure(s->text, s->size - strlen(rules[i].from)) > above)
                replace(s, strlen(rules[i].from), rules[i].to);
            return;
        }
}

/* Plurals. */
static void step_1a(stem *s)
{
    static const rule rules[] = {{"sses", "ss"}, {"ies", "i"}, {"ss", "ss"}, {"s", ""}};
    if (s->size == 4 && ends(s, "ies"))
        replace(s, 3, "ie");
    else
        apply(s, rules, COUNT(rules), -1);
}

/* Past tenses and participles. */
static void step_1b(stem *s)
{
    static const rule rules[] = {{"at", "ate"}, {"bl", "ble"}, {"iz", "ize"}};
    const size_t cut = ends(s, "ed") ? 2 : ends(s, "ing") ? 3 : 0;
    if (ends(s, "ied")) {
        replace(s, 3, s->size == 4 ? "ie" : "i");
    } else if (ends(s, "eed")) {
        if (measure(s->text, s->size - 3) > 0)
            replace(s, 3, "ee");
    } else if (cut && has_vowel(s->text, s->size - cut)) {
        s->size -= cut;
        const char *text = s->text;
        const size_t size = s->size;
        apply(s, rules, COUNT(rules), -1);
        if (s->size > size)
            return;
        if (size > 1 && text[size - 1] == text[size - 2] && !vowel_at(text, size - 1))
            s->size -= !memchr("lsz", text[size - 1], 3);
        else if (measure(text, size) == 1 && ends_short(text, size))
            replace(s, 0, "e");
    }
}

static void step_2(stem *s)
{
    static const rule rules[] = {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
                                 {"izer", "ize"},    {"bli", "ble"},     {"entli", "ent"},   {"eli", "e"},
                                 {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},   {"ator", "ate"},
                                 {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"}, {"ousness", "ous"},
                                 {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},  {"fulli", "ful"}};
    static const rule first[] = {{"alli", "al"}};
    apply(s, first, 1, 0);
    if (!ends(s, "logi"))
        apply(s, rules, COUNT(rules), 0);
    else if (measure(s->text, s->size - 3) > 0)
        s->size--;
}

static void step_3(stem *s)
{
    static const rule rules[] = {{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
                                 {"ical", "ic"},  {"ful", ""},   {"ness", ""}};
    apply(s, rules, COUNT(rules), 0);
}

static void step_4(stem *s)
{
    static const rule rules[] = {{"al", ""},   {"ance", ""}, {"ence", ""},  {"er", ""},   {"ic", ""},  {"able", ""},
                                 {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""}, {"ent", ""}, {"ou", ""},
                                 {"ism", ""},  {"ate", ""},  {"iti", ""},   {"ous", ""},  {"ive", ""}, {"ize", ""}};
    if (!ends(s, "ion"))
        apply(s, rules, COUNT(rules), 1);
    else if ((ends(s, "sion") || ends(s, "tion")) && measure(s->text, s->size - 3) > 1)
        s->size -= 3;
}

/* A last e and a double l. */
static void step_5(stem *s)
{
    const int m = ends(s, "e") ? measure(s->text, s->size - 1) : 0;
    if (m > 1 || (m == 1 && !ends_short(s->text, s->size - 1)))
        s->size--;
    if (ends(s, "ll") && measure(s->text, s->size - 1) > 1)
        s->size--;
}

size_t tx_stem(char *word, size_t size)
{
    static const rule irregular[] = {{"skies", "sky"},        {"dying", "die"},       {"lying", "lie"},
                                     {"tying", "tie"},        {"news", "news"},       {"innings", "inning"},
                                     {"inning", "inning"},    {"outings", "outing"},  {"outing", "outing"},
                                     {"cannings", "canning"}, {"canning", "canning"}, {"howe", "howe"},
                                     {"proceed", "proceed"},  {"exceed", "exceed"},   {"succeed", "succeed"}};
    stem s = {word, size};
    for (size_t i = 0; i < COUNT(irregular); i++)
        if (size == strlen(irregular[i].from) && ends(&s, irregular[i].from)) {
            replace(&s, size, irregular[i].to);
            return s.size;
        }
    step_1a(&s);
    step_1b(&s);
    if (ends(&s, "y") && s.size > 2 && !vowel_at(s.text, s.size - 2))
        replace(&s, 1, "i");
    step_2(&s);
    step_3(&s);
    step_4(&s);
    step_5(&s);
    return s.size;
}
