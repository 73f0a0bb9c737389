/* SPDX-License-Identifier: Apache-2.0
 * Finds the data files of each split and prepares them as one file (models/data/prepare.h). */
#include "models/job/inputs.h"

#include "api/base/number.h"
#include "models/data/prepare.h"
#include "models/files/hub.h"
#include "models/files/splits.h"
#include "models/names.h"

#include <stdlib.h>
#include <string.h>

/* The name of GLUE's data on Hugging Face's hub. */
#define GLUE "nyu-mll/glue"
#define DATASETS_MOST 32
/* Room for one value of a list. */
#define WORD 1024

/* The folders of the datasets, and the share of each if they are interleaved. */
typedef struct datasets {
    char *folder[DATASETS_MOST];
    double probability[DATASETS_MOST];
    size_t count; /* 0 if only files are given */
} datasets;

/* The files of one split, by dataset. */
typedef struct sources {
    tx_data_source source[DATASETS_MOST];
    size_t count;
} sources;

static void free_datasets(datasets *d)
{
    for (size_t i = 0; i < d->count; i++)
        free(d->folder[i]);
}

static void free_sources(sources *s)
{
    for (size_t i = 0; i < s->count; i++)
        tx_names_free(&s->source[i].files);
    *s = (sources){0};
}

/* ---- Datasets ------------------------------------------------------------------------------------------------ */

/* Copies word number `index` of "a,b,c"; returns false if there are fewer. A word that is too long is cut. */
static bool word_at(const char *list, size_t index, char word[WORD])
{
    for (; list && index > 0; index--) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    if (list)
        snprintf(word, WORD, "%.*s", (int)strcspn(list, ","), list);
    return list;
}

static size_t count_words(const char *list)
{
    size_t count = list ? 1 : 0;
    for (; list && (list = strchr(list, ',')); list++)
        count++;
    return count;
}

static tx_status read_probabilities(const tx_job_settings *set, datasets *d)
{
    char word[WORD], *end = NULL;
    if (!set->interleave)
        return TX_OK;
    if (count_words(set->interleave) != d->count || d->count < 2)
        return tx_fail(TX_INVALID,
                       "--interleave_probabilities %s: give one probability for each of two or more datasets",
                       set->interleave);
    for (size_t i = 0; i < d->count && word_at(set->interleave, i, word); i++) {
        d->probability[i] = tx_number_read(word, &end);
        if (!(d->probability[i] > 0 && d->probability[i] <= 1) || *end)
            return tx_fail(TX_INVALID, "--interleave_probabilities %s: \"%s\" is not a probability above 0",
                           set->interleave, word);
    }
    return TX_OK;
}

/* A path that exists may have a comma in its name. */
static size_t count_datasets(const tx_job_settings *set)
{
    return set->dataset && tx_file_exists(set->dataset) ? 1 : count_words(set->dataset);
}

tx_status tx_job_check_datasets(const tx_job_settings *set)
{
    datasets d = {.count = count_datasets(set)};
    const size_t configs = count_words(set->dataset_config);
    if (d.count > DATASETS_MOST)
        return tx_fail(TX_INVALID, "--dataset_name: at most %d datasets", DATASETS_MOST);
    if (configs && d.count && configs != d.count)
        return tx_fail(TX_INVALID, "--dataset_config_name %s: give one configuration for each of the %zu datasets",
                       set->dataset_config, d.count);
    return d.count ? read_probabilities(set, &d) : TX_OK;
}

static tx_status find_datasets(const tx_job_settings *set, datasets *d)
{
    char name[WORD], config[WORD];
    if (tx_job_takes_glue(set) && set->dry_run)
        return TX_OK;
    if (tx_job_takes_glue(set)) {
        TX_TRY(tx_hub_dataset(GLUE, tx_job_glue(set), &d->folder[0]));
        d->count = 1;
        return TX_OK;
    }
    const size_t count = count_datasets(set);
    for (; d->count < count; d->count++) {
        const bool has_config = word_at(set->dataset_config, d->count, config) && config[0];
        word_at(set->dataset, d->count, name);
        TX_TRY(tx_hub_dataset(count == 1 ? set->dataset : name, has_config ? config : NULL, &d->folder[d->count]));
    }
    return read_probabilities(set, d);
}

/* ---- Files ------------------------------------------------------------------------------------------------- */

/* The files of an option, or of a split of all datasets. TX_NOT_FOUND if a dataset does not have the split. */
static tx_status find_files(const datasets *d, const char *option, tx_split split, sources *s)
{
    if (option) {
        s->count = 1;
        return tx_data_files(option, &s->source[0].files);
    }
    for (size_t i = 0; i < d->count; i++) {
        s->count = i + 1;
        s->source[i].probability = d->probability[i];
        TX_TRY(tx_hub_split(d->folder[i], split, &s->source[i].files));
    }
    return d->count ? TX_OK : TX_NOT_FOUND;
}

/* Describes the sources in notes: "data/train-00000-of-00002.parquet and 1 more file". */
static tx_status name_sources(const sources *s, char **name)
{
    size_t more = 0;
    char text[TX_PATH_ROOM + 64];
    for (size_t i = 0; i < s->count; i++)
        more += s->source[i].files.count;
    more--;
    if (more)
        snprintf(text, sizeof text, "%s and %zu more file%s", s->source[0].files.name[0], more, tx_s((int64_t)more));
    return tx_copy_text(more ? text : s->source[0].files.name[0], name);
}

/* The folder of prepared files; "" if there is none. */
static void find_cache(const tx_job_settings *set, char cache[TX_PATH_ROOM])
{
    if (set->output_dir) /* a dry run may have none */
        tx_path_in(cache, set->output_dir, "cache");
    else if (tx_hub_cache(cache))
        cache[0] = '\0';
}

/* Prepares the files of a split: the path of the data, and their name in notes. */
static tx_status prepare(tx_job *j, sources *s, bool train, char **path, char **name)
{
    const tx_job_settings *set = &j->set;
    const tx_task_row *named = tx_task_named(set->task);
    const bool pairs = (named && (named->traits & TX_WRITE)) || set->summary_column; /* it reads all columns */
    const bool text = set->text_column && strcmp(set->text_column, "text") != 0 && !pairs;
    const bool label = set->label_column && strcmp(set->label_column, "label") != 0;
    char cache[TX_PATH_ROOM];
    find_cache(set, cache);
    const tx_prepare_options options = {
        .text_columns = text ? set->text_column : NULL,
        .delimiter = set->text_delimiter,
        .label_column = label ? set->label_column : NULL,
        .interleave = train && set->interleave,
        .all_exhausted = set->all_exhausted,
        .seed = tx_job_data_seed(set),
        .encoding = set->encoding,
        .folder = cache,
        .report = j->report,
    };
    TX_TRY(name_sources(s, name));
    return tx_data_prepare(s->source, s->count, &options, path);
}

/* The validation data. If there are none, they are a part of the training data. */
static tx_status find_validation(tx_job *j, const datasets *d)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    sources found = {0}, whole = {0};
    tx_status status = find_files(d, set->validation_file, TX_SPLIT_VALIDATION, &found);
    if (!status)
        status = prepare(j, &found, false, &in->validation_path, &in->validation_name);
    else if (status == TX_NOT_FOUND && !set->validation_file) {
        status = TX_OK;
        if (!in->train_path)
            status = d->count ? find_files(d, NULL, TX_SPLIT_TRAIN, &whole) : TX_NOT_FOUND;
        if (status == TX_NOT_FOUND && !d->count) /* a dry run without data */
            return TX_OK;
        if (!status && set->validation_split <= 0)
            status = tx_fail(TX_INVALID,
                             "no validation data for --%s: give --validation_file or --validation_split_percentage",
                             set->evaluation ? TX_JOB_NAME(evaluation) : TX_JOB_NAME(do_eval));
        in->shared = true;
        if (in->train_path) {
            TX_THEN(status, tx_copy_text(in->train_path, &in->validation_path));
            TX_THEN(status, tx_copy_text(in->train_name, &in->validation_name));
        } else {
            TX_THEN(status, prepare(j, &whole, true, &in->validation_path, &in->validation_name));
        }
    }
    free_sources(&found);
    free_sources(&whole);
    return status;
}

tx_status tx_job_find_data(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    datasets d = {0};
    sources train = {0}, test = {0};
    tx_status status = find_datasets(set, &d);
    if (!status && (set->train_file || (d.count && tx_job_trains(set)))) {
        status = find_files(&d, set->train_file, TX_SPLIT_TRAIN, &train);
        TX_THEN(status, prepare(j, &train, true, &in->train_path, &in->train_name));
    }
    if (!status && set->do_predict && (set->test_file || d.count)) {
        status = find_files(&d, set->test_file, TX_SPLIT_TEST, &test);
        TX_THEN(status, prepare(j, &test, false, &in->test_path, &in->test_name));
    }
    if (!status && tx_job_evaluates(set))
        status = find_validation(j, &d);
    free_sources(&train);
    free_sources(&test);
    free_datasets(&d);
    return status;
}

tx_status tx_job_rows_of_tables(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    char **const paths[] = {&in->train_path, &in->validation_path, &in->test_path};
    char cache[TX_PATH_ROOM];
    find_cache(&j->set, cache);
    const tx_prepare_options options = {.rows = true, .folder = cache, .report = j->report};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        tx_data_source one = {.files = {.name = paths[i], .count = 1}};
        char *rows = NULL;
        if (!*paths[i])
            continue;
        TX_TRY(tx_data_prepare(&one, 1, &options, &rows));
        free(*paths[i]);
        *paths[i] = rows;
    }
    return TX_OK;
}
