/* SPDX-License-Identifier: Apache-2.0
 * The text of `rocm-smi --showtopo`: a table each of weights, hops and link types between GPUs, and their NUMA nodes.
 * Only the link types must be there. The kernel, whose words these are, knows XGMI and NUMA nodes and no PCIe switch: a
 * weight is 15 for each XGMI link that is crossed and 20 for each way between a GPU and its CPU; a hop is 1 over XGMI,
 * 2 through one CPU, 3 through two. */
#include "comm/topology/pasted.h"
#include "comm/topology/sources.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { VENDOR_AMD = 0x1002, ONE_LINK = 15, ONE_CPU = 2 };

enum { WEIGHTS, HOPS, TYPES, ACCESS, TABLE_COUNT, NO_TABLE = -1 };
static const char *const titles[] = {"Weight", "Hops", "Link Type", "Link accessibility"}; /* "... between two GPUs" */

/* Values of TYPES and ACCESS; of the others a number. */
enum { UNTOLD = -1, PCIE = 0, XGMI = 1, DENIED = 0, GRANTED = 1 };

typedef struct reader {
    tx_draft *draft;
    tx_pasted lines;
    int32_t table;               /* whose title came last; NO_TABLE */
    int32_t rows;                /* of it so far; -1: its header is due */
    int32_t *cells[TABLE_COUNT]; /* [a * devices + b]; NULL: the table is not there */
    int32_t numa[TX_TOPO_DEVICES_MAX];
} reader;

/* ---- Tables ------------------------------------------------------------------------------------------------ */

/* The table whose title a line is ("=== Link Type between two GPUs ==="); NO_TABLE. */
static int32_t title_of(const tx_pasted *line)
{
    char title[64] = "";
    size_t used = 0;
    int32_t i = 0;
    for (; i < line->count && strcasecmp(line->words[i], "between") != 0 && used < sizeof title; i++)
        if (line->words[i][strspn(line->words[i], "=")])
            used += (size_t)snprintf(title + used, sizeof title - used, "%s%s", used ? " " : "", line->words[i]);
    for (int32_t k = 0; k < TABLE_COUNT && i < line->count; k++)
        if (strcasecmp(title, titles[k]) == 0)
            return k;
    return NO_TABLE;
}

static bool all_gpus(const tx_pasted *line)
{
    for (int32_t i = 0; i < line->count; i++)
        if (!tx_pasted_gpu(line->words[i]))
            return false;
    return line->count > 0;
}

/* The first header names the devices, the others must name the same. */
static tx_status read_header(reader *r)
{
    tx_topology *t = r->draft->t;
    const bool first = t->device_count == 0;
    for (int32_t i = 0; i < r->lines.count; i++) {
        const int32_t number = tx_pasted_digits(r->lines.words[i] + 3);
        if (!first && (r->lines.count != t->device_count || t->devices[i].number != number))
            return tx_fail(TX_FORMAT, "the tables are not of the same GPUs: %.60s", r->lines.words[i]);
        for (int32_t k = 0; k < i && first; k++)
            if (t->devices[k].number == number)
                return tx_fail(TX_FORMAT, "the header names a device twice: %.60s", r->lines.words[i]);
        const int32_t index = first ? tx_draft_device(r->draft, TX_TOPO_GPU, 0) : i;
        if (index < 0)
            return r->draft->status;
        tx_topo_device *d = &t->devices[index];
        d->number = number;
        d->source = d->place = TX_TOPO_FROM_MATRIX;
        d->vendor_id = VENDOR_AMD;
        d->vendor = tx_topo_vendor(VENDOR_AMD);
        d->system = tx_draft_format(r->draft, "rsmi%" PRId32, number);
        r->numa[index] = first ? UNTOLD : r->numa[index];
    }
    const size_t count = (size_t)t->device_count;
    if (r->cells[r->table])
        return tx_fail(TX_FORMAT, "there are two tables: %s between two GPUs", titles[r->table]);
    r->cells[r->table] = calloc(count * count, sizeof **r->cells);
    r->rows = 0;
    return r->cells[r->table] ? r->draft->status : tx_fail(TX_MEMORY, "topology: out of memory");
}

/* What a cell says; false for what no cell says. rocm-smi leaves 0 where it could not read a type. */
static bool read_cell(int32_t table, const char *word, int32_t *value)
{
    static const struct {
        int32_t table;
        const char *word;
        int32_t value;
    } known[] = {{TYPES, "PCIE", PCIE},     {TYPES, "XGMI", XGMI},     {TYPES, "XXXX", UNTOLD},  {TYPES, "0", UNTOLD},
                 {ACCESS, "True", GRANTED}, {ACCESS, "False", DENIED}, {NO_TABLE, "N/A", UNTOLD}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if ((known[i].table == table || known[i].table == NO_TABLE) && strcasecmp(word, known[i].word) == 0) {
            *value = known[i].value;
            return true;
        }
    *value = table == WEIGHTS || table == HOPS ? tx_pasted_digits(word) : UNTOLD;
    return *value >= 0;
}

static tx_status read_row(reader *r)
{
    const tx_topology *t = r->draft->t;
    if (tx_pasted_digits(r->lines.words[0] + 3) != t->devices[r->rows].number)
        return tx_fail(TX_FORMAT, "the rows are not in the header's order: %.60s", r->lines.words[0]);
    if (r->lines.count != t->device_count + 1)
        return tx_fail(TX_FORMAT, "the row has not as many cells as the header: %.60s", r->lines.words[0]);
    for (int32_t i = 0; i < t->device_count; i++)
        if (!read_cell(r->table, r->lines.words[i + 1], &r->cells[r->table][r->rows * t->device_count + i]))
            return tx_fail(TX_FORMAT, "no cell of the table \"%s between two GPUs\": %.60s", titles[r->table],
                           r->lines.words[i + 1]);
    if (++r->rows == t->device_count)
        r->table = NO_TABLE;
    return TX_OK;
}

static tx_status check_whole(const reader *r)
{
    if (r->table == NO_TABLE)
        return TX_OK;
    return tx_fail(TX_FORMAT, "the table \"%s between two GPUs\" ends after %" PRId32 " of %" PRId32 " rows",
                   titles[r->table], r->rows < 0 ? 0 : r->rows, r->draft->t->device_count);
}

/* "GPU[0]  : (Topology) Numa Affinity: 1", or "GPU 0 : ...". What is no number there (-1) stays untold. */
static tx_status read_numa(reader *r)
{
    const tx_pasted *line = &r->lines;
    const bool apart = line->count > 1 && strcasecmp(line->words[0], "GPU") == 0;
    if (line->count < 4 || strcasecmp(line->words[line->count - 3], "Numa") != 0)
        return TX_OK;
    const char *digits =
        apart ? line->words[1] : line->words[0] + (strncasecmp(line->words[0], "GPU[", 4) == 0 ? 4 : 0);
    char *end = NULL;
    const long number = strtol(digits, &end, 10);
    if (end == digits)
        return TX_OK;
    for (int32_t i = 0; i < r->draft->t->device_count; i++)
        if (r->draft->t->devices[i].number == number) {
            const int32_t node = tx_pasted_digits(line->words[line->count - 1]);
            r->numa[i] = node >= 0 ? node : r->numa[i];
            return TX_OK;
        }
    return tx_fail(TX_FORMAT, "the tables name no GPU%ld", number);
}

static tx_status read_tables(reader *r)
{
    tx_status status = TX_OK;
    while (!status && tx_pasted_next(&r->lines, &status)) {
        const int32_t title = title_of(&r->lines);
        if (title != NO_TABLE) {
            status = check_whole(r);
            r->table = title;
            r->rows = -1;
        } else if (r->table != NO_TABLE && all_gpus(&r->lines))
            status = read_header(r);
        else if (r->table != NO_TABLE && r->rows >= 0 && r->lines.count > 0 && tx_pasted_gpu(r->lines.words[0]))
            status = read_row(r);
        else
            status = read_numa(r);
    }
    return status ? status : check_whole(r);
}

/* ---- What they say --------------------------------------------------------------------------------------------- */

/* A cell of a table; UNTOLD where there is none. */
static int32_t told(const reader *r, int32_t table, int32_t a, int32_t b)
{
    return r->cells[table] ? r->cells[table][a * r->draft->t->device_count + b] : UNTOLD;
}

/* The way beside XGMI: through NUMA nodes, as far as these are told. */
static void say_class(const reader *r, int32_t a, int32_t b, tx_topo_pair *says)
{
    const int32_t hops = told(r, HOPS, a, b);
    const bool nodes = r->numa[a] >= 0 && r->numa[b] >= 0;
    says->class_source = TX_TOPO_FROM_MATRIX;
    if ((nodes && r->numa[a] != r->numa[b]) || hops > ONE_CPU)
        says->class_ = TX_TOPO_SYS;
    else if (nodes || hops == ONE_CPU) {
        says->class_ = TX_TOPO_NODE;
        says->class_confidence = TX_TOPO_GUESSED;
        says->note = tx_draft_note(r->draft, false, "rocm-smi tells no PCIe switches: NODE may be PIX, PXB or PHB");
    } else {
        says->class_ = TX_TOPO_UNKNOWN;
        says->note = tx_draft_note(r->draft, true, "rocm-smi tells neither NUMA nodes nor hops of some GPUs");
    }
}

static void say_links(const reader *r, int32_t a, int32_t b, tx_topo_pair *says)
{
    const int32_t type = told(r, TYPES, a, b);
    if (type == UNTOLD) {
        says->link = TX_TOPO_LINK_UNKNOWN;
        says->link_confidence = TX_TOPO_UNSURE;
        says->note = tx_draft_note(r->draft, true, "rocm-smi does not tell the type of some links");
    } else if (type == XGMI) {
        says->link = TX_TOPO_XGMI;
        says->indirect = told(r, WEIGHTS, a, b) > ONE_LINK;
        says->note = tx_draft_note(r->draft, false,
                                   "rocm-smi --showtopo does not tell how many XGMI links there are: XG stands without "
                                   "a number");
    }
}

static tx_status state_pair(reader *r, int32_t a, int32_t b)
{
    const tx_topology *t = r->draft->t;
    tx_topo_pair says = tx_draft_links(TX_TOPO_NO_LINK, TX_TOPO_FROM_MATRIX);
    if (told(r, TYPES, a, b) != told(r, TYPES, b, a))
        return tx_fail(TX_FORMAT, "the link from GPU%" PRId32 " to GPU%" PRId32 " has another type than the one back",
                       t->devices[a].number, t->devices[b].number);
    say_class(r, a, b, &says);
    say_links(r, a, b, &says);
    const int32_t access = told(r, ACCESS, a, b);
    if (access != UNTOLD)
        says.p2p[TX_TOPO_ACCESS_READ] = says.p2p[TX_TOPO_ACCESS_WRITE] =
            access == GRANTED ? TX_TOPO_P2P_OK : TX_TOPO_P2P_NS;
    tx_draft_state(r->draft, a, b, TX_DRAFT_CLASS | TX_DRAFT_P2P | (says.link ? TX_DRAFT_LINKS : 0), &says);
    return r->draft->status;
}

static tx_status state_all(reader *r)
{
    tx_topology *t = r->draft->t;
    tx_status status = TX_OK;
    if (!r->cells[TYPES])
        return tx_fail(TX_FORMAT,
                       "has no table \"Link Type between two GPUs\"; rocm-smi --showtopo prints all of them");
    for (int32_t a = 0; a < t->device_count && !status; a++) {
        t->devices[a].nodes = r->numa[a] < 0 ? "" : tx_draft_format(r->draft, "%" PRId32, r->numa[a]);
        for (int32_t b = 0; b < t->device_count && !status; b++)
            status = a == b ? TX_OK : state_pair(r, a, b);
    }
    return status ? status : r->draft->status;
}

tx_status tx_topo_showtopo_parse(const char *text, size_t size, tx_draft *draft)
{
    reader r = {.draft = draft, .table = NO_TABLE};
    TX_TRY(tx_pasted_begin(&r.lines, text, size));
    tx_draft_node(draft, TX_TOPO_MACHINE, -1);
    tx_status status = draft->status ? draft->status : read_tables(&r);
    if (status)
        status = tx_fail_in(status, "line %" PRId64, r.lines.line);
    else
        status = state_all(&r);
    for (int32_t i = 0; i < TABLE_COUNT; i++)
        free(r.cells[i]);
    free(r.lines.text);
    return status;
}
