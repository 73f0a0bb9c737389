/* SPDX-License-Identifier: Apache-2.0
 * PTX for sm_90a (backends/opencl/matrix/retarget.h): the changes, and the texts that are refused.
 * tools/research/compilers/wgmma.py assembles the PTX of a compiler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/opencl/matrix/retarget.h"

#include <stdlib.h>
#include <string.h>

#define HEAD ".version 8.7\n.target sm_90, texmode_independent\n.address_size 64\n"

static void expect(const char *ptx, size_t size, const char *made)
{
    char *text = NULL;
    assert_int_equal(tx_cl_retarget_ptx(ptx, size, &text), TX_OK);
    assert_string_equal(text, made);
    free(text);
}

static void expect_refused(const char *ptx, const char *word)
{
    char *text = NULL;
    assert_int_equal(tx_cl_retarget_ptx(ptx, strlen(ptx), &text), TX_DEVICE);
    assert_null(text);
    if (!strstr(tx_error(), word))
        fail_msg("\"%s\" does not say \"%s\"", tx_error(), word);
}

/* Only the target and the marks change, with and without a NUL or a newline at the end. */
static void test_changed(void **state)
{
    (void)state;
    static const char ptx[] =
        HEAD "\t// begin inline asm\n\t//@90a wgmma.fence.sync.aligned;\n\t// end inline asm\n//@90a a {%f1};";
    static const char made[] = ".version 8.7\n.target sm_90a, texmode_independent\n.address_size 64\n"
                               "\t// begin inline asm\nwgmma.fence.sync.aligned;\n\t// end inline asm\na {%f1};";
    expect(ptx, strlen(ptx), made);
    expect(ptx, sizeof ptx, made);
    expect(".target sm_90a\n//@90a a;\n", strlen(".target sm_90a\n//@90a a;\n"), ".target sm_90a\na;\n");
    expect(".target sm_90\n//@90a a;\nnot read", strlen(".target sm_90\n//@90a a;\n"), ".target sm_90a\na;\n");
}

static void test_refused(void **state)
{
    (void)state;
    expect_refused("", "not PTX");
    expect_refused("\177ELF", "not PTX");
    expect_refused(".target sm_80\n//@90a a;\n", "not PTX for sm_90");
    expect_refused(".target sm_90ab\n//@90a a;\n", "not PTX for sm_90");
    expect_refused(".target sm_900\n//@90a a;\n", "not PTX for sm_90");
    expect_refused(HEAD ".target sm_90\n//@90a a;\n", "not PTX for sm_90");
    expect_refused(HEAD "mov.u32 %r1, 1;\n", "has no sm_90a mark");
    expect_refused(HEAD "//@90a a;\nmov.u32 %r1, 1; //@90a b;\n", "does not begin a line");
    expect_refused(HEAD "//@90a a;\n/* @90a b; */\n", "does not begin a line");
}

static void test_asked_for(void **state)
{
    (void)state;
    assert_non_null(strstr("-cl-std=CL1.2 -w -DEMULATED=0 -DATOM=WGMMA -DTILE_M=128", tx_cl_retarget.option));
    assert_null(strstr("-cl-std=CL1.2 -w -DEMULATED=0 -DATOM=MMA -DTILE_M=128", tx_cl_retarget.option));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_changed), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
