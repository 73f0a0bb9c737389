/* SPDX-License-Identifier: Apache-2.0
 * Help, manual pages and completion. */
#include "tools/cli/usage.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The next of the choices; NULL after the last. */
static const char *next_choice(const char *choice)
{
    size_t length = tx_choice_length(choice);
    return choice[length] ? choice + length + 1 : NULL;
}

/* Writes the default as " (default 8)"; "" where there is none. */
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
        for (const char *choice = option->choices; choice; choice = next_choice(choice), set >>= 1)
            if (set & 1 && used < size)
                used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? "," : " (default ",
                                         (int)tx_choice_length(choice), choice);
        if (used && used < size)
            snprintf(text + used, size - used, ")");
    }
}

/* ---- help ----------------------------------------------------------------------------------- */

#define HELP_COLUMN 32
#define HELP_WIDTH 110

/* Prints a name and its explanation (which begins with a space), broken between words. */
static void print_entry(const char *head, const char *text)
{
    size_t column = (size_t)printf("  %-*s", HELP_COLUMN - 2, head);
    bool full = column > HELP_COLUMN;
    while (*text) {
        size_t word = 1 + strcspn(text + 1, " ");
        if (full || column + word > HELP_WIDTH) {
            printf("\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            full = false;
        }
        printf("%.*s", (int)word, text);
        column += word;
        text += word;
    }
    putchar('\n');
}

/* "-n, --name". */
static void spellings(const tx_cli *program, const tx_option *option, char *text, size_t size)
{
    size_t used = 0;
    for (int32_t i = 0; i < program->spelling_count && used < size; i++)
        if (strcmp(program->spellings[i].name, option->name) == 0)
            used += (size_t)snprintf(text + used, size - used, "%s, ", program->spellings[i].spelled);
    if (used < size)
        snprintf(text + used, size - used, "%s%s", option->name[1] ? "--" : "-", option->name);
}

/* "-n, --name VALUE". */
static void option_head(const tx_cli *program, const tx_option *option, char *text, size_t size)
{
    const bool optional = option->kind == TX_OPTION_OPTIONAL;
    spellings(program, option, text, size);
    const size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s%s", option->choices ? optional ? " [" : " " : "",
             option->choices ? option->choices : "", option->choices && optional ? "]" : "");
}

static void print_help(const tx_cli *program, const void *values)
{
    printf("usage: %s\n\n%s\n", program->usage, program->about);
    if (program->command_count)
        printf("\ncommands\n");
    for (int32_t i = 0; i < program->command_count; i++) {
        char text[1024];
        snprintf(text, sizeof text, " %s", program->commands[i].help);
        print_entry(program->commands[i].name, text);
    }
    if (program->command_count && program->count && program->options[0].kind != TX_OPTION_HEADING)
        printf("\noptions\n");
    for (int32_t i = 0; i < program->count; i++) {
        const tx_option *option = &program->options[i];
        char head[128], value[256], text[1024];
        if (option->kind == TX_OPTION_HEADING) {
            printf("\n%s\n", option->help);
            continue;
        }
        if (option->kind == TX_OPTION_FOREIGN)
            continue;
        option_head(program, option, head, sizeof head);
        default_text(option, values, value, sizeof value);
        snprintf(text, sizeof text, " %s%s", option->help, value);
        print_entry(head, text);
    }
    putchar('\n');
    print_entry("--help", " print this");
    print_entry("--version", " print the version");
    print_entry("--man", " print the manual page");
    print_entry("--completion bash", " print the completion script of that shell");
}

/* ---- the manual page ------------------------------------------------------------------------------ */

/* Prints text so that roff takes it as it stands; a new line stays one. */
static void roff(const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        start = *text == '\n';
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '|') /* a list of words may go on in the next line */
            fputs("|\\:", stdout);
        else
            putchar(*text);
    }
}

static void roff_bold(const char *text)
{
    fputs("\\fB", stdout);
    roff(text);
    fputs("\\fR", stdout);
}

/* A text of paragraphs and of lines that begin with blanks, which stay as they are. */
static void roff_paragraphs(const char *text)
{
    bool filled = true;
    while (*text) {
        size_t length = strcspn(text, "\n");
        bool fill = *text != ' ';
        if (fill != filled)
            puts(fill ? ".fi" : ".nf");
        filled = fill;
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        roff(line);
        putchar('\n');
        text += length + (text[length] == '\n');
    }
    if (!filled)
        puts(".fi");
}

static void roff_options(const tx_cli *program, const void *values)
{
    for (int32_t i = 0; i < program->count; i++) {
        const tx_option *option = &program->options[i];
        char value[256];
        if (option->kind == TX_OPTION_HEADING) {
            fputs(".SS ", stdout);
            roff(option->help);
            putchar('\n');
            continue;
        }
        if (option->kind == TX_OPTION_FOREIGN)
            continue;
        fputs(".TP\n\\fB", stdout);
        spellings(program, option, value, sizeof value);
        roff(value);
        fputs("\\fR", stdout);
        if (option->choices) {
            fputs(option->kind == TX_OPTION_OPTIONAL ? " [\\fI" : " \\fI", stdout);
            roff(option->choices);
            fputs(option->kind == TX_OPTION_OPTIONAL ? "\\fR]" : "\\fR", stdout);
        }
        putchar('\n');
        roff(option->help);
        default_text(option, values, value, sizeof value);
        roff(value);
        putchar('\n');
    }
}

/* The page's one-line description: what the program is about, up to the first full stop or colon. */
static void roff_name(const tx_cli *program)
{
    char line[256];
    size_t length = strcspn(program->about, ".:");
    snprintf(line, sizeof line, "%.*s", (int)length, program->about);
    line[0] = (char)tolower((unsigned char)line[0]);
    for (char *at = line; *at; at++)
        *at = *at == '\n' ? ' ' : *at;
    puts(".SH NAME");
    roff(program->name);
    fputs(" \\- ", stdout);
    roff(line);
    putchar('\n');
}

static void print_man(const tx_cli *program, const void *values)
{
    fputs(".TH ", stdout);
    for (const char *at = program->name; *at; at++)
        putchar(toupper((unsigned char)*at));
    printf(" 1 \"\" \"TX %s\" \"TX\"\n.ad l\n", TX_VERSION); /* words of choices are long to adjust */
    roff_name(program);
    puts(".SH SYNOPSIS");
    roff_bold(program->usage);
    puts("\n.SH DESCRIPTION");
    roff_paragraphs(program->about);
    if (program->command_count)
        puts(".SH COMMANDS");
    for (int32_t i = 0; i < program->command_count; i++) {
        fputs(".TP\n", stdout);
        roff_bold(program->commands[i].name);
        putchar('\n');
        roff(program->commands[i].help);
        putchar('\n');
    }
    if (program->count)
        puts(".SH OPTIONS");
    roff_options(program, values);
    for (int32_t i = 0; i < program->command_count; i++) {
        const tx_cli_command *command = &program->commands[i];
        if (!command->program)
            continue;
        fputs(".SH OPTIONS OF ", stdout);
        roff(command->name);
        putchar('\n');
        roff_paragraphs(command->program->about);
        putchar('\n');
        roff_options(command->program, command->program->values);
    }
    puts(".SH COMMON OPTIONS");
    puts(".TP\n\\fB\\-\\-help\\fR\nPrint the help.");
    puts(".TP\n\\fB\\-\\-version\\fR\nPrint the version.");
    puts(".TP\n\\fB\\-\\-man\\fR\nPrint this page.");
    puts(".TP\n\\fB\\-\\-completion\\fR \\fIbash\\fR\nPrint the completion script of that shell.");
    puts(".SH NOTES\nIn names of options \\- and _ are the same; a value follows after a blank or after =.");
    if (!program->operand && !program->command_count)
        puts("The first argument may be a JSON file of options, {\"option\": value, ...}; options after it win.");
    puts(".SH EXIT STATUS\n0: done. 1: it failed, and a message says why. 2: wrong usage.");
}

/* ---- completion for bash ------------------------------------------------------------------------------ */

/* The words of `choices` that are in lower case. */
static void print_words(const tx_option *option)
{
    bool literal = option->kind == TX_OPTION_CHOICE || option->kind == TX_OPTION_LIST;
    for (const char *choice = option->choices; choice; choice = next_choice(choice)) {
        size_t length = tx_choice_length(choice);
        bool word = true;
        for (size_t i = 0; i < length && !literal; i++)
            word = word &&
                   (islower((unsigned char)choice[i]) || isdigit((unsigned char)choice[i]) || strchr("-_.", choice[i]));
        if (word)
            printf("%.*s ", (int)length, choice);
    }
}

/* One branch for each option that takes a value: what may follow it. */
static void print_values(const tx_cli *program)
{
    puts("    case $before in");
    for (int32_t i = 0; i < program->count; i++) {
        const tx_option *option = &program->options[i];
        if (!tx_option_has_value(option))
            continue;
        bool given = option->kind != TX_OPTION_FLAG && option->kind != TX_OPTION_OPTIONAL;
        const char *choices = option->choices ? option->choices : "";
        if (option->kind == TX_OPTION_FLAG) {
            /* Only after = : a flag's value may be left out. */
            printf("    __%s) [ \"$equals\" ] && { _%s_words \"true false\"; return; } ;;\n", option->name,
                   program->name);
            continue;
        }
        printf("    %s%s) ", option->name[1] ? "__" : "_", option->name);
        if (!given)
            printf("[[ $word != -* ]] && { ");
        printf("_%s_words \"", program->name);
        print_words(option);
        printf("\" %s", strstr(choices, "FILE") ? "-f" : strstr(choices, "DIR") ? "-d" : "");
        puts(given ? "; return ;;" : "; return; } ;;");
    }
    puts("    esac");
}

static void print_names(const tx_cli *program)
{
    for (int32_t i = 0; i < program->count; i++)
        if (tx_option_has_value(&program->options[i]))
            printf("%s%s ", program->options[i].name[1] ? "--" : "-", program->options[i].name);
    printf("--help --version --man --completion");
}

/* The body that completes options, their values and operands of one table. */
static void print_body(const tx_cli *program, const char *function)
{
    const char *operand = program->operand ? program->operand : "";
    printf("_%s()\n{\n", function);
    print_values(program);
    printf("    if [[ $word == -* ]]; then\n        word=${word//-/_}\n        word=--${word#__}\n"
           "        word=${word/#--_/--}\n        _%s_words \"",
           program->name);
    print_names(program);
    printf("\"\n    else\n        _%s_words \"\" %s\n    fi\n}\n", program->name,
           strstr(operand, "DIR") && !strstr(operand, "FILE") ? "-d" : "-f");
}

static void print_completion(const tx_cli *program)
{
    const char *name = program->name;
    printf("# bash completion of %s %s, written by %s --completion bash\n", name, TX_VERSION, name);
    printf("_%s_words() # \"WORD...\" [-f|-d]: those words, and files or folders, that begin as $word does\n{\n"
           "    local found\n    while IFS= read -r found; do\n        COMPREPLY+=(\"$found\")\n"
           "    done < <(compgen ${2:+\"$2\"} -W \"$1\" -- \"$word\")\n"
           "    [ -z \"$2\" ] || compopt -o filenames 2> /dev/null\n}\n",
           name);
    print_body(program, name[0] ? name : "tx");
    for (int32_t i = 0; i < program->command_count; i++)
        if (program->commands[i].program) {
            char function[128];
            tx_cli own = *program->commands[i].program;
            own.name = name;
            snprintf(function, sizeof function, "%s_%s", name, program->commands[i].name);
            print_body(&own, function);
        }
    printf("_%s_complete()\n{\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} equals=\n"
           "    COMPREPLY=()\n"
           "    # bash takes --name=value for three words.\n"
           "    if [[ $word == \"=\" ]]; then\n        word= equals=1\n"
           "    elif [[ $before == \"=\" ]]; then\n        before=${COMP_WORDS[COMP_CWORD - 2]} equals=1\n    fi\n"
           "    before=${before//-/_}\n",
           name);
    printf("    [[ $before == __completion ]] && { _%s_words bash; return; }\n", name);
    if (program->command_count) {
        printf("    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        _%s_words \"", name);
        for (int32_t i = 0; i < program->command_count; i++)
            printf("%s ", program->commands[i].name);
        puts("--help --version --man --completion\"\n        return\n    fi\n    case ${COMP_WORDS[1]} in");
        for (int32_t i = 0; i < program->command_count; i++)
            if (program->commands[i].program)
                printf("    %s) _%s_%s; return ;;\n", program->commands[i].name, name, program->commands[i].name);
        puts("    esac");
    }
    printf("    _%s\n}\ncomplete -F _%s_complete %s\n", name, name, name);
}

/* ---- what was asked for -------------------------------------------------------------------------------- */

int tx_usage_answer(const tx_cli *program, int argc, char *const *argv, const void *values)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *shell = strncmp(argv[i], "--completion=", 13) == 0 ? argv[i] + 13
                            : strcmp(argv[i], "--completion") == 0     ? i + 1 < argc ? argv[i + 1] : ""
                                                                       : NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            print_help(program, values);
        else if (strcmp(argv[i], "--version") == 0)
            printf("%s %s\n", program->name, TX_VERSION);
        else if (strcmp(argv[i], "--man") == 0)
            print_man(program, values);
        else if (shell && strcmp(shell, "bash") == 0)
            print_completion(program);
        else if (shell)
            return tx_complain(program, TX_EXIT_USAGE, "--completion %s: there is one for bash", shell);
        else
            continue;
        return fflush(stdout) || ferror(stdout) ? tx_complain(program, TX_EXIT_FAILURE, "standard output: cannot write")
                                                : 0;
    }
    return TX_GO_ON;
}
