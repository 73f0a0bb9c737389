/* SPDX-License-Identifier: Apache-2.0
 * SHA-256 through OpenSSL. */
#include "models/files/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Read at a time. */
#define PIECE ((size_t)1 << 20)

struct tx_digest {
    EVP_MD_CTX *context;
};

tx_status tx_digest_create(tx_digest **digest)
{
    tx_digest *made = calloc(1, sizeof *made);
    if (made)
        made->context = EVP_MD_CTX_new();
    if (!made || !made->context || EVP_DigestInit_ex(made->context, EVP_sha256(), NULL) != 1) {
        tx_digest_free(made);
        ERR_clear_error(); /* what the library keeps of it for this thread */
        return tx_fail(TX_MEMORY, "SHA-256: out of memory");
    }
    *digest = made;
    return TX_OK;
}

tx_status tx_digest_add(tx_digest *digest, const void *data, size_t size)
{
    if (EVP_DigestUpdate(digest->context, data, size) != 1)
        return tx_fail(TX_INTERNAL, "SHA-256: the library refused %zu bytes", size);
    return TX_OK;
}

tx_status tx_digest_finish(tx_digest *digest, char text[TX_DIGEST_TEXT])
{
    static const char hexadecimal[] = "0123456789abcdef";
    unsigned char value[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    bool made = EVP_DigestFinal_ex(digest->context, value, &length) == 1 && length == TX_DIGEST_BYTES;
    tx_digest_free(digest);
    if (!made)
        return tx_fail(TX_INTERNAL, "SHA-256: the library gave no digest");
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
    tx_status status = tx_digest_create(&digest);
    if (!status)
        status = tx_digest_add(digest, data, size);
    if (status) {
        tx_digest_free(digest);
        return status;
    }
    return tx_digest_finish(digest, text);
}

/* Adds what a descriptor gives until its end. */
static tx_status add_file(tx_digest *digest, const char *path, const tx_reporter *report, int fd, int64_t *size)
{
    struct stat info;
    const int64_t whole = fstat(fd, &info) == 0 ? (int64_t)info.st_size : 0;
    char *piece = malloc(PIECE);
    if (!piece)
        return tx_fail(TX_MEMORY, "%s: no memory to read it", path);
    tx_status status = TX_OK;
    ssize_t got = 1;
    while (!status && got != 0) {
        got = read(fd, piece, PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = tx_fail(TX_IO, "%s: cannot read: %s", path, strerror(errno));
        else
            status = tx_digest_add(digest, piece, (size_t)got);
        *size += got;
        tx_report_progress(report, path, *size, whole);
    }
    free(piece);
    return status;
}

tx_status tx_digest_descriptor(int descriptor, const char *path, const tx_reporter *report, char text[TX_DIGEST_TEXT],
                               int64_t *size)
{
    int64_t total = 0;
    tx_digest *digest = NULL;
    tx_status status = tx_digest_create(&digest);
    if (!status)
        status = add_file(digest, path, report, descriptor, &total);
    if (status) {
        tx_digest_free(digest);
        return status;
    }
    status = tx_digest_finish(digest, text);
    if (!status && size)
        *size = total;
    return status;
}
