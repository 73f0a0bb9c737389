/* SPDX-License-Identifier: Apache-2.0
 *
 * reference SECTION
 *
 * Prints one section of docs/reference as Markdown, from the tables that the library reads: options, names, foreign,
 * matrix, relations, optimizers, models, environment. reference.py calls it and puts the text into the pages. */
#include "api/model/optimizer.h"
#include "models/arch/wrapper.h"
#include "models/gguf/gguf_family.h"
#include "models/job/settings.h"
#include "models/tx_train.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints text as a cell of a table, with `bar` for |, which would end it. */
static void cell(const char *text, const char *bar)
{
    for (; *text; text++)
        if (*text == '|' || *text == '<')
            fputs(*text == '|' ? bar : "&lt;", stdout);
        else
            putchar(*text);
}

/* ---- Options --------------------------------------------------------------------------------------------- */

static const tx_option *option_at(size_t offset)
{
    return tx_option_at(&tx_job_table, offset);
}

static void print_default(const tx_option *o, const tx_json *defaults)
{
    for (void *i = tx_json_first(defaults); i; i = tx_json_next(defaults, i)) {
        char *text = strcmp(tx_json_key(i), o->name) == 0 ? tx_json_text(tx_json_value(i), TX_JSON_LINE) : NULL;
        if (text && strcmp(text, "null") != 0 && strcmp(text, "\"\"") != 0) {
            const bool quoted = text[0] == '"';
            text[strlen(text) - quoted] = '\0';
            printf("`%s`", text + quoted);
        }
        free(text);
    }
}

static void print_options(void)
{
    const tx_job_settings usual = tx_job_defaults;
    tx_json *defaults = tx_job_arguments(&usual, 0, 0);
    for (int32_t i = 0; i < tx_job_table.count; i++) {
        const tx_option *o = &tx_job_table.option[i];
        if (o->kind == TX_OPTION_HEADING)
            printf("\n## %c%s\n\n| option | value | default | meaning |\n|---|---|---|---|\n", o->help[0] & ~0x20,
                   o->help + 1);
        if (!tx_option_has_value(o))
            continue;
        printf("| `%s` | ", o->name);
        cell(o->choices ? o->choices : o->kind == TX_OPTION_FLAG ? "true or false" : "", " \\| ");
        printf(" | ");
        print_default(o, defaults);
        printf(" | ");
        cell(o->help, "\\|");
        printf(" |\n");
    }
    tx_json_free(defaults);
}

static void print_names(void)
{
    printf("| name | option |\n|---|---|\n");
    for (int32_t i = 0; i < tx_job_table.spelling_count; i++)
        printf("| `%s` | `--%s` |\n", tx_job_table.spelling[i].spelled, tx_job_table.spelling[i].name);
}

static void print_foreign(void)
{
    printf("| option | TX | reason or replacement |\n|---|---|---|\n");
    for (int32_t i = 0; i < tx_job_table.count; i++) {
        const tx_option *o = &tx_job_table.option[i];
        if (o->kind != TX_OPTION_FOREIGN)
            continue;
        const char *same = o->choices ? o->choices : "";
        const bool any = strcmp(same, "*") == 0, object = strcmp(same, "{}") == 0, reported = strstr(same, "|*");
        const char *between = ", except";
        printf("| `%s` | %s", o->name,
               any        ? "ignored"
               : object   ? "members are read as options"
               : reported ? "has no effect, which the run reports"
                          : "refused");
        for (const char *at = any || object ? NULL : o->choices; at && *at != '*'; at = tx_choice_next(at))
            if (tx_choice_length(at)) {
                printf("%s `%.*s`", between, (int)tx_choice_length(at), at);
                between = "";
            }
        printf(" | ");
        cell(o->help, "\\|");
        printf(" |\n");
    }
}

/* ---- Relations ------------------------------------------------------------------------------------------- */

/* Returns whether two options exclude each other. Sequence parallelism needs tensor parallelism, and its limits. */
static bool exclude(const tx_option *a, const tx_option *b)
{
    int32_t count;
    const tx_job_relation *r = tx_job_relations(&count);
    if (b == option_at(TX_JOB_AT(sequence_parallel)) && exclude(a, option_at(TX_JOB_AT(tensor_parallel))))
        return true;
    for (int32_t i = 0; i < count; i++)
        if (r[i].kind == TX_JOB_EXCLUDES &&
            ((option_at(r[i].a) == a && option_at(r[i].b) == b) || (option_at(r[i].a) == b && option_at(r[i].b) == a)))
            return true;
    return false;
}

/* Options that divide a model among ranks against all options that one of them excludes. */
static void print_matrix(void)
{
    static const size_t columns[] = {TX_JOB_AT(tensor_parallel),   TX_JOB_AT(sequence_parallel),
                                     TX_JOB_AT(context_parallel),  TX_JOB_AT(expert_parallel),
                                     TX_JOB_AT(pipeline_parallel), TX_JOB_AT(parallel)};
    enum { COLUMNS = sizeof columns / sizeof columns[0] };
    printf("|");
    for (int c = 0; c < COLUMNS; c++)
        printf(" | `%s`", option_at(columns[c])->name);
    printf(" |\n|---|---|---|---|---|---|---|\n");
    for (int32_t i = 0; i < tx_job_table.count; i++) {
        const tx_option *row = &tx_job_table.option[i];
        bool no[COLUMNS], any = false;
        for (int c = 0; c < COLUMNS; c++)
            any |= no[c] = tx_option_has_value(row) && exclude(row, option_at(columns[c]));
        if (any)
            printf("| `%s`", row->name);
        for (int c = 0; any && c < COLUMNS; c++)
            printf(" | %s", row == option_at(columns[c]) ? "" : no[c] ? "no" : "yes");
        if (any)
            printf(" |\n");
    }
}

static void print_relations(void)
{
    int32_t count;
    const tx_job_relation *r = tx_job_relations(&count);
    printf("| option | | option | reason |\n|---|---|---|---|\n");
    for (int32_t i = 0; i < count; i++)
        if (r[i].kind == TX_JOB_ONLY)
            printf("| `%s` | limit | | %s |\n", option_at(r[i].a)->name, r[i].why);
        else if (r[i].kind != TX_JOB_RIVAL)
            printf("| `%s` | %s | `%s` | %s |\n", option_at(r[i].a)->name,
                   r[i].kind == TX_JOB_NEEDS ? "needs" : "excludes", option_at(r[i].b)->name, r[i].why);
}

/* ---- Optimizers and models ------------------------------------------------------------------------------- */

/* A row for each optimizer: its words follow each other in the table. */
static void print_optimizers(void)
{
    static const char *const units[] = {"weight", "block", "row", "column", "row or column", "tensor"};
    tx_optimizer_kind kind, next;
    const char *word = tx_optimizer_word(0, &kind);
    bool first = true; /* of the words of a row */
    printf("| `--optim` | states of a parameter | tensor, expert and pipeline parallelism |\n|---|---|---|\n");
    for (int32_t i = 0; word; i++) {
        const char *after = tx_optimizer_word(i + 1, &next);
        printf("%s`%s`", first ? "| " : ", ", word);
        first = false;
        word = after;
        if (after && next == kind)
            continue;
        tx_optimizer_options options = {.size = sizeof options, .kind = kind, .momentum = 0.9f, .rank = 1};
        tx_optimizer *o;
        if (tx_optimizer_choose(&options, &o) != TX_OK)
            exit(1);
        for (int f = 0; f < (o->takes ? 2 : 1); f++)
            for (int32_t k = 0; k < o->form[f].states; k++)
                printf("%s`%s`, %s a %s",
                       k   ? "; "
                       : f ? "; for other parameters "
                           : " | ",
                       o->form[f].state[k].name, o->form[f].state[k].times ? "`rank`" : "one",
                       units[o->form[f].state[k].per]);
        printf(" | %s |\n", tx_optimizer_divides(o) ? "yes" : "no");
        first = true;
        tx_optimizer_free(o);
        kind = next;
    }
}

/* Whether models have experts: all, some, of which config.json has their number, or none. */
static const char *experts_of(const tx_architecture *a)
{
    if (a->inactive && a->inactive(a->defaults) > 0)
        return "yes";
    for (const tx_config_key *key = a->keys; key && key->name; key++)
        if (strstr(key->name, "experts"))
            return "some";
    return "";
}

static void print_models(void)
{
    static const char *const heads[TX_HEAD_COUNT] = {
        [TX_HEAD_CAUSAL_LM] = "causal language model",
        [TX_HEAD_MASKED_LM] = "masked language model",
        [TX_HEAD_SEQUENCE_CLASSIFICATION] = "sequence classification",
        [TX_HEAD_TOKEN_CLASSIFICATION] = "token classification",
        [TX_HEAD_MULTIPLE_CHOICE] = "multiple choice",
        [TX_HEAD_QUESTION_ANSWERING] = "question answering",
        [TX_HEAD_STATES] = "embedding",
        [TX_HEAD_SEQ2SEQ] = "text for a text",
    };
    printf("| `model_type` | class | task | experts | GGUF files |\n|---|---|---|---|---|\n");
    for (int i = 0; tx_architectures[i]; i++) {
        const tx_architecture *a = tx_architectures[i];
        printf("| `%s` | `%s` | %s | %s | %s |\n", a->type, a->class_name, heads[a->head], experts_of(a),
               a->gguf && !a->gguf->never && (a->head <= TX_HEAD_MASKED_LM || a->head >= TX_HEAD_STATES) ? "yes" : "");
    }
    for (const tx_wrapper *w = tx_wrappers; w->type; w++)
        printf("| `%s` | `...ForConditionalGeneration` | its text, a `%s`%s |  | as its text |\n", w->type, w->text,
               *w->alias ? "" : " unless `text_config` says otherwise");
    printf("\n| type that TX does not have | it lacks |\n|---|---|\n");
    for (const tx_absent_type *absent = tx_absent_types; absent->type; absent++)
        printf("| `%s` | %s |\n", absent->type, absent->lacks);
}

/* ---- Environment ----------------------------------------------------------------------------------------- */

static void print_environment(void)
{
    static const struct {
        const char *name, *value, *initial, *help;
    } rows[] = {
#define VARIABLE(name, value, initial, help) {#name, value, initial, help},
#define FOREIGN_VARIABLE(name, help) {#name, NULL, NULL, help},
#include "api/base/environment.def"
    };
    for (int own = 1; own >= 0; own--) {
        printf(own ? "| variable | value | default | meaning |\n|---|---|---|---|\n"
                   : "\n## Variables of other programs\n\n| variable | meaning |\n|---|---|\n");
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            if (own && rows[i].value)
                printf("| `%s` | %s | %s | %s |\n", rows[i].name, rows[i].value, rows[i].initial, rows[i].help);
            else if (!own && !rows[i].value)
                printf("| `%s` | %s |\n", rows[i].name, rows[i].help);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } sections[] = {{"options", print_options},     {"names", print_names},
                    {"foreign", print_foreign},     {"matrix", print_matrix},
                    {"relations", print_relations}, {"optimizers", print_optimizers},
                    {"models", print_models},       {"environment", print_environment}};
    for (size_t i = 0; argc > 1 && i < sizeof sections / sizeof sections[0]; i++)
        if (strcmp(argv[1], sections[i].name) == 0) {
            sections[i].print();
            return 0;
        }
    fprintf(stderr, "reference: no such section\n");
    return 2;
}
