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

#define SCRIPT "peer_torch.py"

struct tx_peer {
    tx_child child;
    char name[256];
};

/* Finds the peer's script: relative to the installed program, which may have been moved, or else in the source tree. */
static tx_status find_script(char *path, size_t size)
{
    if (!tx_child_self(path, size)) {
        char *slash = strrchr(path, '/');
        size_t used = slash ? (size_t)(slash - path) : 0;
        int more = snprintf(path + used, size - used, "/%s/%s", TX_SHARE_FROM_BIN, SCRIPT);
        if (more > 0 && (size_t)more < size - used && access(path, R_OK) == 0)
            return TX_OK;
    }
    snprintf(path, size, "%s/%s", TX_TOOLS_DIR, SCRIPT);
    if (access(path, R_OK) == 0)
        return TX_OK;
    return tx_fail(TX_NOT_FOUND, "%s: not found in %s of the program's folder or in %s; install TX with all its files",
                   SCRIPT, TX_SHARE_FROM_BIN, TX_TOOLS_DIR);
}

/* Reads a line that begins with `word`, and copies the rest of it to `rest`. */
static tx_status expect(tx_peer *peer, const char *word, char *rest, size_t size)
{
    char line[512];
    if (!fgets(line, sizeof line, peer->child.from))
        return tx_fail(TX_IO, "%s ended: see its message above", SCRIPT);
    line[strcspn(line, "\n")] = '\0';
    size_t length = strlen(word);
    if (strncmp(line, word, length) != 0)
        return tx_fail(TX_FORMAT, "%s: printed \"%s\" instead of \"%s\"", SCRIPT, line, word);
    snprintf(rest, size, "%s", line + length);
    return TX_OK;
}

/* Describes the task for the script as one line of JSON. The caller frees it. */
static tx_status describe(const tx_config *config, int64_t batch, int64_t block, int64_t threads, const tx_json *method,
                          char **text)
{
    tx_json *all = tx_json_object(), *model = NULL;
    tx_status status = all ? tx_config_json(config, &model) : TX_MEMORY;
    TX_THEN(status, tx_json_set(all, "model", model));
    TX_THEN(status, tx_json_set_int(all, "batch", batch));
    TX_THEN(status, tx_json_set_int(all, "block", block));
    TX_THEN(status, tx_json_set_int(all, "threads", threads));
    TX_THEN(status, tx_json_set(all, "method", method ? tx_json_copy(method) : tx_json_object()));
    if (!status) {
        *text = tx_json_text(all, TX_JSON_LINE);
        status = *text ? TX_OK : TX_MEMORY;
    }
    tx_json_free(all);
    return status;
}

/* Ends the peer, which may be NULL. */
static void stop(tx_peer *peer)
{
    if (!peer)
        return;
    tx_child_end(&peer->child); /* the script ends at the end of its input */
    free(peer);
}

/* Starts tools/bench/peer_torch.py with $TX_PYTHON or python3, and waits until its model is ready. `task` is "train" or
 * "generate", with `batch` rows of `block` tokens. Pass 0 as `threads` to use all cores of the process. `method` is the
 * training method in the form that the script documents, or NULL. */
static tx_status start(const char *task, const tx_config *config, int64_t batch, int64_t block, int64_t threads,
                       const tx_json *method, tx_peer **peer)
{
    const char *python = getenv("TX_PYTHON");
    char interpreter[1024], script[4096], word[16];
    char *text = NULL;
    TX_TRY(describe(config, batch, block, threads, method, &text));
    snprintf(interpreter, sizeof interpreter, "%s", python && *python ? python : "python3");
    snprintf(word, sizeof word, "%s", task);
    const char *arguments[] = {interpreter, script, word, text, NULL};
    tx_peer *made = calloc(1, sizeof *made);
    tx_status status = made ? find_script(script, sizeof script) : tx_fail(TX_MEMORY, "peer: out of memory");
    TX_THEN(status,
            tx_child_start(arguments, "set TX_PYTHON to a Python that has torch and transformers", &made->child));
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
        return tx_fail(TX_IO, "%s: cannot send a command: %s", SCRIPT, strerror(errno));
    TX_TRY(expect(peer, "seconds ", rest, sizeof rest));
    time->clock = strtod(rest, &end);
    time->processor = strtod(end, &last);
    return last != end && time->clock > 0.0 ? TX_OK : tx_fail(TX_FORMAT, "%s: no times in \"%s\"", SCRIPT, rest);
}

/* ---- Pairs ---------------------------------------------------------------------------------------------- */

bool tx_pairs_late(const tx_pairs *pairs, double seconds, double times)
{
    return tx_now() - pairs->begin + seconds > times * pairs->set->seconds;
}

static tx_status measure(const tx_pairs_task *task, tx_pairs *p)
{
    tx_peer_time ours, theirs = {0};
    for (int64_t i = tx_pairs_late(p, 0.0, 1.0) ? 0 : -1; i < p->set->pairs; i++) {
        if (i > 0 && tx_pairs_late(p, 0.0, 1.0))
            break;
        TX_TRY(task->run(p, false, &ours));
        if (p->peer_name)
            TX_TRY(task->run(p, true, &theirs));
        if (i < 0)
            continue;
        p->ours[i] = ours.clock;
        p->theirs[i] = theirs.clock;
        p->our_work[i] = ours.processor;
        p->their_work[i] = theirs.processor;
        p->measured = i + 1;
        if (p->peer_name)
            fprintf(stderr, "pair %" PRId64 ": %.4f s, peer %.4f s, ratio %.3f, CPU time ratio %.3f\n", i + 1,
                    ours.clock, theirs.clock, theirs.clock / ours.clock, theirs.processor / ours.processor);
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
    const tx_device_info *device = tx_engine_device(p->tx.engine);
    tx_json *all = tx_bench_figures(program, p->set);
    tx_json_set_string(all, "device", device->name);
    tx_json_set_string(all, "driver", device->driver);
    tx_json_set(all, "tx", side(task, p, p->ours));
    const tx_status status = task->add ? task->add(p, all) : TX_OK;
    if (status) {
        tx_json_free(all);
        return status;
    }
    if (p->peer_name) {
        tx_json_set(all, "peer", side(task, p, p->theirs));
        tx_json_set_string(all, "peer_name", p->peer_name);
        tx_json_set_number(all, "ratio", tx_bench_median_ratio(p->theirs, p->ours, p->measured));
        tx_json_set_number(all, "processor_ratio", tx_bench_median_ratio(p->their_work, p->our_work, p->measured));
    }
    return tx_bench_print(all, p->set->json, NULL);
}

static tx_status work(const tx_pairs_task *task, const tx_cli *program, tx_pairs *p)
{
    const tx_pairs_settings *set = p->set;
    TX_TRY(tx_bench_config(set->config, set->block, &p->config));
    TX_TRY(task->open(p));
    if (set->peer == TX_PEER_TORCH) {
        TX_TRY(start(task->name, p->config, set->batch, set->block, set->threads, p->method, &p->peer));
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
