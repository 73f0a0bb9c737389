/* SPDX-License-Identifier: Apache-2.0
 * Writes checkpoints as a trainer does. It prints the state of each save before and after the save, and continues after
 * a save that fails.
 *
 *     saver FOLDER      exit status: 0 success, 3 if a save failed, 4 if the folder could not be locked */
#include "models/files/checkpoint.h"
#include "tests/checkpoint/states.h"

#include <stdio.h>
#include <unistd.h>

static const struct {
    int step, keep; /* keep: number of checkpoints to keep, or 0 for all */
} saves[] = {{10, 0}, {20, 1}, {30, 1}, {30, 1}, {40, 2}, {40, 1}};

/* Calls write() directly, so that the shim sees it. */
static void print_state(const char *what, int version)
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

/* Returns the version in the folder, or -1 if there is none or it is unknown. */
static int find_version(const char *output_dir)
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
    tx_stage *stage = NULL;
    int result = 0;
    if (argc != 2)
        return 2;
    if (tx_stage_create(&stage) || tx_output_lock_take(argv[1], &lock)) {
        complain("lock");
        return 4;
    }
    for (int i = 0; i < (int)(sizeof saves / sizeof saves[0]); i++) {
        print_state("begin", i + 1);
        if (state_save(argv[1], saves[i].step, i + 1, i % 2 ? NULL : stage)) {
            complain("save");
            print_state("failed", i + 1);
            print_state("newest", find_version(argv[1]));
            result = 3;
            continue;
        }
        print_state("committed", i + 1);
        if (tx_checkpoint_prune(argv[1], saves[i].keep, saves[i].step, NULL, &report))
            complain("prune");
    }
    tx_output_lock_release(lock);
    tx_stage_free(stage);
    return result;
}
