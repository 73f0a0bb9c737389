/* SPDX-License-Identifier: Apache-2.0
 * Reads models of SentencePiece. Unknown fields are skipped, as Protocol Buffers requires. */
#include "models/tokenizer/sentencepiece.h"

#include "models/files/varint.h"
#include "models/tokenizer/bpe.h"
#include "models/tokenizer/utf8.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- Protocol Buffers ------------------------------------------------------------------------------ */

/* How a value is encoded. Groups, which are deprecated, are refused. */
enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };

typedef struct field {
    uint64_t number, kind;
    uint64_t value; /* of VARINT and FIXED32 */
    tx_spm_text text;
} field;

static bool read_varint(tx_spm_text *message, uint64_t *value)
{
    const uint8_t *at = (const uint8_t *)message->data, *end = at + message->size;
    const bool read = tx_varint_read(&at, end, value);
    *message = (tx_spm_text){(const char *)at, (size_t)(end - at)};
    return read;
}

/* Reads the next field of a message. */
static tx_status next_field(tx_spm_text *message, field *f)
{
    uint64_t key, size;
    bool good = read_varint(message, &key);
    *f = (field){.number = key >> 3, .kind = key & 7};
    if (f->kind == VARINT) {
        good = good && read_varint(message, &f->value);
    } else {
        size = f->kind == FIXED64 ? 8 : 4;
        good = good && (f->kind == BYTES ? read_varint(message, &size) : f->kind == FIXED32 || f->kind == FIXED64);
        good = good && f->number && size <= message->size;
        if (good) {
            f->text = (tx_spm_text){message->data, (size_t)size};
            message->data += size;
            message->size -= (size_t)size;
        }
    }
    for (int i = 0; good && f->kind == FIXED32 && i < 4; i++)
        f->value |= (uint64_t)(unsigned char)f->text.data[i] << 8 * i;
    return good ? TX_OK : tx_fail(TX_FORMAT, "not a model of SentencePiece, or damaged");
}

/* ---- The model ------------------------------------------------------------------------------------- */

static tx_status read_piece(tx_spm_text message, tx_spm *model)
{
    tx_spm_piece piece = {.type = TX_SPM_NORMAL};
    field f;
    while (message.size) {
        TX_TRY(next_field(&message, &f));
        const uint32_t bits = (uint32_t)f.value;
        if (f.number == 1 && f.kind == BYTES)
            piece.text = f.text;
        else if (f.number == 2 && f.kind == FIXED32)
            memcpy(&piece.score, &bits, sizeof bits);
        else if (f.number == 3 && f.kind == VARINT && f.value >= TX_SPM_NORMAL && f.value <= TX_SPM_BYTE)
            piece.type = (tx_spm_type)f.value;
    }
    const tx_spm_text text = piece.text;
    if (!text.size || memchr(text.data, '\0', text.size) || tx_utf8_prefix(text.data, text.size) < text.size)
        return tx_fail(TX_FORMAT, "its text is empty, not UTF-8, or contains NUL");
    if (!(piece.score - piece.score == 0))
        return tx_fail(TX_FORMAT, "its score is not a number");
    if (model->count == TX_VOCAB_LIMIT)
        return tx_fail(TX_UNSUPPORTED, "more than %d pieces", TX_VOCAB_LIMIT);
    TX_TRY(tx_array_reserve(&model->piece, &model->room, model->count + 1, sizeof piece, "pieces"));
    model->piece[model->count++] = piece;
    return TX_OK;
}

static tx_status read_trainer(tx_spm_text message, tx_spm *model)
{
    field f;
    while (message.size) {
        TX_TRY(next_field(&message, &f));
#define X(name, field_number, value_without_it)         \
    if (f.number == (field_number) && f.kind == VARINT) \
        model->name = (int32_t)(uint32_t)f.value;
        TX_SPM_TRAINER(X)
    }
    return TX_OK;
}

static tx_status read_normalizer(tx_spm_text message, tx_spm *model)
{
    field f;
    while (message.size) {
        TX_TRY(next_field(&message, &f));
        TX_SPM_NORMALIZER(X)
#undef X
        if (f.number == 2 && f.kind == BYTES)
            model->charsmap = f.text;
    }
    return TX_OK;
}

static tx_status read_model(tx_spm_text message, tx_spm *model)
{
    field f;
    while (message.size) {
        TX_TRY(next_field(&message, &f));
        if (f.kind == BYTES && f.number == 1)
            TX_TRY(tx_fail_in(read_piece(f.text, model), "piece %zu", model->count));
        else if (f.kind == BYTES && f.number == 2)
            TX_TRY(read_trainer(f.text, model));
        else if (f.kind == BYTES && f.number == 3)
            TX_TRY(read_normalizer(f.text, model));
    }
    if (!model->count)
        return tx_fail(TX_FORMAT, "not a model of SentencePiece: it has no pieces");
    if (model->kind != TX_SPM_UNIGRAM && model->kind != TX_SPM_BPE)
        return tx_fail(TX_UNSUPPORTED, "model type %" PRId32 " is not supported, only Unigram and BPE", model->kind);
    if (model->whitespace_suffix)
        return tx_fail(TX_UNSUPPORTED, "treat_whitespace_as_suffix is not supported");
    if (model->unk_id < 0 || (size_t)model->unk_id >= model->count)
        return tx_fail(TX_FORMAT, "unk_id %" PRId32 " is not the id of a piece", model->unk_id);
    return TX_OK;
}

tx_status tx_spm_read(const char *data, size_t size, tx_spm *model)
{
#define X(name, field, value) .name = (value),
    tx_spm result = {TX_SPM_TRAINER(X) TX_SPM_NORMALIZER(X)};
#undef X
    const tx_status status = read_model((tx_spm_text){data, size}, &result);
    if (status)
        tx_spm_free(&result);
    else
        *model = result;
    return status;
}

void tx_spm_free(tx_spm *model)
{
    free(model->piece);
    *model = (tx_spm){0};
}
