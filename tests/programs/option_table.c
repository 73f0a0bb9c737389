/* SPDX-License-Identifier: Apache-2.0
 *
 *   option_table > docs/OPTIONS.md    writes what TX answers to each option of a run, from the table of options
 *   option_table FILE                 fails where FILE says otherwise, or a name stands twice in the table */
#include "models/job/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A cell of the table: | would end it. */
static void print_cell(FILE *to, const char *text)
{
    for (; *text; text++)
        fprintf(to, *text == '|' ? "\\%c" : "%c", *text);
}

static void print_default(FILE *to, const tx_option *o, const tx_json *defaults)
{
    for (void *i = tx_json_first(defaults); i; i = tx_json_next(defaults, i)) {
        char *text = strcmp(tx_json_key(i), o->name) == 0 ? tx_json_text(tx_json_value(i), TX_JSON_LINE) : NULL;
        if (text && strcmp(text, "null") != 0 && strcmp(text, "\"\"") != 0 && strcmp(text, "false") != 0) {
            fputs(" (default ", to);
            print_cell(to, text);
            fputc(')', to);
        }
        free(text);
    }
}

static void print_own(FILE *to, const tx_json *defaults)
{
    for (int32_t i = 0; i < tx_job_table.count; i++) {
        const tx_option *o = &tx_job_table.option[i];
        if (o->kind == TX_OPTION_HEADING)
            fprintf(to, "\n## %c%s\n\n| option | value | what it does |\n|---|---|---|\n", o->help[0] & ~0x20,
                    o->help + 1);
        if (!tx_option_has_value(o))
            continue;
        fprintf(to, "| `%s` | ", o->name);
        print_cell(to, o->choices ? o->choices : o->kind == TX_OPTION_FLAG ? "true or false" : "");
        fputs(" | ", to);
        print_cell(to, o->help);
        print_default(to, o, defaults);
        fputs(" |\n", to);
    }
}

static void print_relations(FILE *to)
{
    int32_t count;
    const tx_job_relation *r = tx_job_relations(&count);
    fputs("\n## Options that exclude or need each other\n\nAn option is in use if its value differs from its default. "
          "A run that breaks a row ends before it begins.\n\n| option | | option | why |\n|---|---|---|---|\n",
          to);
    for (int32_t i = 0; i < count; i++)
        if (r[i].kind != TX_JOB_RIVAL)
            fprintf(to, "| `%s` | %s | `%s` | %s |\n", tx_option_at(&tx_job_table, r[i].a)->name,
                    r[i].kind == TX_JOB_NEEDS ? "needs" : "excludes", tx_option_at(&tx_job_table, r[i].b)->name,
                    r[i].why);
}

static void print_spellings(FILE *to)
{
    fputs("\n## Other names\n\nNames with two dashes also hold in a file of options.\n\n| name | option |\n|---|---|\n",
          to);
    for (int32_t i = 0; i < tx_job_table.spelling_count; i++) {
        const char *spelled = tx_job_table.spelling[i].spelled;
        fprintf(to, "| `%s` | `%s` |\n", strncmp(spelled, "--", 2) == 0 ? spelled + 2 : spelled,
                tx_job_table.spelling[i].name);
    }
}

static void print_foreign(FILE *to)
{
    fputs("\n## Options of transformers that TX does not have\n\n"
          "\"accepts\": whatever the value, TX does that anyway, or it makes no difference to the result. \"refuses\": "
          "a run "
          "with it ends\nbefore it begins, but for the values that ask for what TX does anyway. null is always "
          "accepted in a "
          "file.\n\n| option | TX | why |\n|---|---|---|\n",
          to);
    for (int32_t i = 0; i < tx_job_table.count; i++) {
        const tx_option *o = &tx_job_table.option[i];
        if (o->kind != TX_OPTION_FOREIGN)
            continue;
        const bool any = o->choices && strcmp(o->choices, "*") == 0,
                   object = o->choices && strcmp(o->choices, "{}") == 0;
        fprintf(to, "| `%s` | %s", o->name, any ? "accepts" : object ? "reads its members as options" : "refuses");
        bool first = true;
        for (const char *at = any || object ? NULL : o->choices; at;
             at = at[tx_choice_length(at)] ? at + tx_choice_length(at) + 1 : NULL)
            if (*at && *at != '|') {
                fprintf(to, "%s`%.*s`", first ? ", but for " : " ", (int)tx_choice_length(at), at);
                first = false;
            }
        fputs(" | ", to);
        print_cell(to, o->help);
        fputs(" |\n", to);
    }
}

static char *make_table(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    const tx_job_settings defaults = tx_job_defaults;
    tx_json *json = tx_job_arguments(&defaults, 0, 0);
    if (!to || !json)
        return NULL;
    fputs("# Options of txtrain\n\n"
          "Written by `option_table` (tests/programs) from the table that the program reads options by; a test holds "
          "both "
          "together, and\nholds the names against those of transformers' TrainingArguments where that is installed. "
          "Names and "
          "defaults are\ntransformers'; a JSON file of options, as `TrainingArguments.to_dict()` or TX's own "
          "training_args.json is one, may come first:\n`txtrain args.json --max_steps 100`.\n",
          to);
    print_own(to, json);
    print_relations(to);
    print_spellings(to);
    print_foreign(to);
    tx_json_free(json);
    fclose(to);
    return text;
}

/* A name that two rows have; NULL: there is none. */
static const char *name_twice(void)
{
    for (int32_t i = 0; i < tx_job_table.count; i++)
        for (int32_t k = 0; k < i; k++) {
            const tx_option *a = &tx_job_table.option[i], *b = &tx_job_table.option[k];
            if (a->kind != TX_OPTION_HEADING && b->kind != TX_OPTION_HEADING && strcmp(a->name, b->name) == 0)
                return a->name;
        }
    return NULL;
}

int main(int argc, char **argv)
{
    static char found[1 << 17];
    char *table = make_table();
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!table || (argc > 1 && !file)) {
        fprintf(stderr, "option_table: no memory, or no %s\n", argc > 1 ? argv[1] : "");
        return 1;
    }
    if (!file)
        return fputs(table, stdout) < 0;
    found[fread(found, 1, sizeof found - 1, file)] = '\0';
    fclose(file);
    const bool same = strcmp(table, found) == 0;
    if (!same)
        fprintf(stderr, "%s is not what the table of options says: write it anew, option_table > %s\n", argv[1],
                argv[1]);
    if (name_twice())
        fprintf(stderr, "option_table: %s stands twice in the table\n", name_twice());
    free(table);
    return !same || name_twice();
}
