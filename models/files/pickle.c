/* SPDX-License-Identifier: Apache-2.0
 * Reads Python pickles as data, see pickle.h. */
#include "models/files/pickle.h"

#include "api/base/grow.h"
#include "models/files/varint.h"

#include <stdlib.h>
#include <string.h>

enum { MARK = -1 };
/* Attributes of an object that are looked at. Many objects may share one dictionary, so a long one would take long. */
enum { ATTRIBUTES = 16 };

typedef struct parser {
    const char *text;
    size_t size, at;
    tx_pickle pickle;
    int32_t *stack, *memo; /* values; the stack also has marks */
    int32_t height, memos;
    bool stopped;
} parser;

static tx_status bad(const char *what)
{
    return tx_fail(TX_FORMAT, "not a pickle of data: %s", what);
}

/* ---- Bytes ------------------------------------------------------------------------------------------- */

static tx_status take(parser *p, size_t bytes, const char **at)
{
    if (bytes > p->size - p->at)
        return bad("it is cut off");
    *at = p->text + p->at;
    p->at += bytes;
    return TX_OK;
}

/* Reads a little-endian number of up to 8 bytes; with `has_sign` the last bit is the sign. */
static tx_status take_number(parser *p, int32_t bytes, bool has_sign, int64_t *number)
{
    const char *at = NULL;
    TX_TRY(take(p, (size_t)bytes, &at));
    uint64_t result = tx_fixed_read(at, bytes);
    if (has_sign && bytes > 0 && bytes < 8 && result >> (8 * bytes - 1))
        result |= UINT64_MAX << (8 * bytes);
    *number = (int64_t)result;
    return TX_OK;
}

/* ---- Values ------------------------------------------------------------------------------------------ */

static tx_status push(parser *p, int32_t value)
{
    int32_t *stack = tx_grown(p->stack, p->height, sizeof *stack);
    if (!stack)
        return tx_fail(TX_MEMORY, "no memory for a pickle");
    p->stack = stack;
    p->stack[p->height++] = value;
    return TX_OK;
}

static tx_status push_value(parser *p, tx_pickle_value value)
{
    tx_pickle_value *values = tx_grown(p->pickle.value, p->pickle.values, sizeof *values);
    if (!values)
        return tx_fail(TX_MEMORY, "no memory for a pickle");
    p->pickle.value = values;
    value.first = value.last = value.state = -1;
    values[p->pickle.values] = value;
    return push(p, p->pickle.values++);
}

static tx_status push_kind(parser *p, int32_t kind)
{
    return push_value(p, (tx_pickle_value){.kind = (tx_pickle_kind)kind});
}

/* Removes the top of the stack, which must be a value. */
static tx_status pop(parser *p, int32_t *value)
{
    if (p->height == 0 || p->stack[p->height - 1] == MARK)
        return bad("its stack is empty");
    *value = p->stack[--p->height];
    return TX_OK;
}

static tx_status append(parser *p, int32_t to, int32_t value)
{
    tx_pickle_item *items = tx_grown(p->pickle.item, p->pickle.items, sizeof *items);
    if (!items)
        return tx_fail(TX_MEMORY, "no memory for a pickle");
    p->pickle.item = items;
    items[p->pickle.items] = (tx_pickle_item){value, -1};
    tx_pickle_value *v = &p->pickle.value[to];
    if (v->last >= 0)
        items[v->last].next = p->pickle.items;
    else
        v->first = p->pickle.items;
    v->last = p->pickle.items++;
    return TX_OK;
}

/* The height of the stack at its last mark. */
static tx_status find_mark(const parser *p, int32_t *height)
{
    int32_t i = p->height;
    while (i > 0 && p->stack[i - 1] != MARK)
        i--;
    if (i == 0)
        return bad("a mark is missing");
    *height = i - 1;
    return TX_OK;
}

/* ---- Opcodes ----------------------------------------------------------------------------------------- */

static tx_status skip(parser *p, int32_t bytes)
{
    const char *at;
    return take(p, (size_t)bytes, &at);
}

static tx_status skip_and_push(parser *p, int32_t bytes)
{
    TX_TRY(skip(p, bytes));
    return push_kind(p, TX_PICKLE_OTHER);
}

static tx_status whole(parser *p, int32_t bytes)
{
    int64_t number = 0;
    TX_TRY(take_number(p, bytes, bytes == 4, &number));
    return push_value(p, (tx_pickle_value){.kind = TX_PICKLE_INT, .number = number});
}

static tx_status truth(parser *p, int32_t value)
{
    return push_value(p, (tx_pickle_value){.kind = TX_PICKLE_INT, .number = value});
}

/* A number with its length in a byte; larger ones than 64 bits are kept as None. */
static tx_status long_number(parser *p, int32_t unused)
{
    int64_t bytes = 0, number = 0;
    (void)unused;
    TX_TRY(take_number(p, 1, false, &bytes));
    if (bytes > 8)
        return skip_and_push(p, (int32_t)bytes);
    TX_TRY(take_number(p, (int32_t)bytes, true, &number));
    return push_value(p, (tx_pickle_value){.kind = TX_PICKLE_INT, .number = number});
}

static tx_status words(parser *p, int32_t length_bytes)
{
    int64_t length = 0;
    tx_pickle_value value = {.kind = TX_PICKLE_TEXT};
    TX_TRY(take_number(p, length_bytes, false, &length));
    if (length < 0 || length > INT32_MAX)
        return bad("a text is too long");
    TX_TRY(take(p, (size_t)length, &value.text));
    value.size = (int32_t)length;
    return push_value(p, value);
}

/* The lines of a module and a name. */
static tx_status global(parser *p, int32_t unused)
{
    tx_pickle_value value = {.kind = TX_PICKLE_GLOBAL};
    (void)unused;
    for (int i = 0; i < 2; i++) {
        const char *begin = p->text + p->at, *end = memchr(begin, '\n', p->size - p->at);
        if (!end)
            return bad("it is cut off");
        value.text = begin;
        value.size = (int32_t)(end - begin);
        p->at += (size_t)(end - begin) + 1;
    }
    return push_value(p, value);
}

/* A module and a name from the stack. */
static tx_status stack_global(parser *p, int32_t unused)
{
    int32_t name = 0, module;
    (void)unused;
    TX_TRY(pop(p, &name));
    TX_TRY(pop(p, &module));
    tx_pickle_value value = p->pickle.value[name];
    if (value.kind != TX_PICKLE_TEXT)
        return bad("a name is no text");
    value.kind = TX_PICKLE_GLOBAL;
    return push_value(p, value);
}

static tx_status mark(parser *p, int32_t unused)
{
    (void)unused;
    return push(p, MARK);
}

/* Makes a value of this kind of the values above the mark. */
static tx_status collect(parser *p, int32_t kind)
{
    int32_t from = 0;
    TX_TRY(find_mark(p, &from));
    const int32_t height = p->height;
    TX_TRY(push_kind(p, kind));
    for (int32_t i = from + 1; i < height; i++)
        TX_TRY(append(p, p->pickle.values - 1, p->stack[i]));
    p->height = from;
    return push(p, p->pickle.values - 1);
}

/* Adds the values above the mark to the value below it. */
static tx_status add_all(parser *p, int32_t unused)
{
    int32_t from = 0;
    (void)unused;
    TX_TRY(find_mark(p, &from));
    if (from == 0 || p->stack[from - 1] == MARK)
        return bad("there is nothing to add to");
    for (int32_t i = from + 1; i < p->height; i++)
        TX_TRY(append(p, p->stack[from - 1], p->stack[i]));
    p->height = from;
    return TX_OK;
}

/* Makes a value of this kind of the top values of the stack. */
static tx_status gather(parser *p, int32_t kind, int32_t count)
{
    int32_t value[3] = {0};
    for (int32_t i = count - 1; i >= 0; i--)
        TX_TRY(pop(p, &value[i]));
    TX_TRY(push_kind(p, kind));
    for (int32_t i = 0; i < count; i++)
        TX_TRY(append(p, p->pickle.values - 1, value[i]));
    return TX_OK;
}

static tx_status tuple(parser *p, int32_t count)
{
    return gather(p, TX_PICKLE_LIST, count);
}

static tx_status call(parser *p, int32_t unused)
{
    (void)unused;
    return gather(p, TX_PICKLE_CALL, 2);
}

static tx_status persistent(parser *p, int32_t unused)
{
    (void)unused;
    return gather(p, TX_PICKLE_PERSISTENT, 1);
}

/* Adds the top values to the value below them. */
static tx_status add(parser *p, int32_t count)
{
    int32_t value[2] = {0};
    for (int32_t i = count - 1; i >= 0; i--)
        TX_TRY(pop(p, &value[i]));
    if (p->height == 0 || p->stack[p->height - 1] == MARK)
        return bad("there is nothing to add to");
    for (int32_t i = 0; i < count; i++)
        TX_TRY(append(p, p->stack[p->height - 1], value[i]));
    return TX_OK;
}

/* Sets the state of the value below. */
static tx_status build(parser *p, int32_t unused)
{
    int32_t state = 0;
    (void)unused;
    TX_TRY(pop(p, &state));
    if (p->height == 0 || p->stack[p->height - 1] == MARK)
        return bad("there is no object to build");
    p->pickle.value[p->stack[p->height - 1]].state = state;
    return TX_OK;
}

static tx_status drop(parser *p, int32_t unused)
{
    int32_t value;
    (void)unused;
    return pop(p, &value);
}

/* The bytes of the number of a remembered value; 0 takes the next one. A number is below the size of the pickle. */
static tx_status put(parser *p, int32_t bytes)
{
    int64_t number = p->memos;
    if (bytes > 0)
        TX_TRY(take_number(p, bytes, false, &number));
    if (number >= (int64_t)p->size || p->height == 0)
        return bad("it remembers no value");
    while (p->memos <= number) {
        int32_t *memo = tx_grown(p->memo, p->memos, sizeof *memo);
        if (!memo)
            return tx_fail(TX_MEMORY, "no memory for a pickle");
        p->memo = memo;
        p->memo[p->memos++] = MARK;
    }
    p->memo[number] = p->stack[p->height - 1];
    return TX_OK;
}

static tx_status get(parser *p, int32_t bytes)
{
    int64_t number = 0;
    TX_TRY(take_number(p, bytes, false, &number));
    if (number >= p->memos || p->memo[number] == MARK)
        return bad("it recalls a value that it has not remembered");
    return push(p, p->memo[number]);
}

static tx_status stop(parser *p, int32_t unused)
{
    (void)unused;
    p->stopped = true;
    return pop(p, &p->pickle.root);
}

static const struct opcode {
    unsigned char code;
    tx_status (*run)(parser *p, int32_t argument);
    int32_t argument;
} opcodes[] = {
    {0x80, skip, 1},
    {0x95, skip, 8},
    {'N', push_kind, TX_PICKLE_OTHER},
    {'G', skip_and_push, 8},
    {'J', whole, 4},
    {'K', whole, 1},
    {'M', whole, 2},
    {0x8a, long_number, 0},
    {0x88, truth, 1},
    {0x89, truth, 0},
    {'X', words, 4},
    {0x8c, words, 1},
    {0x8d, words, 8},
    {'T', words, 4},
    {'U', words, 1},
    {'B', words, 4},
    {'C', words, 1},
    {'c', global, 0},
    {0x93, stack_global, 0},
    {'(', mark, 0},
    {')', push_kind, TX_PICKLE_LIST},
    {']', push_kind, TX_PICKLE_LIST},
    {'}', push_kind, TX_PICKLE_DICT},
    {'t', collect, TX_PICKLE_LIST},
    {'l', collect, TX_PICKLE_LIST},
    {'d', collect, TX_PICKLE_DICT},
    {'u', add_all, 0},
    {'e', add_all, 0},
    {0x85, tuple, 1},
    {0x86, tuple, 2},
    {0x87, tuple, 3},
    {'R', call, 0},
    {0x81, call, 0},
    {'Q', persistent, 0},
    {'s', add, 2},
    {'a', add, 1},
    {'b', build, 0},
    {'0', drop, 0},
    {'q', put, 1},
    {'r', put, 4},
    {0x94, put, 0},
    {'h', get, 1},
    {'j', get, 4},
    {'.', stop, 0},
};

static tx_status run(parser *p)
{
    while (!p->stopped) {
        const char *code = NULL;
        size_t i = 0;
        TX_TRY(take(p, 1, &code));
        while (i < sizeof opcodes / sizeof opcodes[0] && opcodes[i].code != (unsigned char)*code)
            i++;
        if (i == sizeof opcodes / sizeof opcodes[0])
            return tx_fail(TX_UNSUPPORTED, "a pickle with the opcode 0x%02x, which tensors do not need",
                           (unsigned)(unsigned char)*code);
        TX_TRY(opcodes[i].run(p, opcodes[i].argument));
    }
    p->pickle.bytes = p->at;
    return TX_OK;
}

tx_status tx_pickle_parse(const char *text, size_t size, tx_pickle *pickle)
{
    parser p = {.text = text, .size = size};
    const tx_status status = run(&p);
    free(p.stack);
    free(p.memo);
    if (status)
        tx_pickle_free(&p.pickle);
    else
        *pickle = p.pickle;
    return status;
}

void tx_pickle_free(tx_pickle *pickle)
{
    free(pickle->value);
    free(pickle->item);
    *pickle = (tx_pickle){0};
}

const tx_pickle_value *tx_pickle_at(const tx_pickle *pickle, const tx_pickle_value *value, int32_t index)
{
    int32_t i = value ? value->first : -1;
    for (; i >= 0 && index > 0; index--)
        i = pickle->item[i].next;
    return i >= 0 ? &pickle->value[pickle->item[i].value] : NULL;
}

const tx_pickle_value *tx_pickle_attribute(const tx_pickle *pickle, const tx_pickle_value *object, const char *name)
{
    const tx_pickle_value *state = object && object->state >= 0 ? &pickle->value[object->state] : NULL;
    int32_t key = state && state->kind == TX_PICKLE_DICT ? state->first : -1, left = ATTRIBUTES;
    for (int32_t value; key >= 0 && (value = pickle->item[key].next) >= 0 && left-- > 0; key = pickle->item[value].next)
        if (tx_pickle_is(&pickle->value[pickle->item[key].value], TX_PICKLE_TEXT, name))
            return &pickle->value[pickle->item[value].value];
    return NULL;
}

bool tx_pickle_calls(const tx_pickle *pickle, const tx_pickle_value *value, const char *name)
{
    return value && value->kind == TX_PICKLE_CALL &&
           tx_pickle_is(tx_pickle_at(pickle, value, 0), TX_PICKLE_GLOBAL, name);
}

bool tx_pickle_is(const tx_pickle_value *value, tx_pickle_kind kind, const char *text)
{
    return value && value->kind == kind && strlen(text) == (size_t)value->size &&
           memcmp(value->text, text, (size_t)value->size) == 0;
}
