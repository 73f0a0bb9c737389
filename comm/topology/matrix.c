/* SPDX-License-Identifier: Apache-2.0
 * Parses the output of `nvidia-smi topo -m`, also after a copy from a terminal or a web page. Tabs may have become
 * spaces, and the header may be underlined. Older versions write SOC and name NICs by their devices. Rows have more
 * fields than the header. */
#include "comm/topology/sources.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WORDS (TX_TOPO_DEVICES_MAX + 16)

typedef struct reader {
    tx_draft *draft;
    char *text, *rest; /* the whole text, and the rest after the current line, which is split into words */
    int64_t line;      /* from 1 */
    const char *words[WORDS];
    int32_t count; /* number of words */
    int32_t rows;
    int32_t next_nic; /* number of the next NIC whose number is not in the header */
} reader;

/* ---- Lines ----------------------------------------------------------------------------------- */

/* Copies the text without the escape sequences of a terminal. */
static tx_status begin(reader *r, const char *text, size_t size)
{
    char *copy = malloc(size + 1), *to = copy;
    r->text = r->rest = copy;
    if (!copy)
        return tx_fail(TX_MEMORY, "topology: out of memory");
    while (*text) {
        if (*text != '\x1b') {
            *to++ = *text++;
            continue;
        }
        /* ESC [ ... letter */
        text += text[1] == '[' ? 2 + strspn(text + 2, "0123456789;?") : 0;
        text += *text && *text != '\n';
    }
    *to = '\0';
    return TX_OK;
}

/* Splits the next line into words. Returns false at the end of the text, or if the line has too many words
 * (`*status`). */
static bool next_line(reader *r, tx_status *status)
{
    char *line = r->rest, *end = line + strcspn(line, "\n"), *left = NULL;
    if (!*line)
        return false;
    r->rest = end + (*end == '\n');
    *end = '\0';
    r->line++;
    r->count = 0;
    for (char *word = strtok_r(line, " \t\r\v\f", &left); word; word = strtok_r(NULL, " \t\r\v\f", &left)) {
        if (r->count == WORDS) {
            *status = tx_fail(TX_FORMAT, "more than %d devices", TX_TOPO_DEVICES_MAX);
            return false;
        }
        r->words[r->count++] = word;
    }
    return true;
}

/* Converts `text` to a number if it consists of one to six digits; otherwise -1. */
static int32_t digits(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && length <= 6 && strspn(text, "0123456789") == length ? (int32_t)strtol(text, NULL, 10) : -1;
}

/* "GPU3" */
static bool gpu_name(const char *word)
{
    return strncasecmp(word, "GPU", 3) == 0 && digits(word + 3) >= 0;
}

/* ---- Words ----------------------------------------------------------------------------------- */

/* Accepts "NIC3", or device names of older versions: "mlx5_0", "mlx5_bond_0", "bnxt_re1". */
static bool nic_name(const char *token)
{
    static const char *const prefixes[] = {"NIC",  "mlx4_", "mlx5_", "bnxt_re", "hfi1_", "irdma", "rdmap", "qedr",
                                           "roce", "ib",    "efa",   "rocep",   "cxi",   "hsi",   "ibp"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncasecmp(token, prefixes[i], strlen(prefixes[i])) == 0)
            return strpbrk(token, "0123456789") != NULL;
    return false;
}

/* Converts a cell to class and links; returns false for an invalid cell. */
static bool read_cell(const char *token, tx_topo_pair *says)
{
    static const struct {
        const char *word;
        tx_topo_class class_;
    } others[] = {{"SOC", TX_TOPO_SYS}, {"PSB", TX_TOPO_PIX}, {"N/A", TX_TOPO_UNKNOWN}};
    *says = tx_draft_links(TX_TOPO_NO_LINK, TX_TOPO_FROM_MATRIX);
    says->class_source = TX_TOPO_FROM_MATRIX;
    for (says->class_ = TX_TOPO_SELF; says->class_ < TX_TOPO_CLASS_COUNT; says->class_++)
        if (strcasecmp(token, tx_topo_class_names[says->class_]) == 0)
            return true;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcasecmp(token, others[i].word) == 0) {
            says->class_ = others[i].class_;
            return true;
        }
    says->class_ = TX_TOPO_UNKNOWN;
    for (says->link = TX_TOPO_NVLINK; says->link <= TX_TOPO_XELINK; says->link++)
        if (strncasecmp(token, tx_topo_link_names[says->link], 2) == 0) {
            says->links = token[2] ? digits(token + 2) : 0;
            return says->links > 0 || (!token[2] && says->link != TX_TOPO_NVLINK);
        }
    return false;
}

/* ---- Header ---------------------------------------------------------------------------------- */

/* Counts the device names before "CPU Affinity" or the end of the line. Returns 0 if the line is not a header; rows
 * have a cell after their name. */
static int32_t header_devices(const reader *r)
{
    int32_t count = 0;
    while (count < r->count && (gpu_name(r->words[count]) || nic_name(r->words[count])))
        count++;
    if (count == r->count)
        return count;
    bool affinity = count + 1 < r->count && strcasecmp(r->words[count], "CPU") == 0 &&
                    strcasecmp(r->words[count + 1], "Affinity") == 0;
    return affinity ? count : 0;
}

static tx_status add_devices(reader *r, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        bool gpu = gpu_name(r->words[i]);
        int32_t given = digits(r->words[i] + 3), index;
        for (int32_t k = 0; k < i; k++)
            if (strcasecmp(r->words[k], r->words[i]) == 0)
                return tx_fail(TX_FORMAT, "the header names a device twice: %.60s", r->words[i]);
        index = tx_draft_device(r->draft, gpu ? TX_TOPO_GPU : TX_TOPO_NIC, 0);
        if (index < 0)
            return r->draft->status;
        tx_topo_device *d = &r->draft->t->devices[index];
        bool numbered = gpu || (strncasecmp(r->words[i], "NIC", 3) == 0 && given >= 0);
        d->number = numbered ? given : r->next_nic;
        r->next_nic = gpu ? r->next_nic : d->number + 1;
        d->source = d->place = TX_TOPO_FROM_MATRIX;
        d->system = numbered ? "" : tx_draft_text(r->draft, r->words[i]);
    }
    return r->draft->status;
}

static tx_status find_header(reader *r)
{
    tx_status status = TX_OK;
    while (next_line(r, &status)) {
        int32_t count = header_devices(r);
        if (count > 0)
            return add_devices(r, count);
    }
    return status
               ? status
               : tx_fail(TX_FORMAT, "is neither hwloc's XML nor the text of nvidia-smi topo -m (no header with GPU0)");
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static tx_status read_cells(reader *r, int32_t row)
{
    const int32_t count = r->draft->t->device_count;
    if (r->count < count + 1)
        return tx_fail(TX_FORMAT, "the row is shorter than the header: %.60s", r->words[0]);
    for (int32_t i = 0; i < count; i++) {
        tx_topo_pair says;
        if (!read_cell(r->words[i + 1], &says))
            return tx_fail(TX_FORMAT, "invalid matrix cell: %.60s", r->words[i + 1]);
        if ((i == row) != (says.class_ == TX_TOPO_SELF))
            return tx_fail(TX_FORMAT, "X is not on the diagonal: %.60s", r->words[0]);
        if (says.link != TX_TOPO_NO_LINK)
            says.note = tx_draft_note(r->draft, false, "The matrix shows links, not the PCI path");
        else if (says.class_ == TX_TOPO_UNKNOWN)
            says.note = tx_draft_note(r->draft, true, "The matrix itself contains ?");
        tx_draft_state(r->draft, row, i, TX_DRAFT_CLASS | (says.link ? TX_DRAFT_LINKS : 0), &says);
    }
    return r->draft->status;
}

/* Reads CPU Affinity, NUMA Affinity and GPU NUMA ID after the cells. N/A becomes an empty field. */
static void read_affinity(reader *r, int32_t row)
{
    const char *fields[3] = {"", "", ""};
    int32_t *numbers = NULL, count = 0, first = r->draft->t->device_count + 1;
    for (int32_t i = 0; i < 3 && first + i < r->count; i++) {
        if (strcasecmp(r->words[first + i], "N/A") == 0)
            continue;
        if (tx_topo_set_parse(r->words[first + i], &numbers, &count))
            return;
        free(numbers);
        fields[i] = r->words[first + i];
    }
    const char *cpus = tx_draft_text(r->draft, fields[0]), *nodes = tx_draft_text(r->draft, fields[1]);
    tx_topo_device *d = &r->draft->t->devices[row];
    d->cpus = cpus;
    d->nodes = nodes;
    d->gpu_numa = digits(fields[2]);
}

/* Adds the CPUs that are near a GPU, each as a core of its own, because a matrix does not show which threads share
 * a core. */
static tx_status add_cpus(tx_draft *draft)
{
    const tx_topology *t = draft->t;
    bool *known = calloc(TX_TOPO_SET_MAX + 1, sizeof *known);
    tx_status status = known ? TX_OK : tx_fail(TX_MEMORY, "topology: out of memory");
    for (int32_t i = 0; i < t->device_count && !status; i++) {
        int32_t *numbers = NULL, count = 0;
        status = tx_topo_set_parse(t->devices[i].cpus, &numbers, &count);
        for (int32_t k = 0; k < count; k++) {
            tx_topo_cpu *cpu = known[numbers[k]] ? NULL : TX_DRAFT_APPEND(draft, draft->t->cpus, draft->t->cpu_count);
            if (cpu)
                *cpu = (tx_topo_cpu){numbers[k], t->cpu_count - 1, 0, digits(t->devices[i].nodes)};
            known[numbers[k]] = true;
        }
        free(numbers);
    }
    free(known);
    return status ? status : draft->status;
}

/* Returns true if the row is that of the header's next device. */
static bool names_device(const reader *r, const tx_topo_device *d)
{
    const char *token = r->words[0];
    if (*d->system)
        return strcasecmp(token, d->system) == 0;
    return strncasecmp(token, tx_topo_device_names[d->kind], 3) == 0 && digits(token + 3) == d->number;
}

/* Reads "  NIC0: mlx5_0" from the legend. */
static void read_nic_legend(reader *r)
{
    size_t length = r->count == 2 ? strlen(r->words[0]) : 0;
    if (length < 5 || strncasecmp(r->words[0], "NIC", 3) != 0 || r->words[0][length - 1] != ':')
        return;
    long number = strtol(r->words[0] + 3, NULL, 10);
    for (int32_t i = 0; i < r->draft->t->device_count; i++) {
        tx_topo_device *d = &r->draft->t->devices[i];
        if (d->kind == TX_TOPO_NIC && d->number == number && !*d->system)
            d->system = tx_draft_text(r->draft, r->words[1]);
    }
}

static tx_status read_rows(reader *r)
{
    tx_status status = TX_OK;
    while (!status && next_line(r, &status)) {
        if (r->rows == r->draft->t->device_count) {
            read_nic_legend(r);
            continue;
        }
        if (r->count == 0 || (!gpu_name(r->words[0]) && !nic_name(r->words[0])) || strchr(r->words[0], ':'))
            continue;
        if (!names_device(r, &r->draft->t->devices[r->rows]))
            return tx_fail(TX_FORMAT, "the rows are not in the header's order: %.60s", r->words[0]);
        status = read_cells(r, r->rows);
        if (!status)
            read_affinity(r, r->rows++);
    }
    if (!status && r->rows < r->draft->t->device_count)
        status = tx_fail(TX_FORMAT, "the matrix ends after %" PRId32 " of %" PRId32 " rows", r->rows,
                         r->draft->t->device_count);
    return status ? status : add_cpus(r->draft);
}

tx_status tx_topo_matrix_parse(const char *text, size_t size, tx_draft *draft)
{
    reader r = {.draft = draft};
    TX_TRY(begin(&r, text, size));
    tx_draft_node(draft, TX_TOPO_MACHINE, -1);
    tx_status status = draft->status ? draft->status : find_header(&r);
    TX_THEN(status, read_rows(&r));
    free(r.text);
    return status && draft->t->device_count > 0 ? tx_fail_in(status, "line %" PRId64, r.line) : status;
}
