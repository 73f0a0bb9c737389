/* SPDX-License-Identifier: Apache-2.0
 * Finds out what TX can do with a model: training, text, 4 bits, GGUF files. Called by check_file.c. */
#include "api/base/file.h"
#include "models/arch/find.h"
#include "models/arch/wrapper.h"
#include "models/gguf/gguf.h"
#include "models/lora/lora.h"
#include "tools/bench/check_file.h"
#include "tx_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The uses of models by their heads. */
static const char *const uses[TX_HEAD_COUNT] = {
    [TX_HEAD_CAUSAL_LM] = "train, generate",
    [TX_HEAD_MASKED_LM] = "train, embed",
    [TX_HEAD_SEQUENCE_CLASSIFICATION] = "train, classify",
    [TX_HEAD_TOKEN_CLASSIFICATION] = "train, classify",
    [TX_HEAD_MULTIPLE_CHOICE] = "train",
    [TX_HEAD_QUESTION_ANSWERING] = "train",
    [TX_HEAD_STATES] = "train, embed",
    [TX_HEAD_SEQ2SEQ] = "train, generate",
};

/* Checks that 4 bits can store the matrices of the blocks. */
static tx_status check_packed(tx_config *config)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_status status = TX_OK;
    tx_config_pack(config, TX_NF4);
    for (int32_t i = 0; i < tx_arch_params(config) && !status; i++) {
        status = tx_arch_param(config, i, name, &spec);
        const int64_t row = spec.shape.dim[spec.shape.rank - 1];
        if (!status && spec.dtype == TX_NF4 && row % 64 != 0)
            status = tx_fail(TX_UNSUPPORTED, "rows of %s have %" PRId64 " elements, no multiple of 64", name, row);
    }
    tx_config_pack(config, TX_F32);
    return status;
}

/* The message of the last failure, without the folder that it begins with. */
static const char *reason_of(const char *folder)
{
    const size_t length = strlen(folder);
    const char *message = tx_error();
    return strncmp(message, folder, length) == 0 ? message + length + strspn(message + length, "/: ") : message;
}

/* Appends an ability, or with `status` to the list of the others, with the reason. */
static void list(const char *ability, tx_status status, const char *folder, char *can, size_t room, char *cannot,
                 size_t others)
{
    if (!status)
        tx_list_add(can, room, ", ", "%s", ability);
    else
        tx_list_add(cannot, others, "; ", "not %s (%.200s)", ability, reason_of(folder));
}

static void describe(tx_config *config, const char *folder, char *text, size_t room)
{
    const tx_architecture *a = config->architecture;
    char can[128], cannot[640] = "";
    snprintf(can, sizeof can, "%s", uses[a->head]);
    list("--load_in_4bit", check_packed(config), folder, can, sizeof can, cannot, sizeof cannot);
    list("GGUF", tx_gguf_check_export(folder), folder, can, sizeof can, cannot, sizeof cannot);
    snprintf(text, room, ": %s%s%s: %s%s%s", config->wrapped ? "the text of a " : "",
             config->wrapped ? config->wrapped->row->type : a->type, config->wrapped ? "" : " model", can,
             *cannot ? "; " : "", cannot);
}

void tx_check_abilities(const char *path, char *text, size_t room)
{
    tx_config *config = NULL;
    *text = '\0';
    if (!tx_is_folder(path) || tx_lora_is_folder(path) || !tx_file_exists(TX_PATH(path, "config.json")) ||
        tx_config_of_folder(path, &config))
        return;
    describe(config, path, text, room);
    tx_config_free(config);
}
