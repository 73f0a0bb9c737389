/* SPDX-License-Identifier: Apache-2.0
 * Bytes as printable characters. */
#include "models/text/bpe.h"
#include "models/text/utf8.h"

void tx_letters_make(tx_letters *letters)
{
    int16_t code = 256;
    for (int i = 0; i < TX_LETTER_CODES; i++)
        letters->byte[i] = -1;
    for (int16_t byte = 0; byte < 256; byte++) {
        bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        int16_t letter = printable ? byte : code++;
        letters->code[byte] = (uint16_t)letter;
        letters->byte[letter] = byte;
    }
}

bool tx_letters_read(const tx_letters *letters, const char *text, size_t size, char *bytes, size_t *count)
{
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code;
        size_t length = tx_utf8_read(text + at, size - at, &code);
        if (!length || code >= TX_LETTER_CODES || letters->byte[code] < 0)
            return false;
        bytes[used++] = (char)letters->byte[code];
        at += length;
    }
    *count = used;
    return true;
}

void tx_letters_write(const tx_letters *letters, const char *bytes, size_t size, char *text)
{
    for (size_t i = 0; i < size; i++)
        text += tx_utf8_write(letters->code[(unsigned char)bytes[i]], text);
    *text = '\0';
}
