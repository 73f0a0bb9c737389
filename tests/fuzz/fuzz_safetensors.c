/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a safetensors file, or one of torch.save(). The tensors of an accepted file are readable to the last
 * element, and those of safetensors tile its data. */
#include "models/files/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define NAME "fuzz.safetensors"
/* Elements that are read as numbers at each end of a tensor. */
enum { SOME = 64 };

static void check_numbers(const tx_st_file *file, int32_t index)
{
    const tx_st_tensor *t = tx_st_tensor_at(file, index);
    bool numbers = t->dtype == TX_ST_F32 || t->dtype == TX_ST_F16 || t->dtype == TX_ST_BF16 || t->dtype == TX_ST_F64 ||
                   t->dtype == TX_ST_U8;
    int64_t elements = tx_st_elements(t), some = elements < SOME ? elements : SOME;
    float value[SOME];
    tx_status status = tx_st_read_f32(file, index, 0, some, value);
    FUZZ_CHECK(numbers ? !status : status == TX_UNSUPPORTED);
    if (!numbers)
        return;
    FUZZ_CHECK(!tx_st_read_f32(file, index, elements - some, some, value));
    FUZZ_CHECK(tx_st_read_f32(file, index, elements, 1, value) == TX_INVALID);
}

static int64_t check_tensor(const tx_st_file *file, int32_t index)
{
    const tx_st_tensor *t = tx_st_tensor_at(file, index);
    int64_t bytes = tx_st_bytes(t);
    int32_t found = -1;
    FUZZ_CHECK(t->rank >= 0 && t->rank <= TX_ST_MAX_RANK && bytes >= 0);
    FUZZ_CHECK(!tx_st_find(file, t->name, &found) && found == index);
    void *data = malloc((size_t)bytes + 1);
    FUZZ_CHECK(data && !tx_st_read(file, index, 0, tx_st_elements(t), data));
    free(data);
    check_numbers(file, index);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_st_file *file;
    tx_fuzz_put(NAME, data, size);
    if (tx_fuzz_refused(tx_st_open(tx_fuzz_path(NAME), &file), NAME))
        return 0;
    int64_t total = 0;
    for (int32_t i = 0; i < tx_st_count(file); i++)
        total += check_tensor(file, i);
    uint64_t header;
    memcpy(&header, data, sizeof header); /* little-endian, as the library asks for */
    const bool torch = memcmp(data, "PK\3\4", 4) == 0 || memcmp(data, "\x80\2\x8a\n", 4) == 0;
    FUZZ_CHECK(torch || total + 8 + (int64_t)header == (int64_t)size);
    tx_st_close(file);
    return 0;
}
