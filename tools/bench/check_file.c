/* SPDX-License-Identifier: Apache-2.0
 * txcheck file: finds the kind of a file by its name and content, and checks whether TX can read it. */
#include "tools/bench/check_file.h"

#include "api/base/file.h"
#include "models/arch/find.h"
#include "models/files/checkpoint.h"
#include "models/gguf/gguf.h"
#include "models/lora/lora.h"
#include "models/task/instruction.h"
#include "models/tx_text.h"
#include "tools/cli/output.h"
#include "tx_file.h"
#include "tx_folder.h"
#include "tx_json.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Large enough for a tokenizer.json with a large vocabulary (tens of MB). */
#define JSON_LIMIT ((int64_t)1 << 30)

typedef struct settings {
    tx_words paths;
} settings;

const tx_cli tx_check_file_program = {
    .name = "txcheck",
    .usage = "txcheck file PATH...",
    .about =
        "Checks files and folders: weights (.safetensors, shards by their index, folders), GGUF files, config.json, "
        "tokenizers, tokens (.bin), texts and conversations (.txt, .jsonl, .json), labelled texts (.csv, .tsv, "
        ".jsonl, .parquet, .arrow), adapters, checkpoints, whole models. Prints one line for each: \"PATH: ok\" or "
        "\"PATH: "
        "reason\". A model's line also says what TX can do with it.\n"
        "Exit status: 0 if all are valid, 1 if some are not, 2 for wrong usage.",
    .operand = "FILE|DIR",
    .operands = offsetof(settings, paths),
    .operands_least = 1,
    .operands_most = INT32_MAX,
};

/* ---- Kinds --------------------------------------------------------------------------------------- */

typedef tx_status judge(const char *path);

/* Defines a check that opens and closes the file. */
#define JUDGE(kind, type, open, close)              \
    static tx_status judge_##kind(const char *path) \
    {                                               \
        type *made = NULL;                          \
        TX_TRY(open(path, &made));                  \
        close(made);                                \
        return TX_OK;                               \
    }
JUDGE(weights, tx_weights, tx_weights_open, tx_weights_close)
JUDGE(config, tx_config, tx_config_read, tx_config_free)
JUDGE(tokenizer, tx_tokenizer, tx_tokenizer_open, tx_tokenizer_free)

/* Checks that the file is a JSON object. TX reads only some or no keys of such files. */
static tx_status judge_object(const char *path)
{
    tx_json *json;
    TX_TRY(tx_json_read(path, JSON_LIMIT, &json));
    const bool object = tx_json_type_of(json) == TX_JSON_OBJECT;
    tx_json_free(json);
    return object ? TX_OK : tx_fail(TX_FORMAT, "%s: not a JSON object", path);
}

/* Returns the folder of a file. The caller frees it. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (!folder)
        tx_fail(TX_MEMORY, "%s: no memory for the name", path);
    return folder;
}

static tx_status check_tokenizer(const char *folder, const tx_config *config)
{
    tx_tokenizer *tokenizer;
    TX_TRY(tx_tokenizer_open(folder, &tokenizer));
    int64_t size = tx_tokenizer_size(tokenizer);
    tx_tokenizer_free(tokenizer);
    if (config && size > config->vocab_size)
        return tx_fail(TX_FORMAT, "%s: the tokenizer has %" PRId64 " ids, the model's vocabulary only %" PRId64, folder,
                       size, config->vocab_size);
    return TX_OK;
}

/* Checks a whole model: configuration, weights and tokenizer. */
static tx_status judge_gguf(const char *path)
{
    tx_config *config = NULL;
    tx_status status = tx_config_of_gguf(path, &config);
    TX_THEN(status, tx_arch_check(config, path));
    TX_THEN(status, check_tokenizer(path, config));
    tx_config_free(config);
    return status;
}

/* Checks only the configuration: the base model may be missing on this machine. */
static tx_status judge_adapter_config(const char *path)
{
    char *folder = folder_of(path);
    tx_lora *lora = NULL;
    const tx_status status = folder ? tx_lora_read(folder, &lora) : TX_MEMORY;
    tx_lora_free(lora);
    free(folder);
    return status;
}

static tx_status judge_manifest(const char *path)
{
    char *folder = folder_of(path);
    tx_status status = folder ? tx_checkpoint_verify(folder, NULL) : TX_MEMORY;
    free(folder);
    return status;
}

/* ---- Files ----------------------------------------------------------------------------------------- */

/* The checks of files by the ends of their names. The first match is used. */
static const struct {
    const char *end;
    bool whole; /* `end` is the whole name */
    judge *judge;
} names[] = {
    {".safetensors", false, judge_weights},
    {"_model.bin", false, judge_weights},
    {".metadata", true, judge_weights},
    {".index.json", false, judge_weights},
    {"config.json", true, judge_config},
    {TX_LORA_CONFIG, true, judge_adapter_config},
    {".gguf", false, judge_gguf},
    {"tokenizer.json", false, judge_tokenizer},
    {"vocab.json", true, judge_tokenizer},
    {"vocab.txt", true, judge_tokenizer},
    {"merges.txt", true, judge_tokenizer},
    {TX_CHECKPOINT_MANIFEST, true, judge_manifest},
    {"generation_config.json", true, judge_object},
    {"tokenizer_config.json", false, judge_object},
    {"special_tokens_map.json", true, judge_object},
    {"trainer_state.json", true, judge_object},
    {"training_args.json", true, judge_object},
    {"_results.json", false, judge_object},
    {"added_tokens.json", true, judge_object},
    {".bin", false, tx_check_text},
    {".txt", false, tx_check_text},
    {".jsonl", false, tx_check_lines},
    {".parquet", false, tx_check_rows},
    {".arrow", false, tx_check_rows},
    {".csv", false, tx_check_table},
    {".tsv", false, tx_check_table},
};

static judge *by_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t end = strlen(names[i].end);
        if (length >= end && (!names[i].whole || length == end) && strcmp(name + length - end, names[i].end) == 0)
            return names[i].judge;
    }
    return NULL;
}

/* Checks JSON with an unknown name. Each kind has a member that other kinds lack. A vocabulary may have any key, but
 * its values are numbers. */
static tx_status judge_json(const char *path)
{
    static const struct {
        const char *key;
        tx_json_type type;
        judge *judge;
    } keys[] = {
        {"weight_map", TX_JSON_OBJECT, judge_weights},
        {"model", TX_JSON_OBJECT, judge_tokenizer},
        {"model_type", TX_JSON_STRING, judge_config},
        {"activation_function", TX_JSON_STRING, judge_config},
    };
    tx_json *json, *value;
    TX_TRY(tx_json_read(path, JSON_LIMIT, &json));
    judge *found = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !found; i++)
        if (tx_json_type_of(json) == TX_JSON_OBJECT && !tx_json_get(json, keys[i].key, keys[i].type, &value))
            found = keys[i].judge;
    tx_json_free(json);
    return found ? found(path)
                 : tx_fail(TX_UNSUPPORTED,
                           "%s: unknown kind of JSON: not a configuration, tokenizer, index of weights or manifest (a "
                           "vocabulary must be named vocab.json)",
                           path);
}

/* Checks a file by its content, if its name is unknown. */
static tx_status judge_content(const char *path)
{
    unsigned char begin[9] = {0};
    int descriptor = -1;
    int64_t size = 0, wanted = sizeof begin;
    TX_TRY(tx_file_open(path, O_RDONLY, &descriptor, &size));
    const tx_status status = tx_file_read_at(descriptor, path, 0, begin, size < wanted ? size : wanted);
    close(descriptor);
    TX_TRY(status);
    /* safetensors: the size of the header, less than 16 MB, and the opening brace of the header. */
    if (size >= wanted && begin[8] == '{' && !begin[7] && !begin[6] && !begin[5] && !begin[4] && !begin[3])
        return judge_weights(path);
    if (begin[0] == 'G' && memcmp(begin, "GGUF", 4) == 0)
        return tx_fail(TX_UNSUPPORTED, "%s: a GGUF file must have a name that ends with .gguf: rename it", path);
    bool instructs = false;
    if (begin[0] == '{')
        TX_TRY(tx_instruction_find(path, &instructs));
    if (begin[0] == '[' || instructs)
        return tx_check_lines(path);
    if (begin[0] == '{')
        return judge_json(path);
    return tx_fail(TX_UNSUPPORTED,
                   "%s: unknown kind of file; known are weights, .gguf, config.json, tokenizers, .bin, .txt, .jsonl, "
                   ".parquet, .arrow, "
                   ".csv, .tsv, adapters, manifests",
                   path);
}

/* ---- Folders --------------------------------------------------------------------------------------- */

static bool holds(const char *folder, const char *name)
{
    char *path = tx_path_join(folder, name);
    bool there = path && tx_file_exists(path);
    free(path);
    return there;
}

/* Checks the configuration, its weights, and the tokenizer if there is one. */
static tx_status judge_model(const char *folder, bool tokenizer)
{
    tx_config *config;
    TX_TRY(tx_config_of_folder(folder, &config));
    tx_status status = tx_arch_check(config, folder);
    if (!status && tokenizer)
        status = check_tokenizer(folder, config);
    tx_config_free(config);
    return status;
}

/* Fails on links to missing files, which occur in a cache of Hugging Face. */
static tx_status check_links(const char *folder)
{
    tx_names list = {0};
    tx_status status = tx_folder_list(folder, &list);
    for (size_t i = 0; !status && i < list.count; i++)
        if (!holds(folder, list.name[i]))
            status = tx_fail(TX_NOT_FOUND, "%s: %s is a link to a missing file", folder, list.name[i]);
    tx_names_free(&list);
    return status;
}

/* Checks that a tensor is an A or B of the rank that the configuration gives its module. */
static tx_status check_factor(const char *folder, const tx_lora *lora, const tx_st_tensor *t, bool is_b)
{
    char module[TX_WEIGHTS_NAME];
    int64_t rank;
    double scale;
    tx_lora_rename(NULL, t->name, module);
    *strstr(module, ".lora_") = '\0';
    TX_TRY(tx_fail_in(tx_lora_rank_of(lora, module, &rank, &scale), "%s", folder));
    return t->rank == 2 && t->dim[is_b] == rank
               ? TX_OK
               : tx_fail(TX_FORMAT, "%s: %s is not a matrix of rank %" PRId64 ", the value of r in " TX_LORA_CONFIG,
                         folder, t->name, rank);
}

/* Checks the configuration and the matrices of an adapter, but not its base model. */
static tx_status judge_adapter(const char *folder)
{
    tx_lora *lora = NULL;
    tx_weights *weights = NULL;
    tx_status status = tx_lora_read(folder, &lora);
    TX_THEN(status, tx_lora_open_weights(folder, &weights));
    int32_t matrices = 0;
    for (int32_t i = 0; !status && i < tx_weights_count(weights); i++) {
        const tx_st_tensor *t = tx_weights_tensor_at(weights, i);
        const bool a = strstr(t->name, ".lora_A.") || strstr(t->name, "." TX_LORA_EMBEDDING_A),
                   b = strstr(t->name, ".lora_B.") || strstr(t->name, "." TX_LORA_EMBEDDING_B);
        matrices += a || b;
        if (a || b)
            status = check_factor(folder, lora, t, b);
    }
    if (!status && !matrices)
        status = tx_fail(TX_FORMAT, "%s: no matrices lora_A or lora_B", folder);
    tx_weights_close(weights);
    tx_lora_free(lora);
    return status;
}

static tx_status judge_folder(const char *folder)
{
    TX_TRY(check_links(folder));
    bool manifest = holds(folder, TX_CHECKPOINT_MANIFEST) || tx_checkpoint_step(folder) >= 0;
    bool tokenizer = holds(folder, "tokenizer.json") || holds(folder, "vocab.json") || holds(folder, "merges.txt");
    if (manifest)
        TX_TRY(tx_checkpoint_verify(folder, NULL));
    if (tx_lora_is_folder(folder))
        return judge_adapter(folder);
    if (holds(folder, "config.json"))
        return judge_model(folder, tokenizer);
    const tx_status status = judge_weights(folder);
    if (status == TX_NOT_FOUND && !tokenizer)
        return tx_fail(TX_UNSUPPORTED, "%s: unknown kind of folder: it has no config.json, weights or tokenizer",
                       folder);
    return tokenizer && (!status || status == TX_NOT_FOUND) ? check_tokenizer(folder, NULL) : status;
}

/* ---- All ------------------------------------------------------------------------------------------- */

static tx_status judge_path(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return tx_fail(TX_NOT_FOUND, "%s: no such file or folder", path);
    if (S_ISDIR(info.st_mode))
        return judge_folder(path);
    if (!S_ISREG(info.st_mode))
        return tx_fail(TX_UNSUPPORTED, "%s: neither a plain file nor a folder", path);
    judge *named = by_name(path);
    return named ? named(path) : judge_content(path);
}

int tx_check_file(int argc, char *const *argv)
{
    settings set = {0};
    int result = tx_options_parse(&tx_check_file_program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    result = 0;
    tx_alive *alive = tx_alive_start(&tx_check_file_program, stderr, "reading");
    for (int32_t i = 0; i < set.paths.count; i++) {
        const char *reason = "ok";
        char path[4096], abilities[1024] = "";
        tx_escape(set.paths.word[i], path, sizeof path); /* error messages are escaped, too */
        const size_t length = strlen(path);
        tx_alive_doing(alive, "reading %s", path);
        if (judge_path(set.paths.word[i])) {
            result = TX_EXIT_FAILURE;
            /* Do not print the path twice: most messages begin with it. */
            reason = tx_error();
            if (strncmp(reason, path, length) == 0 && strncmp(reason + length, ": ", 2) == 0)
                reason += length + 2;
        } else {
            tx_check_abilities(set.paths.word[i], abilities, sizeof abilities);
        }
        printf("%s: %s%s\n", path, reason, abilities);
        fflush(stdout);
        tx_alive_printed(alive);
    }
    tx_alive_stop(alive);
    return result;
}
