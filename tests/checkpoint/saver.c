/* SPDX-License-Identifier: Apache-2.0
 * Writes checkpoints as a trainer does, saying on standard output before and after each what it is about and what it
 * has achieved. A save that fails does not end it.
 *
 *     saver FOLDER      exit status 0: all went well; 3: a save failed; 4: the folder could not be had */
#include "models/files/checkpoint.h"
#include "tests/checkpoint/states.h"

#include <stdio.h>
#include <unistd.h>

static const struct {
    int step, keep; /* checkpoints that stay after it; 0: all */
} saves[] = {{10, 0}, {20, 1}, {30, 1}, {30, 1}, {40, 2}, {40, 1}};

/* By write() itself, which the shim sees. */
static void say(const char *what, int version)
{
    char line[64];
    const int length = snprintf(line, sizeof line, "%s %d\n", what, version);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(5);
}

static void complain(const char *doing)
{
    fprintf(stderr, "saver: %s: %s\n", doing, tx_error());
}

static void warn(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "saver: warning: %s\n", message);
}

/* The version that is there; -1: none, or not to be told. */
static int look(const char *output_dir)
{
    char *folder = NULL;
    if (tx_checkpoint_newest(output_dir, NULL, &folder))
        return -1;
    const int version = state_read(folder);
    free(folder);
    return version;
}

int main(int argc, char **argv)
{
    const tx_reporter report = {.warn = warn};
    tx_output_lock *lock = NULL;
    int result = 0;
    if (argc != 2)
        return 2;
    if (tx_output_lock_take(argv[1], &lock)) {
        complain("lock");
        return 4;
    }
    for (int i = 0; i < (int)(sizeof saves / sizeof saves[0]); i++) {
        say("begin", i + 1);
        if (state_save(argv[1], saves[i].step, i + 1)) {
            complain("save");
            say("failed", i + 1);
            say("newest", look(argv[1]));
            result = 3;
            continue;
        }
        say("committed", i + 1);
        if (tx_checkpoint_prune(argv[1], saves[i].keep, saves[i].step, NULL, &report))
            complain("prune");
    }
    tx_output_lock_release(lock);
    return result;
}
