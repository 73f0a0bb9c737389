/* SPDX-License-Identifier: Apache-2.0
 * Reads the command's options about its output folder, and finds whether the folder has an earlier run. */
#include "tools/launch/txlaunch.h"
#include "tx_folder.h"
#include "tx_json.h"
#include "tx_train.h"

#include <stdlib.h>
#include <string.h>

/* Returns the rest of `word` after --NAME, "" or "=...", or NULL if it is another word. - and _ are the same. */
static const char *option_value(const char *word, const char *name)
{
    if (strncmp(word, "--", 2) != 0)
        return NULL;
    for (word += 2; *name; word++, name++)
        if (*word != *name && !(*word == '-' && *name == '_'))
            return NULL;
    return *word == 0 || *word == '=' ? word : NULL;
}

static tx_status set_folder(tx_launch_output *output, const char *folder)
{
    char *copy = strdup(folder);
    if (!copy)
        return tx_fail(TX_MEMORY, "%s: out of memory", folder);
    free(output->folder);
    output->folder = copy;
    return TX_OK;
}

/* Interprets a value of --resume_from_checkpoint. */
static tx_launch_resumption resumption_of(const char *value)
{
    if (strcmp(value, "False") == 0 || strcmp(value, "false") == 0)
        return TX_LAUNCH_FRESH;
    return !*value || strcmp(value, "True") == 0 || strcmp(value, "true") == 0 ? TX_LAUNCH_NEWEST : TX_LAUNCH_NAMED;
}

/* Reads the options from a JSON file. Errors are ignored here: the command itself reports them. */
static tx_status read_options(const char *path, tx_launch_output *output)
{
    tx_json *json = NULL;
    const char *folder = NULL, *checkpoint = "";
    bool resumes = true;
    tx_status status = TX_OK;
    if (tx_option_file(path, &json))
        return TX_OK;
    if (tx_json_type_of(json) == TX_JSON_OBJECT) {
        output->overwrites = output->overwrites || tx_json_has(json, "overwrite_output_dir");
        tx_json_get_bool(json, "resume_from_checkpoint", &resumes);
        tx_json_get_string(json, "resume_from_checkpoint", &checkpoint);
        if (resumes && tx_json_has(json, "resume_from_checkpoint"))
            output->resumes = resumption_of(checkpoint);
        if (!tx_json_get_string(json, "output_dir", &folder))
            status = set_folder(output, folder);
    }
    tx_json_free(json);
    return status;
}

/* Reads an option from `word`; `next` is the next word, or NULL. */
static tx_status read_word(const char *word, const char *next, tx_launch_output *output)
{
    const char *folder = option_value(word, "output_dir"), *resume = option_value(word, "resume_from_checkpoint");
    if (option_value(word, "overwrite_output_dir"))
        output->overwrites = true;
    if (resume)
        output->resumes = resumption_of(*resume ? resume + 1 : next && *next != '-' ? next : "");
    if (folder && *folder)
        return set_folder(output, folder + 1);
    return folder && next ? set_folder(output, next) : TX_OK;
}

/* Inspects the folder before the first attempt. */
static tx_status inspect_folder(tx_launch_output *output)
{
    tx_names names = {0};
    output->vacant = tx_output_check(output->folder) == TX_OK;
    const tx_status status = tx_folder_list(output->folder, &names);
    for (size_t i = 0; i < names.count; i++)
        output->others = output->others || tx_checkpoint_step(names.name[i]) >= 0;
    tx_names_free(&names);
    return status == TX_NOT_FOUND ? TX_OK : status;
}

tx_status tx_launch_output_find(const tx_words *command, tx_launch_output *output)
{
    tx_launch_output result = {0};
    tx_status status = TX_OK;
    for (int32_t i = 1; i < command->count && !status; i++) { /* the file first: options override it */
        const char *word = command->word[i];
        if (word[0] != '-' && tx_option_is_file(word))
            status = read_options(word, &result);
    }
    for (int32_t i = 1; i < command->count && !status; i++)
        status = read_word(command->word[i], i + 1 < command->count ? command->word[i + 1] : NULL, &result);
    if (!status && result.folder)
        status = inspect_folder(&result);
    if (status)
        tx_launch_output_free(&result);
    else
        *output = result;
    return status;
}

void tx_launch_output_free(tx_launch_output *output)
{
    free(output->folder);
    *output = (tx_launch_output){0};
}
