/* SPDX-License-Identifier: Apache-2.0
 * Prints the help of a program from its table of options. */
#define _GNU_SOURCE /* strcasestr */
#include "tools/cli/program.h"
#include "tools/cli/terminal.h"

#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Writes the default as " (default 8)", or "" if there is none. */
static void default_text(const tx_option *option, const void *values, char *text, size_t size)
{
    *text = '\0';
    if (!values)
        return;
    const void *at = (const char *)values + option->offset;
    if (option->kind == TX_OPTION_INTEGER)
        snprintf(text, size, " (default %" PRId64 ")", *(const int64_t *)at);
    else if (option->kind == TX_OPTION_REAL)
        snprintf(text, size, " (default %g)", *(const double *)at);
    else if (option->kind == TX_OPTION_FLAG && *(const bool *)at)
        snprintf(text, size, " (default true)");
    else if (option->kind == TX_OPTION_TEXT && *(const char *const *)at)
        snprintf(text, size, " (default %s)", *(const char *const *)at);
    else if (option->kind == TX_OPTION_CHOICE || option->kind == TX_OPTION_LIST) {
        uint32_t set = option->kind == TX_OPTION_LIST ? *(const uint32_t *)at : UINT32_C(1) << *(const int32_t *)at;
        size_t used = 0;
        for (const char *choice = option->choices; choice; choice = tx_choice_next(choice), set >>= 1)
            if (set & 1 && used < size)
                used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? "," : " (default ",
                                         (int)tx_choice_length(choice), choice);
        if (used && used < size)
            snprintf(text + used, size - used, ")");
    }
}

/* ---- help ----------------------------------------------------------------------------------- */

static const tx_option common[] = {
    {TX_OPTION_OPTIONAL, "help", .choices = "TOPIC|all",
     .help = "print the options that most runs need; those of a topic, of a name or with a word; or all"},
    {TX_OPTION_FLAG, "version", .help = "print the version"},
    {TX_OPTION_TEXT, "completion", .choices = "bash|zsh|fish", .help = "print the completion script of a shell"},
};
const tx_option_table tx_common_options = {TX_CLI_OPTIONS(common)};

/* Writes the spellings of an option: "-n, --name"; without other names of several letters if `brief`. */
static void spellings(const tx_option_table *table, const tx_option *option, bool brief, char *text, size_t size)
{
    size_t used = 0;
    for (int32_t i = 0; i < table->spelling_count && used < size; i++)
        if (strcmp(table->spelling[i].name, option->name) == 0 && (!brief || table->spelling[i].spelled[1] != '-'))
            used += (size_t)snprintf(text + used, size - used, "%s, ", table->spelling[i].spelled);
    if (used < size)
        snprintf(text + used, size - used, "%s%s", option->name[1] ? "--" : "-", option->name);
}

#define MOST_WIDTH 120 /* longer lines are hard to read */

/* Columns of a line: COLUMNS of the environment, or else the terminal's. Scripts that read the help set COLUMNS. */
static size_t line_width(void)
{
    const size_t width = tx_terminal_width(STDOUT_FILENO);
    return width > MOST_WIDTH && !getenv("COLUMNS") ? MOST_WIDTH : width;
}

static size_t fill(const char *text, size_t length, size_t column, size_t indent)
{
    return tx_print_filled(text, length, line_width(), column, indent);
}

/* Prints paragraphs. A line that begins with a blank stays a line of its own; the others are filled. */
static void paragraphs(const char *text)
{
    while (*text) {
        const bool own = *text == ' ';
        size_t length = strcspn(text, "\n");
        while (!own && text[length] && text[length + 1] && !strchr("\n ", text[length + 1]))
            length += 1 + strcspn(text + length + 1, "\n");
        const size_t begin = own ? strspn(text, " ") : 0, name = begin + strcspn(text + begin, " ");
        printf("%*s", (int)begin, "");
        fill(text + begin, length - begin, begin, own && name < length ? name + strspn(text + name, " ") : 0);
        putchar('\n');
        text += length + (text[length] == '\n');
    }
}

/* Prints a heading with a capital letter and a colon, by which help2man recognizes headings. */
static void help_heading(const char *text)
{
    const size_t length = strlen(text);
    char line[256];
    snprintf(line, sizeof line, "%c%s%s", toupper((unsigned char)text[0]), text + 1,
             text[length - 1] == ':' ? "" : ":");
    putchar('\n');
    fill(line, strlen(line), 0, 0);
    putchar('\n');
}

#define HELP_COLUMN 32
#define VALUE_COLUMN 6

/* Prints a name and its description. */
static void help_entry(const char *name, const char *help)
{
    fputs("  ", stdout);
    size_t column = fill(name, strlen(name), 2, VALUE_COLUMN);
    if (column + 2 > HELP_COLUMN) { /* at least two spaces must follow the name */
        putchar('\n');
        column = 0;
    }
    printf("%*s", (int)(HELP_COLUMN - column), "");
    fill(help, strlen(help), HELP_COLUMN, HELP_COLUMN);
    putchar('\n');
}

/* With its first sentence and without its default if `brief`. */
static void print_option(const tx_option_table *table, const tx_option *option, const void *values, bool brief)
{
    char name[512], help[1280];
    const bool optional = option->kind == TX_OPTION_OPTIONAL;
    if (option->kind == TX_OPTION_FOREIGN)
        return;
    const char *end = brief ? strstr(option->help, ". ") : NULL;
    spellings(table, option, brief, name, sizeof name);
    if (option->choices)
        tx_list_add(name, sizeof name, " ", "%s%s%s", optional ? "[" : "", option->choices, optional ? "]" : "");
    snprintf(help, sizeof help, "%.*s", end ? (int)(end + 1 - option->help) : (int)strlen(option->help), option->help);
    if (!brief)
        default_text(option, values, help + strlen(help), sizeof help - strlen(help));
    help_entry(name, help);
}

/* ---- topics ----------------------------------------------------------------------------------- */

/* Length of the first word of a heading, which is its topic. */
static size_t topic_length(const tx_option *heading)
{
    return strcspn(heading->help, " :;,");
}

static bool is_topic(const tx_option *option, const char *topic)
{
    return option->kind == TX_OPTION_HEADING && strlen(topic) == topic_length(option) &&
           strncasecmp(option->help, topic, strlen(topic)) == 0;
}

static const char *list_topics(const tx_option_table *table, char *text, size_t size)
{
    *text = '\0';
    for (int32_t i = 0; i < table->count; i++)
        if (table->option[i].kind == TX_OPTION_HEADING)
            tx_list_add(text, size, ", ", "%.*s", (int)topic_length(&table->option[i]), table->option[i].help);
    return text;
}

/* How an option answers a topic. */
typedef enum answer { NO_ANSWER, IN_HELP, IN_NAME, IS_NAME, IN_SECTION } answer;

static answer answers(const tx_option *option, const char *topic, bool in_section)
{
    if (option->kind == TX_OPTION_HEADING || option->kind == TX_OPTION_FOREIGN)
        return NO_ANSWER;
    return in_section                        ? IN_SECTION
           : !strcmp(option->name, topic)    ? IS_NAME
           : strstr(option->name, topic)     ? IN_NAME
           : strcasestr(option->help, topic) ? IN_HELP
                                             : NO_ANSWER;
}

/* Prints the options that answer a topic best: those of a section, or the one of this name, or those with the text in
 * their names, or in their help. Prints all options if `topic` is "all". Returns false if there are none. */
static bool print_topic(const tx_option_table *table, const void *values, const char *topic)
{
    const bool all = strcmp(topic, "all") == 0;
    answer best = all ? IN_SECTION : NO_ANSWER;
    bool in_section = all, printed = all;
    for (int32_t i = 0; i < table->count && !all; i++) {
        in_section = table->option[i].kind == TX_OPTION_HEADING ? is_topic(&table->option[i], topic) : in_section;
        const answer one = answers(&table->option[i], topic, in_section);
        best = one > best ? one : best;
    }
    if (best != NO_ANSWER && table->count > 0 && table->option[0].kind != TX_OPTION_HEADING &&
        (all || best != IN_SECTION))
        help_heading("options");
    in_section = all;
    for (int32_t i = 0; i < table->count && best != NO_ANSWER; i++) {
        const tx_option *option = &table->option[i];
        if (option->kind == TX_OPTION_HEADING) {
            in_section = all || is_topic(option, topic);
            if (in_section)
                help_heading(option->help);
        } else if (answers(option, topic, in_section) == best) {
            print_option(table, option, values, false);
            printed = true;
        }
    }
    return printed;
}

/* Prints the options in the list program->most_used, or those before the first topic, and the topics of the others. */
static void print_most_used(const tx_cli *program, const void *values)
{
    const tx_option_table *table = &program->table;
    char name[64], topics[512];
    help_heading("options that most runs need");
    for (int32_t i = 0; !program->most_used && table->option[i].kind != TX_OPTION_HEADING; i++)
        print_option(table, &table->option[i], values, true);
    for (const char *at = program->most_used ? program->most_used : ""; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        const tx_option *option = tx_option_find(table, name);
        if (option)
            print_option(table, option, values, true);
        at += length;
    }
    help_heading("more options");
    snprintf(name, sizeof name, "%s --help TOPIC", program->name);
    list_topics(table, topics, sizeof topics);
    tx_list_add(topics, sizeof topics, "; ", "or a word of the options you look for");
    help_entry(name, topics);
    snprintf(name, sizeof name, "%s --help all", program->name);
    help_entry(name, "all options");
}

static int print_help(const tx_cli *program, const void *values, const char *topic)
{
    char topics[512];
    for (int32_t i = 0; topic && i < program->command_count; i++)
        if (strcmp(program->commands[i].name, topic) == 0 && program->commands[i].program)
            return print_help(program->commands[i].program, program->commands[i].program->values, NULL);
    if (topic && strcmp(topic, "all") != 0)
        return print_topic(&program->table, values, topic)
                   ? 0
                   : tx_complain(program, TX_EXIT_USAGE, "--help %s: no option has this word; topics: all%s%s", topic,
                                 *list_topics(&program->table, topics, sizeof topics) ? ", " : "", topics);
    printf("Usage: %s\n\n", program->usage);
    paragraphs(program->about);
    if (program->example) {
        help_heading("example");
        paragraphs(program->example);
    }
    if (program->command_count)
        help_heading("commands");
    for (int32_t i = 0; i < program->command_count; i++)
        help_entry(program->commands[i].name, program->commands[i].help);
    if (!topic && (program->most_used || program->table.count > TX_HELP_OPTIONS))
        print_most_used(program, values);
    else
        print_topic(&program->table, values, "all");
    help_heading("common options");
    for (int32_t i = 0; i < tx_common_options.count; i++)
        print_option(&program->table, &common[i], NULL, false);
    return 0;
}

/* ---- requests ------------------------------------------------------------------------------------------ */

int tx_usage_answer(const tx_cli *program, int argc, char *const *argv, const void *values)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        const bool asks_shell = strncmp(argv[i], "--completion", 12) == 0 && (!argv[i][12] || argv[i][12] == '=');
        const bool asks_help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        int result = 0;
        if (!asks_help && !asks_shell && strcmp(argv[i], "--version") != 0)
            continue;
        signal(SIGPIPE, SIG_DFL); /* a reader as head -1 that ends early ends the program silently */
        if (asks_help)
            result = print_help(program, values, *next && *next != '-' ? next : NULL);
        else if (asks_shell)
            result = tx_print_completion(program, argv[i][12] ? argv[i] + 13 : next, i + 2 < argc ? argc - i - 2 : 0,
                                         argv + i + 2);
        else
            printf("%s %s\n", program->name, TX_VERSION);
        return tx_end(program, result);
    }
    return TX_GO_ON;
}
