/* SPDX-License-Identifier: Apache-2.0
 * Reads mutated copies of a file: each gives a topology, which is printed, or one line of error, for any reaction of
 * hwloc. Small files are also truncated at every length.
 *
 *   mutate FILE COUNT [SEED] */
#include "tests/topology/helper.h"

#include <inttypes.h>

/* Swaps an attribute's digits for other numbers now and then: damage that survives the XML parser. */
static void change_digits(char *text, size_t size, uint64_t *random)
{
    for (uint64_t places = 1 + next_random(random) % 8; places > 0; places--) {
        size_t at = next_random(random) % size;
        while (at < size && (text[at] < '0' || text[at] > '9'))
            at++;
        if (at < size)
            text[at] = (char)('0' + next_random(random) % 10);
    }
}

/* 1 when the text was read, 0 when it was refused properly, -1 otherwise. */
static int try_text(const char *path, const char *text, size_t size)
{
    tx_topology *t = NULL;
    tx_status status = tx_file_write(path, text, size);
    if (!status)
        status = tx_topology_read(path, &t);
    if (status)
        return t || !*tx_error() || strchr(tx_error(), '\n') ? -1 : 0;
    for (int k = 0; k < 2; k++)
        free(printed(tx_txtopo_nvidia, t, k));
    char *json = tx_topology_json(t);
    const bool written = json != NULL;
    free(json);
    tx_topology_free(t);
    return written ? 1 : -1;
}

int main(int argc, char **argv)
{
    char *text = NULL;
    size_t size = 0;
    if (argc < 3)
        return 2;
    int64_t count = strtoll(argv[2], NULL, 10), read = 0, died = 0;
    uint64_t random = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (tx_file_read(argv[1], 16 << 20, &text, &size)) {
        fprintf(stderr, "%s\n", tx_error());
        return 2;
    }
    char *folder = make_scratch(), *copy = malloc(size * 2 + 64), *path = tx_path_join(folder, "mutated");
    if (!copy || !path)
        return 2;
    for (size_t cut = 1; cut < size && size < 4096; cut += 7)
        if (try_text(path, text, cut) < 0) {
            fprintf(stderr, "%s: the first %zu bytes: \"%s\"\n", argv[1], cut, tx_error());
            return 1;
        }
    for (int64_t i = 0; i < count; i++) {
        uint64_t seed = random;
        memcpy(copy, text, size);
        size_t length = size;
        if (next_random(&random) % 2)
            change_digits(copy, length, &random);
        else
            length = mutate(copy, length, &random);
        int result = try_text(path, copy, length);
        if (result < 0) {
            fprintf(stderr, "%s: seed %" PRIu64 ": \"%s\"\n", argv[1], seed, tx_error());
            return 1;
        }
        read += result;
        died += !result && strstr(tx_error(), "its process ended");
    }
    printf("%s: %" PRId64 " read, %" PRId64 " refused, of which hwloc died of %" PRId64 "\n", argv[1], read,
           count - read, died);
    free(text);
    free(copy);
    free(path);
    remove_scratch(folder);
    return 0;
}
