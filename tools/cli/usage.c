/* SPDX-License-Identifier: Apache-2.0
 * Prints the help and the completion script of a program from its table of options. */
#include "tools/cli/program.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Returns the next choice, or NULL after the last one. */
static const char *next_choice(const char *choice)
{
    size_t length = tx_choice_length(choice);
    return choice[length] ? choice + length + 1 : NULL;
}

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
        for (const char *choice = option->choices; choice; choice = next_choice(choice), set >>= 1)
            if (set & 1 && used < size)
                used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? "," : " (default ",
                                         (int)tx_choice_length(choice), choice);
        if (used && used < size)
            snprintf(text + used, size - used, ")");
    }
}

/* ---- help ----------------------------------------------------------------------------------- */

static const tx_option common[] = {
    {TX_OPTION_FLAG, "help", .help = "print this help"},
    {TX_OPTION_FLAG, "version", .help = "print the version"},
    {TX_OPTION_TEXT, "completion", .choices = "bash", .help = "print the completion script for bash"},
};
enum { COMMON = sizeof common / sizeof common[0] };

/* Writes all spellings of an option: "-n, --name". */
static void spellings(const tx_cli *program, const tx_option *option, char *text, size_t size)
{
    size_t used = 0;
    for (int32_t i = 0; i < program->spelling_count && used < size; i++)
        if (strcmp(program->spellings[i].name, option->name) == 0)
            used += (size_t)snprintf(text + used, size - used, "%s, ", program->spellings[i].spelled);
    if (used < size)
        snprintf(text + used, size - used, "%s%s", option->name[1] ? "--" : "-", option->name);
}

#define HELP_COLUMN 32
#define HELP_WIDTH 110

/* Prints a heading with a capital letter and a colon, by which help2man recognizes headings. */
static void help_heading(const char *text)
{
    const size_t length = strlen(text);
    printf("\n%c%s%s\n", toupper((unsigned char)text[0]), text + 1, text[length - 1] == ':' ? "" : ":");
}

/* Prints a name and its description, with lines broken between words. */
static void help_entry(const char *name, const char *value, bool optional, const char *help, const char *standard)
{
    char head[256], all[1024];
    snprintf(head, sizeof head, "%s%s%s%s", name,
             !value     ? ""
             : optional ? " ["
                        : " ",
             value ? value : "", value && optional ? "]" : "");
    snprintf(all, sizeof all, " %s%s", help, standard);
    size_t column = (size_t)printf("  %-*s", HELP_COLUMN - 2, head);
    bool full = column > HELP_COLUMN || strlen(head) == HELP_COLUMN - 2; /* at least two spaces must follow the name */
    for (const char *text = all; *text;) {
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

static void print_commands(const tx_cli *program)
{
    for (int32_t i = 0; i < program->command_count; i++)
        help_entry(program->commands[i].name, NULL, false, program->commands[i].help, "");
}

static void print_options(const tx_cli *program, const tx_option *options, int32_t count, const void *values)
{
    for (int32_t i = 0; i < count; i++) {
        const tx_option *option = &options[i];
        char name[128], standard[256];
        if (option->kind == TX_OPTION_HEADING) {
            help_heading(option->help);
            continue;
        }
        if (option->kind == TX_OPTION_FOREIGN)
            continue;
        spellings(program, option, name, sizeof name);
        default_text(option, values, standard, sizeof standard);
        help_entry(name, option->choices, option->kind == TX_OPTION_OPTIONAL, option->help, standard);
    }
}

static void print_help(const tx_cli *program, const void *values)
{
    printf("Usage: %s\n\n%s\n", program->usage, program->about);
    if (program->command_count)
        help_heading("commands");
    print_commands(program);
    if (program->count && program->options[0].kind != TX_OPTION_HEADING)
        help_heading("options");
    print_options(program, program->options, program->count, values);
    help_heading("common options");
    print_options(program, common, COMMON, NULL);
}

/* ---- completion for bash ------------------------------------------------------------------------------ */

/* The script reads commands, options and their values from the program's help. @ is replaced by the program's name. */
static const char script[] =
    "# bash completion of @ " TX_VERSION ", written by @ --completion bash\n"
    "_@_complete()\n"
    "{\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} equals=\n"
    "    local command= commands line spelled value choice options= words= files=-f\n"
    "    COMPREPLY=()\n"
    "    # bash splits --name=value into three words.\n"
    "    if [[ $word == \"=\" ]]; then\n"
    "        word= equals=1\n"
    "    elif [[ $before == \"=\" ]]; then\n"
    "        before=${COMP_WORDS[COMP_CWORD - 2]} equals=1\n"
    "    fi\n"
    "    before=${before//-/_}\n"
    "    commands=$(\"${COMP_WORDS[0]}\" --help | sed -n '/^Commands:$/,/^$/s/^  \\([a-z]*\\) .*/\\1/p')\n"
    "    [ -z \"$commands\" ] || command=${COMP_WORDS[1]}\n"
    "    if [ -n \"$commands\" ] && [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        words=\"$commands --help --version --completion\" files=\n"
    "    else\n"
    "        while IFS= read -r line; do # \"  -n, --name VALUE  text\"\n"
    "            [[ $line == \"  -\"* ]] || continue\n"
    "            line=${line:2} line=${line%%  *}\n"
    "            spelled=${line%% [^-]*} value=${line#\"${line%% [^-]*}\"}\n"
    "            options+=\"${spelled##*, } \"\n"
    "            [[ \", ${spelled//-/_},\" == *\", $before,\"* ]] || continue\n"
    "            # The value of a flag is offered only after =, because it is optional.\n"
    "            [ -n \"$value\" ] || { [ -n \"$equals\" ] && value=' true|false' || continue; }\n"
    "            [[ $value == ' ['* && $word == -* ]] && continue\n"
    "            files=\n"
    "            [[ $value == *DIR* ]] && files=-d\n"
    "            [[ $value == *FILE* ]] && files=-f\n"
    "            for choice in ${value//|/ }; do\n"
    "                [[ $choice =~ ^[a-z0-9_.-]+$ ]] && words+=\"$choice \"\n"
    "            done\n"
    "            equals=found\n"
    "            break\n"
    "        done < <(\"${COMP_WORDS[0]}\" $command --help)\n"
    "        if [[ $equals != found && $word == -* ]]; then\n"
    "            word=${word//-/_} words=$options files=\n"
    "            word=--${word#__} word=${word/#--_/--}\n"
    "        fi\n"
    "    fi\n"
    "    while IFS= read -r line; do\n"
    "        COMPREPLY+=(\"$line\")\n"
    "    done < <(compgen $files -W \"$words\" -- \"$word\")\n"
    "    [ -z \"$files\" ] || compopt -o filenames 2> /dev/null\n"
    "}\n"
    "complete -F _@_complete @\n";

static void print_completion(const tx_cli *program)
{
    for (const char *at = script; *at; at++)
        fputs(*at == '@' ? program->name : (char[]){*at, '\0'}, stdout);
}

/* ---- requests ------------------------------------------------------------------------------------------ */

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
        else if (shell && strcmp(shell, "bash") == 0)
            print_completion(program);
        else if (shell)
            return tx_complain(program, TX_EXIT_USAGE, "--completion %s: unsupported shell: give bash", shell);
        else
            continue;
        return tx_end(program, 0);
    }
    return TX_GO_ON;
}
