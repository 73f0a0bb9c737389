/* SPDX-License-Identifier: Apache-2.0
 * Reading log.jsonl and trainer_state.json. */
#include "tools/train/history.h"

#include "tx_file.h"
#include "tx_folder.h"
#include "tx_json.h"
#include "tx_train.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const tx_series_keys[TX_SERIES_COUNT] = {
#define X(name, key) key,
    TX_SERIES_MAP(X)
#undef X
};

/* ---- one line -------------------------------------------------------------------------------------- */

/* Copies a line and puts NaN, Infinity and -Infinity in quotes. Python's json module writes these words, which are not
 * valid JSON. `to` has room for twice the length. */
static size_t quote_nonfinite(const char *from, size_t length, char *to)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    char *out = to;
    bool string = false;
    for (size_t i = 0; i < length; i++) {
        size_t word = 0;
        for (size_t w = 0; w < 3 && !string && !word; w++)
            if (strncmp(from + i, words[w], strlen(words[w])) == 0)
                word = strlen(words[w]);
        if (word) {
            *out++ = '"';
            memcpy(out, from + i, word);
            out += word;
            *out++ = '"';
            i += word - 1;
            continue;
        }
        if (string && from[i] == '\\' && i + 1 < length)
            *out++ = from[i++];
        else if (from[i] == '"')
            string = !string;
        *out++ = from[i];
    }
    return (size_t)(out - to);
}

/* Reads a number or one of the quoted words. Returns false for other values. */
static bool number_of(const tx_json *json, double *number)
{
    const char *text;
    if (!tx_json_as_number(json, "", -DBL_MAX, DBL_MAX, number))
        return true;
    if (tx_json_as_string(json, "", &text))
        return false;
    *number = *text == 'N' ? (double)NAN : *text == '-' ? -HUGE_VAL : HUGE_VAL;
    return strcmp(text, "NaN") == 0 || strcmp(text, "Infinity") == 0 || strcmp(text, "-Infinity") == 0;
}

/* Removes the points from `step` on. */
static void truncate_from(tx_series *series, int64_t step)
{
    while (series->count && series->point[series->count - 1].step >= step)
        series->count--;
}

/* The page computes with differences and ratios of values, which must not leave the range of doubles. */
static double within_range(double value)
{
    const double most = 1e150;
    return fabs(value) > most ? copysign(HUGE_VAL, value) : fabs(value) < 1 / most ? 0.0 : value;
}

static tx_status add_point(tx_series *series, int64_t step, double value)
{
    TX_TRY(tx_array_reserve(&series->point, &series->room, (size_t)series->count + 1, sizeof *series->point, "steps"));
    series->point[series->count++] = (tx_series_point){step, within_range(value)};
    return TX_OK;
}

static tx_status add_line(tx_history *history, const tx_json *line)
{
    int64_t step;
    tx_status status = TX_OK;
    TX_TRY(tx_json_get_int(line, "step", 0, INT64_MAX, &step));
    bool trained = tx_json_has(line, "loss");
    for (int i = 0; i < TX_SERIES_COUNT; i++)
        if (trained || i == TX_SERIES_EVAL_LOSS)
            truncate_from(&history->series[i], step);
    for (void *m = tx_json_first(line); m && !status; m = tx_json_next(line, m)) {
        double value;
        for (int i = 0; i < TX_SERIES_COUNT && !status; i++)
            if (strcmp(tx_json_key(m), tx_series_keys[i]) == 0 && number_of(tx_json_value(m), &value)) {
                truncate_from(&history->series[i], step);
                status = add_point(&history->series[i], step, value);
            }
        int64_t tokens;
        if (strcmp(tx_json_key(m), "tokens") == 0 && !tx_json_as_int(tx_json_value(m), "", 0, INT64_MAX, &tokens))
            history->tokens = tokens;
    }
    return status;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

/* Parses text that may contain NaN and infinities. The caller frees `*json`. */
static tx_status parse(const char *where, const char *text, size_t length, tx_json **json)
{
    char *quoted = malloc(2 * length + 1);
    if (!quoted)
        return tx_fail(TX_MEMORY, "%s: out of memory", where);
    tx_status status = tx_json_parse(quoted, quote_nonfinite(text, length, quoted), where, json);
    free(quoted);
    return status;
}

static tx_status parse_line(tx_history *history, const char *where, const char *line, size_t length)
{
    tx_json *json = NULL;
    TX_TRY(parse(where, line, length, &json));
    tx_status status = tx_json_type_of(json) == TX_JSON_OBJECT ? add_line(history, json)
                                                               : tx_fail(TX_FORMAT, "a line must be an object");
    tx_json_free(json);
    return status ? tx_fail_in(status, "%s", where) : TX_OK;
}

/* Reads log_history of a trainer_state.json. Its last entry, the summary of the run, has none of the keys. */
static tx_status read_trainer(tx_history *history, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    tx_json *json = NULL, *log = NULL;
    tx_status status = tx_file_read(path, (int64_t)1 << 30, &text, &size);
    TX_THEN(status, parse(path, text, size, &json));
    TX_THEN(status, tx_json_get(json, "log_history", TX_JSON_ARRAY, &log));
    for (size_t i = 0; !status && i < tx_json_size(log); i++)
        status = add_line(history, tx_json_at(log, i));
    if (!status && tx_json_has(json, "num_input_tokens_seen") &&
        tx_json_get_int(json, "num_input_tokens_seen", 0, INT64_MAX, &history->tokens))
        history->tokens = 0;
    tx_json_free(json);
    free(text);
    return status ? tx_fail_in(status, "%s", path) : TX_OK;
}

static tx_status read_lines(tx_history *history, const char *path, FILE *file)
{
    char *line = NULL, where[4096 + 64];
    size_t room = 0;
    ssize_t length;
    tx_status status = TX_OK;
    for (int64_t number = 1; !status && (length = getline(&line, &room, file)) > 0; number++) {
        bool whole = line[length - 1] == '\n';
        snprintf(where, sizeof where, "%s: line %" PRId64, path, number);
        if (strspn(line, " \t\r\n") == (size_t)length)
            continue;
        status = parse_line(history, where, line, (size_t)length);
        if (status == TX_FORMAT && !whole)
            status = TX_OK; /* the run is still writing the last line, or was interrupted */
    }
    free(line);
    if (!status && ferror(file))
        status = tx_fail(TX_IO, "%s: cannot read: %s", path, strerror(errno));
    return status;
}

static tx_status read_log(tx_history *history, const char *path)
{
    int descriptor = -1;
    TX_TRY(tx_file_open(path, O_RDONLY, &descriptor, NULL));
    FILE *file = fdopen(descriptor, "r");
    if (!file) {
        close(descriptor);
        return tx_file_fail(path, "read");
    }
    tx_status status = read_lines(history, path, file);
    fclose(file);
    return status;
}

/* Finds the log file of an output_dir. */
static const char *find_log(const char *folder, char path[TX_PATH_ROOM])
{
    char checkpoint[64];
    int64_t newest = -1;
    if (tx_checkpoint_latest(folder, &newest))
        newest = -1;
    if (tx_file_exists(tx_path_in(path, folder, TX_HISTORY_LOG)) ||
        tx_file_exists(tx_path_in(path, folder, TX_HISTORY_TRAINER)) || newest < 0)
        return path;
    snprintf(checkpoint, sizeof checkpoint, TX_CHECKPOINT_PREFIX "%" PRId64 "/" TX_HISTORY_TRAINER, newest);
    return tx_path_in(path, folder, checkpoint);
}

tx_status tx_history_read(const char *path, tx_history *history)
{
    tx_history read = {.tokens = 0};
    char room[TX_PATH_ROOM];
    const char *log = tx_is_folder(path) ? find_log(path, room) : path;
    const size_t length = strlen(log);
    const bool trainer = length > 5 && strcmp(log + length - 5, ".json") == 0;
    tx_status status = trainer ? read_trainer(&read, log) : read_log(&read, log);
    if (!status && !read.series[TX_SERIES_LOSS].count && !read.series[TX_SERIES_EVAL_LOSS].count)
        status = tx_fail(TX_FORMAT,
                         "%s: no step with a loss found; give the log.jsonl of txtrain or the trainer_state.json of "
                         "transformers' Trainer",
                         log);
    if (status)
        tx_history_free(&read);
    else
        *history = read;
    return status;
}

void tx_history_free(tx_history *history)
{
    for (int i = 0; i < TX_SERIES_COUNT; i++)
        free(history->series[i].point);
}
