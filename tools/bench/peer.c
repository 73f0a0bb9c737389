/* SPDX-License-Identifier: Apache-2.0
 * The peer's process. */
#include "tools/bench/peer.h"
#include "api/base/clock.h"
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

/* Finds the peer's script: beside the installed program (the tree may have been moved), else in the source tree. */
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
    return tx_fail(TX_NOT_FOUND,
                   "%s: is neither in %s of the program's folder nor in %s; install TX with all its files", SCRIPT,
                   TX_SHARE_FROM_BIN, TX_TOOLS_DIR);
}

/* Reads a line that begins with `word`; the rest of it goes to `rest`. */
static tx_status expect(tx_peer *peer, const char *word, char *rest, size_t size)
{
    char line[512];
    if (!fgets(line, sizeof line, peer->child.from))
        return tx_fail(TX_IO, "%s ended: see its message above", SCRIPT);
    line[strcspn(line, "\n")] = '\0';
    size_t length = strlen(word);
    if (strncmp(line, word, length) != 0)
        return tx_fail(TX_FORMAT, "%s: said \"%s\" where \"%s\" was expected", SCRIPT, line, word);
    snprintf(rest, size, "%s", line + length);
    return TX_OK;
}

tx_status tx_peer_start(const char *task, const tx_config *config, int64_t batch, int64_t block, int64_t threads,
                        const char *const method[TX_PEER_METHOD], tx_peer **peer)
{
    const char *python = getenv("TX_PYTHON");
    char text[8][24], interpreter[1024], script[4096], word[16];
    const int64_t value[8] = {
        config->vocab_size, config->positions, config->width, config->layers, config->heads, batch, block, threads};
    snprintf(interpreter, sizeof interpreter, "%s", python && *python ? python : "python3");
    snprintf(word, sizeof word, "%s", task);
    char *arguments[3 + 8 + TX_PEER_METHOD + 1] = {interpreter, script, word};
    for (int i = 0; i < 8; i++) {
        snprintf(text[i], sizeof text[i], "%" PRId64, value[i]);
        arguments[3 + i] = text[i];
    }
    for (int i = 0; i < TX_PEER_METHOD && method[i]; i++)
        arguments[11 + i] = (char *)(uintptr_t)method[i]; /* which is read alone */
    TX_TRY(find_script(script, sizeof script));
    tx_peer *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "peer: out of memory");
    tx_status status =
        tx_child_start(arguments, "set TX_PYTHON to a Python that has torch and transformers", &made->child);
    if (!status)
        status = expect(made, "ready ", made->name, sizeof made->name);
    if (status) {
        tx_peer_stop(made);
        return status;
    }
    *peer = made;
    return TX_OK;
}

tx_status tx_peer_run(tx_peer *peer, int64_t steps, double *seconds)
{
    char rest[64], *end;
    if (fprintf(peer->child.to, "%" PRId64 "\n", steps) < 0 || fflush(peer->child.to))
        return tx_fail(TX_IO, "%s: takes no more commands: %s", SCRIPT, strerror(errno));
    TX_TRY(expect(peer, "seconds ", rest, sizeof rest));
    *seconds = strtod(rest, &end);
    return end != rest && *seconds > 0.0 ? TX_OK : tx_fail(TX_FORMAT, "%s: no time in \"%s\"", SCRIPT, rest);
}

void tx_peer_stop(tx_peer *peer)
{
    if (!peer)
        return;
    tx_child_end(&peer->child); /* it ends with its input */
    free(peer);
}

/* ---- Pairs ---------------------------------------------------------------------------------------------- */

bool tx_pairs_late(const tx_pairs *pairs, double seconds, double times)
{
    return tx_now() - pairs->begin + seconds > times * pairs->set->seconds;
}

static tx_status measure(const tx_pairs_task *task, tx_pairs *p)
{
    double ours, theirs = 0.0;
    for (int64_t i = tx_pairs_late(p, 0.0, 1.0) ? 0 : -1; i < p->set->pairs; i++) {
        if (i > 0 && tx_pairs_late(p, 0.0, 1.0))
            break;
        TX_TRY(task->run(p, false, &ours));
        if (p->peer_name)
            TX_TRY(task->run(p, true, &theirs));
        if (i < 0)
            continue;
        p->ours[i] = ours;
        p->theirs[i] = theirs;
        p->measured = i + 1;
        if (p->peer_name)
            fprintf(stderr, "pair %" PRId64 ": %.4f s, peer %.4f s, ratio %.3f\n", i + 1, ours, theirs, theirs / ours);
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
    }
    return tx_bench_print(all, p->set->json, NULL);
}

static tx_status work(const tx_pairs_task *task, const tx_cli *program, tx_pairs *p)
{
    const tx_pairs_settings *set = p->set;
    TX_TRY(tx_bench_config(set->config, set->block, &p->config));
    TX_TRY(task->open(p));
    if (set->peer == TX_PEER_TORCH) {
        TX_TRY(tx_peer_start(task->name, p->config, set->batch, set->block, set->threads, p->method, &p->peer));
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
    tx_peer_stop(pairs->peer);
    return status;
}

void tx_pairs_close(tx_pairs *pairs)
{
    tx_bench_training_close(&pairs->tx);
    tx_config_free(pairs->config);
}
