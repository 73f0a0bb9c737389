/* SPDX-License-Identifier: Apache-2.0
 * A topology as one page: the matrix coloured by class, the tree, the devices. It needs no network, and shows the same
 * without its script, which only makes hovering comfortable. */
#include "tools/topology/html.h"
#include "comm/topology/rates.h"
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <string.h>

void tx_html_text(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
}

const char *tx_html_memory(int64_t bytes, char text[32])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;
    text[0] = '\0';
    for (; value >= 1000 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        value /= 1024;
    if (bytes > 0)
        snprintf(text, 32, value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

/* ---- Head ------------------------------------------------------------------------------------------ */

/* Prints the page up to the next mark; returns what follows it. */
static const char *print_page(FILE *out, const char *page, const char *mark)
{
    const char *end = mark ? strstr(page, mark) : NULL;
    size_t length = end ? (size_t)(end - page) : strlen(page);
    fwrite(page, 1, length, out);
    return page + length + (end ? strlen(mark) : 0);
}

static void print_count(FILE *out, int64_t count, const char *one, const char *many)
{
    if (count > 0)
        fprintf(out, "<li><b>%" PRId64 "</b> %s</li>\n", count, count == 1 ? one : many);
}

static void print_counts(FILE *out, const tx_topology *t)
{
    int64_t packages = 0, cores = 0, numa = 0, memory = 0;
    char text[32];
    for (int32_t i = 0; i < t->node_count; i++)
        packages += t->nodes[i].kind == TX_TOPO_PACKAGE;
    for (int32_t i = 0; i < t->cpu_count; i++)
        cores = t->cpus[i].core >= cores ? t->cpus[i].core + 1 : cores;
    for (int32_t i = 0; i < t->numa_count; i++)
        if (t->numa[i].device < 0) {
            numa++;
            memory += t->numa[i].memory;
        }
    fputs("<ul class=\"counts\">\n", out);
    print_count(out, t->gpus, "GPU", "GPUs");
    print_count(out, t->nics, "NIC", "NICs");
    print_count(out, t->cpu_devices, "CPU device", "CPU devices");
    print_count(out, packages, "package", "packages");
    print_count(out, numa, "NUMA node", "NUMA nodes");
    print_count(out, cores, "core", "cores");
    if (t->cpu_count > cores)
        print_count(out, t->cpu_count, "hardware thread", "hardware threads");
    if (memory > 0)
        fprintf(out, "<li><b>%s</b> memory</li>\n", tx_html_memory(memory, text));
    fputs("</ul>\n", out);
}

static const char *machine_name(const tx_topology *t)
{
    const char *slash = strrchr(t->file, '/'), *file = slash ? slash + 1 : t->file;
    return *t->host ? t->host : *file ? file : "this machine";
}

static void print_head(FILE *out, const tx_topology *t)
{
    fputs("<header>\n<h1>", out);
    tx_html_text(out, machine_name(t));
    fputs("</h1>\n", out);
    print_counts(out, t);
    fputs("</header>\n<main>\n", out);
}

/* ---- Matrix ------------------------------------------------------------------------------------------ */

static const char *limit_text(tx_topo_limit limit)
{
    static const char *const words[] = {"", "", "direct links", "PCIe", "between NUMA nodes"};
    return words[limit];
}

static void print_measured_pair(FILE *out, const tx_topology *t, int32_t a, int32_t b)
{
    for (int32_t i = 0; i < t->copy_count; i++) {
        const tx_topo_copy *copy = &t->copies[i];
        if (copy->kind != TX_TOPO_COPY_BETWEEN || copy->from != a || copy->to != b || !(copy->bandwidth > 0))
            continue;
        tx_txtopo_row row;
        tx_txtopo_copy_row(t, i, &row);
        fprintf(out, "\nMeasured: %s GB/s", row.rate);
        if (copy->latency > 0)
            fprintf(out, ", %s \xc2\xb5s", row.latency);
        fprintf(out, " (%s)", row.method);
        if (*row.remark) {
            fputs(", ", out);
            tx_html_text(out, row.remark);
        }
    }
}

/* What is said of a pair when it is pointed at. */
static void print_about(FILE *out, const tx_topology *t, int32_t a, int32_t b)
{
    char cell[16];
    const tx_topo_pair *p = tx_topo_pair_of(t, a, b);
    tx_topo_rate rate = tx_topo_pair_rate(t, a, b);
    fprintf(out, "%s \xe2\x86\x92 %s: %s", t->devices[a].label, t->devices[b].label, tx_topo_cell(t, a, b, true, cell));
    if (p->link != TX_TOPO_NO_LINK) {
        fputs("\n", out);
        tx_html_text(out, tx_topo_link_legend(p->link));
        if (p->link_rate > 0)
            fprintf(out, "\nLinks: %.1f GB/s one way", p->link_rate);
        fprintf(out, "\nThrough PCI: %s", tx_topo_class_name(p->class_));
    }
    fputs("\n", out);
    tx_html_text(out, tx_topo_class_legend(p->class_));
    if (p->bridges_a + p->bridges_b > 0)
        fprintf(out, "\nBridges between: %" PRId32 " + %" PRId32, p->bridges_a, p->bridges_b);
    if (rate.rate > 0)
        fprintf(out, "\nTo expect: about %.0f GB/s (%s)", rate.rate, limit_text(rate.limit));
    print_measured_pair(out, t, a, b);
    fprintf(out, "\n%s by %s", tx_topo_confidence_name(p->class_confidence), tx_topo_source_name(p->class_source));
    if (p->note >= 0) {
        fputs("\n", out);
        tx_html_text(out, t->notes[p->note].text);
    }
}

/* The style's name of a class: "?" cannot be one. */
static const char *class_style(tx_topo_class value)
{
    return value == TX_TOPO_UNKNOWN ? "unknown" : tx_topo_class_name(value);
}

static const char *link_style(tx_topo_link_kind value)
{
    return value == TX_TOPO_LINK_UNKNOWN ? "unknown" : "link";
}

static void print_cell(FILE *out, const tx_topology *t, int32_t a, int32_t b)
{
    char cell[16];
    const tx_topo_pair *p = tx_topo_pair_of(t, a, b);
    if (a == b) {
        fputs("<td class=\"X\"><span>\xc2\xb7</span></td>", out);
        return;
    }
    fputs("<td title=\"", out);
    print_about(out, t, a, b);
    fputs("\">", out);
    if (p->link != TX_TOPO_NO_LINK)
        fprintf(out, "<span class=\"direct %s\">%s</span>", link_style(p->link), tx_topo_cell(t, a, b, true, cell));
    fprintf(out, "<span class=\"%s%s\">%s</span></td>", class_style(p->class_),
            p->link != TX_TOPO_NO_LINK ? " under" : "", tx_topo_class_name(p->class_));
}

static void print_legend(FILE *out, const tx_topology *t, bool links)
{
    fputs("<dl class=\"legend\">\n", out);
    if (links)
        fputs("<div class=\"strip\"><dt class=\"PXB\"></dt><dd>The strip below a direct link: the way through "
              "PCI</dd></div>\n",
              out);
    for (int i = TX_TOPO_NVLINK; i < TX_TOPO_LINK_COUNT; i++)
        if (tx_topo_has_link(t, (tx_topo_link_kind)i)) {
            fprintf(out, "<div><dt class=\"%s\">%s%s</dt><dd>", link_style((tx_topo_link_kind)i),
                    tx_topo_link_name((tx_topo_link_kind)i), i < TX_TOPO_LINK_UNKNOWN ? "#" : "");
            tx_html_text(out, tx_topo_link_legend((tx_topo_link_kind)i));
            fputs("</dd></div>\n", out);
        }
    for (int i = TX_TOPO_LOC; i < TX_TOPO_CLASS_COUNT; i++)
        if (tx_topo_has_class(t, (tx_topo_class)i)) {
            fprintf(out, "<div><dt class=\"%s\">%s</dt><dd>", class_style((tx_topo_class)i),
                    tx_topo_class_name((tx_topo_class)i));
            tx_html_text(out, tx_topo_class_legend((tx_topo_class)i));
            fputs("</dd></div>\n", out);
        }
    fputs("</dl>\n", out);
}

static void print_matrix(FILE *out, const tx_topology *t)
{
    bool links = false;
    for (int i = TX_TOPO_NVLINK; i < TX_TOPO_LINK_COUNT; i++)
        links = links || tx_topo_has_link(t, (tx_topo_link_kind)i);
    fputs("<section>\n<h2>How they are tied together</h2>\n", out);
    if (links)
        fputs("<input type=\"checkbox\" id=\"pci\"><label for=\"pci\">PCI alone, without direct links</label>\n", out);
    fputs("<div class=\"scroll\"><table class=\"matrix\">\n<thead><tr><th></th>", out);
    for (int32_t i = 0; i < t->device_count; i++)
        fprintf(out, "<th scope=\"col\">%s</th>", t->devices[i].label);
    fputs("<th scope=\"col\" class=\"wide\">CPU affinity</th><th scope=\"col\" class=\"wide\">NUMA</th></tr></thead>\n"
          "<tbody>\n",
          out);
    for (int32_t a = 0; a < t->device_count; a++) {
        const tx_topo_device *d = &t->devices[a];
        fprintf(out, "<tr><th scope=\"row\">%s</th>", d->label);
        for (int32_t b = 0; b < t->device_count; b++)
            print_cell(out, t, a, b);
        fprintf(out, "<td class=\"wide\">%s</td><td class=\"wide\">%s</td></tr>\n", d->cpus, d->nodes);
    }
    fputs("</tbody></table></div>\n", out);
    if (t->device_count > 1)
        print_legend(out, t, links);
    fputs("</section>\n", out);
}

/* ---- Devices and notes ---------------------------------------------------------------------------------- */

/* A column of the table of devices; `text` is room to make it in. Columns that are empty for all are left out. */
typedef struct column {
    const char *head, *style;
    const char *(*text)(const tx_topology *t, const tx_topo_device *d, char text[32]);
} column;

static const char *name_text(const tx_topology *t, const tx_topo_device *d, char text[32])
{
    (void)t;
    (void)text;
    return *d->name ? d->name : d->vendor;
}

static const char *bus_text(const tx_topology *t, const tx_topo_device *d, char text[32])
{
    (void)t;
    (void)text;
    return d->bus;
}

static const char *memory_text(const tx_topology *t, const tx_topo_device *d, char text[32])
{
    (void)t;
    return tx_html_memory(d->memory, text);
}

static const char *opencl_text(const tx_topology *t, const tx_topo_device *d, char text[32])
{
    (void)t;
    (void)text;
    return d->opencl;
}

static const char *engine_text(const tx_topology *t, const tx_topo_device *d, char text[32])
{
    (void)t;
    (void)text;
    return d->engine;
}

static const char *system_text(const tx_topology *t, const tx_topo_device *d, char text[32])
{
    (void)t;
    (void)text;
    return d->system;
}

static const char *nic_text(const tx_topology *t, const tx_topo_device *d, char text[32])
{
    (void)text;
    return d->nic >= 0 ? t->devices[d->nic].label : "";
}

static const column columns[] = {
    {"Name", "", name_text},         {"Bus ID", "code", bus_text},       {"Memory", "code", memory_text},
    {"OpenCL", "code", opencl_text}, {"TX device", "code", engine_text}, {"System", "code", system_text},
    {"Nearest NIC", "", nic_text}};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void print_devices(FILE *out, const tx_topology *t)
{
    char text[32];
    bool used[COLUMNS] = {false};
    fputs("<section>\n<h2>Devices</h2>\n<div class=\"scroll\"><table class=\"devices\">\n<thead><tr>"
          "<th scope=\"col\">Device</th>",
          out);
    for (int k = 0; k < COLUMNS; k++) {
        for (int32_t i = 0; i < t->device_count; i++)
            used[k] = used[k] || *columns[k].text(t, &t->devices[i], text);
        if (used[k])
            fprintf(out, "<th scope=\"col\">%s</th>", columns[k].head);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
    for (int32_t i = 0; i < t->device_count; i++) {
        const tx_topo_device *d = &t->devices[i];
        fprintf(out, "<tr><th scope=\"row\"><span class=\"chip %s\">%s</span></th>", tx_topo_device_name(d->kind),
                d->label);
        for (int k = 0; k < COLUMNS; k++) {
            if (!used[k])
                continue;
            const char *value = columns[k].text(t, d, text);
            fprintf(out, "<td class=\"%s\">", *value ? columns[k].style : "none");
            tx_html_text(out, *value ? value : "\xe2\x80\x93");
            fputs("</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n</section>\n", out);
}

static void print_measured(FILE *out, const tx_topology *t)
{
    if (t->copies_planned == 0)
        return;
    fputs("<section>\n<h2>Measured</h2>\n<div class=\"scroll\"><table class=\"devices\">\n<thead><tr>"
          "<th scope=\"col\">From</th><th scope=\"col\">To</th><th scope=\"col\">Class</th><th scope=\"col\">NUMA "
          "node</th>"
          "<th scope=\"col\">Method</th><th scope=\"col\">GB/s</th><th scope=\"col\">\xc2\xb5s</th>"
          "<th scope=\"col\"></th></tr></thead>\n<tbody>\n",
          out);
    for (int32_t i = 0; i < t->copy_count; i++) {
        tx_txtopo_row row;
        tx_txtopo_copy_row(t, i, &row);
        fprintf(out, "<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%s</td><td title=\"", row.from, row.to,
                row.class_, row.numa);
        tx_html_text(out, tx_topo_method_text(t->copies[i].method));
        fprintf(out, "\">%s</td><td class=\"code\">%s</td><td class=\"code\">%s</td><td class=\"warning\">", row.method,
                row.rate, row.latency);
        tx_html_text(out, row.remark);
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
    if (t->copy_count < t->copies_planned)
        fprintf(out, "<p class=\"warning\">Stopped: %" PRId32 " of %" PRId32 " copies were measured.</p>\n",
                t->copy_count, t->copies_planned);
    fputs("</section>\n", out);
}

static void print_notes(FILE *out, const tx_topology *t)
{
    if (t->note_count == 0)
        return;
    fputs("<section>\n<h2>Notes</h2>\n<ol class=\"notes\">\n", out);
    for (int32_t i = 0; i < t->note_count; i++) {
        fprintf(out, "<li%s>", t->notes[i].warning ? " class=\"warning\"" : "");
        tx_html_text(out, t->notes[i].text);
        fputs(".</li>\n", out);
    }
    fputs("</ol>\n</section>\n", out);
}

void tx_txtopo_html(FILE *out, const tx_topology *t)
{
    const char *page = print_page(out, (const char *)tx_txtopo_page, "@TITLE@");
    fputs("Topology of ", out);
    tx_html_text(out, machine_name(t));
    page = print_page(out, page, "@BODY@");
    print_head(out, t);
    if (t->device_count > 0)
        print_matrix(out, t);
    else
        fputs("<section><p>No GPU, no NIC and no OpenCL device.</p></section>\n", out);
    tx_html_tree(out, t);
    if (t->device_count > 0)
        print_devices(out, t);
    print_measured(out, t);
    print_notes(out, t);
    fputs("</main>\n<footer>txtopo " TX_VERSION, out);
    if (*t->file) {
        fputs(", read from ", out);
        tx_html_text(out, t->file);
    }
    fputs("</footer>", out);
    print_page(out, page, NULL);
}
