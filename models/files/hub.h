/* SPDX-License-Identifier: Apache-2.0
 *
 * Models and datasets by name. A name is a path; or $TX_HOME/models/NAME, $TX_HOME/datasets/NAME[/CONFIG]; or lies in
 * Hugging Face's cache ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub: models--OWNER--NAME/snapshots/REV, REV
 * being what refs/main says, or the only one there is). TX_HOME is ~/.local/share/tx unless set; ~/.local/share and
 * ~/.cache are $XDG_DATA_HOME and $XDG_CACHE_HOME where these are set. Names from before owners were part of them, as
 * gpt2, are found under their owner's as well (openai-community/gpt2), and the other way round. Nothing is ever
 * downloaded. */
#ifndef TX_FILES_HUB_H
#define TX_FILES_HUB_H

#include "tx.h"

/* A folder with config.json, or the path given (also of a GGUF file), as it is. TX_NOT_FOUND tells the command that
 * fetches it and where it was looked for. The caller frees `*folder`. */
tx_status tx_hub_model(const char *name, char **folder);
/* A folder of a dataset, which holds a split's file; `config` as wikitext-2-raw-v1, or NULL. A path is taken with
 * /CONFIG behind it. The command that TX_NOT_FOUND tells also converts what the hub keeps as parquet. */
tx_status tx_hub_dataset(const char *name, const char *config, char **folder);

typedef enum tx_split { TX_SPLIT_TRAIN, TX_SPLIT_VALIDATION, TX_SPLIT_TEST } tx_split;
/* The file of a split in a dataset's folder: train, validation (also valid, val, dev, validation_matched) or test (also
 * test_matched) with the ending .txt, .raw, .tokens, .jsonl, .json, .csv, .tsv or .bin, also behind a prefix that ends
 * in one of "._-", as in wiki.train.raw. TX_NOT_FOUND where there is none, TX_INVALID where several could be meant. The
 * caller frees `*path`. */
tx_status tx_hub_split(const char *folder, tx_split split, char **path);

#endif
