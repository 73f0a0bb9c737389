/* SPDX-License-Identifier: Apache-2.0
 * Parses the statements of a template into trees. */
#include "models/jinja/node.h"

#include <stdlib.h>
#include <string.h>

/* Parses statements up to one whose name is in `ends` (ended by NULL); its tag is then open. Without `ends` it parses
 * up to the end of the text. */
static tx_jinja_node *parse_body(tx_jinja_parser *p, const char *const *ends);

static void end_statement(tx_jinja_parser *p)
{
    if (p->token.kind != TX_JINJA_END_OF_TAG)
        tx_jinja_unexpected(p);
}

/* Parses the body of a block that ends with `end`, and the end of its last tag. */
static tx_jinja_node *parse_block(tx_jinja_parser *p, const char *end)
{
    end_statement(p);
    tx_jinja_node *body = parse_body(p, (const char *const[]){end, NULL});
    tx_jinja_expect(p, end);
    if (p->token.kind == TX_JINJA_TOKEN_NAME) /* name of the macro */
        tx_jinja_next(p);
    end_statement(p);
    return body;
}

/* Parses the rest after "if" or "elif". */
static tx_jinja_node *parse_if(tx_jinja_parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_IF);
    if (!tx_jinja_enter(p))
        return node;
    node->a = tx_jinja_parse_tuple(p, true);
    end_statement(p);
    node->args = parse_body(p, ends);
    if (tx_jinja_accept(p, "elif")) {
        node->d = parse_if(p);
    } else if (tx_jinja_accept(p, "else")) {
        node->d = parse_block(p, "endif");
    } else {
        tx_jinja_expect(p, "endif");
        end_statement(p);
    }
    p->depth--;
    return node;
}

static tx_jinja_node *parse_for(tx_jinja_parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_FOR);
    const int loops = p->loops++;
    node->a = tx_jinja_parse_target(p, false);
    tx_jinja_expect(p, "in");
    node->b = tx_jinja_parse_tuple(p, false);
    if (tx_jinja_accept(p, "if"))
        node->c = tx_jinja_parse_expression(p);
    if (tx_jinja_sees(p, "recursive"))
        tx_jinja_fail(p->arena, TX_UNSUPPORTED, "recursive loops are not supported");
    end_statement(p);
    node->args = parse_body(p, ends);
    p->loops = loops;
    if (tx_jinja_accept(p, "else")) {
        node->d = parse_block(p, "endfor");
    } else {
        tx_jinja_expect(p, "endfor");
        end_statement(p);
    }
    return node;
}

static tx_jinja_node *parse_set(tx_jinja_parser *p)
{
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_SET);
    node->a = tx_jinja_parse_target(p, true);
    if (tx_jinja_accept(p, "=")) {
        node->b = tx_jinja_parse_tuple(p, true);
        end_statement(p);
        return node;
    }
    node->kind = TX_JINJA_SET_BLOCK;
    if (tx_jinja_accept(p, "|"))
        node->b = tx_jinja_parse_filters(p, NULL);
    node->args = parse_block(p, "endset");
    return node;
}

/* Parses parameters with their defaults, after "(". */
static tx_jinja_node *parse_parameters(tx_jinja_parser *p)
{
    tx_jinja_node *first = NULL, **last = &first;
    while (!tx_jinja_sees(p, ")") && !p->arena->status) {
        tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_NAME);
        node->name = tx_jinja_parse_name(p);
        if (tx_jinja_accept(p, "="))
            node->b = tx_jinja_parse_expression(p);
        *last = node;
        last = &node->next;
        if (!tx_jinja_accept(p, ","))
            break;
    }
    tx_jinja_expect(p, ")");
    return first;
}

/* Parses a body in which break and continue of an outer loop are not allowed. */
static tx_jinja_node *parse_own_body(tx_jinja_parser *p, const char *end)
{
    const int loops = p->loops;
    p->loops = 0;
    tx_jinja_node *body = parse_block(p, end);
    p->loops = loops;
    return body;
}

static tx_jinja_node *parse_macro(tx_jinja_parser *p)
{
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_MACRO_NODE);
    node->name = tx_jinja_parse_name(p);
    tx_jinja_expect(p, "(");
    node->a = parse_parameters(p);
    node->args = parse_own_body(p, "endmacro");
    return node;
}

static tx_jinja_node *parse_call_block(tx_jinja_parser *p)
{
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_CALL_BLOCK);
    if (tx_jinja_accept(p, "("))
        node->a = parse_parameters(p);
    node->b = tx_jinja_parse_expression(p);
    if (node->b->kind != TX_JINJA_CALL)
        tx_jinja_fail(p->arena, TX_FORMAT, "a block call needs a call");
    node->args = parse_own_body(p, "endcall");
    return node;
}

static tx_jinja_node *parse_filter_block(tx_jinja_parser *p)
{
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_FILTER_BLOCK);
    node->b = tx_jinja_parse_filters(p, NULL);
    node->args = parse_block(p, "endfilter");
    return node;
}

static tx_jinja_node *parse_with(tx_jinja_parser *p)
{
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_WITH), **last = &node->a;
    while (p->token.kind == TX_JINJA_TOKEN_NAME && !p->arena->status) {
        tx_jinja_node *set = *last = tx_jinja_node_new(p, TX_JINJA_SET);
        set->a = tx_jinja_node_new(p, TX_JINJA_NAME);
        set->a->name = tx_jinja_parse_name(p);
        tx_jinja_expect(p, "=");
        set->b = tx_jinja_parse_expression(p);
        last = &set->next;
        if (!tx_jinja_accept(p, ","))
            break;
    }
    node->args = parse_block(p, "endwith");
    return node;
}

static tx_jinja_node *parse_generation(tx_jinja_parser *p)
{
    tx_jinja_node *node = tx_jinja_node_new(p, TX_JINJA_GENERATION_BLOCK);
    p->marks_generation = true;
    node->args = parse_own_body(p, "endgeneration");
    return node;
}

static tx_jinja_node *parse_leave(tx_jinja_parser *p, tx_jinja_node_kind kind)
{
    tx_jinja_node *node = tx_jinja_node_new(p, kind);
    if (!p->loops)
        tx_jinja_fail(p->arena, TX_FORMAT, "break and continue are allowed only in loops");
    end_statement(p);
    return node;
}

static tx_jinja_node *parse_break(tx_jinja_parser *p)
{
    return parse_leave(p, TX_JINJA_BREAK);
}

static tx_jinja_node *parse_continue(tx_jinja_parser *p)
{
    return parse_leave(p, TX_JINJA_CONTINUE);
}

static tx_jinja_node *parse_statement(tx_jinja_parser *p)
{
    static const struct {
        const char *name;
        tx_jinja_node *(*parse)(tx_jinja_parser *p);
    } statements[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_break},     {"continue", parse_continue},
    };
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        if (tx_jinja_accept(p, statements[i].name))
            return statements[i].parse(p);
    tx_jinja_fail(p->arena, TX_UNSUPPORTED, "unexpected statement \"%.*s\"", (int)p->token.text.size,
                  p->token.text.bytes);
    return tx_jinja_node_new(p, TX_JINJA_DATA);
}

static bool ends_body(const tx_jinja_parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (tx_jinja_sees(p, *ends))
            return true;
    return false;
}

static tx_jinja_node *parse_body(tx_jinja_parser *p, const char *const *ends)
{
    tx_jinja_node *first = NULL, **last = &first;
    if (!tx_jinja_enter(p))
        return NULL;
    while (!p->arena->status) {
        tx_jinja_sink data = tx_jinja_sink_of(p->arena);
        const int line = p->arena->line;
        const tx_jinja_tag tag = tx_jinja_next_tag(p, &data);
        const tx_jinja_value text = tx_jinja_written(p->arena, &data);
        if (text.kind == TX_JINJA_STRING && text.string->size) {
            *last = tx_jinja_node_new(p, TX_JINJA_DATA);
            (*last)->literal = text;
            last = &(*last)->next;
        }
        if (tag == TX_JINJA_NO_TAG || (tag == TX_JINJA_BLOCK_TAG && ends_body(p, ends))) {
            if (tag == TX_JINJA_NO_TAG && ends) {
                p->arena->line = line;
                tx_jinja_fail(p->arena, TX_FORMAT, "the text ends before \"%s\"", ends[0]);
            }
            break;
        }
        if (tag == TX_JINJA_OUTPUT_TAG) {
            *last = tx_jinja_node_new(p, TX_JINJA_OUTPUT);
            (*last)->a = tx_jinja_parse_tuple(p, true);
            end_statement(p);
        } else {
            *last = parse_statement(p);
        }
        last = &(*last)->next;
    }
    p->depth--;
    return first;
}

/* ---- Templates ----------------------------------------------------------------------------------------- */

#define TEXT_LIMIT ((size_t)1 << 20)

/* Copies a text with "\n" as line ends, and without the line end of the last line. */
static char *copy_text(tx_jinja_arena *a, const char *text, size_t *size)
{
    char *copy = tx_jinja_take(a, *size + 1, 1);
    size_t used = 0;
    for (size_t i = 0; copy && i < *size; i++)
        if (text[i] != '\r')
            copy[used++] = text[i];
        else if (i + 1 == *size || text[i + 1] != '\n')
            copy[used++] = '\n';
    *size = used && copy[used - 1] == '\n' ? used - 1 : used;
    return copy;
}

tx_status tx_jinja_parse(const char *text, size_t size, tx_jinja **created)
{
    if (size > TEXT_LIMIT)
        return tx_fail(TX_UNSUPPORTED, "the chat template has more than %zu bytes", TEXT_LIMIT);
    if (memchr(text, '\0', size))
        return tx_fail(TX_FORMAT, "the chat template contains a NUL byte");
    tx_jinja *jinja = calloc(1, sizeof *jinja);
    if (!jinja)
        return tx_fail(TX_MEMORY, "chat template: out of memory");
    jinja->arena = (tx_jinja_arena){.limit = (size_t)1 << 28, .most_steps = (uint64_t)1 << 32, .line = 1};
    tx_jinja_parser p = {.arena = &jinja->arena, .size = size, .line_begins = true};
    p.text = copy_text(p.arena, text, &p.size);
    if (p.text)
        jinja->body = parse_body(&p, NULL);
    jinja->marks_generation = p.marks_generation;
    const tx_status status = jinja->arena.status;
    return TX_RETURN(status, jinja, created, tx_jinja_free);
}

void tx_jinja_free(tx_jinja *jinja)
{
    if (!jinja)
        return;
    tx_jinja_arena_free(&jinja->arena);
    free(jinja);
}

bool tx_jinja_marks_generation(const tx_jinja *jinja)
{
    return jinja->marks_generation;
}
