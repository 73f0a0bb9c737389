/* SPDX-License-Identifier: Apache-2.0
 * Reads the directory of a zip archive, see zip.h. */
#include "models/files/zip.h"

#include "models/files/varint.h"

#include <stdlib.h>
#include <string.h>

/* The fixed parts of records, and the longest comment at the end. */
enum { END = 22, LOCATOR = 20, END_64 = 56, CENTRAL = 46, LOCAL = 30, COMMENT = 65535, EXTRA = 4 };
#define DIRECTORY_LIMIT ((int64_t)16 << 20)

static tx_status bad(void)
{
    return tx_fail(TX_FORMAT, "the directory of the archive is missing or damaged: the file may be cut off");
}

typedef struct place {
    int64_t at, bytes, members;
} place;

/* Reads the 64-bit record of the end, if the locator before the end names one. */
static tx_status read_end_64(const tx_data_file *file, int64_t end, place *directory)
{
    char locator[LOCATOR], record[END_64];
    if (end < LOCATOR)
        return TX_OK;
    TX_TRY(tx_data_file_read(file, end - LOCATOR, locator, LOCATOR));
    if (memcmp(locator, "PK\6\7", 4) != 0)
        return TX_OK;
    const uint64_t at = tx_fixed_read(locator + 8, 8);
    if (file->size < END_64 || at > (uint64_t)(file->size - END_64))
        return bad();
    TX_TRY(tx_data_file_read(file, (int64_t)at, record, END_64));
    if (memcmp(record, "PK\6\6", 4) != 0)
        return bad();
    *directory = (place){.members = (int64_t)tx_fixed_read(record + 32, 8),
                         .bytes = (int64_t)tx_fixed_read(record + 40, 8),
                         .at = (int64_t)tx_fixed_read(record + 48, 8)};
    return TX_OK;
}

/* Finds the record of the end, which a comment may follow. */
static tx_status find_directory(const tx_data_file *file, place *directory)
{
    const int64_t most = END + COMMENT, size = file->size < most ? file->size : most;
    char *text = malloc((size_t)size + 1);
    tx_status status = text ? tx_data_file_read(file, file->size - size, text, (size_t)size)
                            : tx_fail(TX_MEMORY, "no memory for its directory");
    int64_t i = size - END;
    while (!status && i >= 0 && memcmp(text + i, "PK\5\6", 4) != 0)
        i--;
    if (!status && i < 0)
        status = bad();
    if (!status) {
        *directory = (place){.members = (int64_t)tx_fixed_read(text + i + 10, 2),
                             .bytes = (int64_t)tx_fixed_read(text + i + 12, 4),
                             .at = (int64_t)tx_fixed_read(text + i + 16, 4)};
        status = read_end_64(file, file->size - size + i, directory);
    }
    free(text);
    return status;
}

/* Replaces numbers that do not fit into 32 bits by those of the 64-bit extra field. */
static tx_status widen(const char *extra, uint64_t size, uint64_t *value[3])
{
    for (uint64_t i = 0; i + EXTRA <= size; i += EXTRA + tx_fixed_read(extra + i + 2, 2)) {
        const uint64_t bytes = tx_fixed_read(extra + i + 2, 2);
        if (bytes > size - i - EXTRA)
            return bad();
        uint64_t used = 0;
        for (int k = 0; tx_fixed_read(extra + i, 2) == 1 && k < 3; k++)
            if (*value[k] == UINT32_MAX && used + 8 <= bytes) {
                *value[k] = tx_fixed_read(extra + i + EXTRA + used, 8);
                used += 8;
            }
    }
    return TX_OK;
}

/* The data of a member follow its local header, whose name and extra field may be longer than in the directory. */
static tx_status place_member(const tx_data_file *file, uint64_t header, uint64_t bytes, tx_zip_member *member)
{
    char local[LOCAL];
    const uint64_t size = (uint64_t)file->size;
    if (size < LOCAL || header > size - LOCAL)
        return bad();
    TX_TRY(tx_data_file_read(file, (int64_t)header, local, LOCAL));
    const uint64_t at = header + LOCAL + tx_fixed_read(local + 26, 2) + tx_fixed_read(local + 28, 2);
    if (memcmp(local, "PK\3\4", 4) != 0 || at > size || bytes > size - at)
        return bad();
    member->at = (int64_t)at;
    member->bytes = (int64_t)bytes;
    return TX_OK;
}

/* Reads the member at *record and moves there to the next. The name gets its NUL by moving to the front by one byte. */
static tx_status read_member(const tx_data_file *file, char **record, const char *end, tx_zip_member *member)
{
    char *at = *record;
    if (end - at < CENTRAL || memcmp(at, "PK\1\2", 4) != 0)
        return bad();
    const uint64_t name = tx_fixed_read(at + 28, 2), extra = tx_fixed_read(at + 30, 2),
                   comment = tx_fixed_read(at + 32, 2);
    uint64_t bytes = tx_fixed_read(at + 24, 4), packed = tx_fixed_read(at + 20, 4), header = tx_fixed_read(at + 42, 4);
    const bool stored = tx_fixed_read(at + 10, 2) == 0;
    if (name + extra + comment > (uint64_t)(end - at) - CENTRAL)
        return bad();
    TX_TRY(widen(at + CENTRAL + name, extra, (uint64_t *[]){&bytes, &packed, &header}));
    memmove(at + CENTRAL - 1, at + CENTRAL, name);
    at[CENTRAL - 1 + name] = '\0';
    const char *slash = strchr(at + CENTRAL - 1, '/');
    member->name = slash ? slash + 1 : at + CENTRAL - 1; /* the first part is the name of the archive */
    *record = at + CENTRAL + name + extra + comment;
    if (!stored || packed != bytes)
        return tx_fail(TX_UNSUPPORTED, "%.100s: compressed members are not supported", member->name);
    return place_member(file, header, bytes, member);
}

tx_status tx_zip_open(const tx_data_file *file, tx_zip *zip)
{
    place directory;
    TX_TRY(find_directory(file, &directory));
    if (directory.bytes < 0 || directory.bytes > DIRECTORY_LIMIT || directory.at < 0 || directory.at > file->size ||
        directory.bytes > file->size - directory.at || directory.members < 0 ||
        directory.members > directory.bytes / CENTRAL)
        return bad();
    zip->directory = malloc((size_t)directory.bytes + 1);
    zip->member = calloc((size_t)directory.members + 1, sizeof *zip->member);
    if (!zip->directory || !zip->member)
        return tx_fail(TX_MEMORY, "no memory for its directory");
    TX_TRY(tx_data_file_read(file, directory.at, zip->directory, (size_t)directory.bytes));
    char *record = zip->directory;
    for (; zip->count < directory.members; zip->count++)
        TX_TRY(read_member(file, &record, zip->directory + directory.bytes, &zip->member[zip->count]));
    return tx_zip_sort(zip);
}

tx_status tx_zip_sort(tx_zip *zip)
{
    zip->by_name = malloc(((size_t)zip->count + 1) * sizeof *zip->by_name);
    if (!zip->by_name)
        return tx_fail(TX_MEMORY, "no memory for its directory");
    for (int32_t i = 0; i < zip->count; i++)
        zip->by_name[i] = (tx_named){zip->member[i].name, i};
    const char *twice = tx_named_sort(zip->by_name, (size_t)zip->count);
    return twice ? tx_fail(TX_FORMAT, "%.100s is in the file twice", twice) : TX_OK;
}

void tx_zip_free(tx_zip *zip)
{
    free(zip->member);
    free(zip->by_name);
    free(zip->directory);
    *zip = (tx_zip){0};
}

tx_status tx_zip_find(const tx_zip *zip, const char *name, tx_zip_member *member)
{
    const int32_t found = tx_named_find(zip->by_name, (size_t)zip->count, name);
    if (found < 0)
        return tx_fail(TX_FORMAT, "the file has no %s", name);
    *member = zip->member[found];
    return TX_OK;
}
