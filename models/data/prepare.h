/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns data files as people have them (Parquet shards, several files, columns of any name) into the one file of JSON
 * lines or text that a task reads. The job calls it before it opens a task's samples. */
#ifndef TX_DATA_PREPARE_H
#define TX_DATA_PREPARE_H

#include "models/report.h"
#include "models/tx_folder.h"
#include "tx.h"

/* A dataset: its files in their order, and the share of its rows if datasets are interleaved. */
typedef struct tx_data_source {
    tx_names files;
    double probability;
} tx_data_source;

typedef struct tx_prepare_options {
    /* Names with commas between them. The texts of these columns are joined as "text". NULL keeps all columns. */
    const char *text_columns;
    const char *delimiter;    /* between the texts of several columns */
    const char *label_column; /* is renamed to "label"; NULL renames nothing */
    bool interleave;          /* draw each row's dataset by its probability; else one dataset follows the other */
    /* If datasets are interleaved: false stops when the first dataset has no row left. With true smaller datasets begin
     * again until every one was read to its end. */
    bool all_exhausted;
    bool rows;            /* make JSON lines of a single table, too */
    uint64_t seed;        /* of the draws */
    const char *encoding; /* of all files, by a name of iconv or Python, such as latin-1; NULL for UTF-8 */
    const char *folder;   /* keeps the prepared file for the next run; it is created */
    tx_reporter report;
} tx_prepare_options;

/* Prepares the data. A single file of text, JSON lines or a table needs no preparation unless columns or an encoding
 * are named: `*path` is then a copy of its path. Compressed files (.gz, .zst) are unpacked first. A prepared file is
 * named by its first source and the digest of all, and it is used again only if its own digest is right. The sources'
 * paths become those of files that are unpacked and in UTF-8. The caller frees `*path`. */
tx_status tx_data_prepare(tx_data_source *sources, size_t count, const tx_prepare_options *options, char **path);

#endif
