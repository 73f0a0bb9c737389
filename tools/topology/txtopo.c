/* SPDX-License-Identifier: Apache-2.0
 * txtopo: shows how the GPUs, NICs and OpenCL devices of a machine are connected, for devices of any vendor. */
#include "tools/topology/txtopo.h"
#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tools/cli/profile.h"
#include "tx_topology.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct settings {
    bool matrix, pci, tree, devices, nvidia, json;
    const char *p2p, *input, *watch;
    int64_t bind;
} settings;

#define OPTION(kind, name, field, choices, help)                               \
    {                                                                          \
        TX_OPTION_##kind, name, offsetof(settings, field), 0, 0, choices, help \
    }

static const tx_option options[] = {
    {TX_OPTION_HEADING, NULL, 0, 0, 0, NULL, "Contents:"},
    OPTION(FLAG, "matrix", matrix, NULL, "show the matrix with direct links (the default)"),
    OPTION(FLAG, "pci", pci, NULL, "show only PCI classes, without direct links"),
    OPTION(TEXT, "p2p", p2p, "KINDS",
           "show peer-to-peer access as reported by the drivers: r read, w write, n NVLink, a atomics, p PCI; with "
           "several letters, a cell shows the first that is not OK"),
    OPTION(FLAG, "tree", tree, NULL,
           "show packages, PCI bridges and devices, each with the speed and width of its upstream link"),
    OPTION(FLAG, "devices", devices, NULL,
           "list the devices on which TX computes: memory, driver, types of products and matrix units"),
    {TX_OPTION_INTEGER, "bind", offsetof(settings, bind), 0, 4096, "N",
     "show a placement of N ranks with the device, cores, memory and NIC of each, and command lines for mpiexec, srun, "
     "mpirun, numactl and hwloc-bind"},
    OPTION(OPTIONAL, "watch", watch, "SECONDS",
           "measure the GPUs every 2 seconds, or SECONDS, until Ctrl-C: memory, use, temperature and power as their "
           "drivers report them in /sys and in the fdinfo of processes; with 0, measure once"),
    {TX_OPTION_HEADING, NULL, 0, 0, 0, NULL, "Format:"},
    OPTION(FLAG, "nvidia", nvidia, NULL, "print the layout of nvidia-smi topo -m, byte for byte"),
    OPTION(FLAG, "json", json, NULL, "print all known properties as JSON (tools/topology/txtopo.schema.json)"),
    {TX_OPTION_HEADING, NULL, 0, 0, 0, NULL, "Files:"},
    OPTION(TEXT, "input", input, "FILE",
           "read the topology of another machine: hwloc XML (lstopo --filter io:all FILE.xml) or the text of "
           "nvidia-smi topo -m"),
};

/* The spellings of nvidia-smi. */
static const tx_option_spelling spellings[] = {{"-m", "matrix"}, {"-mp", "pci"}, {"-p2p", "p2p"}};

/* The legend in the help: one line for each class and link of topology.h, except the two that mean no link. */
#define CLASS_LINE(name, cell, legend) "\n  " cell "   " legend
#define LINK_LINE(name, cell, legend) LINE_##name(cell, legend)
#define LINE_NO_LINK(cell, legend)
#define LINE_LINK_UNKNOWN(cell, legend)
#define LINE_NVLINK(cell, legend) "\n  " cell "#   " legend
#define LINE_XGMI(cell, legend) LINE_NVLINK(cell, legend)
#define LINE_XELINK(cell, legend) LINE_NVLINK(cell, legend)

static const tx_cli program = {
    .name = "txtopo",
    .usage = "txtopo [-m | -mp | -p2p KINDS] [OPTION...]",
    .about =
        "Shows how the GPUs, NICs and OpenCL devices of a machine are connected.\n\n"
        "It prints the matrix of nvidia-smi topo -m for devices of any vendor, with their nearest cores and memory.\n"
        "Its cells:\n" TX_TOPO_CLASS_MAP(CLASS_LINE) TX_TOPO_LINK_MAP(LINK_LINE),
    .example = "  txtopo --tree",
    .table = {TX_CLI_OPTIONS(options), TX_CLI_SPELLINGS(spellings)},
};

static int check(const settings *s)
{
    const int shown = s->matrix + s->pci + s->tree + s->devices + (s->p2p != NULL) + (s->bind > 0) + (s->watch != NULL);
    const char wrong = s->p2p ? tx_txtopo_p2p_wrong(s->p2p) : '\0';
    const tx_misuse misuses[] = {
        {shown > 1, "-m, -mp, -p2p, --tree, --devices, --bind and --watch exclude each other"},
        {s->nvidia && s->json, "--nvidia and --json exclude each other"},
        {(s->tree || s->devices || s->bind > 0) && (s->nvidia || s->json),
         "--tree, --devices and --bind exclude --nvidia and --json"},
        {s->devices && s->input, "--devices lists those of this machine: leave out --input"},
        {s->p2p && s->nvidia, "-p2p and --nvidia exclude each other"},
    };
    const int result = tx_complain_misuse(&program, misuses, sizeof misuses / sizeof misuses[0]);
    if (result == TX_GO_ON && wrong)
        return tx_complain(&program, TX_EXIT_USAGE, "-p2p %s: %c is not one of r, w, n, a and p", s->p2p, wrong);
    return result;
}

static tx_status show(const settings *s, const tx_topology *topology)
{
    const bool terminal = isatty(STDOUT_FILENO), links = !s->pci;
    if (s->json) {
        char *text = tx_topology_json(topology);
        if (!text)
            return TX_MEMORY;
        puts(text);
        free(text);
    } else if (s->bind > 0)
        return tx_txtopo_bind(stdout, topology, s->bind);
    else if (s->tree)
        tx_txtopo_tree(stdout, topology);
    else if (s->nvidia)
        tx_txtopo_nvidia(stdout, topology, links);
    else if (s->p2p)
        tx_txtopo_p2p(stdout, topology, s->p2p, terminal);
    else
        tx_txtopo_text(stdout, topology, links, terminal);
    return TX_OK;
}

/* Prints a value and its unit, or "-" if it is unknown. */
static void print_value(int width, double value, const char *unit)
{
    if (isnan(value))
        printf("  %*s %*s", width, "-", (int)strlen(unit), "");
    else
        printf("  %*.1f %s", width, value, unit);
}

static void print_cards(const tx_topo_cards *cards)
{
    const double gib = 0x1p30;
    for (int32_t i = 0; i < cards->count; i++) {
        const tx_topo_card *c = &cards->card[i];
        printf("%-7s %-12s", c->name, c->bus);
        print_value(6, c->memory_used / gib, "of");
        print_value(5, c->memory / gib, "GiB");
        print_value(5, 100.0 * c->busy, "%");
        print_value(5, c->temperature, "C");
        print_value(6, c->power, "W");
        putchar('\n');
    }
}

static int watch(const settings *s)
{
    char *end = NULL;
    const double seconds = *s->watch ? strtod(s->watch, &end) : 2.0;
    tx_topo_cards cards = {.count = 0};
    if ((end && (*end || end == s->watch)) || !(seconds >= 0.0 && seconds <= 3600.0))
        return tx_complain(&program, TX_EXIT_USAGE, "--watch %s: give seconds from 0 to 3600", s->watch);
    tx_topo_cards_read(NULL, true, &cards);
    if (!cards.count)
        return tx_complain(&program, TX_EXIT_FAILURE,
                           "--watch: no driver reports measurements of a GPU in /sys or /proc");
    while (!ferror(stdout)) {
        char *json = s->json ? tx_topo_cards_json(&cards) : NULL;
        if (json)
            puts(json);
        else
            print_cards(&cards);
        free(json);
        fflush(stdout);
        if (!(seconds > 0.0))
            break;
        const struct timespec pause = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
        nanosleep(&pause, NULL);
        tx_topo_cards_read(NULL, true, &cards);
    }
    return tx_end(&program, 0);
}

static int run(const settings *s)
{
    if (s->watch)
        return watch(s);
    if (s->devices)
        return tx_print_devices(stdout) ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error())
                                        : tx_end(&program, 0);
    tx_topology *topology = NULL;
    tx_alive *alive = tx_alive_start(&program, stderr, "looking for devices");
    tx_status status = s->input ? tx_topology_read(s->input, &topology) : tx_topology_live(NULL, &topology);
    TX_THEN(status, show(s, topology));
    tx_topology_free(topology);
    tx_alive_stop(alive);
    return status ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error()) : tx_end(&program, 0);
}

int main(int argc, char **argv)
{
    settings s = {0};
    int status = tx_options_parse(&program, argc, argv, &s);
    if (status == TX_GO_ON)
        status = check(&s);
    return status == TX_GO_ON ? run(&s) : status;
}
