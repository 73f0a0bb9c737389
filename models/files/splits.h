/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a dataset's folder by their names, as the Hub and the library datasets lay them out. hub.c searches
 * folders with it; the job lists the files of a split with it. */
#ifndef TX_FILES_SPLITS_H
#define TX_FILES_SPLITS_H

#include "models/tx_folder.h"

/* Endings of data files that TX reads. X(ending); the first one has its own macro for lists in messages. */
#define TX_DATA_ENDINGS(FIRST, X) FIRST(txt) X(raw) X(tokens) X(jsonl) X(json) X(csv) X(tsv) X(parquet) X(arrow) X(bin)
#define TX_DATA_EXTENSION_FIRST(name) "." #name
#define TX_DATA_EXTENSION_NEXT(name) ", ." #name
#define TX_DATA_EXTENSION_LIST TX_DATA_ENDINGS(TX_DATA_EXTENSION_FIRST, TX_DATA_EXTENSION_NEXT)

typedef enum tx_split { TX_SPLIT_TRAIN, TX_SPLIT_VALIDATION, TX_SPLIT_TEST } tx_split;

/* Lists the paths of the files of a split, in the order of their names. They are in the folder, in its folder data, or
 * in its folder train (validation, test); the first of these folders that has files counts.
 *   train.jsonl                        also valid, val and dev for validation; a prefix such as wiki. is allowed
 *   train-00000-of-00002.parquet ...   all shards of one split; TX_FORMAT names a shard that is missing
 *   train/0000.parquet ...             all files of one ending
 *
 * If a folder has a single table or file of JSON lines with another name, or only the shards of one, that is its train
 * split, as in data-00000-of-00001.arrow of save_to_disk. Files in which datasets describes itself are no data.
 * TX_NOT_FOUND if there is no file, TX_INVALID if the files of several datasets match. The caller frees `files`. */
tx_status tx_hub_split(const char *folder, tx_split split, tx_names *files);
/* Lists the folders in `folder` that hold a split: its configurations. The caller frees `names`. */
tx_status tx_hub_configurations(const char *folder, tx_names *names);
/* Lists the files that the value of an option names: a path, or paths and patterns such as 'data/train-*.parquet' with
 * commas between them. A folder stands for all texts in it and in its folders. TX_NOT_FOUND names a pattern or
 * folder without a file. The caller frees `files`. */
tx_status tx_data_files(const char *value, tx_names *files);

#endif
