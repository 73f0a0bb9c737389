/* SPDX-License-Identifier: Apache-2.0
 * txtok: encodes, decodes and counts tokens with a tokenizer folder, trains tokenizers, and tokenises corpora. */
#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tools/cli/output.h"
#include "tx_file.h"
#include "tx_folder.h"
#include "tx_json.h"
#include "tx_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    const char *tokenizer, *text_column, *delimiter;
    bool bare_lines, jsonl, split_special, skip_special, add_special;
    int64_t vocab, least, model_max_length, part, skip_bad, threads;
    tx_words files;
} settings;

/* ---- options ------------------------------------------------------------------------------------- */

#define AT(field) offsetof(settings, field)
#define TOKENIZER                                                                                     \
    {                                                                                                 \
        TX_OPTION_TEXT, "tokenizer", AT(tokenizer),                                                   \
            .choices = "DIR", .help = "folder with tokenizer.json, or with vocab.json and merges.txt" \
    }
#define SPLIT_SPECIAL                                                    \
    {                                                                    \
        TX_OPTION_FLAG, "split_special_tokens", AT(split_special),       \
            .help = "encode special tokens in the text as ordinary text" \
    }

static const tx_option encode_options[] = {
    TOKENIZER,
    {TX_OPTION_FLAG, "jsonl", AT(jsonl),
     .help = "read lines {\"text\": ...}, or {\"text\": ..., \"text_pair\": ...} for a pair that is one input; print "
             "one array of ids a line"},
    SPLIT_SPECIAL,
    {TX_OPTION_FLAG, "add_special_tokens", AT(add_special),
     .help = "add the tokenizer's special tokens around a text; pairs always have them"},
};
static const tx_option decode_options[] = {
    TOKENIZER,
    {TX_OPTION_FLAG, "jsonl", AT(jsonl),
     .help = "read lines of arrays; print {\"text\": ...}, with U+FFFD for bytes that are not UTF-8"},
    {TX_OPTION_FLAG, "skip_special_tokens", AT(skip_special), .help = "leave special tokens out of the text"},
};
static const tx_option count_options[] = {
    TOKENIZER,
    {TX_OPTION_FLAG, "jsonl", AT(jsonl), .help = "read lines {\"text\": ...}"},
    SPLIT_SPECIAL,
};
static const tx_option train_options[] = {
    {TX_OPTION_TEXT, "tokenizer", AT(tokenizer), .choices = "DIR", .help = "folder to write"},
    {TX_OPTION_INTEGER, "vocab_size", AT(vocab), TX_BYTES_VOCAB, 1 << 22, "N",
     "number of ids, including <|endoftext|> and the 256 bytes"},
    {TX_OPTION_INTEGER, "min_frequency", AT(least), 1, 1e15, "N", "merge only pairs that occur at least N times"},
    {TX_OPTION_INTEGER, "model_max_length", AT(model_max_length), 1, 1 << 30, "N",
     "model_max_length in tokenizer_config.json"},
    {TX_OPTION_FLAG, "jsonl", AT(jsonl), .help = "read lines {\"text\": ...}"},
};
static const tx_option pack_options[] = {
    TOKENIZER,
    {TX_OPTION_TEXT, "text_column_name", AT(text_column), .choices = "NAME,...",
     .help = "columns of the text, as in training"},
    {TX_OPTION_TEXT, "text_column_delimiter", AT(delimiter), .choices = "TEXT", .help = "text between joined columns"},
    {TX_OPTION_FLAG, "bare_lines", AT(bare_lines),
     .help = "leave line ends out, as masked language modelling reads text"},
    {TX_OPTION_INTEGER, "skip_bad", AT(skip_bad), 0, INT32_MAX, "N", "skip up to N malformed lines"},
    {TX_OPTION_INTEGER, "part_bytes", AT(part), 1, INT64_C(1) << 40, "N",
     "bytes of a part; the parts that are ready remain if the program ends early"},
    {TX_OPTION_INTEGER, "preprocessing_num_workers", AT(threads), 0, 1024, "N",
     "threads of this process; 0 means one on each core"},
};
#undef AT

static const settings defaults = {
    .vocab = 32000, .least = 2, .model_max_length = 1024, .part = 256 << 20, .delimiter = " "};

#define COMMAND(title, most, text)                                                                            \
    {                                                                                                         \
        .name = "txtok", .usage = "txtok " #title " --tokenizer DIR [FILE" most "] [options]", .about = text, \
        .one_process = "start it without the launcher", .table = {TX_CLI_OPTIONS(title##_options)},           \
        .values = &defaults, .operand = "FILE", .operands = offsetof(settings, files),                        \
        .operands_most = sizeof most > 1 ? INT32_MAX : 1                                                      \
    }

static const tx_cli programs[] = {
    COMMAND(encode, "", "Prints the ids of a text, separated by spaces. Reads standard input if FILE is not given."),
    COMMAND(decode, "", "Prints the text of ids and nothing else. Reads standard input if FILE is not given."),
    COMMAND(count, "", "Prints the number of ids of a text. Reads standard input if FILE is not given."),
    COMMAND(train, "...",
            "Trains a byte-level BPE tokenizer, with each line as one text. Writes tokenizer.json and "
            "tokenizer_config.json for transformers. Reads standard input if FILE is not given."),
    COMMAND(pack, "...",
            "Tokenises a corpus into $TX_HOME/cache. Training on the same files with the same tokenizer reads these "
            "tokens. Several processes may run at the same time, and a later one completes an earlier one."),
};

enum { TRAIN = 3, PACK };

static const tx_cli_command commands[] = {
    {"encode", "text to ids", &programs[0]},
    {"decode", "ids to text", &programs[1]},
    {"count", "number of ids of a text", &programs[2]},
    {"train", "train a tokenizer", &programs[3]},
    {"pack", "tokenise a corpus for training", &programs[4]},
};

static const tx_cli program = {
    .name = "txtok",
    .usage = "txtok encode|decode|count|train|pack --tokenizer DIR [FILE] [options]",
    .about = "Encodes and decodes text with byte-level BPE tokenizers. The ids are those of Hugging Face's tokenizers.",
    .example = "  txtok count --tokenizer out text.txt",
    TX_CLI_COMMANDS(commands),
};

/* ---- input --------------------------------------------------------------------------------------- */

typedef struct job {
    const settings *set;
    tx_tokenizer *tokenizer;
    tx_encoder *encoder;
    tx_tokenizer_trainer *trainer;
    tx_ids ids, part[2], types; /* of the whole input; of its one or two texts; token types of a pair */
    size_t count;               /* ids of all texts */
    tx_reporter report;
} job;

/* Processes one text. With `line` the text is a line of JSON. */
typedef tx_status (*tx_text_task)(job *j, const char *text, size_t size, bool line);

/* Calls `task` for each line, including its newline. Blank lines of JSON Lines are skipped. */
static tx_status each_line(job *j, const char *text, size_t size, bool json, tx_text_task task)
{
    int64_t number = 1;
    for (const char *at = text, *end = text + size; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *next = newline ? newline + 1 : end;
        const bool skipped = json && tx_line_is_blank(at, (size_t)(next - at));
        const tx_status status = skipped ? TX_OK : task(j, at, (size_t)(next - at), json);
        if (status)
            return tx_fail_in(status, "line %" PRId64, number);
        at = next;
    }
    return TX_OK;
}

/* Calls `task` for a file's text, or with `lines` or --jsonl for each line. Pass NULL to read standard input. */
static tx_status each_text(job *j, const char *file, bool lines, tx_text_task task)
{
    char *text;
    size_t size, at = 0;
    TX_TRY(file ? tx_file_read(file, INT64_MAX, &text, &size) : tx_file_read_input(&text, &size));
    tx_status status = tx_text_begin(text, size, false, &at);
    TX_THEN(status, lines || j->set->jsonl ? each_line(j, text + at, size - at, j->set->jsonl, task)
                                           : task(j, text + at, size - at, false));
    free(text);
    return status ? tx_fail_in(status, "%s", file ? file : "standard input") : TX_OK;
}

/* If `line`, replaces the line {"text": ...} by its text, which belongs to `*json`. The caller frees `*json`. */
static tx_status take_text(bool line, tx_json **json, const char **text, size_t *size)
{
    *json = NULL;
    if (!line)
        return TX_OK;
    TX_TRY(tx_json_parse_line(*text, *size, "JSON", json));
    return tx_json_get_text(*json, "text", text, size);
}

/* ---- encode and count ------------------------------------------------------------------------------ */

/* Encodes one text, or a pair if `other` is not NULL, with special tokens as a model expects them. */
static tx_status join(job *j, const char *text, size_t size, const char *other, size_t other_size)
{
    const bool special = !j->set->split_special;
    j->part[0].count = j->part[1].count = j->types.count = 0;
    TX_TRY(tx_encoder_run(j->encoder, text, size, special, &j->part[0]));
    if (other)
        TX_TRY(tx_encoder_run(j->encoder, other, other_size, special, &j->part[1]));
    return tx_tokenizer_join(j->tokenizer, &j->part[0], other ? &j->part[1] : NULL, &j->ids, &j->types);
}

static tx_status encode(job *j, const char *text, size_t size, bool line)
{
    tx_json *json;
    const char *other = NULL;
    size_t other_size = 0;
    j->ids.count = 0;
    tx_status status = take_text(line, &json, &text, &size);
    if (!status && line && tx_json_has(json, "text_pair"))
        status = tx_json_get_text(json, "text_pair", &other, &other_size);
    TX_THEN(status, other || j->set->add_special
                        ? join(j, text, size, other, other_size)
                        : tx_encoder_run(j->encoder, text, size, !j->set->split_special, &j->ids));
    tx_json_free(json);
    return status;
}

static tx_status print_ids(job *j, const char *text, size_t size, bool line)
{
    TX_TRY(encode(j, text, size, line));
    fputs(line ? "[" : "", stdout);
    for (size_t i = 0; i < j->ids.count; i++)
        printf("%s%" PRId32, i == 0 ? "" : line ? ", " : " ", j->ids.id[i]);
    puts(line ? "]" : "");
    return TX_OK;
}

static tx_status count(job *j, const char *text, size_t size, bool line)
{
    TX_TRY(encode(j, text, size, line));
    j->count += j->ids.count;
    return TX_OK;
}

/* ---- decode ------------------------------------------------------------------------------------------ */

static tx_status append_id(tx_ids *ids, int64_t id)
{
    if (id < 0 || id > INT32_MAX)
        return tx_fail(TX_FORMAT, "%" PRId64 " is not a token id", id);
    TX_TRY(tx_ids_reserve(ids, 1));
    ids->id[ids->count++] = (int32_t)id;
    return TX_OK;
}

/* Reads ids separated by spaces. A NUL follows the text. */
static tx_status parse_ids(tx_ids *ids, const char *text, size_t size)
{
    const char *blanks = " \t\r\n";
    if (memchr(text, '\0', size))
        return tx_fail(TX_FORMAT, "expected ids, found a NUL");
    for (text += strspn(text, blanks); *text; text += strspn(text, blanks)) {
        char *end;
        errno = 0;
        long long id = strtoll(text, &end, 10);
        if (end == text || errno || (*end && !strchr(blanks, *end)))
            return tx_fail(TX_FORMAT, "id number %zu: \"%.20s\" does not begin with a token id", ids->count + 1, text);
        TX_TRY(append_id(ids, id));
        text = end;
    }
    return TX_OK;
}

static tx_status append_all(tx_ids *ids, const tx_json *array)
{
    if (tx_json_type_of(array) != TX_JSON_ARRAY)
        return tx_fail(TX_FORMAT, "expected an array of ids");
    for (size_t i = 0; i < tx_json_size(array); i++) {
        int64_t id;
        TX_TRY(tx_json_as_int(tx_json_at(array, i), "an id", 0, INT32_MAX, &id));
        TX_TRY(append_id(ids, id));
    }
    return TX_OK;
}

static tx_status parse_array(tx_ids *ids, const char *text, size_t size)
{
    tx_json *json;
    TX_TRY(tx_json_parse_line(text, size, "JSON", &json));
    const tx_status status = append_all(ids, json);
    tx_json_free(json);
    return status;
}

static tx_status print_line(const char *text, size_t size)
{
    char *whole;
    size_t whole_size;
    TX_TRY(tx_utf8_replace(text, size, &whole, &whole_size));
    tx_json *json = tx_json_pack("{s:s%}", "text", whole, whole_size);
    const tx_status status = json ? tx_print_json(json) : TX_MEMORY;
    free(whole);
    tx_json_free(json);
    return status;
}

static tx_status decode(job *j, const char *text, size_t size, bool line)
{
    char *created;
    j->ids.count = 0;
    TX_TRY(line ? parse_array(&j->ids, text, size) : parse_ids(&j->ids, text, size));
    TX_TRY(tx_tokenizer_decode(j->tokenizer, j->ids.id, j->ids.count, j->set->skip_special, &created, &size));
    tx_status status = TX_OK;
    if (line)
        status = print_line(created, size);
    else
        fwrite(created, 1, size, stdout);
    free(created);
    return status;
}

/* ---- train ------------------------------------------------------------------------------------------- */

static tx_status add_text(job *j, const char *text, size_t size, bool line)
{
    tx_json *json;
    tx_status status = take_text(line, &json, &text, &size);
    TX_THEN(status, tx_tokenizer_trainer_add(j->trainer, text, size));
    tx_json_free(json);
    return status;
}

static tx_status check_folder(const char *folder)
{
    return tx_file_exists(TX_PATH(folder, "tokenizer.json"))
               ? tx_fail(TX_INVALID, "%s: has a tokenizer.json already: remove it, or name another folder", folder)
               : TX_OK;
}

static tx_status train(job *j)
{
    const settings *set = j->set;
    TX_TRY(check_folder(set->tokenizer));
    TX_TRY(tx_tokenizer_trainer_create(&j->trainer));
    for (int32_t i = 0; i < set->files.count || i == 0; i++)
        TX_TRY(each_text(j, set->files.count ? set->files.word[i] : NULL, true, add_text));
    TX_TRY(tx_tokenizer_trainer_finish(j->trainer, set->vocab, set->least, &j->tokenizer));
    TX_TRY(tx_tokenizer_save(j->tokenizer, set->tokenizer, set->model_max_length));
    tx_print_line(stdout, "%s: %" PRId64 " token%s", set->tokenizer, tx_tokenizer_size(j->tokenizer),
                  tx_s(tx_tokenizer_size(j->tokenizer)));
    return TX_OK;
}

/* ---- pack -------------------------------------------------------------------------------------------- */

static tx_status pack(job *j)
{
    const settings *set = j->set;
    int64_t tokens = 0;
    const tx_pack_options how = {
        .size = sizeof how,
        .tokenizer = j->tokenizer,
        .text_column = set->text_column,
        .delimiter = set->delimiter,
        .bare_lines = set->bare_lines,
        .part = set->part,
        .skip_bad = set->skip_bad,
        .threads = (int32_t)set->threads,
        .report = j->report,
    };
    if (!set->files.count)
        return tx_fail(TX_INVALID, "pack: name the files to tokenise");
    TX_TRY(tx_pack(set->files.word, set->files.count, &how, &tokens));
    printf("%" PRId64 " tokens\n", tokens);
    return TX_OK;
}

/* ---- main ---------------------------------------------------------------------------------------------- */

static tx_status run(job *j, int32_t command)
{
    static const tx_text_task tasks[] = {print_ids, decode, count}; /* of the first commands */
    if (command == TRAIN)
        return train(j);
    TX_TRY(tx_tokenizer_open(j->set->tokenizer, &j->tokenizer));
    if (command == PACK)
        return pack(j);
    TX_TRY(tx_encoder_create(j->tokenizer, &j->encoder));
    TX_TRY(each_text(j, j->set->files.count ? j->set->files.word[0] : NULL, false, tasks[command]));
    if (tasks[command] == count)
        printf("%zu\n", j->count);
    return TX_OK;
}

int main(int argc, char **argv)
{
    settings set = defaults;
    int32_t command;
    int result = tx_options_command(&program, argc, argv, &set, &command);
    if (result == TX_GO_ON)
        result = tx_options_parse(&programs[command], argc - 1, argv + 1, &set);
    if (result != TX_GO_ON)
        return result;
    if (!set.tokenizer)
        return tx_complain(&program, TX_EXIT_USAGE, "--tokenizer is missing: give a tokenizer folder");
    job j = {.set = &set};
    /* No progress lines while the user types. */
    const bool typed = set.files.count == 0 && isatty(STDIN_FILENO);
    tx_alive *alive = typed ? NULL : tx_alive_start(&program, stderr, "working on texts");
    j.report = (tx_reporter){.warn = tx_warn, .progress = tx_alive_progress, .context = alive};
    tx_status status = run(&j, command);
    tx_alive_stop(alive);
    tx_encoder_free(j.encoder);
    tx_tokenizer_trainer_free(j.trainer);
    tx_tokenizer_free(j.tokenizer);
    free(j.ids.id);
    free(j.part[0].id);
    free(j.part[1].id);
    free(j.types.id);
    return tx_end(&program, status ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error()) : 0);
}
