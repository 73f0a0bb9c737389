/* SPDX-License-Identifier: Apache-2.0
 * The peer's process. */
#include "tools/bench/peer.h"

#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define SCRIPT "peer_torch.py"

struct tx_peer {
    pid_t process;
    FILE *to, *from;
    char name[256];
};

/* Finds the peer's script: beside the installed program (the tree may have been moved), else in the source tree. */
static tx_status find_script(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length > 0) {
        path[length] = '\0';
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

/* Starts the process with its standard input and output on pipes; its errors go where ours go. */
static tx_status spawn(tx_peer *peer, char *const arguments[])
{
    int to[2], from[2];
    if (pipe(to))
        return tx_fail(TX_IO, "peer: cannot make a pipe: %s", strerror(errno));
    if (pipe(from)) {
        close(to[0]);
        close(to[1]);
        return tx_fail(TX_IO, "peer: cannot make a pipe: %s", strerror(errno));
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    const int all[] = {to[0], to[1], from[0], from[1]};
    for (int i = 0; i < 4; i++)
        posix_spawn_file_actions_addclose(&actions, all[i]);
    int error = posix_spawnp(&peer->process, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    peer->to = fdopen(to[1], "w");
    peer->from = fdopen(from[0], "r");
    if (error) {
        peer->process = 0;
        return tx_fail(TX_NOT_FOUND,
                       "%s: cannot be started: %s; set TX_PYTHON to a Python that has torch and transformers",
                       arguments[0], strerror(error));
    }
    return peer->to && peer->from ? TX_OK : tx_fail(TX_MEMORY, "peer: out of memory");
}

/* Reads a line that begins with `word`; the rest of it goes to `rest`. */
static tx_status expect(tx_peer *peer, const char *word, char *rest, size_t size)
{
    char line[512];
    if (!fgets(line, sizeof line, peer->from))
        return tx_fail(TX_IO, "%s ended: see its message above", SCRIPT);
    line[strcspn(line, "\n")] = '\0';
    size_t length = strlen(word);
    if (strncmp(line, word, length) != 0)
        return tx_fail(TX_FORMAT, "%s: said \"%s\" where \"%s\" was expected", SCRIPT, line, word);
    snprintf(rest, size, "%s", line + length);
    return TX_OK;
}

tx_status tx_peer_start(const char *task, const tx_config *config, int64_t batch, int64_t block, int64_t threads,
                        tx_peer **peer)
{
    const char *python = getenv("TX_PYTHON");
    char text[8][24], interpreter[1024], script[4096], word[16];
    const int64_t value[8] = {
        config->vocab_size, config->positions, config->width, config->layers, config->heads, batch, block, threads};
    snprintf(interpreter, sizeof interpreter, "%s", python && *python ? python : "python3");
    snprintf(word, sizeof word, "%s", task);
    char *arguments[12] = {interpreter, script, word};
    for (int i = 0; i < 8; i++) {
        snprintf(text[i], sizeof text[i], "%" PRId64, value[i]);
        arguments[3 + i] = text[i];
    }
    tx_status status = find_script(script, sizeof script);
    if (status)
        return status;
    tx_peer *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "peer: out of memory");
    status = spawn(made, arguments);
    if (!status)
        status = expect(made, "ready ", made->name, sizeof made->name);
    if (status) {
        tx_peer_stop(made);
        return status;
    }
    *peer = made;
    return TX_OK;
}

const char *tx_peer_name(const tx_peer *peer)
{
    return peer->name;
}

tx_status tx_peer_run(tx_peer *peer, int64_t steps, double *seconds)
{
    char rest[64], *end;
    if (fprintf(peer->to, "%" PRId64 "\n", steps) < 0 || fflush(peer->to))
        return tx_fail(TX_IO, "%s: takes no more commands: %s", SCRIPT, strerror(errno));
    tx_status status = expect(peer, "seconds ", rest, sizeof rest);
    if (status)
        return status;
    *seconds = strtod(rest, &end);
    return end != rest && *seconds > 0.0 ? TX_OK : tx_fail(TX_FORMAT, "%s: no time in \"%s\"", SCRIPT, rest);
}

void tx_peer_stop(tx_peer *peer)
{
    if (!peer)
        return;
    if (peer->to)
        fclose(peer->to); /* the script ends with its input */
    if (peer->from)
        fclose(peer->from);
    if (peer->process)
        waitpid(peer->process, NULL, 0);
    free(peer);
}
