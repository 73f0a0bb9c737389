/* SPDX-License-Identifier: Apache-2.0
 * The model of divided training: links compared with results by hand, pipelines with simulated schedules, memory with
 * the engine's planner. Also properties that hold for any figures. */
#include "models/split/split.h"
#include "tests/scale/shapes.h"
#include "tests/scratch.h"

static void assert_near(double value, double wanted, double tolerance)
{
    if (!(fabs(value - wanted) <= tolerance * fabs(wanted)))
        fail_msg("%.9g, not %.9g", value, wanted);
}

static const tx_split_machine machine = {.peak = 1e15,
                                         .rate = 6e14,
                                         .moving = 4e12,
                                         .memory = 141e9,
                                         .host = 8,
                                         .inside = {400e9, 4e-6},
                                         .outside = {40e9, 10e-6}};

/* ---- Links -------------------------------------------------------------------------------------------------- */

static void test_links(void **state)
{
    const tx_split_machine m = {.host = 4, .inside = {8.0, 1.0}, .outside = {2.0, 10.0}};
    assert_near(tx_split_sum(&m, 1, 1, 64), 0.0, 0.0);
    assert_near(tx_split_sum(&m, 1, 4, 64), 2.0 * (2.0 + 0.75 * 8.0), 1e-12);
    assert_near(tx_split_sum(&m, 2, 2, 64), 2.0 * (1.0 + 0.5 * 8.0), 1e-12);
    /* Each on a host of its own; two a host, of which each carries half between four hosts. */
    assert_near(tx_split_sum(&m, 4, 2, 64), 2.0 * (10.0 + 0.5 * 32.0), 1e-12);
    assert_near(tx_split_sum(&m, 2, 8, 64), 2.0 * (1.0 + 0.5 * 8.0) + 2.0 * (20.0 + 0.75 * 16.0), 1e-12);
    assert_near(tx_split_exchange(&m, 1, 4, 64), 3.0 * (1.0 + 2.0), 1e-12);
    assert_near(tx_split_exchange(&m, 2, 4, 64), (1.0 + 2.0) + 2.0 * (10.0 + 8.0), 1e-12);
    assert_near(tx_split_exchange(&m, 1, 1, 64), 0.0, 0.0);
    assert_near(tx_split_hop(&m, 2, 2, 64), 1.0 + 8.0, 1e-12);
    assert_near(tx_split_hop(&m, 2, 4, 64), 10.0 + 32.0, 1e-12);
    assert_near(tx_split_hop(&m, 2, 1, 64), 0.0, 0.0);
}

/* ---- Pipelines ---------------------------------------------------------------------------------------------- */

enum { STAGES = 8, MICRO = 64, CHUNKS = 4, OPS = 2 * MICRO * CHUNKS };

typedef struct op {
    bool back;
    int micro, chunk;
} op;

typedef struct simulation {
    tx_split split;
    int stages, chunks, micro;
    double forward[STAGES * CHUNKS], backward[STAGES * CHUNKS]; /* of each part of the model, in its order */
    double delay;                                               /* of a message that overlaps other work */
    op order[STAGES][OPS];
    double done[2][STAGES * CHUNKS][MICRO]; /* time of completion, or < 0 before */
    double seconds, held;                   /* total time; maximum number of chunks that the first stage held */
} simulation;

/* Returns a rank's k-th forward or backward pass: groups of `stages` micro-batches run through one chunk after the
 * other (Narayanan et al., 2021, figure 4). */
static op nth(const simulation *s, bool back, int k)
{
    const int group = s->stages * s->chunks, chunk = k % group / s->stages;
    const int micro = s->chunks > 1 ? k / group * s->stages + k % s->stages : k;
    return (op){back, micro, s->chunks > 1 ? (back ? s->chunks - 1 - chunk : chunk) : 0};
}

static void order(simulation *s)
{
    const int all = s->micro * s->chunks;
    for (int r = 0; r < s->stages; r++) {
        int early = s->stages - 1 - r, at = 0, f = 0;
        if (s->split.schedule == TX_PIPELINE_GPIPE)
            early = all;
        else if (s->split.schedule == TX_PIPELINE_INTERLEAVED)
            early = 2 * early + (s->chunks - 1) * s->stages;
        early = early < all ? early : all;
        while (f < early)
            s->order[r][at++] = nth(s, false, f++);
        for (int b = 0; b < all; b++) {
            if (f < all)
                s->order[r][at++] = nth(s, false, f++);
            s->order[r][at++] = nth(s, true, b);
        }
    }
}

/* Returns the time when an operation's inputs are complete, without regard to its rank, or < 0 if it is unknown. */
static double ready(const simulation *s, int part, const op *o)
{
    const int last = s->stages * s->chunks - 1;
    if (!o->back)
        return part == 0 ? 0.0 : s->done[0][part - 1][o->micro] < 0 ? -1.0 : s->done[0][part - 1][o->micro] + s->delay;
    const double own = s->done[0][part][o->micro], next = part == last ? own : s->done[1][part + 1][o->micro];
    return own < 0 || next < 0 ? -1.0 : fmax(own, next + (part == last ? 0.0 : s->delay));
}

/* Carries the schedule out: every rank does its operations in their order, each as soon as it can. */
static void simulate(simulation *s)
{
    int next[STAGES] = {0}, held = 0, left = 2 * s->stages * s->micro * s->chunks;
    double free_at[STAGES] = {0};
    for (int i = 0; i < s->stages * s->chunks; i++)
        for (int m = 0; m < s->micro; m++)
            s->done[0][i][m] = s->done[1][i][m] = -1.0;
    s->seconds = s->held = 0.0;
    order(s);
    for (bool moved = true; left > 0; moved = false) {
        for (int r = 0; r < s->stages; r++)
            while (next[r] < 2 * s->micro * s->chunks) {
                const op *o = &s->order[r][next[r]];
                const int part = o->chunk * s->stages + r;
                const double begin = ready(s, part, o);
                if (begin < 0)
                    break;
                free_at[r] = fmax(free_at[r], begin) + (o->back ? s->backward : s->forward)[part];
                s->done[o->back][part][o->micro] = free_at[r];
                s->seconds = fmax(s->seconds, free_at[r]);
                held += r == 0 ? (o->back ? -1 : 1) : 0;
                s->held = fmax(s->held, held);
                next[r]++;
                left--;
                moved = true;
            }
        if (!moved)
            fail_msg("the schedule waits for itself");
    }
}

static simulation make(tx_pipeline_schedule schedule, int stages, int chunks, int micro)
{
    simulation s = {.split = {1, 1, stages, 1, 1, 0, schedule, chunks, 1, micro, false, false},
                    .stages = stages,
                    .chunks = chunks,
                    .micro = micro};
    for (int i = 0; i < stages * chunks; i++) {
        s.forward[i] = 1.0 / chunks;
        s.backward[i] = 2.0 / chunks;
    }
    return s;
}

static const struct {
    tx_pipeline_schedule schedule;
    int stages, chunks, micro;
} pipelines[] = {
    {TX_PIPELINE_GPIPE, 4, 1, 8},        {TX_PIPELINE_GPIPE, 8, 1, 64},       {TX_PIPELINE_1F1B, 2, 1, 2},
    {TX_PIPELINE_1F1B, 4, 1, 8},         {TX_PIPELINE_1F1B, 8, 1, 64},        {TX_PIPELINE_INTERLEAVED, 4, 2, 8},
    {TX_PIPELINE_INTERLEAVED, 2, 4, 16}, {TX_PIPELINE_INTERLEAVED, 8, 2, 64}, {TX_PIPELINE_INTERLEAVED, 8, 4, 32}};
enum { PIPELINES = sizeof pipelines / sizeof pipelines[0] };

/* Stages alike: the formula to the last digit, and the activations that the first stage holds. */
static void test_pipelines(void **state)
{
    for (int i = 0; i < PIPELINES; i++) {
        simulation s = make(pipelines[i].schedule, pipelines[i].stages, pipelines[i].chunks, pipelines[i].micro);
        simulate(&s);
        assert_near(s.seconds, tx_split_pipeline(s.stages, s.chunks, s.micro, 3.0, 3.0), 1e-12);
        assert_near(s.held / s.chunks, tx_split_held(&s.split, 0), 1e-12);
    }
    /* Idle shares of four stages and eight micro-batches: .273, .273, .158. */
    assert_near(9.0 / tx_split_pipeline(4, 1, 8, 3.0, 3.0), 0.273, 2e-3);
    assert_near(4.5 / tx_split_pipeline(4, 2, 8, 3.0, 3.0), 0.158, 2e-3);
}

/* A head makes the last stage slower, and a message costs a twentieth of a pass. The bubble, the time beyond the
 * slowest stage's work, is predicted within 10 %. */
static void test_uneven_pipelines(void **state)
{
    for (int i = 0; i < PIPELINES; i++) {
        simulation s = make(pipelines[i].schedule, pipelines[i].stages, pipelines[i].chunks, pipelines[i].micro);
        const int last = s.stages * s.chunks - 1;
        const double head = 0.1 / s.chunks, send = 0.05 / s.chunks;
        for (int part = 0; part <= last; part++) { /* who sends computes nothing meanwhile */
            s.forward[part] += send + (part == last ? head : 0.0);
            s.backward[part] += send + (part == last ? 2.0 * head : 0.0);
        }
        simulate(&s);
        const double each = 3.0 + 2.0 * send * s.chunks, busy = s.micro * (each + 3.0 * head);
        assert_near(s.seconds - busy, tx_split_pipeline(s.stages, s.chunks, s.micro, each, each + 3.0 * head) - busy,
                    0.1);
    }
}

/* Stages that have unequal numbers of blocks, the head in the last one: all of a step within 5 %, interleaved 10. */
static void test_unequal_pipelines(void **state)
{
    static const struct {
        int stages, chunks, micro, head, blocks[8];
    } cases[] = {{2, 1, 8, 16, {7, 1}},        {2, 1, 8, 5, {9, 3}},       {4, 1, 8, 4, {4, 5, 5, 2}},
                 {4, 1, 16, 16, {1, 2, 4, 1}}, {2, 2, 8, 2, {3, 2, 2, 1}}, {4, 2, 8, 2, {3, 3, 3, 2, 2, 2, 2, 1}},
                 {2, 2, 16, 6, {4, 2, 4, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int stages = cases[i].stages, chunks = cases[i].chunks, last = stages * chunks - 1;
        simulation s = make(chunks > 1 ? TX_PIPELINE_INTERLEAVED : TX_PIPELINE_1F1B, stages, chunks, cases[i].micro);
        double of_rank[STAGES] = {0}, all = 0.0, slowest = 0.0;
        for (int part = 0; part <= last; part++) {
            s.forward[part] = cases[i].blocks[part] + (part == last ? cases[i].head : 0);
            s.backward[part] = 2.0 * s.forward[part];
            of_rank[part % stages] += 3.0 * s.forward[part];
            slowest = fmax(slowest, of_rank[part % stages]);
            all += 3.0 * s.forward[part];
        }
        simulate(&s);
        assert_near(s.seconds, tx_split_pipeline(stages, chunks, s.micro, (all - slowest) / (stages - 1), slowest),
                    chunks > 1 ? 0.1 : 0.05);
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------- */

typedef struct split_case {
    tx_engine *engine;
    tx_config *config;
    tx_split_model model;
    tx_trainer_options base;
} split_case;

static tx_trainer_options base_of(const tx_config *config, int64_t block)
{
    tx_trainer_options base = tx_bench_trainer_options(config, 1, block);
    base.autocast = TX_BF16;
    return base;
}

static split_case open_case(const char *name, int64_t block)
{
    const tx_engine_options options = {.size = sizeof options, .threads = 1};
    split_case a = {0};
    assert_ok(tx_engine_create(&options, &a.engine));
    assert_ok(tx_shape_config(name, block, &a.config));
    a.base = base_of(a.config, block);
    assert_ok(tx_split_model_make(a.engine, a.config, &a.base, &a.model));
    return a;
}

static void end(split_case *a)
{
    tx_config_free(a->config);
    tx_engine_free(a->engine);
}

static double planned(const split_case *a, const tx_split *split)
{
    tx_memory memory;
    assert_ok(tx_split_plan(a->engine, a->config, &a->base, &a->model, &machine, split, &memory));
    return (double)tx_memory_total(&memory);
}

/* Every split of data, tensor and pipeline that the engine can do, as its planner has it. */
static void check_plans(const char *name, int64_t block, int64_t pipeline, int64_t chunks)
{
    split_case a = open_case(name, block);
    tx_split_figures f;
    tx_split s = {.pipeline = pipeline, .expert = 1, .context = 1, .chunks = chunks};
    s.schedule = chunks > 1 ? TX_PIPELINE_INTERLEAVED : TX_PIPELINE_1F1B;
    s.micro = 2 * pipeline;
    for (s.tensor = 1; s.tensor <= 8 && a.model.kv_heads % s.tensor == 0; s.tensor *= 2)
        for (s.data = 1; s.data <= 64; s.data *= 8)
            for (s.zero = 0; s.zero < (s.data > 1 ? 4 : 1); s.zero++)
                for (int i = 0; i < 4; i++) {
                    s.again = i % 2;
                    s.batch = i < 2 ? 1 : 4;
                    if (!tx_split_is_built(&s))
                        continue;
                    tx_split_predict(&a.model, &machine, &s, &f);
                    const double bytes = planned(&a, &s);
                    if (!(fabs(f.memory - bytes) <= 0.1 * bytes))
                        fail_msg(
                            "%s: data %d zero %d tensor %d pipeline %d chunks %d batch %d again %d: %.3g, planned %.3g",
                            name, (int)s.data, (int)s.zero, (int)s.tensor, (int)pipeline, (int)chunks, (int)s.batch,
                            s.again, f.memory, bytes);
                }
    end(&a);
}

static void test_memory(void **state)
{
    for (int64_t pipeline = 1; pipeline <= 4; pipeline *= 4) {
        check_plans("gpt2-xl", 1024, pipeline, 1);
        check_plans("llama-7b", 2048, pipeline, 1);
        check_plans("llama-70b", 4096, pipeline, 1);
        check_plans("mixtral-8x7b", 2048, pipeline, 1);
    }
    check_plans("gpt2-xl", 1024, 4, 3);
    check_plans("llama-7b", 2048, 4, 2);
}

/* The first of four stages has a quarter of the layers and no head, but it keeps the activations of four micro-batches:
 * as many as a model four times as large keeps of one. A context rank has a part of each row. */
static void test_stage_memory(void **state)
{
    split_case a = open_case("llama-7b", 2048), part = open_case("llama-7b", 512);
    tx_split s = {1, 1, 4, 1, 1, 0, TX_PIPELINE_1F1B, 1, 1, 8, false, false},
             whole = {1, 1, 1, 1, 1, 0, TX_PIPELINE_1F1B, 1, 4, 1, false, false};
    tx_split_figures f, one;
    tx_memory memory;
    tx_split_predict(&a.model, &machine, &s, &f);
    a.config->layers = 8;
    assert_ok(tx_split_plan(a.engine, a.config, &a.base, &a.model, &machine, &whole, &memory));
    const double table = 32000.0 * 4096.0;
    assert_near(f.bytes[TX_MEMORY_WEIGHTS] + 4.0 * table, (double)memory.bytes[TX_MEMORY_WEIGHTS], 0.001);
    assert_near(f.bytes[TX_MEMORY_OPTIMIZER] + 8.0 * table, (double)memory.bytes[TX_MEMORY_OPTIMIZER], 0.001);
    assert_near(f.bytes[TX_MEMORY_ACTIVATIONS], (double)memory.bytes[TX_MEMORY_ACTIVATIONS], 0.1);
    s = (tx_split){1, 1, 1, 1, 4, 0, TX_PIPELINE_1F1B, 1, 1, 1, false, false};
    tx_split_predict(&a.model, &machine, &s, &f);
    s.context = 1;
    tx_split_predict(&part.model, &machine, &s, &one);
    assert_near(f.bytes[TX_MEMORY_ACTIVATIONS], one.bytes[TX_MEMORY_ACTIVATIONS], 0.05);
    end(&a);
    end(&part);
}

/* The part of a layer on a rank of a tensor group, compared with the planner's, with recomputed blocks or not; also
 * with experts, whose router is whole. */
static void check_divided(const char *name, int again)
{
    split_case a = open_case(name, 2048);
    assert_true(a.model.tensor >= 8);
    for (int power = 1; power < 4; power++) {
        const double t = 1 << power, kept = 1.0 - 24.0 / 34.0 + 24.0 / 34.0 / t;
        const tx_split_piece *whole = &a.model.layer[0][again], *part = &a.model.layer[power][again];
        assert_near(part->bytes[TX_MEMORY_WEIGHTS] * t, whole->bytes[TX_MEMORY_WEIGHTS], 0.01);
        assert_near(part->flops * t, whole->flops, 0.05);
        if (!again)
            assert_near(whole->bytes[TX_MEMORY_ACTIVATIONS] * kept, part->bytes[TX_MEMORY_ACTIVATIONS], 0.2);
    }
    end(&a);
}

static void test_divided(void **state)
{
    for (int again = 0; again < 2; again++) {
        check_divided("llama-7b", again);
        check_divided("mixtral-8x7b", again);
    }
}

/* A model that two ranks can divide and four cannot: its largest group is of two, and no split has a larger one. */
static void test_indivisible(void **state)
{
    static const char text[] = "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 64, "
                               "\"intermediate_size\": 90, \"num_hidden_layers\": 4, \"num_attention_heads\": 8, "
                               "\"max_position_embeddings\": 64}";
    split_case a = {0};
    const tx_engine_options options = {.size = sizeof options, .threads = 1};
    const tx_split_limits limits = {.devices = 16, .tokens = 4096, .zero = -1, .again = -1};
    tx_split_search *search = malloc(sizeof *search);
    tx_json *json = NULL;
    assert_true(search);
    assert_ok(tx_engine_create(&options, &a.engine));
    assert_ok(tx_json_parse(text, strlen(text), "config.json", &json));
    assert_ok(tx_config_of_json(json, &a.config));
    a.base = base_of(a.config, 64);
    assert_ok(tx_split_model_make(a.engine, a.config, &a.base, &a.model));
    assert_int_equal(a.model.tensor, 2);
    tx_split_search_all(&a.model, &machine, &limits, search);
    assert_true(search->count > 0);
    for (int i = 0; i < search->count; i++)
        assert_true(search->found[i].split.tensor <= 2);
    free(search);
    end(&a);
}

/* ---- Properties for any figures ---------------------------------------------------------------------------- */

static double seconds_of(const split_case *a, const tx_split *s, double *memory)
{
    tx_split_figures f;
    tx_split_predict(&a->model, &machine, s, &f);
    *memory = f.memory;
    double sum = 0.0;
    for (int t = 0; t < TX_SPLIT_TERMS; t++) {
        assert_true(f.term[t] >= 0.0);
        sum += f.term[t];
    }
    assert_near(sum, f.seconds, 1e-12);
    assert_true(f.mfu > 0.0 && f.mfu < machine.rate / machine.peak);
    return f.seconds;
}

/* One device's step is its products and bytes; dividing it further never holds more of it a device. */
static void test_order(void **state)
{
    split_case a = open_case("mixtral-8x7b", 4096);
    double memory, before;
    tx_split s = {1, 1, 1, 1, 1, 0, TX_PIPELINE_1F1B, 1, 1, 64, false, false};
    const tx_split_model *m = &a.model;
    const double flops = 32.0 * m->layer[0][0].flops + m->ends[0][0].flops;
    const double moved = 32.0 * m->layer[0][0].moved + m->ends[0][0].moved;
    const double update = 32.0 * m->layer[0][0].update + m->ends[0][0].update;
    assert_near(seconds_of(&a, &s, &before), 64.0 * (flops / 6e14 + moved / 4e12) + update / 4e12, 1e-9);
    assert_near(m->expert_share, 0.98, 0.02);
    /* Six times the 12.9 thousand million active parameters of a token, and half of its pairs. */
    assert_near(flops, 4096.0 * 6.0 * 12.75e9 + 32.0 * 6.0 * 4096.0 * 4096.0 * 4096.0, 0.05);
    for (s.expert = s.data = 2, s.micro = 32; s.expert <= 8; s.expert *= 2, s.data *= 2, s.micro /= 2) {
        seconds_of(&a, &s, &memory);
        assert_true(memory < before);
        before = memory;
    }
    s = (tx_split){64, 1, 1, 1, 1, 0, TX_PIPELINE_1F1B, 1, 1, 1, false, false};
    seconds_of(&a, &s, &before);
    for (s.zero = 1; s.zero < 4; s.zero++) {
        seconds_of(&a, &s, &memory);
        assert_true(memory < before);
        before = memory;
    }
    end(&a);
}

/* Experts are counted by what parameters say, whatever the key of their number; convolutions have three dimensions too.
 * The shares are by hand, without embeddings, heads and routers: experts are 14,395 of 15,284 and 77,309 of 79,002
 * million. */
static void test_experts(void **state)
{
    static const struct {
        const char *name;
        int64_t experts;
        double share;
    } models[] = {{"deepseek-v2-lite", 64, 0.94185}, {"qwen3-next-80b", 512, 0.97858}, {"llama-7b", 0, 0.0}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        split_case a = open_case(models[i].name, 2048);
        assert_int_equal(a.model.experts, models[i].experts);
        assert_near(a.model.expert_share, models[i].share, 1e-5);
        end(&a);
    }
}

/* The search returns the results of single evaluations, in order. */
static void test_search(void **state)
{
    split_case a = open_case("llama-7b", 4096);
    tx_split_search *search = malloc(sizeof *search), *one = malloc(sizeof *one);
    tx_split_limits limits = {.devices = 64, .tokens = 1 << 22, .zero = -1, .again = -1};
    assert_true(search && one);
    tx_split_search_all(&a.model, &machine, &limits, search);
    assert_int_equal(search->count, TX_SPLIT_MOST);
    for (int i = 0; i < search->count; i++) {
        const tx_split *s = &search->found[i].split;
        assert_int_equal(s->data * s->tensor * s->pipeline * s->context, 64);
        assert_int_equal(s->data * s->batch * s->micro, 1024);
        assert_true(search->found[i].figures.memory <= TX_SPLIT_MEMORY * machine.memory);
        assert_true(i == 0 || search->found[i].figures.seconds >= search->found[i - 1].figures.seconds);
    }
    double least = HUGE_VAL;
    for (limits.pipeline = 1; limits.pipeline <= 32; limits.pipeline *= 2) {
        tx_split_search_all(&a.model, &machine, &limits, one);
        least = one->count ? fmin(least, one->found[0].figures.seconds) : least;
    }
    assert_near(search->found[0].figures.seconds, least, 0.0);
    limits = (tx_split_limits){.devices = 64, .tokens = 1 << 22, .zero = -1, .again = -1, .built = true};
    tx_split_search_all(&a.model, &machine, &limits, one);
    assert_true(one->count > 0);
    for (int i = 0; i < one->count; i++)
        assert_true(tx_split_is_built(&one->found[i].split));
    free(search);
    free(one);
    end(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_pipelines),
        cmocka_unit_test(test_uneven_pipelines),
        cmocka_unit_test(test_unequal_pipelines),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_stage_memory),
        cmocka_unit_test(test_divided),
        cmocka_unit_test(test_indivisible),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
