/* SPDX-License-Identifier: Apache-2.0
 * Reads distributed checkpoints of PyTorch, see dcp.h. */
#include "models/files/dcp.h"

#include "api/base/grow.h"
#include "models/files/pickle.h"
#include "models/tx_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most bytes of a `.metadata`. One of 1,000 tensors on 100 ranks has 10 MB. */
#define METADATA_LIMIT ((int64_t)64 << 20)
/* Most parts of a tensor, which bounds the time to find one. */
#define PARTS_LIMIT 65536
/* Longest name that a file can have. */
#define NAME_LIMIT 255

/* A box of a tensor, and its data. */
typedef struct box {
    int64_t offset[TX_ST_MAX_RANK], size[TX_ST_MAX_RANK];
    int32_t file;
    int64_t at; /* in the file */
} box;

typedef struct tensor {
    tx_st_tensor shape; /* its name is that of the header */
    int64_t begin;      /* its place */
    int32_t first, boxes;
} tensor;

struct tx_dcp {
    char *folder;
    int32_t files, boxes, tensors;
    tx_data_file *file;
    box *box;
    tensor *tensor; /* ascending by place */
};

/* A value of the metadata by its key: a name, and for a part of a tensor its offset. */
typedef struct keyed {
    const tx_pickle_value *name, *value;
    int32_t rank;
    int64_t offset[TX_ST_MAX_RANK];
} keyed;

typedef struct reader {
    tx_pickle pickle;
    char *text;
    keyed *part, *path; /* sorted: where parts are stored; how names were nested */
    int32_t parts, paths;
    int64_t end; /* of the places */
    tx_st_header *header;
    tx_dcp *dcp;
} reader;

/* ---- Values ---------------------------------------------------------------------------------------- */

static tx_status bad(const char *what)
{
    return tx_fail(TX_FORMAT, "%s: the checkpoint is damaged", what);
}

/* Reads a torch.Size: a call with a tuple of sizes. */
static tx_status read_size(const tx_pickle *p, const tx_pickle_value *value, int64_t size[TX_ST_MAX_RANK],
                           int32_t *rank)
{
    const tx_pickle_value *list = tx_pickle_at(p, tx_pickle_at(p, value, 1), 0);
    if (!tx_pickle_calls(p, value, "Size") || !list || list->kind != TX_PICKLE_LIST)
        return bad("a size is missing");
    *rank = 0;
    for (int32_t i = list->first; i >= 0; i = p->item[i].next) {
        const tx_pickle_value *dim = &p->value[p->item[i].value];
        if (dim->kind != TX_PICKLE_INT || dim->number < 0)
            return bad("a size is no number");
        if (*rank == TX_ST_MAX_RANK)
            return tx_fail(TX_UNSUPPORTED, "it has more than %d dimensions", TX_ST_MAX_RANK);
        size[(*rank)++] = dim->number;
    }
    return TX_OK;
}

static int compare_keyed(const void *one, const void *other)
{
    const keyed *a = one, *b = other;
    const int32_t shorter = a->name->size < b->name->size ? a->name->size : b->name->size;
    int order = memcmp(a->name->text, b->name->text, (size_t)shorter);
    if (order == 0)
        order = (a->name->size > b->name->size) - (a->name->size < b->name->size);
    if (order == 0)
        order = (a->rank > b->rank) - (a->rank < b->rank);
    for (int32_t i = 0; i < a->rank && order == 0; i++)
        order = (a->offset[i] > b->offset[i]) - (a->offset[i] < b->offset[i]);
    return order;
}

/* Sorts the items of a dictionary. The keys are names, or each a MetadataIndex. */
static tx_status sort_items(const tx_pickle *p, const tx_pickle_value *dict, bool has_index, keyed **sorted,
                            int32_t *count)
{
    if (!dict || dict->kind != TX_PICKLE_DICT)
        return TX_OK; /* None */
    keyed *list = *sorted = calloc((size_t)p->items / 2 + 1, sizeof *list);
    if (!list)
        return tx_fail(TX_MEMORY, "no memory for the table of tensors");
    for (int32_t value, key = dict->first; key >= 0; key = p->item[value].next) {
        keyed *k = &list[*count];
        const tx_pickle_value *index = &p->value[p->item[key].value];
        const tx_pickle_value *offset = has_index ? tx_pickle_attribute(p, index, "offset") : NULL;
        value = p->item[key].next;
        k->name = has_index ? tx_pickle_attribute(p, index, "fqn") : index;
        if (value < 0 || !k->name || k->name->kind != TX_PICKLE_TEXT)
            return bad("a key has no name or no value");
        k->value = &p->value[p->item[value].value];
        if (offset && offset->kind == TX_PICKLE_CALL) /* bytes have none */
            TX_TRY(read_size(p, offset, k->offset, &k->rank));
        ++*count;
    }
    qsort(list, (size_t)*count, sizeof *list, compare_keyed);
    return TX_OK;
}

/* ---- Parts ----------------------------------------------------------------------------------------- */

/* Finds the file of that name, and opens it at its first use. The name must not lead out of the folder. */
static tx_status find_file(tx_dcp *d, const tx_pickle_value *name, int32_t *file)
{
    char text[NAME_LIMIT + 1];
    if (!name || name->kind != TX_PICKLE_TEXT || name->size < 1 || name->size > NAME_LIMIT)
        return bad("a part has no file");
    snprintf(text, sizeof text, "%.*s", (int)name->size, name->text);
    if (strchr(text, '/') || strcmp(text, ".") == 0 || strcmp(text, "..") == 0)
        return tx_fail(TX_FORMAT, "\"%.100s\" is not the plain name of a file in the folder", text);
    for (*file = 0; *file < d->files; ++*file)
        if (strcmp(strrchr(d->file[*file].path, '/') + 1, text) == 0)
            return TX_OK;
    tx_data_file *larger = tx_grown(d->file, d->files, sizeof *larger);
    if (!larger)
        return tx_fail(TX_MEMORY, "no memory for the files");
    d->file = larger;
    TX_TRY(tx_data_file_open(TX_PATH(d->folder, text), &d->file[d->files]));
    d->files++;
    return TX_OK;
}

/* Reads the archive of a part, a file within a file, and checks that it holds this box. */
static tx_status read_part(tx_dcp *d, const tx_pickle *p, const tx_pickle_value *info, tensor *t, box *b)
{
    const tx_pickle_value *at = tx_pickle_attribute(p, info, "offset"),
                          *length = tx_pickle_attribute(p, info, "length");
    tx_st_entry entry;
    if (tx_pickle_attribute(p, info, "transform_descriptors"))
        return tx_fail(TX_UNSUPPORTED, "its parts are compressed or encrypted: save it without extensions");
    TX_TRY(find_file(d, tx_pickle_attribute(p, info, "relative_path"), &b->file));
    tx_data_file part = d->file[b->file];
    if (!at || at->kind != TX_PICKLE_INT || !length || length->kind != TX_PICKLE_INT || at->number < 0 ||
        length->number < 0 || at->number > part.size || length->number > part.size - at->number)
        return tx_fail(TX_FORMAT, "%s: ends before a part of it: the file is cut off", part.path);
    part.begin = at->number;
    part.size = length->number;
    TX_TRY(tx_fail_in(tx_torch_read_tensor(&part, &entry), "%s", part.path));
    bool same = entry.tensor.rank == t->shape.rank;
    for (int32_t i = 0; i < t->shape.rank && same; i++)
        same = entry.tensor.dim[i] == b->size[i];
    if (!same || (t->boxes > 0 && entry.tensor.dtype != t->shape.dtype))
        return tx_fail(TX_FORMAT, "%s: a part has another shape or type than .metadata says", part.path);
    t->shape.dtype = entry.tensor.dtype;
    b->at = part.begin + entry.begin;
    return TX_OK;
}

static tx_status add_box(reader *r, const tx_pickle_value *name, const tx_pickle_value *chunk, tensor *t,
                         int64_t *elements)
{
    tx_dcp *d = r->dcp;
    const tx_pickle *p = &r->pickle;
    box *larger = tx_grown(d->box, d->boxes, sizeof *larger);
    int32_t rank = 0;
    int64_t count = 1;
    if (!larger)
        return tx_fail(TX_MEMORY, "no memory for its parts");
    d->box = larger;
    box *b = &larger[d->boxes];
    *b = (box){0};
    TX_TRY(read_size(p, tx_pickle_attribute(p, chunk, "sizes"), b->size, &rank));
    keyed key = {.name = name};
    TX_TRY(read_size(p, tx_pickle_attribute(p, chunk, "offsets"), key.offset, &key.rank));
    bool inside = rank == t->shape.rank && key.rank == rank;
    for (int32_t i = 0; i < rank && inside; i++) {
        inside = key.offset[i] <= t->shape.dim[i] && b->size[i] <= t->shape.dim[i] - key.offset[i];
        b->offset[i] = key.offset[i];
        count *= b->size[i]; /* at most the tensor's, which fit */
    }
    if (!inside)
        return bad("a part lies outside of its tensor");
    if (count == 0)
        return TX_OK;
    const keyed *found =
        d->boxes < r->parts ? bsearch(&key, r->part, (size_t)r->parts, sizeof key, compare_keyed) : NULL;
    if (!found)
        return bad("a part is stored nowhere");
    TX_TRY(read_part(d, p, found->value, t, b));
    *elements += count;
    t->boxes++;
    d->boxes++;
    return t->boxes <= PARTS_LIMIT ? TX_OK : tx_fail(TX_UNSUPPORTED, "it has more than %d parts", PARTS_LIMIT);
}

/* ---- Tensors --------------------------------------------------------------------------------------- */

static tx_status add_tensor(reader *r, const tx_pickle_value *fqn, const tx_pickle_value *name,
                            const tx_pickle_value *value)
{
    tx_dcp *d = r->dcp;
    const tx_pickle *p = &r->pickle;
    tx_st_entry *entry = &r->header->entry[r->header->count];
    tensor *t = &d->tensor[d->tensors];
    int64_t bytes = 0, elements = 0;
    entry->name = strndup(name->text, (size_t)name->size);
    if (!entry->name)
        return tx_fail(TX_MEMORY, "no memory for its names");
    r->header->count++;
    *t = (tensor){.begin = r->end, .first = d->boxes, .shape = {.name = entry->name, .dtype = TX_ST_F64}};
    TX_TRY(read_size(p, tx_pickle_attribute(p, value, "size"), t->shape.dim, &t->shape.rank));
    TX_TRY(tx_st_size(&t->shape, &bytes)); /* as the widest type */
    const tx_pickle_value *chunks = tx_pickle_attribute(p, value, "chunks");
    for (int32_t i = chunks ? chunks->first : -1; i >= 0; i = p->item[i].next)
        TX_TRY(add_box(r, fqn, &p->value[p->item[i].value], t, &elements));
    if (elements != tx_st_elements(&t->shape))
        return tx_fail(TX_FORMAT, "its parts have %" PRId64 " elements, its shape %" PRId64, elements,
                       tx_st_elements(&t->shape));
    bytes = tx_st_bytes(&t->shape);
    if (bytes > INT64_MAX - r->end)
        return bad("its sizes overflow");
    d->tensors++;
    entry->tensor = t->shape;
    entry->begin = r->end;
    entry->end = r->end += bytes;
    return TX_OK;
}

/* The name of a weight by the path of its keys: a tensor of the dictionary "model", or without `nested` one at the top.
 * NULL for other tensors. */
static const tx_pickle_value *weight_name(const reader *r, const tx_pickle_value *fqn, bool nested)
{
    const tx_pickle *p = &r->pickle;
    const keyed key = {.name = fqn},
                *found = r->paths > 0 ? bsearch(&key, r->path, (size_t)r->paths, sizeof key, compare_keyed) : NULL;
    const tx_pickle_value *parent = NULL, *name = found ? NULL : fqn;
    for (int32_t i = found ? found->value->first : -1; i >= 0; i = p->item[i].next) {
        parent = name;
        name = &p->value[p->item[i].value];
    }
    const bool is = nested ? tx_pickle_is(parent, TX_PICKLE_TEXT, "model") : parent == NULL;
    return is && name && name->kind == TX_PICKLE_TEXT ? name : NULL;
}

static tx_status list_weights(reader *r, const tx_pickle_value *table, bool nested)
{
    const tx_pickle *p = &r->pickle;
    for (int32_t value, key = table->first; key >= 0; key = p->item[value].next) {
        const tx_pickle_value *fqn = &p->value[p->item[key].value];
        value = p->item[key].next;
        if (value < 0 || fqn->kind != TX_PICKLE_TEXT)
            return bad("a tensor has no name");
        const tx_pickle_value *what = &p->value[p->item[value].value], *name = weight_name(r, fqn, nested);
        if (name && tx_pickle_calls(p, what, "TensorStorageMetadata"))
            TX_TRY(tx_fail_in(add_tensor(r, fqn, name, what), "%.*s", name->size > 100 ? 100 : (int)name->size,
                              name->text));
    }
    return TX_OK;
}

/* Lists optimizer states. The names of their dictionaries come before that of the parameter. */
static tx_status list_states(reader *r, const tx_pickle_value *table)
{
    static const char *const dictionaries[] = {"optimizer.state.", "optim.state."};
    const tx_pickle *p = &r->pickle;
    for (int32_t value, key = table->first; key >= 0; key = p->item[value].next) {
        const tx_pickle_value *fqn = &p->value[p->item[key].value];
        tx_pickle_value name = *fqn;
        value = p->item[key].next;
        if (value < 0 || fqn->kind != TX_PICKLE_TEXT)
            return bad("a tensor has no name");
        for (size_t i = 0; i < sizeof dictionaries / sizeof *dictionaries; i++) {
            const int32_t length = (int32_t)strlen(dictionaries[i]);
            if (fqn->size <= length || memcmp(fqn->text, dictionaries[i], (size_t)length) != 0)
                continue;
            name.text = fqn->text + length;
            name.size = fqn->size - length;
        }
        if (name.text != fqn->text && tx_pickle_calls(p, &p->value[p->item[value].value], "TensorStorageMetadata"))
            TX_TRY(tx_fail_in(add_tensor(r, fqn, &name, &p->value[p->item[value].value]), "%.*s",
                              name.size > 100 ? 100 : (int)name.size, name.text));
    }
    return tx_st_header_sort(r->header);
}

static tx_status read_table(reader *r, bool states)
{
    const tx_pickle *p = &r->pickle;
    const tx_pickle_value *root = &p->value[p->root];
    const tx_pickle_value *table = tx_pickle_attribute(p, root, "state_dict_metadata");
    if (!tx_pickle_calls(p, root, "Metadata") || !table || table->kind != TX_PICKLE_DICT)
        return tx_fail(TX_UNSUPPORTED, "not the metadata of a distributed checkpoint");
    TX_TRY(sort_items(p, tx_pickle_attribute(p, root, "storage_data"), true, &r->part, &r->parts));
    TX_TRY(sort_items(p, tx_pickle_attribute(p, root, "planner_data"), false, &r->path, &r->paths));
    r->header->entry = calloc((size_t)p->items / 2 + 1, sizeof *r->header->entry);
    r->dcp->tensor = calloc((size_t)p->items / 2 + 1, sizeof *r->dcp->tensor);
    if (!r->header->entry || !r->dcp->tensor)
        return tx_fail(TX_MEMORY, "no memory for its table");
    if (states)
        return list_states(r, table);
    TX_TRY(list_weights(r, table, true));
    if (r->header->count == 0)
        TX_TRY(list_weights(r, table, false));
    if (r->header->count == 0)
        return tx_fail(TX_UNSUPPORTED, "it has no weights: a dictionary \"model\", or tensors at the top");
    return tx_st_header_sort(r->header);
}

/* ---- Files ----------------------------------------------------------------------------------------- */

bool tx_dcp_is(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, TX_DCP_METADATA) == 0;
}

static tx_status read_metadata(reader *r, const tx_data_file *file, bool states)
{
    const char *slash = strrchr(file->path, '/');
    if (file->size > METADATA_LIMIT)
        return tx_fail(TX_UNSUPPORTED, "it has %" PRId64 " bytes, over the limit of %" PRId64, file->size,
                       METADATA_LIMIT);
    r->dcp->folder = slash ? strndup(file->path, (size_t)(slash - file->path) + 1) : strdup("./");
    r->text = malloc((size_t)file->size + 1);
    if (!r->dcp->folder || !r->text)
        return tx_fail(TX_MEMORY, "no memory for its table");
    TX_TRY(tx_data_file_read(file, 0, r->text, (size_t)file->size));
    TX_TRY(tx_pickle_parse(r->text, (size_t)file->size, &r->pickle));
    return read_table(r, states);
}

tx_status tx_dcp_open(const tx_data_file *metadata, bool states, tx_st_header *header, tx_dcp **dcp)
{
    reader r = {.header = header, .dcp = calloc(1, sizeof *r.dcp)};
    *dcp = r.dcp;
    const tx_status status = r.dcp ? read_metadata(&r, metadata, states) : tx_fail(TX_MEMORY, "no memory to open it");
    tx_pickle_free(&r.pickle);
    free(r.text);
    free(r.part);
    free(r.path);
    return tx_fail_in(status, "%s", metadata->path);
}

void tx_dcp_close(tx_dcp *dcp)
{
    if (!dcp)
        return;
    for (int32_t i = 0; i < dcp->files; i++)
        tx_data_file_close(&dcp->file[i]);
    free(dcp->file);
    free(dcp->box);
    free(dcp->tensor);
    free(dcp->folder);
    free(dcp);
}

/* ---- Data ------------------------------------------------------------------------------------------ */

/* The number of elements from `element` of the tensor on that follow one another in the box, and the number in the box
 * of the first. 0 if the box does not have it. */
static int64_t find_run(const tx_st_tensor *t, const box *b, int64_t element, int64_t *in_box)
{
    int64_t run = 1, whole = 1, stride = 1;
    bool is_whole = true; /* the dimensions so far */
    *in_box = 0;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        const int64_t index = element % t->dim[i] - b->offset[i];
        element /= t->dim[i];
        if (index < 0 || index >= b->size[i])
            return 0;
        if (is_whole)
            run += (b->size[i] - index - 1) * whole;
        is_whole = is_whole && b->size[i] == t->dim[i];
        whole *= t->dim[i];
        *in_box += index * stride;
        stride *= b->size[i];
    }
    return run;
}

/* The tensor at a place. */
static const tensor *find_tensor(const tx_dcp *d, int64_t at)
{
    int32_t low = 0, high = d->tensors;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (d->tensor[middle].begin <= at)
            low = middle;
        else
            high = middle;
    }
    return &d->tensor[low];
}

tx_status tx_dcp_read(const tx_dcp *dcp, int64_t at, void *data, int64_t bytes)
{
    const tensor *t = find_tensor(dcp, at);
    const int64_t width = tx_st_dtype_bits(t->shape.dtype) / 8;
    int64_t element = (at - t->begin) / width, count = bytes / width;
    char *to = data;
    for (int32_t next = 0; count > 0;) {
        int64_t run = 0, in_box = 0;
        int32_t tries = 0;
        for (; tries < t->boxes && run == 0; tries++, next = next + 1 < t->boxes ? next + 1 : 0)
            run = find_run(&t->shape, &dcp->box[t->first + next], element, &in_box);
        const box *b = &dcp->box[t->first + (next > 0 ? next : t->boxes) - 1];
        if (run == 0)
            return tx_fail(TX_FORMAT, "%s: no part of the checkpoint has element %" PRId64 " of %s", dcp->folder,
                           element, t->shape.name);
        run = run < count ? run : count;
        TX_TRY(tx_data_file_read(&dcp->file[b->file], b->at + in_box * width, to, (size_t)(run * width)));
        to += run * width;
        element += run;
        count -= run;
    }
    return TX_OK;
}
