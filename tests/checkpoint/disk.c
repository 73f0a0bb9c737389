/* SPDX-License-Identifier: Apache-2.0
 * The disk that a log describes, before and after a loss of power. */
#include "tests/checkpoint/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME = 256, MAX_NODES = 4096, MAX_ENTRIES = 512, MAX_PENDING = 1024, MAX_HANDLES = 65536, ROOT = 0, NONE = -1 };

typedef struct node {
    bool folder;
    char *now, *flushed;
    size_t now_size, flushed_size;
} node;

/* `name` in folder `parent` leads to `node`. */
typedef struct entry {
    int parent, node;
    char name[NAME];
} entry;

typedef struct names {
    entry entry[MAX_ENTRIES];
    int count;
} names;

/* A change of names: `from` goes (unless its parent is NONE), `to` comes (unless NONE). */
typedef struct change {
    entry from, to;
} change;

struct disk {
    node node[MAX_NODES];
    int nodes;
    names now, flushed;
    change pending[MAX_PENDING];
    size_t pendings;
    int handle[MAX_HANDLES]; /* the node that a handle leads to */
};

/* ---- The log ------------------------------------------------------------------------------------- */

static bool read_event(FILE *file, disk_event *e)
{
    char what;
    if (fscanf(file, "%c %ld %ld %ld %zu", &what, &e->call, &e->a, &e->b, &e->size) != 5 || fgetc(file) != '\n')
        return false;
    e->what = what;
    e->data = calloc(1, e->size + 1);
    return e->data && fread(e->data, 1, e->size, file) == e->size && fgetc(file) == '\n';
}

bool disk_log_read(const char *path, disk_log *log)
{
    FILE *file = fopen(path, "rb");
    bool good = file != NULL;
    *log = (disk_log){0};
    for (int next = good ? fgetc(file) : EOF; good && next != EOF; next = fgetc(file)) {
        ungetc(next, file);
        disk_event *larger = realloc(log->event, (log->count + 1) * sizeof *larger);
        good = larger != NULL;
        if (!good)
            break;
        log->event = larger;
        log->event[log->count] = (disk_event){0};
        good = read_event(file, &log->event[log->count++]);
    }
    if (file)
        fclose(file);
    return good;
}

void disk_log_free(disk_log *log)
{
    for (size_t i = 0; i < log->count; i++)
        free(log->event[i].data);
    free(log->event);
}

/* ---- Names --------------------------------------------------------------------------------------- */

static entry *find(names *n, int parent, const char *name)
{
    for (int i = 0; i < n->count; i++)
        if (n->entry[i].parent == parent && strcmp(n->entry[i].name, name) == 0)
            return &n->entry[i];
    return NULL;
}

static void make_change(names *n, const change *c)
{
    entry *old = c->from.parent == NONE ? NULL : find(n, c->from.parent, c->from.name);
    if (old && old->node == c->from.node)
        *old = n->entry[--n->count];
    if (c->to.parent == NONE)
        return;
    entry *place = find(n, c->to.parent, c->to.name);
    if (!place && n->count < MAX_ENTRIES)
        place = &n->entry[n->count++];
    if (place)
        *place = c->to;
}

/* Finds parent and name of an absolute path in the watched folder. Returns false if a folder on the path is missing. */
static bool resolve_path(disk *d, const char *path, entry *out)
{
    *out = (entry){.parent = ROOT, .node = ROOT};
    while (*path == '/')
        path++;
    for (size_t length; *path; path += length + (path[length] == '/')) {
        length = strcspn(path, "/");
        if (length >= NAME || out->node == NONE)
            return false;
        out->parent = out->node;
        memcpy(out->name, path, length);
        out->name[length] = '\0';
        const entry *found = find(&d->now, out->parent, out->name);
        out->node = found ? found->node : NONE;
    }
    return true;
}

static bool add_change(disk *d, const entry *from, const entry *to)
{
    if (d->pendings == MAX_PENDING)
        return false;
    change *c = &d->pending[d->pendings++];
    *c = (change){.from = {.parent = NONE}, .to = {.parent = NONE}};
    if (from)
        c->from = *from;
    if (to)
        c->to = *to;
    make_change(&d->now, c);
    return true;
}

/* ---- Replaying ----------------------------------------------------------------------------------- */

static int add_node(disk *d, bool folder)
{
    if (d->nodes == MAX_NODES)
        return NONE;
    d->node[d->nodes] = (node){.folder = folder};
    return d->nodes++;
}

static bool resize(node *n, size_t size)
{
    char *larger = realloc(n->now, size + 1);
    if (!larger)
        return false;
    if (size > n->now_size)
        memset(larger + n->now_size, 0, size - n->now_size);
    n->now = larger;
    n->now_size = size;
    return true;
}

static bool open_event(disk *d, const disk_event *e)
{
    entry place;
    if (e->a < 0 || e->a >= MAX_HANDLES || !resolve_path(d, e->data, &place))
        return false;
    if (e->b & 1) {
        place.node = add_node(d, false);
        if (place.node == NONE || !add_change(d, NULL, &place))
            return false;
    }
    d->handle[e->a] = place.node;
    return place.node != NONE && (!(e->b & 2) || resize(&d->node[place.node], 0));
}

static bool write_event(node *n, const disk_event *e)
{
    const size_t end = (size_t)e->b + e->size;
    if (end > n->now_size && !resize(n, end))
        return false;
    memcpy(n->now + e->b, e->data, e->size);
    return true;
}

static bool flush_event(disk *d, int which)
{
    node *n = &d->node[which];
    if (n->folder) {
        size_t left = 0;
        for (size_t i = 0; i < d->pendings; i++) {
            if (d->pending[i].from.parent == which || d->pending[i].to.parent == which)
                make_change(&d->flushed, &d->pending[i]);
            else
                d->pending[left++] = d->pending[i];
        }
        d->pendings = left;
        return true;
    }
    char *copy = realloc(n->flushed, n->now_size + 1);
    if (!copy)
        return false;
    if (n->now_size)
        memcpy(copy, n->now, n->now_size);
    n->flushed = copy;
    n->flushed_size = n->now_size;
    return true;
}

static bool rename_event(disk *d, const disk_event *e)
{
    char *second = strchr(e->data, '\n');
    entry from, to;
    if (!second)
        return false;
    *second = '\0';
    const bool good = resolve_path(d, e->data, &from) && resolve_path(d, second + 1, &to) && from.node != NONE;
    *second = '\n';
    to.node = from.node;
    return good && add_change(d, &from, &to);
}

bool disk_apply(disk *d, const disk_event *e)
{
    entry place;
    const int handle = strchr("WTF", e->what) && e->a >= 0 && e->a < MAX_HANDLES ? d->handle[e->a] : NONE;
    switch (e->what) {
    case 'O':
        return open_event(d, e);
    case 'W':
        return handle != NONE && write_event(&d->node[handle], e);
    case 'T':
        return handle != NONE && resize(&d->node[handle], (size_t)e->b);
    case 'F':
        return handle != NONE && flush_event(d, handle);
    case 'R':
        return rename_event(d, e);
    case 'M':
        if (!resolve_path(d, e->data, &place))
            return false;
        place.node = add_node(d, true);
        return place.node != NONE && add_change(d, NULL, &place);
    case 'U':
        return resolve_path(d, e->data, &place) && place.node != NONE && add_change(d, &place, NULL);
    default:
        return e->what == 'X' || e->what == 'E';
    }
}

disk *disk_create(void)
{
    disk *d = calloc(1, sizeof *d);
    if (d)
        (void)add_node(d, true);
    return d;
}

void disk_free(disk *d)
{
    for (int i = 0; d && i < d->nodes; i++) {
        free(d->node[i].now);
        free(d->node[i].flushed);
    }
    free(d);
}

size_t disk_pending(const disk *d)
{
    return d->pendings;
}

/* ---- The loss of power ----------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea and Flood, 2014). */
static uint64_t toss(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static void left_names(const disk *d, const disk_crash *crash, names *n)
{
    uint64_t coin = crash->seed;
    *n = d->flushed;
    for (size_t i = 0; i < d->pendings; i++)
        if (crash->seed ? toss(&coin) & 1 : i < crash->kept)
            make_change(n, &d->pending[i]);
}

/* Returns the content that a crash leaves of a file: `*size` bytes, which are zero from `*zeros` on. */
static const char *left_data(const node *n, int index, const disk_crash *crash, size_t *size, size_t *zeros)
{
    uint64_t coin = crash->seed * 31 + crash->kept * 7 + (uint64_t)index;
    const bool changed =
        n->now_size != n->flushed_size || (n->now_size && memcmp(n->now, n->flushed, n->now_size) != 0);
    *size = *zeros = n->flushed_size;
    if (crash->data == DISK_FLUSHED || !changed)
        return n->flushed;
    *size = *zeros = n->now_size;
    if (crash->data == DISK_ALL)
        return n->now;
    switch (toss(&coin) % 3) {
    case 0:
        *size = *zeros = (size_t)(toss(&coin) % (n->now_size + 1));
        return n->now;
    case 1:
        *zeros = (size_t)(toss(&coin) % (n->now_size + 1));
        return n->now;
    default:
        *size = *zeros = n->flushed_size;
        return n->flushed;
    }
}

static bool build_file(const disk *d, const disk_crash *crash, int index, const char *path)
{
    size_t size, zeros;
    const char *data = left_data(&d->node[index], index, crash, &size, &zeros);
    FILE *file = fopen(path, "wb");
    bool good = file != NULL && (zeros == 0 || fwrite(data, 1, zeros, file) == zeros);
    for (size_t i = zeros; good && i < size; i++)
        good = fputc(0, file) != EOF;
    return file && fclose(file) == 0 && good;
}

static bool build_folder(const disk *d, const disk_crash *crash, const names *n, int folder, const char *path)
{
    bool good = true;
    for (int i = 0; good && i < n->count; i++) {
        char below[4096];
        const entry *e = &n->entry[i];
        if (e->parent != folder)
            continue;
        if (snprintf(below, sizeof below, "%s/%s", path, e->name) >= (int)sizeof below)
            return false;
        good = d->node[e->node].folder ? mkdir(below, 0777) == 0 && build_folder(d, crash, n, e->node, below)
                                       : build_file(d, crash, e->node, below);
    }
    return good;
}

bool disk_build(const disk *d, const disk_crash *crash, const char *path)
{
    names n;
    left_names(d, crash, &n);
    return build_folder(d, crash, &n, ROOT, path);
}

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001B3);
    return hash;
}

uint64_t disk_hash(const disk *d, const disk_crash *crash)
{
    names n;
    uint64_t sum = 0;
    left_names(d, crash, &n);
    for (int i = 0; i < n.count; i++) {
        const entry *e = &n.entry[i];
        uint64_t hash = mix(UINT64_C(0xCBF29CE484222325), e->name, strlen(e->name) + 1);
        hash = mix(hash, &e->parent, sizeof e->parent);
        hash = mix(hash, &e->node, sizeof e->node);
        if (!d->node[e->node].folder) {
            size_t size, zeros;
            const char *data = left_data(&d->node[e->node], e->node, crash, &size, &zeros);
            hash = mix(mix(hash, &size, sizeof size), &zeros, sizeof zeros);
            hash = mix(hash, data ? data : "", zeros);
        }
        sum += hash; /* in whatever order the names come */
    }
    return sum;
}
