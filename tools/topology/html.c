/* SPDX-License-Identifier: Apache-2.0
 * A topology as one page: the matrix coloured by class, the tree, the devices. It needs no network, and shows the same
 * without its script, which only makes hovering comfortable. */
#include "comm/topology/rates.h"
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <string.h>

/* ---- Head ------------------------------------------------------------------------------------------ */

/* Prints the page up to the next mark; returns what follows it. */
static const char *print_page(FILE *out, const char *page, const char *mark)
{
    const char *end = strstr(page, mark);
    fwrite(page, 1, (size_t)(end - page), out);
    return end + strlen(mark);
}

static void print_count(FILE *out, int32_t count, const char *one, const char *many)
{
    if (count > 0)
        tx_html(out, "<li><b>%d</b> %s</li>\n", count, count == 1 ? one : many);
}

static void print_counts(FILE *out, const tx_topology *t)
{
    const int32_t cores = tx_topo_cores(t);
    int32_t numa = 0;
    int64_t memory = 0;
    char text[TX_TXTOPO_CELL];
    for (int32_t i = 0; i < t->numa_count; i++)
        if (t->numa[i].device < 0) {
            numa++;
            memory += t->numa[i].memory;
        }
    fputs("<ul class=\"counts\">\n", out);
    print_count(out, t->gpus, "GPU", "GPUs");
    print_count(out, t->nics, "NIC", "NICs");
    print_count(out, t->cpu_devices, "CPU device", "CPU devices");
    print_count(out, tx_topo_packages(t), "package", "packages");
    print_count(out, numa, "NUMA node", "NUMA nodes");
    print_count(out, cores, "core", "cores");
    if (t->cpu_count > cores)
        print_count(out, t->cpu_count, "hardware thread", "hardware threads");
    if (memory > 0)
        tx_html(out, "<li><b>%s</b> memory</li>\n", tx_txtopo_memory(memory, text));
    fputs("</ul>\n", out);
}

static const char *machine_name(const tx_topology *t)
{
    const char *slash = strrchr(t->file, '/'), *file = slash ? slash + 1 : t->file;
    return *t->host ? t->host : *file ? file : "this machine";
}

/* ---- Tables ------------------------------------------------------------------------------------------ */

/* How a cell of a table looks; `row` is -1 for the heads. */
typedef void (*draw_cell)(FILE *out, const tx_topology *t, int32_t row, int32_t column, const char *text);

static void print_table(FILE *out, const tx_topology *t, const char *style, const tx_txtopo_table *table,
                        draw_cell draw)
{
    char room[TX_TXTOPO_CELL];
    tx_html(out, "<div class=\"scroll\"><table class=\"%s\">\n<thead>", style);
    for (int32_t row = -1; row < table->rows; row++) {
        fputs("<tr>", out);
        for (int32_t k = 0; k < table->columns; k++)
            if (!table->sparse || tx_txtopo_width(table, k))
                draw(out, t, row, k, table->cell(table->of, row, k, room));
        fputs(row < 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

/* ---- Matrix ------------------------------------------------------------------------------------------ */

static void print_measured_pair(FILE *out, const tx_topology *t, int32_t a, int32_t b)
{
    const tx_txtopo_table table = tx_txtopo_copies(t);
    char room[TX_TXTOPO_CELL];
    for (int32_t i = 0; i < t->copy_count; i++) {
        const tx_topo_copy *copy = &t->copies[i];
        if (copy->kind != TX_TOPO_COPY_BETWEEN || copy->from != a || copy->to != b || !(copy->bandwidth > 0))
            continue;
        tx_html(out, "\nMeasured: %s GB/s", table.cell(t, i, TX_TXTOPO_RATE, room));
        if (copy->latency > 0)
            tx_html(out, ", %s \xc2\xb5s", table.cell(t, i, TX_TXTOPO_LATENCY, room));
        const char *remark = table.cell(t, i, TX_TXTOPO_REMARK, room);
        tx_html(out, " (%s)%s%s", tx_topo_method_names[copy->method], *remark ? ", " : "", remark);
    }
}

/* What is said of a pair when it is pointed at. */
static void print_about(FILE *out, const tx_topology *t, int32_t a, int32_t b)
{
    static const char *const limits[] = {"", "", "direct links", "PCIe", "between NUMA nodes"};
    char cell[16];
    const tx_topo_pair *p = tx_topo_pair_of(t, a, b);
    tx_topo_rate rate = tx_topo_pair_rate(t, a, b);
    tx_html(out, "%s \xe2\x86\x92 %s: %s", t->devices[a].label, t->devices[b].label, tx_topo_cell(t, a, b, true, cell));
    if (p->link != TX_TOPO_NO_LINK) {
        tx_html(out, "\n%s", tx_topo_link_legends[p->link]);
        if (p->link_rate > 0)
            tx_html(out, "\nLinks: %.1f GB/s one way", p->link_rate);
        tx_html(out, "\nThrough PCI: %s", tx_topo_class_names[p->class_]);
    }
    tx_html(out, "\n%s", tx_topo_class_legends[p->class_]);
    if (p->bridges_a + p->bridges_b > 0)
        tx_html(out, "\nBridges between: %d + %d", p->bridges_a, p->bridges_b);
    if (rate.rate > 0)
        tx_html(out, "\nTo expect: about %.0f GB/s (%s)", rate.rate, limits[rate.limit]);
    print_measured_pair(out, t, a, b);
    tx_html(out, "\n%s by %s", tx_topo_confidence_names[p->class_confidence], tx_topo_source_names[p->class_source]);
    if (p->note >= 0)
        tx_html(out, "\n%s", t->notes[p->note].text);
}

/* The style's name of a class: "?" cannot be one. */
static const char *class_style(tx_topo_class value)
{
    return value == TX_TOPO_UNKNOWN ? "unknown" : tx_topo_class_names[value];
}

static const char *link_style(tx_topo_link_kind value)
{
    return value == TX_TOPO_LINK_UNKNOWN ? "unknown" : "link";
}

static void print_pair(FILE *out, const tx_topology *t, int32_t a, int32_t b, const char *cell)
{
    const tx_topo_pair *p = tx_topo_pair_of(t, a, b);
    if (a == b) {
        fputs("<td class=\"X\"><span>\xc2\xb7</span></td>", out);
        return;
    }
    fputs("<td title=\"", out);
    print_about(out, t, a, b);
    fputs("\">", out);
    if (p->link != TX_TOPO_NO_LINK)
        tx_html(out, "<span class=\"direct %s\">%s</span>", link_style(p->link), cell);
    tx_html(out, "<span class=\"%s%s\">%s</span></td>", class_style(p->class_),
            p->link != TX_TOPO_NO_LINK ? " under" : "", tx_topo_class_names[p->class_]);
}

static void matrix_cell(FILE *out, const tx_topology *t, int32_t row, int32_t column, const char *text)
{
    const bool wide = column > t->device_count;
    if (row < 0 && column == 0)
        fputs("<th></th>", out);
    else if (row < 0)
        tx_html(out, wide ? "<th scope=\"col\" class=\"wide\">%s</th>" : "<th scope=\"col\">%s</th>", text);
    else if (column == 0 || wide)
        tx_html(out, wide ? "<td class=\"wide\">%s</td>" : "<th scope=\"row\">%s</th>", text);
    else
        print_pair(out, t, row, column - 1, text);
}

static void print_legend(FILE *out, const tx_topology *t, bool links)
{
    static const char line[] = "<div><dt class=\"%s\">%s%s</dt><dd>%s</dd></div>\n";
    fputs("<dl class=\"legend\">\n", out);
    if (links)
        fputs("<div class=\"strip\"><dt class=\"PXB\"></dt><dd>The strip below a direct link: the way through "
              "PCI</dd></div>\n",
              out);
    for (tx_topo_link_kind i = TX_TOPO_NVLINK; i < TX_TOPO_LINK_COUNT; i++)
        if (tx_topo_has_link(t, i))
            tx_html(out, line, link_style(i), tx_topo_link_names[i], i < TX_TOPO_LINK_UNKNOWN ? "#" : "",
                    tx_topo_link_legends[i]);
    for (tx_topo_class i = TX_TOPO_LOC; i < TX_TOPO_CLASS_COUNT; i++)
        if (tx_topo_has_class(t, i))
            tx_html(out, line, class_style(i), tx_topo_class_names[i], "", tx_topo_class_legends[i]);
    fputs("</dl>\n", out);
}

static void print_matrix(FILE *out, const tx_topology *t)
{
    static const tx_txtopo_column affinities[] = {{"CPU affinity", TX_TXTOPO_CPUS}, {"NUMA", TX_TXTOPO_NODES}};
    tx_txtopo_sheet sheet = {
        .t = t, .last = TX_TOPO_CPU, .corner = "", .beside = affinities, .more = 2, .matrix = true, .links = true};
    bool links = false;
    for (tx_topo_link_kind i = TX_TOPO_NVLINK; i < TX_TOPO_LINK_COUNT; i++)
        links = links || tx_topo_has_link(t, i);
    fputs("<section>\n<h2>How they are tied together</h2>\n", out);
    if (links)
        fputs("<input type=\"checkbox\" id=\"pci\"><label for=\"pci\">PCI alone, without direct links</label>\n", out);
    const tx_txtopo_table table = tx_txtopo_sheet_table(&sheet);
    print_table(out, t, "matrix", &table, matrix_cell);
    if (t->device_count > 1)
        print_legend(out, t, links);
    fputs("</section>\n", out);
}

/* ---- Devices and notes ---------------------------------------------------------------------------------- */

static void device_cell(FILE *out, const tx_topology *t, int32_t row, int32_t column, const char *text)
{
    if (row < 0)
        tx_html(out, "<th scope=\"col\">%s</th>", text);
    else if (column == 0)
        tx_html(out, "<th scope=\"row\"><span class=\"chip %s\">%s</span></th>",
                tx_topo_device_names[t->devices[row].kind], text);
    else
        tx_html(out, "<td class=\"%s\">%s</td>", *text ? "code" : "none", *text ? text : "\xe2\x80\x93");
}

static void copy_cell(FILE *out, const tx_topology *t, int32_t row, int32_t column, const char *text)
{
    if (row < 0 || column == 0)
        tx_html(out, "<th scope=\"%s\">%s</th>", row < 0 ? "col" : "row", text);
    else if (column == TX_TXTOPO_METHOD)
        tx_html(out, "<td title=\"%s\">%s</td>", tx_topo_method_texts[t->copies[row].method], text);
    else
        tx_html(out,
                column < TX_TXTOPO_METHOD   ? "<td>%s</td>"
                : column < TX_TXTOPO_REMARK ? "<td class=\"code\">%s</td>"
                                            : "<td class=\"warning\">%s</td>",
                text);
}

static void print_devices(FILE *out, const tx_topology *t)
{
    tx_txtopo_sheet sheet;
    tx_txtopo_devices(t, &sheet);
    const tx_txtopo_table table = tx_txtopo_sheet_table(&sheet);
    fputs("<section>\n<h2>Devices</h2>\n", out);
    print_table(out, t, "devices", &table, device_cell);
    fputs("</section>\n", out);
}

static void print_measured(FILE *out, const tx_topology *t)
{
    const tx_txtopo_table table = tx_txtopo_copies(t);
    if (t->copies_planned == 0)
        return;
    fputs("<section>\n<h2>Measured</h2>\n", out);
    print_table(out, t, "devices", &table, copy_cell);
    if (t->copy_count < t->copies_planned)
        tx_html(out, "<p class=\"warning\">Stopped: %d of %d copies were measured.</p>\n", t->copy_count,
                t->copies_planned);
    fputs("</section>\n", out);
}

static void print_notes(FILE *out, const tx_topology *t)
{
    if (t->note_count == 0)
        return;
    fputs("<section>\n<h2>Notes</h2>\n<ol class=\"notes\">\n", out);
    for (int32_t i = 0; i < t->note_count; i++)
        tx_html(out, t->notes[i].warning ? "<li class=\"warning\">%s.</li>\n" : "<li>%s.</li>\n", t->notes[i].text);
    fputs("</ol>\n</section>\n", out);
}

void tx_txtopo_html(FILE *out, const tx_topology *t)
{
    const char *page = print_page(out, (const char *)tx_txtopo_page, "@TITLE@");
    tx_html(out, "Topology of %s", machine_name(t));
    page = print_page(out, page, "@BODY@");
    tx_html(out, "<header>\n<h1>%s</h1>\n", machine_name(t));
    print_counts(out, t);
    fputs("</header>\n<main>\n", out);
    if (t->device_count > 0)
        print_matrix(out, t);
    else
        fputs("<section><p>No GPU, no NIC and no OpenCL device.</p></section>\n", out);
    tx_html_tree(out, t);
    if (t->device_count > 0)
        print_devices(out, t);
    print_measured(out, t);
    print_notes(out, t);
    tx_html(out, "</main>\n<footer>txtopo %s%s%s</footer>", TX_VERSION, *t->file ? ", read from " : "", t->file);
    fputs(page, out);
}
