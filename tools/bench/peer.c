/* SPDX-License-Identifier: Apache-2.0
 * The peer's process, and pairs of measurements. */
#include "tools/bench/peer.h"
#include "tools/process/child.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The peers, in the order of their choices. */
static const struct {
    const char *script, *advice;
    bool compile; /* use torch.compile */
} peers[] = {
    [TX_PEER_TORCH] = {"peer_torch.py", "set TX_PYTHON to a Python that has torch and transformers", false},
    [TX_PEER_TORCH_COMPILE] = {"peer_torch.py", "set TX_PYTHON to a Python that has torch and transformers", true},
    [TX_PEER_LLAMA_CPP] = {"peer_llama_cpp.py", "set TX_PYTHON to a Python that has llama_cpp", false},
};

struct tx_peer {
    tx_child child;
    const char *script;
    char name[256];
};

/* Finds the peer's script: relative to the installed program, which may have been moved, or else in the source tree. */
static tx_status find_script(const char *script, char *path, size_t size)
{
    if (!tx_child_self(path, size)) {
        char *slash = strrchr(path, '/');
        size_t used = slash ? (size_t)(slash - path) : 0;
        int more = snprintf(path + used, size - used, "/%s/%s", TX_SHARE_FROM_BIN, script);
        if (more > 0 && (size_t)more < size - used && access(path, R_OK) == 0)
            return TX_OK;
    }
    snprintf(path, size, "%s/%s", TX_TOOLS_DIR, script);
    if (access(path, R_OK) == 0)
        return TX_OK;
    return tx_fail(TX_NOT_FOUND, "%s: not found in %s of the program's folder or in %s; install TX with all its files",
                   script, TX_SHARE_FROM_BIN, TX_TOOLS_DIR);
}

/* Reads a line that begins with `word`, and copies the rest of it to `rest`. */
static tx_status expect(tx_peer *peer, const char *word, char *rest, size_t size)
{
    char line[512];
    if (!fgets(line, sizeof line, peer->child.from))
        return tx_fail(TX_IO, "%s ended: see its message above", peer->script);
    line[strcspn(line, "\n")] = '\0';
    size_t length = strlen(word);
    if (strncmp(line, word, length) != 0)
        return tx_fail(TX_FORMAT, "%s: printed \"%s\" instead of \"%s\"", peer->script, line, word);
    snprintf(rest, size, "%s", line + length);
    return TX_OK;
}

/* Describes the task for the script as one line of JSON. The caller frees it. */
static tx_status describe(const tx_pairs *p, char **text)
{
    const tx_pairs_settings *set = p->set;
    tx_json *model = NULL;
    if (p->config)
        TX_TRY(tx_config_json(p->config, &model));
    tx_json *all = tx_json_pack(
        "{s:o, s:s, s:I, s:I, s:I, s:I, s:b, s:b, s:o}", "model", model ? model : tx_json_pack("s", set->model),
        "dtype", set->dtype ? set->dtype : "float32", "batch", set->batch, "block", set->block, "count", set->count,
        "threads", set->threads, "compile", peers[set->peer].compile, "gpu", p->device.type == TX_DEVICE_GPU, "method",
        p->method ? tx_json_copy(p->method) : tx_json_object());
    *text = all ? tx_json_text(all, TX_JSON_LINE) : NULL;
    tx_json_free(all);
    return *text ? TX_OK : TX_MEMORY;
}

/* Ends the peer, which may be NULL. */
static void stop(tx_peer *peer)
{
    if (!peer)
        return;
    tx_child_end(&peer->child); /* the script ends at the end of its input */
    free(peer);
}

/* Starts the script of the peer with $TX_PYTHON or python3, and waits until its model is ready. `task` is "train" or
 * "generate". Sets `*peer`. */
static tx_status start(const char *task, const tx_pairs *p, tx_peer **peer)
{
    const char *python = getenv("TX_PYTHON");
    char interpreter[1024], script[4096], word[16];
    char *text = NULL;
    TX_TRY(describe(p, &text));
    snprintf(interpreter, sizeof interpreter, "%s", python && *python ? python : "python3");
    snprintf(word, sizeof word, "%s", task);
    const char *arguments[] = {interpreter, script, word, text, NULL};
    tx_peer *made = calloc(1, sizeof *made);
    tx_status status = made ? TX_OK : tx_fail(TX_MEMORY, "peer: out of memory");
    if (made)
        made->script = peers[p->set->peer].script;
    TX_THEN(status, find_script(made->script, script, sizeof script));
    TX_THEN(status, tx_child_start(arguments, peers[p->set->peer].advice, &made->child));
    TX_THEN(status, expect(made, "ready ", made->name, sizeof made->name));
    free(text);
    if (status)
        stop(made);
    else
        *peer = made;
    return status;
}

tx_status tx_peer_run(tx_peer *peer, int64_t steps, tx_peer_time *time)
{
    char rest[64], *end, *last;
    if (fprintf(peer->child.to, "%" PRId64 "\n", steps) < 0 || fflush(peer->child.to))
        return tx_fail(TX_IO, "%s: cannot send a command: %s", peer->script, strerror(errno));
    TX_TRY(expect(peer, "seconds ", rest, sizeof rest));
    time->clock = strtod(rest, &end);
    time->processor = strtod(end, &last);
    return last != end && time->clock > 0.0 ? TX_OK : tx_fail(TX_FORMAT, "%s: no times in \"%s\"", peer->script, rest);
}

/* ---- Pairs ---------------------------------------------------------------------------------------------- */

bool tx_pairs_late(const tx_pairs *pairs, double seconds, double times)
{
    return tx_now() - pairs->begin + seconds > times * pairs->set->seconds;
}

/* Processor seconds that all programs, and other virtual machines, have used since the start of the system; 0 if it
 * does not say. */
static double used_by_all(void)
{
    double user, nice, kernel, idle, waiting, interrupts, soft, stolen, sum = 0.0;
    FILE *f = fopen("/proc/stat", "r");
    if (f && fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &kernel, &idle, &waiting, &interrupts,
                    &soft, &stolen) == 8)
        sum = (user + nice + kernel + interrupts + soft + stolen) / (double)sysconf(_SC_CLK_TCK);
    if (f)
        fclose(f);
    return sum;
}

/* Measures pair i; -1 is the warm-up. Sets `*others`, the processors that other programs used. */
static tx_status measure_pair(const tx_pairs_task *task, tx_pairs *p, int64_t i, double *others)
{
    tx_peer_time ours, theirs = {0};
    const double all = used_by_all(), begin = tx_now(), steps = task->each ? (double)p->set->count : 1.0;
    TX_TRY(task->run(p, false, &ours));
    if (p->peer_name)
        TX_TRY(task->run(p, true, &theirs));
    const double more = used_by_all() - all - ours.processor - theirs.processor;
    *others = more > 0.0 ? more / (tx_now() - begin) : 0.0;
    if (i < 0)
        return TX_OK;
    p->ours[i] = ours.clock / steps;
    p->theirs[i] = theirs.clock / steps;
    p->our_work[i] = ours.processor / steps;
    p->their_work[i] = theirs.processor / steps;
    p->others[i] = *others;
    if (p->peer_name)
        fprintf(stderr,
                "pair %" PRId64 ": %.4f s, peer %.4f s, ratio %.3f, CPU time ratio %.3f, other programs %.1f "
                "processors\n",
                i + 1, p->ours[i], p->theirs[i], theirs.clock / ours.clock, theirs.processor / ours.processor, *others);
    return TX_OK;
}

static tx_status measure(const tx_pairs_task *task, tx_pairs *p)
{
    double others;
    for (int64_t i = tx_pairs_late(p, 0.0, 1.0) ? 0 : -1; i < p->set->pairs;) {
        if (i + p->repeated > 0 && tx_pairs_late(p, 0.0, 1.0))
            break;
        TX_TRY(measure_pair(task, p, i, &others));
        if (i >= 0)
            p->measured = i + 1;
        if (i >= 0 && p->peer_name && others > 0.1 * tx_cores_allowed() && p->repeated < p->set->pairs)
            p->repeated++;
        else
            i++;
    }
    return TX_OK;
}

static tx_json *side(const tx_pairs_task *task, const tx_pairs *p, const double *seconds)
{
    tx_json *made = tx_json_object();
    tx_bench_set_series(made, task->seconds, seconds, p->measured);
    tx_json_set_number(made, "tokens_per_second", task->tokens(p->set) / tx_bench_median(seconds, p->measured));
    return made;
}

static tx_status print(const tx_pairs_task *task, const tx_cli *program, tx_pairs *p)
{
    tx_json *all = tx_bench_figures(program, p->set);
    tx_json_set_string(all, "device", p->device.name);
    tx_json_set_string(all, "driver", p->device.driver);
    tx_json_set(all, "tx", side(task, p, p->ours));
    const tx_status status = task->add ? task->add(p, all) : TX_OK;
    if (status) {
        tx_json_free(all);
        return status;
    }
    if (p->peer_name) {
        tx_json_set(all, "peer", side(task, p, p->theirs));
        tx_json_set_string(all, "peer_name", p->peer_name);
        tx_bench_set_series(all, "other_processors", p->others, p->measured);
        tx_json_set_int(all, "repeated", p->repeated);
        tx_json_set_number(all, "ratio", tx_bench_median_ratio(p->theirs, p->ours, p->measured));
        tx_json_set_number(all, "processor_ratio", tx_bench_median_ratio(p->their_work, p->our_work, p->measured));
    }
    return tx_bench_print(all, p->set->json, NULL);
}

static tx_status work(const tx_pairs_task *task, const tx_cli *program, tx_pairs *p)
{
    const tx_pairs_settings *set = p->set;
    int32_t index;
    if (!set->model)
        TX_TRY(tx_bench_config(set->config, set->block, &p->config));
    TX_TRY(task->open(p));
    TX_TRY(tx_device_find(set->device, &index));
    TX_TRY(tx_device_get(index, &p->device));
    if (set->peer != TX_PEER_NONE) {
        TX_TRY(start(task->name, p, &p->peer));
        p->peer_name = p->peer->name;
    }
    TX_TRY(measure(task, p));
    return print(task, program, p);
}

tx_status tx_pairs_run(const tx_pairs_task *task, const tx_cli *program, const tx_pairs_settings *set, tx_pairs *pairs)
{
    pairs->set = set;
    pairs->begin = tx_now();
    const tx_status status = work(task, program, pairs);
    stop(pairs->peer);
    return status;
}

void tx_pairs_close(tx_pairs *pairs)
{
    tx_json_free(pairs->method);
    tx_bench_training_close(&pairs->tx);
    tx_config_free(pairs->config);
}
