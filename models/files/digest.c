/* SPDX-License-Identifier: Apache-2.0
 * SHA-256 through OpenSSL. */
#include "models/files/digest.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdlib.h>

struct tx_digest {
    EVP_MD_CTX *context;
    tx_status status; /* the first failure */
};

tx_status tx_digest_create(tx_digest **digest)
{
    tx_digest *created = calloc(1, sizeof *created);
    if (created)
        created->context = EVP_MD_CTX_new();
    if (!created || !created->context || EVP_DigestInit_ex(created->context, EVP_sha256(), NULL) != 1) {
        tx_digest_free(created);
        ERR_clear_error(); /* the library's error queue of this thread */
        return tx_fail(TX_MEMORY, "SHA-256: out of memory");
    }
    *digest = created;
    return TX_OK;
}

tx_status tx_digest_add(tx_digest *digest, const void *data, size_t size)
{
    if (!digest->status && EVP_DigestUpdate(digest->context, data, size) != 1)
        digest->status = tx_fail(TX_INTERNAL, "SHA-256: the library refused %zu bytes", size);
    return digest->status;
}

tx_status tx_digest_fail(tx_digest *digest, tx_status status)
{
    return digest->status = digest->status ? digest->status : status;
}

tx_status tx_digest_finish(tx_digest *digest, char text[TX_DIGEST_TEXT])
{
    static const char hexadecimal[] = "0123456789abcdef";
    unsigned char value[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    tx_status status = digest->status;
    if (!status && (EVP_DigestFinal_ex(digest->context, value, &length) != 1 || length != TX_DIGEST_BYTES))
        status = tx_fail(TX_INTERNAL, "SHA-256: the library returned no digest");
    tx_digest_free(digest);
    if (status)
        return status;
    for (size_t i = 0; i < TX_DIGEST_BYTES; i++) {
        text[2 * i] = hexadecimal[value[i] >> 4];
        text[2 * i + 1] = hexadecimal[value[i] & 15];
    }
    text[2 * TX_DIGEST_BYTES] = '\0';
    return TX_OK;
}

void tx_digest_free(tx_digest *digest)
{
    if (digest)
        EVP_MD_CTX_free(digest->context);
    free(digest);
}

tx_status tx_digest_data(const void *data, size_t size, char text[TX_DIGEST_TEXT])
{
    tx_digest *digest = NULL;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, data, size);
    return tx_digest_finish(digest, text);
}
