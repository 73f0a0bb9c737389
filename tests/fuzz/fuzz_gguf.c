/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a GGUF file. An accepted file is readable to its last element, and an imported file is a model. */
#include "models/arch/find.h"
#include "models/files/folder.h"
#include "models/gguf/gguf.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <unistd.h>

#define NAME "fuzz.gguf"
#define OUT "fuzz.imported"

static void read_tensors(const tx_gguf_file *file, size_t size)
{
    for (int32_t i = 0; i < tx_gguf_count(file); i++) {
        const tx_gguf_tensor *t = tx_gguf_tensor_at(file, i);
        const int64_t count = tx_gguf_elements(t);
        FUZZ_CHECK(count > 0 && tx_gguf_bytes(t) <= (int64_t)size && tx_gguf_find(file, t->name) == i);
        float *data = malloc((size_t)count * sizeof *data);
        FUZZ_CHECK(data && !tx_gguf_read_f32(file, i, 0, count, data));
        FUZZ_CHECK(tx_gguf_read_f32(file, i, count, tx_gguf_block(t->dtype), data) == TX_INVALID);
        free(data);
    }
}

static void import(const char *out)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        unlink(TX_PATH(out, files[i]));
    if (tx_fuzz_refused(tx_gguf_import(tx_fuzz_path(NAME), out, TX_F32, NULL), NAME))
        return;
    tx_config *config;
    FUZZ_CHECK(!tx_config_of_folder(out, &config));
    FUZZ_CHECK(!tx_arch_check(config, out));
    tx_config_free(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_gguf_file *file;
    tx_fuzz_put(NAME, data, size);
    if (tx_fuzz_refused(tx_gguf_open(tx_fuzz_path(NAME), &file), NAME))
        return 0;
    read_tensors(file, size);
    tx_gguf_close(file);
    import(tx_fuzz_path(OUT));
    return 0;
}
