/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a model of SentencePiece, read as each class of transformers, and the same bytes as vocab.txt. An
 * accepted tokenizer encodes any bytes. */
#include "tests/fuzz/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const configs[] = {"{}",
                                          "{\"legacy\": false, \"add_bos_token\": true, \"add_eos_token\": true}",
                                          "{\"tokenizer_class\": \"LlamaTokenizer\"}",
                                          "{\"tokenizer_class\": \"GemmaTokenizer\"}",
                                          "{\"tokenizer_class\": \"T5Tokenizer\", \"extra_ids\": 3}",
                                          "{\"tokenizer_class\": \"XLMRobertaTokenizer\"}",
                                          "{\"tokenizer_class\": \"AlbertTokenizer\"}"};
    tx_fuzz_put("tokenizer.model", data, size);
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        tx_fuzz_put("tokenizer_config.json", configs[i], strlen(configs[i]));
        tx_fuzz_tokenizer(tx_fuzz_path("tokenizer.model"), tx_fuzz_folder());
    }
    tx_fuzz_put("tokenizer_config.json", configs[0], strlen(configs[0]));
    tx_fuzz_put("vocab.txt", data, size);
    tx_fuzz_tokenizer(tx_fuzz_path("vocab.txt"), tx_fuzz_folder());
    return 0;
}
