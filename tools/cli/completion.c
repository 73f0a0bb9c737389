/* SPDX-License-Identifier: Apache-2.0
 * Prints the completion script of a program for bash, zsh and fish. */
#include "tools/cli/program.h"

#include <stdio.h>
#include <string.h>

/* ---- bash --------------------------------------------------------------------------------------------- */

/* The script reads commands, options and their values from the program's help. @ is replaced by the program's name. */
static const char bash[] =
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
    "    commands=$(COLUMNS=9999 \"${COMP_WORDS[0]}\" --help all | sed -n '/^Commands:$/,/^$/s/^  \\([a-z]*\\) "
    ".*/\\1/p')\n"
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
    "        done < <(COLUMNS=9999 \"${COMP_WORDS[0]}\" $command --help all)\n"
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

/* Prints a script, with the program's name for every @. */
static void print_script(const tx_cli *program, const char *script)
{
    for (const char *at = script; *at; at++)
        fputs(*at == '@' ? program->name : (char[]){*at, '\0'}, stdout);
}

/* ---- the table of options, for zsh and fish ---------------------------------------------------------------- */

/* Prints the first sentence of a help text inside single quotes, with \\ before the characters in `special`. zsh ends
 * the quotes for a quote of the text. */
static void print_quoted(const char *text, const char *special)
{
    const char *end = strstr(text, ". ");
    for (size_t length = end ? (size_t)(end - text) : strlen(text); length > 0; length--, text++)
        if (*text == '\'' && !strchr(special, '\''))
            fputs("'\\''", stdout);
        else
            printf("%s%c", strchr(special, *text) ? "\\" : "", *text);
}

/* Prints the words of an option's value that a shell offers: those in lower case of "cpu|opencl|opencl:N". `before`
 * comes before the first one. Returns false if there is none. */
static bool print_words(const tx_option *option, const char *special, const char *before)
{
    static const char lower[] = "abcdefghijklmnopqrstuvwxyz0123456789_.-";
    const char *blank = before;
    for (const char *word = option->choices; word && *word;) {
        const size_t length = tx_choice_length(word);
        if (strspn(word, lower) >= length && length > 0) {
            fputs(blank, stdout);
            for (size_t i = 0; i < length; i++)
                printf("%s%c", strchr(special, word[i]) ? "\\" : "", word[i]);
            blank = " ";
        }
        word += length + (word[length] == '|');
    }
    return blank != before;
}

/* A shell's way to write one option, spelled "--name" or "-n", of a command; `command` is NULL if there is none. */
typedef void print_option(const tx_cli *program, const char *command, const tx_option *option, const char *spelled);

static void each_option(const tx_cli *program, const char *command, print_option *print)
{
    char name[128];
    for (int32_t i = 0; i < program->count + tx_common_option_count; i++) {
        const tx_option *option = i < program->count ? &program->options[i] : &tx_common_options[i - program->count];
        if (option->kind == TX_OPTION_HEADING || option->kind == TX_OPTION_FOREIGN)
            continue;
        snprintf(name, sizeof name, "%s%s", option->name[1] ? "--" : "-", option->name);
        print(program, command, option, name);
        for (int32_t s = 0; s < program->spelling_count; s++)
            if (strcmp(program->spellings[s].name, option->name) == 0)
                print(program, command, option, program->spellings[s].spelled);
    }
}

static bool takes_value(const tx_option *option)
{
    return option->kind != TX_OPTION_FLAG && option->kind != TX_OPTION_OPTIONAL;
}

static bool names_files(const tx_option *option, const char *kind)
{
    return option->choices && strstr(option->choices, kind);
}

/* ---- fish ----------------------------------------------------------------------------------------------------- */

#define FISH_SPECIAL "'\\"

static void print_fish(const tx_cli *program, const char *command, const tx_option *option, const char *spelled)
{
    const char *kind = spelled[1] == '-' ? "l" : spelled[2] ? "o" : "s";
    printf("complete -c %s", program->name);
    if (command)
        printf(" -n '__fish_seen_subcommand_from %s'", command);
    printf(" -%s %s", kind, spelled + 1 + (spelled[1] == '-'));
    if (takes_value(option))
        printf(names_files(option, "FILE")  ? " -rF"
               : names_files(option, "DIR") ? " -xa '(__fish_complete_directories)'"
                                            : " -x");
    if (takes_value(option) && print_words(option, FISH_SPECIAL, " -a '"))
        putchar('\'');
    fputs(" -d '", stdout);
    print_quoted(option->help, FISH_SPECIAL);
    puts("'");
}

static void print_fish_script(const tx_cli *program)
{
    print_script(program, "# fish completion of @ " TX_VERSION ", written by @ --completion fish\n");
    if (program->command_count)
        printf("complete -c %s -n __fish_use_subcommand -f\n", program->name);
    for (int32_t i = 0; i < program->command_count; i++) {
        const tx_cli_command *c = &program->commands[i];
        printf("complete -c %s -n __fish_use_subcommand -a %s -d '", program->name, c->name);
        print_quoted(c->help, FISH_SPECIAL);
        puts("'");
        each_option(c->program ? c->program : program, c->name, print_fish);
    }
    if (!program->command_count)
        each_option(program, NULL, print_fish);
}

/* ---- zsh ------------------------------------------------------------------------------------------------------ */

#define ZSH_SPECIAL "[]:\\"

static void print_zsh(const tx_cli *program, const char *command, const tx_option *option, const char *spelled)
{
    (void)program;
    (void)command;
    printf(" \\\n        '*%s%s[", spelled, takes_value(option) ? (spelled[1] == '-' ? "=" : "+") : "");
    print_quoted(option->help, ZSH_SPECIAL);
    putchar(']');
    if (takes_value(option)) {
        fputs(":value:", stdout);
        if (names_files(option, "FILE") || names_files(option, "DIR"))
            fputs(names_files(option, "FILE") ? "_files" : "_files -/", stdout);
        else
            fputs(print_words(option, ZSH_SPECIAL, "(") ? ")" : " ", stdout);
    }
    putchar('\'');
}

static void print_zsh_options(const tx_cli *program)
{
    fputs("    _arguments", stdout);
    each_option(program, NULL, print_zsh);
    puts(" \\\n        '*:file:_files'");
}

static void print_zsh_script(const tx_cli *program)
{
    print_script(program, "#compdef @\n# zsh completion of @ " TX_VERSION ", written by @ --completion zsh\n_@()\n{\n");
    if (program->command_count) {
        puts("    if ((CURRENT == 2)); then\n        _values command \\");
        for (int32_t i = 0; i < program->command_count; i++) {
            printf("            '%s[", program->commands[i].name);
            print_quoted(program->commands[i].help, ZSH_SPECIAL);
            puts("]' \\");
        }
        puts("            --help --version --completion\n        return\n    fi\n    shift words\n    ((CURRENT--))\n"
             "    case $words[1] in");
        for (int32_t i = 0; i < program->command_count; i++) {
            printf("    %s)\n", program->commands[i].name);
            print_zsh_options(program->commands[i].program ? program->commands[i].program : program);
            puts("    ;;");
        }
        puts("    esac");
    } else
        print_zsh_options(program);
    /* The file may be sourced, or lie in a folder of fpath, where zsh calls it as a function. */
    print_script(program, "}\nif [[ $funcstack[1] == _@ ]]; then\n    _@ \"$@\"\nelse\n    compdef _@ @\nfi\n");
}

int tx_print_completion(const tx_cli *program, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        print_script(program, bash);
    else if (strcmp(shell, "zsh") == 0)
        print_zsh_script(program);
    else if (strcmp(shell, "fish") == 0)
        print_fish_script(program);
    else
        return tx_complain(program, TX_EXIT_USAGE, "--completion %s: unsupported shell: give bash, zsh or fish", shell);
    return 0;
}
