/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of rendering a template: variables, output, limits. */
#ifndef TX_JINJA_RUN_H
#define TX_JINJA_RUN_H

#include "models/jinja/method.h"
#include "models/jinja/node.h"

/* The variables of a body. Those of its parents are visible, too. */
typedef struct tx_jinja_scope {
    struct tx_jinja_scope *parent;
    tx_jinja_argument *at;
    size_t count, room;
} tx_jinja_scope;

typedef struct tx_jinja_macro {
    const tx_jinja_node *parameters, *body;
    tx_jinja_string name;
    tx_jinja_scope *scope; /* of its definition */
} tx_jinja_macro;

typedef enum tx_jinja_leave { TX_JINJA_STAYS, TX_JINJA_BREAKS, TX_JINJA_CONTINUES } tx_jinja_leave;

typedef struct tx_jinja_run {
    tx_jinja_arena arena;
    tx_jinja_scope *scope;
    tx_jinja_sink *out, whole; /* `out` is `whole`, or a string that is being built */
    tx_jinja_text *text;
    int depth;
    tx_jinja_leave leaves; /* how the body of the innermost loop is left */
} tx_jinja_run;

/* ---- Expressions (evaluate.c) --------------------------------------------------------------------------- */

bool tx_jinja_deeper(tx_jinja_run *r); /* counts a step and increments r->depth; false if too deep */
tx_jinja_value tx_jinja_evaluate(tx_jinja_run *r, const tx_jinja_node *node);
/* Applies the filters of a block to its text. */
tx_jinja_value tx_jinja_evaluate_filters(tx_jinja_run *r, const tx_jinja_node *node, tx_jinja_value text);
/* Calls a CALL node. If `caller` is not NULL, it is an additional named argument. */
tx_jinja_value tx_jinja_call_node(tx_jinja_run *r, const tx_jinja_node *node, const tx_jinja_macro *caller);

/* ---- Statements (execute.c) ----------------------------------------------------------------------------- */

void tx_jinja_execute(tx_jinja_run *r, const tx_jinja_node *body);
tx_jinja_scope *tx_jinja_scope_new(tx_jinja_run *r, tx_jinja_scope *parent); /* does not become the run's scope */
void tx_jinja_set(tx_jinja_run *r, tx_jinja_scope *scope, tx_jinja_string name, tx_jinja_value value);
/* Executes a body in a new scope under `parent` and returns its text, whose bytes also get the flags `more`. */
tx_jinja_value tx_jinja_capture(tx_jinja_run *r, const tx_jinja_node *body, tx_jinja_scope *scope, uint8_t more);

#endif
