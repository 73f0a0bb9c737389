/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns data files as people have them (Parquet shards, several files, columns of any name) into the one file of JSON
 * lines or text that a task reads. The job calls it before it opens a task's samples. */
#ifndef TX_DATA_PREPARE_H
#define TX_DATA_PREPARE_H

#include "models/report.h"
#include "tx.h"
#include "models/tx_folder.h"

/* A dataset: its files in their order, and the share of its rows if datasets are interleaved. */
typedef struct tx_data_source {
    tx_names files;
    double probability;
} tx_data_source;

typedef struct tx_prepare_options {
    const char
        *text_columns;     /* names with commas between them, whose texts become "text"; NULL: rows stay as they are */
    const char *delimiter; /* between the texts of several columns */
    const char *label_column; /* becomes "label"; NULL: it has that name already */
    bool interleave;          /* draw each row's dataset by its probability; else one dataset follows the other */
    bool all_exhausted;       /* of interleaving: go on until each dataset was read to its end, beginning again at the
                                 end of the others; else stop at the first end */
    uint64_t seed;            /* of the draws */
    const char *folder;       /* where the file is kept for the next time; it is created */
    tx_reporter report;
} tx_prepare_options;

/* A single file of text, JSON lines or a table stays as it is unless columns are named: `*path` is then a copy of its
 * path. Otherwise the prepared file is found in the folder by the digest of its sources and checked by its own, or
 * made. The caller frees `*path`. */
tx_status tx_data_prepare(const tx_data_source *sources, size_t count, const tx_prepare_options *options, char **path);

#endif
