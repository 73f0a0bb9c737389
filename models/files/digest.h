/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 (FIPS 180-4). The only user of OpenSSL's libcrypto. */
#ifndef TX_FILES_DIGEST_H
#define TX_FILES_DIGEST_H

#include "tx.h"

#define TX_DIGEST_BYTES 32
#define TX_DIGEST_TEXT (2 * TX_DIGEST_BYTES + 1)

/* A digest under construction, to which data are added in pieces. */
typedef struct tx_digest tx_digest;

tx_status tx_digest_create(tx_digest **digest);
/* The first failure persists, also one in reading the data (tx_digest_fail); tx_digest_finish returns it. */
tx_status tx_digest_add(tx_digest *digest, const void *data, size_t size);
tx_status tx_digest_fail(tx_digest *digest, tx_status status);
/* Writes the 64 hexadecimal digits and a NUL. Always frees the digest. */
tx_status tx_digest_finish(tx_digest *digest, char text[TX_DIGEST_TEXT]);
void tx_digest_free(tx_digest *digest);

tx_status tx_digest_data(const void *data, size_t size, char text[TX_DIGEST_TEXT]);
#endif
