/* SPDX-License-Identifier: Apache-2.0
 * Completion in bash, zsh and fish. The script of a shell runs "PROGRAM --completion words WORD...", with the words of
 * the command line up to the one at the cursor. The answer has a line for each word that fits there, with a description
 * after a tab. The lines :files and :folders stand for names that the shell lists itself. */
#include "tools/cli/program.h"

#include <stdio.h>
#include <string.h>

/* ---- Scripts -------------------------------------------------------------------------------------------- */

/* & is replaced by the program's name. */
static const char bash[] = "# bash completion of & " TX_VERSION ", written by & --completion bash\n"
                           "_&_complete()\n"
                           "{\n"
                           "    local line names= word=${COMP_WORDS[COMP_CWORD]}\n"
                           "    COMPREPLY=()\n"
                           "    while IFS= read -r line; do\n"
                           "        case $line in\n"
                           "            :files) names=-f ;;\n"
                           "            :folders) names=-d ;;\n"
                           "            *) COMPREPLY+=(\"${line%%$'\\t'*}\") ;;\n"
                           "        esac\n"
                           "    done < <(\"${COMP_WORDS[0]}\" --completion words \"${COMP_WORDS[@]:1:COMP_CWORD}\")\n"
                           "    [ -n \"$names\" ] || return 0\n"
                           "    while IFS= read -r line; do\n"
                           "        COMPREPLY+=(\"$line\")\n"
                           "    done < <(compgen $names -- \"${word#=}\")\n"
                           "    compopt -o filenames 2> /dev/null\n"
                           "}\n"
                           "complete -F _&_complete &\n";

/* The file may be sourced, or be in a folder of fpath, where zsh calls it as a function. */
static const char zsh[] = "#compdef &\n"
                          "# zsh completion of & " TX_VERSION ", written by & --completion zsh\n"
                          "_&()\n"
                          "{\n"
                          "    local line\n"
                          "    local -a lines found\n"
                          "    lines=(\"${(@f)$(${~words[1]} --completion words \"${(@Q)words[2,CURRENT]}\")}\")\n"
                          "    compset -P '--*='\n"
                          "    for line in $lines; do\n"
                          "        case $line in\n"
                          "            :files) _files ;;\n"
                          "            :folders) _files -/ ;;\n"
                          "            *) line=${line//:/\\\\:} found+=(\"${line/$'\\t'/:}\") ;;\n"
                          "        esac\n"
                          "    done\n"
                          "    (($#found == 0)) || _describe word found\n"
                          "}\n"
                          "if [[ $funcstack[1] == _& ]]; then\n"
                          "    _& \"$@\"\n"
                          "else\n"
                          "    compdef _& &\n"
                          "fi\n";

static const char fish[] = "# fish completion of & " TX_VERSION ", written by & --completion fish\n"
                           "function __&_complete\n"
                           "    set -l words (commandline -opc) (commandline -ct)\n"
                           "    set -l name (string match -r -- '^--[^=]*=' $words[-1])\n"
                           "    set -l value (string replace -- \"$name\" '' $words[-1])\n"
                           "    for line in ($words[1] --completion words $words[2..-1])\n"
                           "        switch $line\n"
                           "            case :files\n"
                           "                printf '%s\\n' \"$name\"(__fish_complete_path $value)\n"
                           "            case :folders\n"
                           "                printf '%s\\n' \"$name\"(__fish_complete_directories $value)\n"
                           "            case '*'\n"
                           "                printf '%s\\n' \"$name$line\"\n"
                           "        end\n"
                           "    end\n"
                           "end\n"
                           "complete -c & -f -a '(__&_complete)'\n";

static void print_script(const tx_cli *program, const char *script)
{
    for (const char *at = script; *at; at++)
        fputs(*at == '&' ? program->name : (char[]){*at, '\0'}, stdout);
}

/* ---- Words ---------------------------------------------------------------------------------------------- */

static char plain(char c)
{
    return (char)(c == '-' ? '_' : c);
}

/* Prints a word with the first sentence of its help if it continues the typed text. - and _ are the same. */
static void offer(const char *typed, const char *word, size_t length, const char *help)
{
    const char *end = strstr(help, ". ");
    for (size_t i = 0; typed[i]; i++)
        if (i == length || plain(typed[i]) != plain(word[i]))
            return;
    printf("%.*s%s%.*s\n", (int)length, word, *help ? "\t" : "", end ? (int)(end - help) : (int)strlen(help), help);
}

/* Offers the spellings of the options of a table. */
static void offer_options(const tx_option_table *table, const char *typed)
{
    char name[128];
    for (int32_t n = 0; n < table->count; n++) {
        const tx_option *o = &table->option[n];
        if (!tx_option_has_value(o))
            continue;
        snprintf(name, sizeof name, "%s%s", o->name[1] ? "--" : "-", o->name);
        offer(typed, name, strlen(name), o->help);
        for (int32_t i = 0; i < table->spelling_count; i++)
            if (strcmp(table->spelling[i].name, o->name) == 0)
                offer(typed, table->spelling[i].spelled, strlen(table->spelling[i].spelled), o->help);
    }
}

/* Offers the words in lower case of "cpu|opencl|opencl:N", and files or folders. */
static void offer_values(const char *choices, const char *typed)
{
    static const char lower[] = "abcdefghijklmnopqrstuvwxyz0123456789_.-";
    for (const char *word = choices; word; word = tx_choice_next(word))
        if (*word && strspn(word, lower) >= tx_choice_length(word))
            offer(typed, word, tx_choice_length(word), "");
    if (choices && (strstr(choices, "FILE") || strstr(choices, "DIR")))
        puts(strstr(choices, "FILE") ? ":files" : ":folders");
}

/* Finds the option that a word of the command line names: --name, --name=value or -n. */
static const tx_option *find(const tx_option_table *table, const char *word)
{
    const char *name = word + strspn(word, "-");
    for (int32_t i = 0; i < table->spelling_count; i++)
        if (strcmp(table->spelling[i].spelled, word) == 0)
            name = table->spelling[i].name;
    const tx_option *option = *word == '-' ? tx_option_find(table, name) : NULL;
    return option && tx_option_has_value(option) ? option : NULL;
}

/* Offers the values of an option after its name, options after "-", and files otherwise. */
static void offer_arguments(const tx_option_table *own, const char *before, const char *typed, bool equals)
{
    const tx_option *found = find(own, before), *option = found ? found : find(&tx_common_options, before);
    const bool flag = option && option->kind == TX_OPTION_FLAG; /* its value is optional, so it is offered after = */
    if (option && (flag ? equals : option->kind != TX_OPTION_OPTIONAL || *typed != '-')) {
        offer_values(flag ? "true|false" : option->choices, typed);
    } else if (*typed == '-') {
        offer_options(own, typed);
        offer_options(&tx_common_options, typed);
    } else {
        puts(":files");
    }
}

static void offer_words(const tx_cli *program, int count, char *const *words)
{
    const char *typed = count > 0 ? words[count - 1] : "", *before = count > 1 ? words[count - 2] : "";
    const char *value = *typed == '-' ? strchr(typed, '=') : NULL;
    const tx_cli *chosen = program;
    for (int32_t i = 0; i < program->command_count; i++)
        if (count < 2)
            offer(typed, program->commands[i].name, strlen(program->commands[i].name), program->commands[i].help);
        else if (program->commands[i].program && strcmp(program->commands[i].name, words[0]) == 0)
            chosen = program->commands[i].program;
    const tx_option_table *own = &chosen->table;
    if (program->command_count && count < 2)
        offer_options(&tx_common_options, typed);
    else if (value)
        offer_arguments(own, typed, value + 1, true);
    else if (*typed == '=') /* bash splits --name=value into three words */
        offer_arguments(own, before, typed + 1, true);
    else if (strcmp(before, "=") == 0 && count > 2)
        offer_arguments(own, words[count - 3], typed, true);
    else
        offer_arguments(own, before, typed, false);
}

int tx_print_completion(const tx_cli *program, const char *shell, int count, char *const *words)
{
    const char *script = strcmp(shell, "bash") == 0   ? bash
                         : strcmp(shell, "zsh") == 0  ? zsh
                         : strcmp(shell, "fish") == 0 ? fish
                                                      : NULL;
    if (strcmp(shell, "words") == 0)
        offer_words(program, count, words);
    else if (script)
        print_script(program, script);
    else
        return tx_complain(program, TX_EXIT_USAGE, "--completion %s: unsupported shell: give bash, zsh or fish", shell);
    return 0;
}
