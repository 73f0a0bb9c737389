/* SPDX-License-Identifier: Apache-2.0
 * Changing a graph: uses, insertions, moves and erasures, and what a tensor knows of its producer afterwards. */
#include "api/graph/edit.h"
#include "tests/graph/bare_graph.h"

/* x -> GELU -> a -> SOFTMAX -> b, and a + b -> c: nodes 0, 1, 2. */
typedef struct fixture {
    bare_graph bare;
    tx_graph *graph;
    tx_tensor *x, *a, *b, *c;
    tx_edit *edit;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    bare_graph_make(&f->bare);
    f->graph = f->bare.graph;
    f->x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(4, 8));
    f->a = tx_gelu(f->x, false);
    f->b = tx_softmax(f->a);
    f->c = tx_add(f->a, f->b);
    assert_int_equal(tx_edit_open(f->graph, &f->edit), TX_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    tx_edit_discard(f->edit);
    bare_graph_free(&f->bare);
    free(f);
    return 0;
}

static void commit(fixture *f)
{
    tx_edit *edit = f->edit;
    f->edit = NULL;
    assert_int_equal(tx_edit_commit(edit), TX_OK);
    for (int32_t i = 0; i < f->graph->nodes; i++) /* who makes a tensor is known by its number */
        for (int k = 0; k < TX_MAX_OUT; k++)
            if (f->graph->node[i].out[k])
                assert_int_equal(f->graph->node[i].out[k]->producer, i);
}

static void expect_ops(const fixture *f, int32_t count, const tx_op *op)
{
    assert_int_equal(f->graph->nodes, count);
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(f->graph->node[i].op, op[i]);
}

static void readers_are_in_the_order_of_nodes(void **state)
{
    fixture *f = *state;
    int32_t count;
    const tx_use *use = tx_edit_readers(f->edit, f->a, &count);
    assert_int_equal(count, 2);
    assert_true(use[0].node == 1 && use[0].operand == 0 && use[1].node == 2 && use[1].operand == 0);
    use = tx_edit_readers(f->edit, f->b, &count);
    assert_true(count == 1 && use[0].node == 2 && use[0].operand == 1);
    tx_edit_readers(f->edit, f->c, &count);
    assert_int_equal(count, 0);
    tx_edit_readers(f->edit, tx_gelu(f->c, false), &count); /* younger than the edit */
    assert_int_equal(count, 0);
}

static void views_are_known(void **state)
{
    fixture *f = *state;
    assert_false(tx_edit_is_viewed(f->edit, f->a));
    tx_edit_discard(f->edit);
    tx_tensor *part = tx_tensor_view(f->a, 8, TX_SHAPE(2, 8));
    assert_int_equal(tx_edit_open(f->graph, &f->edit), TX_OK);
    assert_true(tx_edit_is_viewed(f->edit, f->a));
    assert_true(tx_edit_is_viewed(f->edit, part));
    assert_false(tx_edit_is_viewed(f->edit, f->b));
}

static void what_is_inserted_at_one_place_keeps_its_order(void **state)
{
    fixture *f = *state;
    int32_t first, second, last;
    assert_int_equal(tx_edit_insert(f->edit, 1, &(tx_node){.op = TX_OP_SCALE}, &first), TX_OK);
    assert_int_equal(tx_edit_insert(f->edit, TX_EDIT_END, &(tx_node){.op = TX_OP_COPY}, &last), TX_OK);
    assert_int_equal(tx_edit_insert(f->edit, 1, &(tx_node){.op = TX_OP_MUL}, &second), TX_OK);
    assert_true(first == 3 && last == 4 && second == 5);
    assert_int_equal(tx_edit_next(f->edit, TX_EDIT_END), 0);
    assert_int_equal(tx_edit_next(f->edit, 0), first);
    assert_int_equal(tx_edit_next(f->edit, last), TX_EDIT_END);
    commit(f);
    expect_ops(f, 6, (const tx_op[]){TX_OP_GELU, TX_OP_SCALE, TX_OP_MUL, TX_OP_SOFTMAX, TX_OP_ADD, TX_OP_COPY});
}

static void many_insertions_grow_the_list(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 500; i++)
        assert_int_equal(tx_edit_insert(f->edit, 0, &(tx_node){.op = TX_OP_COPY}, NULL), TX_OK);
    commit(f);
    assert_int_equal(f->graph->nodes, 503);
    assert_int_equal(f->graph->node[499].op, TX_OP_COPY);
    assert_int_equal(f->graph->node[500].op, TX_OP_GELU);
}

/* A pass that inserts a node and then returns the status that it was given. */
typedef struct trial {
    tx_status status;
    int32_t *memory;
} trial;

static tx_status try_edit(tx_edit *edit, void *state)
{
    trial *t = state;
    t->memory = tx_edit_alloc(edit, 3, sizeof *t->memory);
    TX_TRY(tx_edit_check(edit));
    assert_true(t->memory[0] == 0 && t->memory[2] == 0);
    TX_TRY(tx_edit_insert_op(edit, 1, 0, TX_OP_COPY, NULL, NULL));
    return t->status;
}

static void a_run_commits_unless_the_pass_fails(void **state)
{
    fixture *f = *state;
    assert_int_equal(tx_edit_run(f->graph, try_edit, &(trial){.status = TX_OK}), TX_OK);
    expect_ops(f, 4, (const tx_op[]){TX_OP_GELU, TX_OP_COPY, TX_OP_SOFTMAX, TX_OP_ADD});
    assert_true(f->graph->node[1].attrs.control == -1 && f->graph->node[1].attrs.alpha == 1.0f);
    assert_int_equal(tx_edit_run(f->graph, try_edit, &(trial){.status = TX_MEMORY}), TX_MEMORY);
    assert_int_equal(f->graph->node[4].op, TX_OP_COPY); /* no new order */
}

static void what_is_emitted_stands_at_the_end_until_it_is_moved(void **state)
{
    fixture *f = *state;
    tx_tensor *y = tx_scale(f->a, 2.0f);
    assert_int_equal(y->producer, 3);
    tx_edit_replace(f->edit, f->b, y);
    tx_edit_move(f->edit, y->producer, 2);
    tx_edit_erase(f->edit, f->b->producer);
    assert_true(tx_edit_is_erased(f->edit, 1));
    commit(f);
    expect_ops(f, 3, (const tx_op[]){TX_OP_GELU, TX_OP_SCALE, TX_OP_ADD});
    assert_true(f->graph->node[2].in[0] == f->a && f->graph->node[2].in[1] == y);
    assert_int_equal(f->b->producer, -1);
}

static void moves_to_both_ends(void **state)
{
    fixture *f = *state;
    tx_edit_move(f->edit, 0, TX_EDIT_END);
    tx_edit_move(f->edit, 2, 1);
    tx_edit_move(f->edit, 1, 1); /* stays */
    commit(f);
    expect_ops(f, 3, (const tx_op[]){TX_OP_ADD, TX_OP_SOFTMAX, TX_OP_GELU});
}

static void all_nodes_may_go(void **state)
{
    fixture *f = *state;
    for (int32_t i = 0; i < 3; i++)
        tx_edit_erase(f->edit, i);
    tx_edit_erase(f->edit, 1); /* again */
    assert_int_equal(tx_edit_next(f->edit, TX_EDIT_END), TX_EDIT_END);
    commit(f);
    expect_ops(f, 0, NULL);
    assert_non_null(tx_gelu(f->x, false)); /* and others come */
    assert_int_equal(f->graph->nodes, 1);
}

int main(void)
{
#define EDIT(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EDIT(readers_are_in_the_order_of_nodes),
        EDIT(views_are_known),
        EDIT(what_is_inserted_at_one_place_keeps_its_order),
        EDIT(many_insertions_grow_the_list),
        EDIT(a_run_commits_unless_the_pass_fails),
        EDIT(what_is_emitted_stands_at_the_end_until_it_is_moved),
        EDIT(moves_to_both_ends),
        EDIT(all_nodes_may_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
