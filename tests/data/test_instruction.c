/* SPDX-License-Identifier: Apache-2.0
 * Instruction data: files of all forms as rows and labels, truncated and dropped rows, positions of faults, and samples
 * packed into rows. */
#include "tests/scratch.h"

#include "models/arch/find.h"
#include "models/task/instruction.h"

#include <inttypes.h>

#define TOKENIZER TX_SOURCE_DIR "/tests/chat/golden"
enum { BLOCK = 24 };

/* Options for reading a file, and captured messages. */
typedef struct reader {
    char *folder, *path;
    tx_tokenizer *tokenizer;
    tx_config *config;
    tx_job_settings set;
    tx_data_options options;
    const tx_task *task;
    tx_samples samples;
    char told[2048];
} reader;

static void listen(void *context, const char *message)
{
    reader *r = context;
    strncat(r->told, message, sizeof r->told - strlen(r->told) - 1);
}

static void begin(reader *r)
{
    *r = (reader){.folder = make_scratch(), .task = &tx_instruction};
    r->path = tx_path_join(r->folder, "a.jsonl");
    assert_ok(tx_tokenizer_open(TOKENIZER, &r->tokenizer));
    assert_ok(tx_config_small(&r->config));
    assert_ok(tx_config_override(r->config, "vocab_size=342"));
    r->set = (tx_job_settings){.completion_only = true, .assistant_only = true};
    r->options = (tx_data_options){.set = &r->set,
                                   .config = r->config,
                                   .tokenizer = r->tokenizer,
                                   .block = BLOCK,
                                   .to = 100,
                                   .report = {.warn = listen, .context = r}};
}

static tx_status read_text(reader *r, const char *text)
{
    tx_samples_close(&r->samples);
    r->told[0] = '\0';
    TX_TRY(tx_file_write(r->path, text, strlen(text)));
    return tx_samples_open(r->task, r->path, &r->options, &r->samples);
}

static void finish(reader *r)
{
    tx_samples_close(&r->samples);
    tx_tokenizer_free(r->tokenizer);
    tx_config_free(r->config);
    free(r->path);
    remove_scratch(r->folder);
}

/* Reads row `number`; its fields are stored in `room`. */
static tx_batch row_of(const reader *r, int64_t number, int32_t room[5 * BLOCK])
{
    const tx_batch row = tx_batch_of(r->task, BLOCK, 1, room);
    assert_true(tx_task_row_bytes(r->task, BLOCK) <= (int64_t)(5 * BLOCK * sizeof *room));
    assert_ok(r->task->row(&r->samples, number, &row));
    return row;
}

/* The tokens that row `number` has labels of, as text; `prefix`: of the ids that are used. */
static void expect_row(const reader *r, int64_t number, const char *text, const char *learnt)
{
    int32_t room[5 * BLOCK], ids[BLOCK];
    const tx_batch row = row_of(r, number, room);
    const int32_t *id = row.field[TX_INSTRUCTION_INPUT_IDS], *label = row.field[TX_INSTRUCTION_LABELS];
    const int32_t used = *(int32_t *)row.field[TX_INSTRUCTION_LENGTHS];
    size_t count = 0, size;
    char *made;
    assert_in_range(used, 1, BLOCK);
    for (int32_t t = 0; t < BLOCK; t++)
        if (label[t] != TX_IGNORE_LABEL) {
            assert_true(t + 1 < used);
            assert_int_equal(label[t], id[t + 1]);
            ids[count++] = label[t];
        }
    assert_ok(tx_tokenizer_decode(r->tokenizer, id, (size_t)used, false, &made, &size));
    assert_string_equal(made, text);
    free(made);
    assert_ok(tx_tokenizer_decode(r->tokenizer, ids, count, false, &made, &size));
    assert_string_equal(made, learnt);
    free(made);
    for (int32_t t = used; t < BLOCK; t++)
        assert_int_equal(id[t], TX_NO_TOKEN);
}

#define TURN(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"

#define WEIGHTED(role, text, weight) "{\"role\": \"" role "\", \"content\": \"" text "\", \"weight\": " weight "}"

/* OpenAI's weights: only answers of weight 1 have labels, also if all messages would have some. */
static void test_weights(void **state)
{
    static const char *const frame = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n";
    reader r;
    begin(&r);
    r.set.chat_template = "chatml";
    r.set.assistant_only = false;
    assert_ok(read_text(&r, "{\"messages\": [" WEIGHTED("assistant", "b", "0") ", " TURN("user", "a") ", " WEIGHTED(
                                "assistant", "c", "1") "]}"));
    expect_row(
        &r, 0,
        "<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n",
        "c<|im_end|>");
    assert_string_equal(r.told, "");
    assert_ok(read_text(&r, "{\"messages\": [" TURN("user", "a") ", " WEIGHTED("assistant", "b", "1") "]}"));
    expect_row(&r, 0, frame, frame + sizeof "<|im_start|>" - 1);
    assert_refused(read_text(&r, "{\"messages\": [" TURN("user", "a") ", " WEIGHTED("assistant", "b", "0") "]}"),
                   TX_FORMAT, "no sample has anything to learn");
    assert_refused(read_text(&r, "{\"messages\": [" TURN("user", "a") ", " WEIGHTED("assistant", "b", "2") "]}"),
                   TX_FORMAT, "line 1: messages: message 2: weight");
    finish(&r);
}

static void test_forms(void **state)
{
    static const char *const pair =
        "{\"prompt\": [" TURN("user", "a") "], \"completion\": [" TURN("assistant", "b") "]}\n";
    static const char *const frame = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n";
    reader r;
    begin(&r);
    r.set.chat_template = "chatml";
    assert_ok(read_text(&r,
                        "{\"id\": 1, \"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
                        "\"value\": \"b\"}]}"));
    expect_row(&r, 0, frame, "b<|im_end|>");
    assert_refused(read_text(&r, "{\"conversations\": [{\"from\": \"nobody\", \"value\": \"a\"}]}"), TX_FORMAT,
                   "line 1: conversations: message 1: from: \"nobody\"");
    assert_ok(read_text(&r, "\xEF\xBB\xBF{\"messages\": [" TURN("user", "a") ", " TURN(
                                "assistant", "b") "]}\n\n"
                                                  "{\"prompt\": \"a\", \"completion\": \"b\"}\r\n"
                                                  "{\"instruction\": \"a\", \"output\": \"b\", \"input\": \"\"}"));
    assert_int_equal(r.samples.count, 3);
    for (int64_t i = 0; i < 3; i++)
        expect_row(&r, i, frame, "b<|im_end|>");
    assert_ok(read_text(&r, "[{\"messages\": [" TURN("user", "a") ", " TURN(
                                "assistant", "b") "]},\n"
                                                  "{\"instruction\": \"a\", \"output\": \"b\"}]"));
    assert_int_equal(r.samples.count, 2);
    expect_row(&r, 1, frame, "b<|im_end|>");
    /* All tokens are trained except the first, which no position predicts. */
    r.set.assistant_only = r.set.completion_only = false;
    assert_ok(read_text(&r, pair));
    expect_row(&r, 0, frame, frame + strlen("<|im_start|>"));
    r.set.completion_only = true;
    assert_ok(read_text(&r, pair));
    expect_row(&r, 0, frame, "b<|im_end|>\n");
    assert_ok(read_text(&r, "{\"messages\": [" TURN("user", "a") ", " TURN("assistant", "b") "]}"));
    expect_row(&r, 0, frame, frame + strlen("<|im_start|>"));
    finish(&r);
}

/* A prompt and a completion in messages, as TRL 1.16 masks them: an answer's labels are those of both options. */
static void test_both_options(void **state)
{
    static const char *const pair = "{\"prompt\": [" TURN("user", "a") ", " TURN("assistant", "b") ", " TURN(
        "user", "c") "], \"completion\": [" TURN("assistant", "d") ", " TURN("user", "e") ", " TURN("assistant",
                                                                                                    "f") "]}";
    static const char *const jinja =
        "{% for m in messages %}{{ (m.role[0] | upper) + '\n' + m.content + '</s>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'A\n' }}{% endif %}";
    static const char *const text = "U\na</s>A\nb</s>U\nc</s>A\nd</s>U\ne</s>A\nf</s>";
    static const char *const learnt[2][2] = {{text + 1, "d</s>U\ne</s>A\nf</s>"}, {"b</s>d</s>f</s>", "d</s>f</s>"}};
    reader r;
    begin(&r);
    char *path = tx_path_join(r.folder, "mine.jinja");
    assert_ok(tx_file_write(path, jinja, strlen(jinja)));
    r.set.chat_template = path;
    for (int answers = 0; answers < 2; answers++)
        for (int completion = 0; completion < 2; completion++) {
            r.set.assistant_only = answers;
            r.set.completion_only = completion;
            assert_ok(read_text(&r, pair));
            expect_row(&r, 0, text, learnt[answers][completion]);
            assert_string_equal(r.told, "");
        }
    r.set.assistant_only = false;
    assert_ok(read_text(&r, "{\"prompt\": \"a\", \"completion\": \"b\"}"));
    assert_non_null(strstr(r.told, "--assistant_only_loss has no effect: no sample has messages"));
    r.set.assistant_only = true;
    r.set.completion_only = false;
    assert_ok(read_text(&r, "{\"messages\": [" TURN("user", "a") ", " TURN("assistant", "b") "]}"));
    assert_non_null(strstr(r.told, "--completion_only_loss has no effect: no prompt has an answer"));
    assert_ok(read_text(&r, "{\"prompt\": [" TURN("user", "a") "], \"completion\": [" TURN("assistant", "b") "]}"));
    assert_non_null(strstr(r.told, "--completion_only_loss has no effect: no prompt has an answer"));
    free(path);
    finish(&r);
}

/* Without a template texts are used unchanged, and Alpaca's data have their own template. */
static void test_no_template(void **state)
{
    reader r;
    begin(&r);
    assert_ok(read_text(&r, "{\"prompt\": \"1 + \", \"completion\": \"2<|im_end|>\"}"));
    expect_row(&r, 0, "1 + 2<|im_end|></s>", "2<|im_end|></s>");
    assert_refused(read_text(&r, "{\"messages\": [" TURN("user", "a") "]}"), TX_NOT_FOUND, "--chat_template");
    assert_refused(read_text(&r, "{\"instruction\": \"a\", \"output\": \"b\"}"), TX_FORMAT, "anything to learn");
    assert_non_null(strstr(r.told, "longer"));
    r.options.tokenizer = NULL;
    assert_refused(read_text(&r, "{}"), TX_NOT_FOUND, "--tokenizer_name");
    r.options.tokenizer = r.tokenizer;
    finish(&r);
}

/* A row that is too long is truncated. A row without labels is dropped, such as one in which the assistant says
 * nothing. */
static void test_cut_and_dropped(void **state)
{
    reader r;
    begin(&r);
    r.set.chat_template = "zephyr";
    assert_ok(read_text(&r, "{\"prompt\": \"0123456789\", \"completion\": \"0123456789\"}\n"
                            "{\"prompt\": \"0123456789012345678901234567890123456789\", \"completion\": \"a\"}\n"
                            "{\"messages\": [" TURN("user", "a") "]}\n"
                                                                 "{\"prompt\": \"a\", \"completion\": \"\"}\n"));
    assert_int_equal(r.samples.count, 2);
    assert_non_null(strstr(r.told, "2 of 4 samples are longer than max_seq_length 24"));
    assert_non_null(strstr(r.told, "2 of 4 samples have nothing to learn"));
    int32_t room[5 * BLOCK];
    const tx_batch cut = row_of(&r, 0, room);
    assert_int_equal(*(int32_t *)cut.field[TX_INSTRUCTION_LENGTHS], BLOCK);
    assert_int_equal(((int32_t *)cut.field[TX_INSTRUCTION_LABELS])[BLOCK - 1], TX_IGNORE_LABEL);
    assert_true(tx_batch_labels(r.task, BLOCK, &cut) > 0);
    /* An empty answer is its end. */
    expect_row(&r, 1, "<|user|>\na</s>\n<|assistant|>\n</s>\n", "</s>");
    finish(&r);
}

static void test_faults(void **state)
{
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "a.jsonl: has no rows"},
        {"\n \n", "no rows"},
        {" [ ]\n", "no rows"},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n\n{\"prompt\": \"a\"}\n", "line 3: completion"},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\"\n", "line 2: JSON"},
        {"[{\"prompt\": \"a\", \"completion\": \"b\"}, {\"completion\": \"b\"}]",
         "element 2: its keys are of no form: completion"},
        {"[{\"prompt\": \"a\", \"completion\": \"b, ]\\\"\"}, {\"prompt\"}]", "element 2: JSON: not valid JSON"},
        {"[{\"prompt\": \"a\", \"completion\": \"b\"},\n]", "row 2: not valid JSON: there is no element before a ]"},
        {"[{\"prompt\": \"a\", \"completion\": \"b\"}] 1", "the array is followed by more"},
        {"[{\"prompt\": \"a\", \"completion\": \"b\"}", "the array is not closed"},
        {"[{\"prompt\": \"a\", \"completion\": \"b\"", "the array is not closed"},
        {"{\"text\": \"a\"}", "line 1: its keys are of no form: text"},
        {"{\"messages\": [" TURN("tool", "a") "]}", "line 1: chat template, line 3: there is no role tool here"},
        {"\xFE\xFF{", "a.jsonl: text in UTF-16"},
        /* Parts of a conversation that the template does not render. */
        {"{\"messages\": [" TURN("user", "a") ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{}]}]}",
         "line 1: message 2: tool_calls: the chat template does not render it"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"function_call\": {\"name\": \"f\"}}]}",
         "message 1: function_call"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": []}]}", "message 1: content"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"image\": \"a\"}]}]}",
         "message 1: content: part 1 is of type \"image\""},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"messages\": [" TURN("user", "a") "], \"tools\": [{}]}",
         "line 2: tools: the chat template does not render it"},
        {"{\"prompt\": [" TURN("user", "a") "], \"completion\": [{\"role\": \"assistant\", \"content\": \"b\", "
                                            "\"reasoning_content\": \"c\"}]}",
         "line 1: message 2: reasoning_content: the chat template does not render it"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"c\", \"d\"]]}", "line 1: history"},
    };
    reader r;
    begin(&r);
    r.set.chat_template = "zephyr";
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(read_text(&r, bad[i].text), TX_FORMAT, bad[i].words);
        assert_non_null(strstr(tx_error(), "a.jsonl"));
    }
    r.set.skip_bad = 1;
    assert_ok(read_text(&r, bad[4].text));
    assert_int_equal(r.samples.count, 1);
    assert_non_null(strstr(r.told, "1 malformed line is skipped, the first is line 2"));
    assert_refused(read_text(&r, "{\"prompt\": \"a\", \"completion\": \"b\"}\n1\n2\n"), TX_FORMAT, "line 3");
    /* Keys that no template reads are reported once. */
    r.set.skip_bad = 0;
    assert_ok(read_text(
        &r, "{\"prompt\": \"a\", \"completion\": \"b\", \"id\": 1, \"tools\": []}\n"
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"name\": \"x\", \"tool_calls\": null}, " TURN(
                "assistant", "b") "], \"id\": 2, \"chosen\": \"c\"}"));
    assert_int_equal(r.samples.count, 2);
    assert_non_null(strstr(r.told, "a.jsonl: keys that TX ignores: id, chosen, name"));
    assert_null(strstr(r.told, "name,"));
    r.config->vocab_size = 300;
    assert_refused(read_text(&r, bad[4].text), TX_INVALID, "vocabulary of 300");
    finish(&r);
}

static void test_part(void **state)
{
    char text[1024] = "", first[65];
    reader r;
    for (int i = 0; i < 10; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"prompt\": \"%d\", \"completion\": \"x\"}\n", i);
    begin(&r);
    r.options.from = 20;
    r.options.to = 70;
    assert_ok(read_text(&r, text));
    assert_int_equal(r.samples.count, 5);
    expect_row(&r, 0, "2x</s>", "x</s>");
    snprintf(first, sizeof first, "%s", r.samples.digest);
    r.options.most = 3;
    assert_ok(read_text(&r, text));
    assert_int_equal(r.samples.count, 3);
    expect_row(&r, 2, "4x</s>", "x</s>");
    assert_string_not_equal(first, r.samples.digest);
    finish(&r);
}

static void test_kind(void **state)
{
    static const struct {
        const char *text;
        bool is;
    } cases[] = {{"{\"messages\": []}\n{", true},
                 {" [ {\"instruction\": 1}]", true},
                 {"{\"prompt\": \"a\"}", true},
                 {"{\"text\": \"prompt\"}", false},
                 {"[1]", false},
                 {"", false},
                 {"{\"prompt\"", false},
                 {"{\"messages\": null, \"text\": \"a\"}", false},
                 {"{\"text\": \"a, \\\"prompt\\\": 1\", \"x\": {\"prompt\": [\"messages\"]}}", false},
                 {"{\"text\": [\"prompt\", {}], \"conversations\": []}", false},
                 {"{\"id\": 1, \"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]}", true},
                 {"\xEF\xBB\xBF\n{\"id\": {\"a\": [1]}, \"messages\" : []}", true}};
    static const char *const foreign[] = {
        "[{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}]",
        "{\"chosen\": [{\"role\": \"user\", \"content\": \"a\"}], \"rejected\": []}",
    };
    bool is = false;
    reader r;
    begin(&r);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_ok(tx_file_write(r.path, cases[i].text, strlen(cases[i].text)));
        assert_ok(tx_instruction_find(r.path, &is));
        assert_int_equal(is, cases[i].is);
    }
    /* Blank lines take time by their number and not by its square. */
    enum { BLANKS = 4 << 20 };
    char *blank = malloc(BLANKS + 64);
    memset(blank, '\n', BLANKS);
    strcpy(blank + BLANKS, "{\"prompt\": \"a\", \"completion\": \"b\"}");
    assert_ok(read_text(&r, blank));
    assert_int_equal(r.samples.count, 1);
    free(blank);
    /* A first line of any length is known, whichever key comes last. */
    for (int i = 0; i < 2; i++) {
        enum { SIZE = 3 << 20 };
        char *text = malloc(SIZE + 100);
        int used = sprintf(text, i ? "{\"text\": \"" : "[{\"messages\": [{\"role\": \"user\", \"content\": \"");
        memset(text + used, 'x', SIZE - (size_t)used);
        strcpy(text + SIZE, i ? "\", \"prompt\": \"\"}" : "\"}]}]");
        assert_ok(tx_file_write(r.path, text, strlen(text)));
        assert_ok(tx_instruction_find(r.path, &is));
        assert_true(is);
        free(text);
    }
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        assert_ok(tx_file_write(r.path, foreign[i], strlen(foreign[i])));
        const char *forms =
            strstr(foreign[i], "chosen") ? "give --task_name dpo" : "TX reads {\"messages\": [{\"role\"";
        if (!strstr(foreign[i], "prompt")) /* reading finds out */
            assert_refused(tx_instruction_find(r.path, &is), TX_FORMAT, forms);
        assert_refused(read_text(&r, foreign[i]), TX_FORMAT, forms);
    }
    assert_ok(tx_instruction_find("none.jsonl", &is));
    assert_false(is);
    assert_ok(tx_instruction_find("none.txt", &is));
    assert_false(is);
    finish(&r);
}

/* ---- Packing ------------------------------------------------------------------------------------------ */

/* Samples whose texts encode their numbers, with lengths from 4 to BLOCK. */
static void write_many(char *text, size_t size, int count)
{
    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), size - strlen(text), "{\"prompt\": \"%c%c\", \"completion\": \"%.*s\"}\n",
                 33 + 2 + i / 50, '0' + i % 10, 1 + i * 7 % 18, "q!q#q$q%q&q(q)q*q+q,");
}

static void test_packed(void **state)
{
    enum { COUNT = 200 };
    char *text = calloc(1, 1 << 16);
    int64_t total = 0, labels = 0, packed = 0;
    int32_t room[5 * BLOCK];
    reader r;
    write_many(text, 1 << 16, COUNT);
    begin(&r);
    assert_ok(read_text(&r, text));
    assert_int_equal(r.samples.count, COUNT);
    for (int64_t i = 0; i < COUNT; i++) {
        const tx_batch row = row_of(&r, i, room);
        total += *(int32_t *)row.field[TX_INSTRUCTION_LENGTHS];
        labels += tx_batch_labels(r.task, BLOCK, &row);
    }
    tx_samples_close(&r.samples);
    r.task = &tx_instruction_packed;
    r.set.packing = true;
    r.options.seed = 5;
    assert_ok(read_text(&r, text));
    /* No row could have taken a sample of a later one; nearly all places are used. */
    const tx_instruction_data *d = r.samples.data;
    assert_true(r.samples.count < COUNT && r.samples.count * BLOCK * 9 < total * 10);
    for (int64_t i = 0; i < r.samples.count; i++) {
        const tx_batch row = row_of(&r, i, room);
        const int32_t *at = row.field[TX_INSTRUCTION_POSITION_IDS], *start = row.field[TX_INSTRUCTION_STARTS];
        const int32_t used = *(int32_t *)row.field[TX_INSTRUCTION_LENGTHS];
        const int32_t *label = row.field[TX_INSTRUCTION_LABELS];
        for (int32_t t = 0; t < used; t++) {
            assert_int_equal(at[t], t - start[t]);
            assert_true(start[t] == t || (t > 0 && start[t] == start[t - 1]));
            if (t + 1 == used || start[t + 1] != start[t])
                assert_int_equal(label[t], TX_IGNORE_LABEL); /* none of the next sample's */
        }
        packed += used;
        labels -= tx_batch_labels(r.task, BLOCK, &row);
        for (int64_t k = i + 1; k < r.samples.count; k++) {
            const int64_t first = d->order[d->last[k - 1]];
            assert_true(d->end[first] - (first ? d->end[first - 1] : 0) > BLOCK - used);
        }
    }
    assert_int_equal(packed, total);
    assert_int_equal(labels, 0);
    /* The order depends only on the seed. */
    char digest[65], other[65];
    snprintf(digest, sizeof digest, "%s", r.samples.digest);
    assert_ok(read_text(&r, text));
    assert_string_equal(digest, r.samples.digest);
    r.options.seed = 6;
    assert_ok(read_text(&r, text));
    snprintf(other, sizeof other, "%s", r.samples.digest);
    assert_string_not_equal(digest, other);
    free(text);
    finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_both_options),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_no_template),
        cmocka_unit_test(test_cut_and_dropped),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_part),
        cmocka_unit_test(test_kind),
        cmocka_unit_test(test_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
