/* SPDX-License-Identifier: Apache-2.0
 * The page: every element closed, every cell and device in it, nothing from the network, text escaped, and what was
 * measured. How it looks is for eyes. */
#include "tests/topology/helper.h"

static char *page_of(const tx_topology *t)
{
    char *text = NULL;
    PRINTED(text, tx_txtopo_html(out, t));
    return text;
}

static bool is_void(const char *name)
{
    return strcmp(name, "meta") == 0 || strcmp(name, "input") == 0;
}

/* Every element is closed in its turn; style and script hold no elements. */
static void check_nesting(const char *page)
{
    char open[64][16];
    int depth = 0;
    for (const char *at = page; (at = strchr(at, '<'));) {
        char name[16] = "";
        if (strncmp(at, "<!--", 4) == 0) {
            at = strstr(at, "-->");
            assert_non_null(at);
            continue;
        }
        bool closes = at[1] == '/';
        sscanf(at + 1 + closes, "%15[a-z0-9]", name);
        at = strchr(at, '>');
        assert_non_null(at);
        if (closes) {
            if (depth == 0 || strcmp(open[depth - 1], name) != 0)
                fail_msg("</%s> closes <%s> before %.60s", name, depth ? open[depth - 1] : "", at);
            depth--;
        } else if (*name && !is_void(name)) {
            assert_true(depth < 64);
            strcpy(open[depth++], name);
            if (strcmp(name, "style") == 0 || strcmp(name, "script") == 0)
                at = strstr(at, strcmp(name, "style") == 0 ? "</style" : "</script");
        }
    }
    assert_int_equal(depth, 0);
}

static int count(const char *text, const char *part)
{
    int found = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        found++;
    return found;
}

static void check(const tx_topology *t)
{
    char text[64];
    char *page = page_of(t);
    check_nesting(page);
    assert_null(strstr(page, "http:"));
    assert_null(strstr(page, "https:"));
    assert_null(strstr(page, "url("));
    assert_null(strstr(page, "@import"));
    assert_null(strstr(page, "@BODY@"));
    assert_int_equal(count(page, "<td title="), t->device_count * (t->device_count - 1));
    for (int32_t i = 0; i < t->device_count; i++) {
        snprintf(text, sizeof text, ">%s</span>", t->devices[i].label);
        assert_int_equal(count(page, text), t->origin == TX_TOPO_ORIGIN_PASTED ? 1 : 2); /* tree and table */
        for (int32_t k = 0; k < t->device_count; k++) {
            char cell[16];
            snprintf(text, sizeof text, "%s \xe2\x86\x92 %s: %s", t->devices[i].label, t->devices[k].label,
                     tx_topo_cell(t, i, k, true, cell));
            assert_int_equal(count(page, text) > 0, i != k);
        }
    }
    free(page);
}

static void fixtures(void **state)
{
    static const char *const names[] = {"classes.xml", "unplaced.xml", "matrix.txt"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s%s", FIXTURES, names[i]);
        tx_topology *t = read_topology(path);
        check(t);
        tx_topology_free(t);
    }
}

static void words(void **state)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    t->devices[0].name = "<script>alert(\"1\" & 2)</script>";
    t->host = "a<b";
    char *page = page_of(t);
    check_nesting(page);
    assert_non_null(strstr(page, "&lt;script&gt;alert(&quot;1&quot; &amp; 2)&lt;/script&gt;"));
    assert_non_null(strstr(page, "<title>Topology of a&lt;b</title>"));
    assert_non_null(strstr(page, "<span class=\"direct link\">NV2</span><span class=\"PIX under\">PIX</span>"));
    assert_non_null(strstr(page, "To expect: about 40 GB/s (direct links)"));
    assert_null(strstr(page, "Measured"));
    free(page);
    tx_topology_free(t);
}

static void measured(void **state)
{
    tx_topology *t = read_topology(FIXTURES "classes.xml");
    tx_topo_copy *copies = calloc(3, sizeof *copies);
    assert_non_null(copies);
    const tx_topo_copy between = {
        .kind = TX_TOPO_COPY_BETWEEN, .method = TX_TOPO_METHOD_ONE_CONTEXT, .to = 1, .numa = -1};
    for (int i = 0; i < 3; i++) {
        copies[i] = between;
        copies[i].failure = "";
    }
    copies[0].bandwidth = 38.25;
    copies[0].latency = 4.5;
    copies[1].from = 1;
    copies[1].to = 0;
    copies[1].bandwidth = 30;
    copies[2].to = 2;
    copies[2].failure = "out <of> memory";
    t->copies = copies;
    t->copy_count = 3;
    t->copies_planned = 4;
    char *page = page_of(t);
    check_nesting(page);
    assert_int_equal(count(page, "\nMeasured: "), 2);
    assert_non_null(strstr(page, "Measured: 38.2 GB/s, 4.5 \xc2\xb5s (copy-buffer)"));
    assert_non_null(strstr(page, "Measured: 30.0 GB/s (copy-buffer)"));
    assert_non_null(strstr(page, "out &lt;of&gt; memory"));
    assert_non_null(strstr(page, "Stopped: 3 of 4 copies"));
    free(page);
    tx_topology_free(t);
}

static void machines(void **state)
{
    static const char *const names[] = {"01-dgx2h-16xV100-nvswitch", "13-tioga-8xMI250X-xgmi",
                                        "15-tuolumne-12xMI300A-tpx", "18-westmere-3xM2050-2ioh"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tx_topology *t = recorded(names[i]);
        check(t);
        tx_topology_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixtures),
        cmocka_unit_test(words),
        cmocka_unit_test(measured),
        cmocka_unit_test(machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
