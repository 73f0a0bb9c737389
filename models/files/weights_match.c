/* SPDX-License-Identifier: Apache-2.0
 * Matches the tensors of weight files with the pieces of a model. Called by weights_load.c. */
#include "models/files/weights_match.h"

#include "models/files/safetensors_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Faults ---------------------------------------------------------------------------------------- */

/* X(NAME, "text before the names") */
#define FAULT_MAP(X)            \
    X(MISSING, "missing")       \
    X(UNEXPECTED, "unexpected") \
    X(TWICE, "duplicate")       \
    X(SHAPE, "wrong shape")     \
    X(TYPE, "wrong type")

typedef enum tx_fault {
#define X(name, text) FAULT_##name,
    FAULT_MAP(X)
#undef X
        FAULT_KINDS
} tx_fault;

static const char *const fault_texts[FAULT_KINDS] = {
#define X(name, text) [FAULT_##name] = text,
    FAULT_MAP(X)
#undef X
};

/* Names of each kind that one message lists; others are only counted. */
#define NAMES_LISTED 20

/* All faults, for a single message. */
typedef struct tx_faults {
    struct {
        char text[2048];
        size_t used;
        int32_t count, left_out;
    } kind[FAULT_KINDS];
} tx_faults;

static void add_fault(tx_faults *faults, tx_fault fault, const char *name, const char *detail)
{
    char one[320];
    size_t used = faults->kind[fault].used;
    int length = snprintf(one, sizeof one, "%s%.150s%.150s", used ? ", " : "", name, detail);
    if (faults->kind[fault].count++ >= NAMES_LISTED || length < 0 ||
        (size_t)length >= sizeof faults->kind[fault].text - used) {
        faults->kind[fault].left_out++;
        return;
    }
    memcpy(faults->kind[fault].text + used, one, (size_t)length + 1);
    faults->kind[fault].used += (size_t)length;
}

/* Returns TX_OK if there are no faults. */
static tx_status report_faults(const tx_faults *faults, const char *path)
{
    char text[sizeof faults->kind + 64 * FAULT_KINDS] = "";
    for (int k = 0; k < FAULT_KINDS; k++) {
        if (faults->kind[k].count)
            tx_list_add(text, sizeof text, "; ", "%s %s", fault_texts[k], faults->kind[k].text);
        if (faults->kind[k].left_out)
            tx_list_add(text, sizeof text, " and ", "%" PRId32 " more", faults->kind[k].left_out);
    }
    return text[0] ? tx_fail(TX_FORMAT, "%s: the weights do not fit the model: %s", path, text) : TX_OK;
}

/* ---- Matching -------------------------------------------------------------------------------------- */

static bool may_lack(const tx_weights_names *names, const tx_weights_piece *piece)
{
    return names->may_lack && names->may_lack(names->context, piece->name);
}

static bool has_shape(const tx_st_tensor *t, const tx_shape *wanted)
{
    const tx_shape shape = tx_st_shape(t);
    return t->rank <= TX_MAX_RANK && tx_shape_equal(&shape, wanted);
}

/* Returns true if a tensor is ignored because of its shape. */
static bool is_dropped(const tx_st_tensor *t, const tx_weights_piece *wanted, const tx_weights_names *names)
{
    return names->other_shape_is_missing && may_lack(names, wanted) && !has_shape(t, &wanted->shape);
}

/* Returns true if a tensor has the first rows of a matrix that has grown. */
static bool has_fewer_rows(const tx_st_tensor *t, const tx_shape *wanted, const tx_weights_names *names)
{
    return names->grown_from && wanted->rank == 2 && t->rank == 2 && wanted->dim[0] == names->grown_to &&
           t->dim[0] == names->grown_from && t->dim[1] == wanted->dim[1];
}

static void check_tensor(const tx_st_tensor *t, const tx_shape *wanted, const tx_weights_names *names,
                         tx_faults *faults)
{
    char have[96], want[96], detail[256];
    const tx_shape shape = tx_st_shape(t);
    if (t->rank > TX_MAX_RANK) {
        snprintf(detail, sizeof detail, " (of %" PRId32 " dimensions)", t->rank);
        add_fault(faults, FAULT_SHAPE, t->name, detail);
    } else if (!has_shape(t, wanted) && !has_fewer_rows(t, wanted, names)) {
        bool transposed =
            shape.rank == 2 && wanted->rank == 2 && shape.dim[0] == wanted->dim[1] && shape.dim[1] == wanted->dim[0];
        snprintf(detail, sizeof detail, " (%s, the configuration requires %s%s)",
                 tx_shape_text(&shape, have, sizeof have), tx_shape_text(wanted, want, sizeof want),
                 transposed ? ": stored transposed" : "");
        add_fault(faults, FAULT_SHAPE, t->name, detail);
    } else if (t->dtype != TX_ST_F32 && t->dtype != TX_ST_F16 && t->dtype != TX_ST_BF16 && t->dtype != TX_ST_F64) {
        snprintf(detail, sizeof detail, " (%s, not F32, F16, BF16 or F64)", tx_st_dtype_name(t->dtype));
        add_fault(faults, FAULT_TYPE, t->name, detail);
    }
}

/* Assigns the tensors to pieces. `sorted` has the pieces' names. */
static void assign(const tx_weights *w, const tx_weights_piece *pieces, const tx_named *sorted, int32_t count,
                   const tx_weights_names *names, int32_t *source, tx_faults *faults)
{
    for (int32_t p = 0; p < count; p++)
        source[p] = -1;
    for (int32_t i = 0; i < tx_weights_count(w); i++) {
        const tx_st_tensor *t = tx_weights_tensor_at(w, i);
        char name[TX_WEIGHTS_NAME];
        names->rename(names->context, t->name, name);
        if (name[0] == '\0')
            continue;
        const int32_t piece = tx_named_find(sorted, (size_t)count, name);
        if (piece < 0) {
            add_fault(faults, FAULT_UNEXPECTED, t->name, "");
        } else if (source[piece] >= 0) {
            add_fault(faults, FAULT_TWICE, t->name, "");
        } else if (!is_dropped(t, &pieces[piece], names)) {
            source[piece] = i;
            check_tensor(t, &pieces[piece].shape, names, faults);
        }
    }
    for (int32_t p = 0; p < count; p++) {
        char other[TX_WEIGHTS_NAME];
        if (source[p] < 0 && names->stand_in && names->stand_in(names->context, pieces[p].name, other)) {
            const int32_t piece = tx_named_find(sorted, (size_t)count, other);
            source[p] = piece < 0 ? -1 : source[piece];
        }
        if (source[p] < 0 && !may_lack(names, &pieces[p]))
            add_fault(faults, FAULT_MISSING, pieces[p].name, "");
    }
}

tx_status tx_weights_match(const tx_weights *w, const tx_weights_piece *pieces, int32_t count,
                           const tx_weights_names *names, int32_t *source)
{
    tx_faults *faults = calloc(1, sizeof *faults);
    tx_named *sorted = malloc((size_t)count * sizeof *sorted);
    tx_status status = TX_OK;
    if (faults && sorted) {
        for (int32_t p = 0; p < count; p++)
            sorted[p] = (tx_named){pieces[p].name, p};
        tx_named_sort(sorted, (size_t)count);
        assign(w, pieces, sorted, count, names, source, faults);
        status = report_faults(faults, tx_weights_path(w));
    } else {
        status = tx_fail(TX_MEMORY, "%s: no memory for its list of tensors", tx_weights_path(w));
    }
    free(faults);
    free(sorted);
    return status;
}
