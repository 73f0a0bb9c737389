/* SPDX-License-Identifier: Apache-2.0
 * Recorded machines: both matrices equal the expected files cell by cell; the output of --nvidia is read back as the
 * same matrix; and without their bridges the result differs. */
#include "tests/topology/helper.h"

static const char *const machines[] = {"01-dgx2h-16xV100-nvswitch", "04-power9-lassen-4xV100",
                                       "07-pascal-2xP100-plx",      "08-g4dnmetal-8xT4",
                                       "12-corona-8xMI50",          "13-tioga-8xMI250X-xgmi",
                                       "15-tuolumne-12xMI300A-tpx", "17-threadripper-gtx1070+vegafe",
                                       "18-westmere-3xM2050-2ioh",  "23-dgxa100-onenode-excerpt",
                                       "24-epyc7502-4x4090",        "31-conv-8xMI50-pcieswitch",
                                       "33-conv-8xMI100-2hives",    "36-conv-8xA100-azure-ndv4"};
enum { MACHINES = sizeof machines / sizeof machines[0], COLUMNS = 64, LINES = 256 };

/* Skips the test if there are no recorded machines. Call it before anything is allocated. */
static void need_machines(void)
{
    tx_topology_free(recorded(machines[0]));
}

/* ---- Expected files -------------------------------------------------------------------------------- */

/* Cuts at `separator`; returns the number of pieces. */
static int32_t cut(char *text, char separator, char **pieces, int32_t most)
{
    int32_t count = 0;
    for (char *at = text; at && count < most;) {
        pieces[count++] = at;
        at = strchr(at, separator);
        if (at)
            *at++ = '\0';
    }
    return count;
}

/* The device that "  NIC0: 0000:c5:00.0 ..." among the lines says a column is: the k-th of its kind with that bus id,
 * where k columns before have it too. The file numbers NICs in another order than bus ids. */
static int32_t device_of(const tx_topology *t, char **lines, int32_t count, const char *label)
{
    char head[32], bus[32] = "", other[32];
    int32_t before = 0;
    snprintf(head, sizeof head, "  %s: ", label);
    for (int32_t i = 0; i < count; i++)
        if (strncmp(lines[i], head, strlen(head)) == 0)
            sscanf(lines[i] + strlen(head), "%31s", bus);
    assert_true(*bus);
    for (int32_t i = 0; i < count && strncmp(lines[i], head, strlen(head)) != 0; i++)
        before += strncmp(lines[i], "  ", 2) == 0 && strncmp(lines[i] + 2, label, 3) == 0 &&
                  sscanf(strchr(lines[i], ':') + 1, "%31s", other) == 1 && strcmp(other, bus) == 0;
    for (int32_t i = 0; i < t->device_count; i++)
        if (strcmp(t->devices[i].bus, bus) == 0 && strncmp(t->devices[i].label, label, 3) == 0 && before-- == 0)
            return i;
    fail_msg("%s (%s) is not in the topology", label, bus);
    return -1;
}

static void check_row(const tx_topology *t, char **cells, int32_t row, const int32_t *devices, int32_t columns,
                      bool links)
{
    char cell[16];
    const tx_topo_device *d = &t->devices[devices[row]];
    for (int32_t k = 0; k < columns; k++) {
        const char *wanted = row == k ? "X" : cells[k + 1];
        if (row == k)
            assert_string_equal(cells[k + 1], " X ");
        if (strcmp(tx_topo_cell(t, devices[row], devices[k], links, cell), wanted) != 0)
            fail_msg("%s, %s-%s: %s, expected %s", t->file, d->label, t->devices[devices[k]].label, cell, wanted);
    }
    if (d->kind != TX_TOPO_GPU)
        return;
    assert_string_equal(*d->cpus ? d->cpus : "N/A", cells[columns + 1]);
    assert_string_equal(*d->nodes ? d->nodes : "N/A", cells[columns + 2]);
}

/* One matrix of the file, with the list of devices below it. */
static void check_matrix(const tx_topology *t, char *text, bool links)
{
    char *lines[LINES];
    char *header[COLUMNS], *cells[COLUMNS];
    int32_t devices[COLUMNS], columns = 0, count = cut(text, '\n', lines, LINES);
    int32_t words = cut(lines[0], '\t', header, COLUMNS);
    while (columns + 1 < words && !strstr(header[columns + 1], "Affinity"))
        columns++;
    assert_int_equal(columns, t->device_count);
    for (int32_t i = 0; i < columns; i++)
        devices[i] = device_of(t, lines, count, header[i + 1]);
    for (int32_t i = 0; i < columns; i++) {
        assert_true(cut(lines[i + 1], '\t', cells, COLUMNS) > columns);
        assert_string_equal(cells[0], header[i + 1]);
        check_row(t, cells, i, devices, columns, links);
    }
}

static void equals_expected(void **state)
{
    for (size_t i = 0; i < MACHINES; i++) {
        char name[128], *text = NULL;
        size_t size = 0;
        tx_topology *t = recorded(machines[i]);
        snprintf(name, sizeof name, "topo/%s.expected.txt", machines[i]);
        char *expected = test_data(name);
        assert_ok(tx_file_read(expected, 1 << 20, &text, &size));
        char *pci = strchr(text, '\n') + 1, *all = strstr(pci, "\n# with links");
        assert_non_null(all);
        *all = '\0';
        check_matrix(t, pci, false);
        check_matrix(t, strchr(all + 1, '\n') + 1, true);
        free(text);
        free(expected);
        tx_topology_free(t);
    }
}

/* ---- Round trips ---------------------------------------------------------------------------------------- */

static void reads_nvidia_layout(void **state)
{
    need_machines();
    char *folder = make_scratch();
    for (size_t i = 0; i < MACHINES * 2; i++) {
        bool links = i % 2;
        tx_topology *t = recorded(machines[i / 2]);
        char *text = printed(tx_txtopo_nvidia, t, links);
        char *copy = write_scratch(folder, "matrix", text, strlen(text));
        tx_topology *again = read_topology(copy);
        char *second = printed(tx_txtopo_nvidia, again, true), *first = printed(tx_txtopo_nvidia, t, links);
        if (!links) /* the legend of only PCI classes lacks a line */
            first[strcspn(first, "=")] = second[strcspn(second, "=")] = '\0';
        assert_string_equal(first, second);
        free(first);
        free(second);
        free(text);
        free(copy);
        tx_topology_free(t);
        tx_topology_free(again);
    }
    remove_scratch(folder);
}

/* ---- Missing bridges --------------------------------------------------------------------------------------- */

/* Removes the PCI-to-PCI bridges, as in an export without them: lines of <object type="Bridge" bridge_type="1-1"> and
 * their attributes. The files have an element a line. */
static char *without_bridges(const char *text)
{
    char *out = calloc(strlen(text) + 1, 1);
    bool removed[256] = {false};
    int32_t depth = 0;
    assert_non_null(out);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "\n") + 1;
        bool open = strncmp(at + strspn(at, " "), "<object", 7) == 0,
             close = strstr(at, "</object>") == at + strspn(at, " ");
        bool empty = open && length > 2 && at[length - 3] == '/', keep = true;
        char line[4096];
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        if (open && !empty) {
            removed[++depth] = strstr(line, "type=\"Bridge\"") && strstr(line, "bridge_type=\"1-1\"");
            keep = !removed[depth];
        } else if (close)
            keep = !removed[depth--];
        else if (!open && strstr(line, "<info") && removed[depth])
            keep = false;
        if (keep)
            strncat(out, at, length);
        at += at[length - 1] ? length : length - 1;
    }
    return out;
}

static void misses_bridges(void **state)
{
    need_machines();
    char *folder = make_scratch(), *text = NULL;
    size_t size = 0;
    tx_topology *whole = recorded(machines[2]);
    assert_false(has_note(whole, "bridges are missing"));
    assert_cell(whole, "GPU0", "GPU1", false, "PIX");
    assert_ok(tx_file_read(whole->file, 1 << 20, &text, &size));
    char *bare = without_bridges(text);
    char *copy = write_scratch(folder, "bare.xml", bare, strlen(bare));
    tx_topology *t = read_topology(copy);
    assert_cell(t, "GPU0", "GPU1", false, "PHB");
    assert_true(has_note(t, "PCI bridges are missing"));
    assert_true(has_note(t, "PIX and PXB may show as PHB"));
    tx_topology_free(t);
    tx_topology_free(whole);
    free(bare);
    free(copy);
    free(text);
    remove_scratch(folder);
}

static void notes_nothing_false(void **state)
{
    for (size_t i = 0; i < MACHINES; i++) {
        tx_topology *t = recorded(machines[i]);
        for (int32_t k = 0; k < t->note_count; k++)
            if (t->notes[k].warning)
                fail_msg("%s: %s", t->file, t->notes[k].text);
        tx_topology_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_expected),
        cmocka_unit_test(reads_nvidia_layout),
        cmocka_unit_test(misses_bridges),
        cmocka_unit_test(notes_nothing_false),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
