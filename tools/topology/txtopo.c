/* SPDX-License-Identifier: Apache-2.0
 * txtopo: how the GPUs, NICs and OpenCL devices of a machine, of any vendor, are tied together. */
#include "tools/topology/txtopo.h"
#include "api/base/file.h"
#include "comm/topology/measure.h"
#include "tools/cli/alive.h"
#include "tools/cli/options.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_INTERRUPTED 130 /* as a shell says that Ctrl-C ended a program */

typedef struct settings {
    bool matrix, pci, measure, mpi, nvidia, json, csv;
    const char *p2p, *input, *export, *html;
    tx_words explain;
    int64_t bind;
} settings;

#define OPTION(kind, name, field, choices, help)                               \
    {                                                                          \
        TX_OPTION_##kind, name, offsetof(settings, field), 0, 0, choices, help \
    }

static const tx_option options[] = {
    {TX_OPTION_HEADING, NULL, 0, 0, 0, NULL, "What is shown:"},
    OPTION(FLAG, "matrix", matrix, NULL, "the matrix with direct links (what is shown by default)"),
    OPTION(FLAG, "pci", pci, NULL, "PCI classes alone, without direct links"),
    OPTION(
        TEXT, "p2p", p2p, "KINDS",
        "what the drivers promise of peer-to-peer access: r read, w write, n NVLink, a atomics, p PCI; several letters "
        "show the first that is not OK"),
    {TX_OPTION_WORDS, "explain", offsetof(settings, explain), 0, 2, "A B",
     "the way between two devices in words, what limits it, and the all-reduce to expect; A and B (or A,B) as GPU0, "
     "NIC1, 3b:00.0, mlx5_0 or opencl:PLATFORM:DEVICE"},
    {TX_OPTION_INTEGER, "bind", offsetof(settings, bind), 0, 4096, "N",
     "where N ranks go, if N is not 0: device, cores, memory and NIC of each, and lines for mpiexec, srun, mpirun, "
     "numactl "
     "and hwloc-bind"},
    OPTION(
        FLAG, "measure", measure, NULL,
        "also copy between the host's memory on each NUMA node and each OpenCL device, and between devices: bandwidth "
        "and latency beside the class, with the method; what is near but slower than what is far is pointed out. "
        "Ctrl-C ends it with what there is. With --mpi: between hosts instead"),
    OPTION(
        FLAG, "mpi", mpi, NULL,
        "all hosts on which mpiexec started txtopo: one matrix for each kind of host, with the names of its hosts and "
        "in what it differs from the most common kind"),
    {TX_OPTION_HEADING, NULL, 0, 0, 0, NULL, "In which form:"},
    OPTION(FLAG, "nvidia", nvidia, NULL, "the layout of nvidia-smi topo -m, byte for byte"),
    OPTION(FLAG, "json", json, NULL, "JSON with everything that is known (tools/topology/txtopo.schema.json)"),
    OPTION(FLAG, "csv", csv, NULL, "comma-separated values"),
    OPTION(TEXT, "html", html, "FILE", "write a page with the matrix in colours and the tree, and end"),
    {TX_OPTION_HEADING, NULL, 0, 0, 0, NULL, "Files:"},
    OPTION(
        TEXT, "input", input, "FILE",
        "read another machine's topology: hwloc XML (lstopo), the text of nvidia-smi topo -m or rocm-smi --showtopo, "
        "or what --json wrote"),
    OPTION(TEXT, "export", export, "FILE", "write hwloc XML, with direct links, and end"),
};

/* As nvidia-smi spells them. */
static const tx_option_spelling spellings[] = {{"-m", "matrix"}, {"-mp", "pci"}, {"-p2p", "p2p"}};

/* The legend, for the help: a line a word of topology.h; the two words for no link are not among them. */
#define CLASS_LINE(name, cell, legend) "\n  " cell ": " legend
#define LINK_LINE(name, cell, legend) LINE_##name(cell, legend)
#define LINE_NO_LINK(cell, legend)
#define LINE_LINK_UNKNOWN(cell, legend)
#define LINE_NVLINK(cell, legend) "\n  " cell "#: " legend
#define LINE_XGMI(cell, legend) LINE_NVLINK(cell, legend)
#define LINE_XELINK(cell, legend) LINE_NVLINK(cell, legend)

static const tx_cli program = {
    .name = "txtopo",
    .usage = "txtopo [-m | -mp | -p2p KINDS] [OPTION...]",
    .about =
        "Shows how the GPUs, NICs and OpenCL devices of a machine are tied together.\n\n"
        "It is the matrix of nvidia-smi topo -m for any vendor's devices, with the cores and the memory near them.\n"
        "Its cells:\n" TX_TOPO_CLASS_MAP(CLASS_LINE) TX_TOPO_LINK_MAP(LINK_LINE),
    .options = options,
    .count = sizeof options / sizeof options[0],
    .spellings = spellings,
    .spelling_count = sizeof spellings / sizeof spellings[0],
};

static int check(const settings *s)
{
    const bool words = s->explain.count > 0 || s->bind > 0;
    const int shown = s->matrix + s->pci + (s->p2p != NULL) + (s->explain.count > 0) + (s->bind > 0);
    const int forms = s->nvidia + s->json + s->csv + (s->html != NULL);
    const char wrong = s->p2p ? tx_txtopo_p2p_wrong(s->p2p) : '\0';
    const struct {
        bool met;
        const char *text;
    } mistakes[] = {
        {shown > 1, "-m, -mp, -p2p, --explain and --bind exclude each other"},
        {forms > 1, "--nvidia, --json, --csv and --html exclude each other"},
        {words && forms > 0, "--explain and --bind are shown as text"},
        {s->p2p && forms > 0 && !s->json, "-p2p is shown as text or with --json"},
        {s->measure && (s->input || s->export || s->nvidia || s->csv || s->p2p || words),
         "--measure measures this machine and is shown with the matrix, --json or --html"},
        {s->mpi && (s->input || s->export || forms > 0 || s->p2p || words),
         "--mpi looks at live hosts and is shown as the matrix"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        if (mistakes[i].met)
            return tx_complain(&program, TX_EXIT_USAGE, "%s", mistakes[i].text);
    if (s->explain.count > 2 || (s->explain.count == 1 && !strchr(s->explain.word[0], ',')))
        return tx_complain(&program, TX_EXIT_USAGE, "--explain %s: two devices are needed", s->explain.word[0]);
    if (wrong)
        return tx_complain(&program, TX_EXIT_USAGE, "-p2p %s: %c is none of r, w, n, a and p", s->p2p, wrong);
    return TX_GO_ON;
}

static tx_status print_json(const tx_topology *topology)
{
    char *text = tx_topology_json(topology, true);
    if (!text)
        return TX_MEMORY;
    puts(text);
    free(text);
    return TX_OK;
}

static tx_status print_html(FILE *out, const tx_topology *topology)
{
    tx_txtopo_html(out, topology);
    return TX_OK;
}

/* Writes what `print` prints to a file, whole or not at all. */
static tx_status write_to(const char *path, tx_status (*print)(FILE *, const tx_topology *),
                          const tx_topology *topology)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return tx_fail(TX_MEMORY, "%s: out of memory", path);
    tx_status status = print(out, topology);
    if (fclose(out) && !status)
        status = tx_fail(TX_MEMORY, "out of memory");
    if (!status)
        status = tx_file_write_output(path, text, size);
    else
        tx_fail_in(status, "%s", path);
    free(text);
    return status;
}

/* "A,B", or A and B. */
static tx_status explain(const tx_words *words, const tx_topology *topology)
{
    char pair[512];
    const bool two = words->count == 2;
    snprintf(pair, sizeof pair, "%s%s%s", words->word[0], two ? "," : "", two ? words->word[1] : "");
    return tx_txtopo_explain(stdout, topology, pair);
}

static tx_status show(const settings *s, const tx_topology *topology)
{
    bool terminal = isatty(STDOUT_FILENO), links = !s->pci;
    if (s->json)
        return print_json(topology);
    if (s->html)
        return write_to(s->html, print_html, topology);
    if (s->explain.count > 0)
        return explain(&s->explain, topology);
    if (s->bind > 0)
        return tx_txtopo_bind(stdout, topology, s->bind);
    if (s->nvidia)
        tx_txtopo_nvidia(stdout, topology, links);
    else if (s->csv)
        tx_txtopo_csv(stdout, topology, links);
    else if (s->p2p)
        tx_txtopo_p2p(stdout, topology, s->p2p, terminal);
    else {
        tx_txtopo_text(stdout, topology, links, terminal);
        tx_txtopo_measured(stdout, topology);
    }
    return TX_OK;
}

/* ---- Measuring --------------------------------------------------------------------------------------- */

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
    (void)number;
    signalled = 1;
}

/* The first Ctrl-C ends the measuring, another one the program. */
static void catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

static bool stopped(void)
{
    return signalled;
}

static bool go_on(void *terminal, const tx_topology *topology, const tx_topo_copy *next, int32_t done, int32_t count)
{
    if (*(bool *)terminal && !signalled)
        tx_txtopo_measuring(stderr, topology, next, done, count);
    return !signalled;
}

static tx_status measure(tx_topology *topology, bool *partial)
{
    bool terminal = isatty(STDERR_FILENO);
    tx_topo_measure_options how = {.size = sizeof how, .go_on = go_on, .context = &terminal};
    tx_status status = tx_topo_measure(topology, &how);
    if (terminal)
        fputs("\r\033[K", stderr);
    *partial = !status && topology->copy_count < topology->copies_planned;
    return status;
}

/* ---- All ------------------------------------------------------------------------------------------------- */

static tx_status run_here(const settings *s, bool *partial)
{
    tx_topology *topology = NULL;
    tx_status status = s->input ? tx_topology_read(s->input, &topology) : tx_topology_live(NULL, &topology);
    if (!status && s->measure)
        status = measure(topology, partial);
    TX_THEN(status, s->export ? tx_topology_export(topology, s->export) : show(s, topology));
    tx_topology_free(topology);
    return status;
}

static int run(const settings *s, int *argc, char ***argv)
{
    bool partial = false;
    const tx_txtopo_many many = {!s->pci, isatty(STDOUT_FILENO), s->measure, stopped, &partial};
    if (s->measure)
        catch_interrupt();
    tx_alive *alive = tx_alive_start(&program, stderr, s->measure ? "measuring" : "looking for devices");
    tx_status status = s->mpi ? tx_txtopo_mpi(stdout, &many, argc, argv) : run_here(s, &partial);
    tx_alive_stop(alive);
    if (status)
        return tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error());
    const int ending = tx_end(&program, 0);
    return ending || !partial ? ending : EXIT_INTERRUPTED;
}

int main(int argc, char **argv)
{
    settings s = {0};
    int status = tx_options_parse(&program, argc, argv, &s);
    if (status == TX_GO_ON)
        status = check(&s);
    return status == TX_GO_ON ? run(&s, &argc, &argv) : status;
}
