/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits that end although the last rank never comes: a sum in a window, a sum of private data, a barrier and a message.
 * The ranks that are left then use a communicator that is new. */
#include "comm/group.h"
#include "tests/comm/ranks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WAYS = 4, COUNT = 6 * TX_PARAM_BLOCK };

static const char lost[] = "rank 9 is lost";

/* Another thread notices the loss, after the wait has begun. */
static void *lose(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    tx_comm_abandon(lost);
    return NULL;
}

static tx_status wait_for_last(tx_comm *comm, int way)
{
    static float data[COUNT];
    const tx_message message = {.other = comm->size - 1, .data = data, .count = COUNT, .dtype = TX_F32};
    void *window = data;
    int32_t request;
    if (way == 0)
        TX_TRY(comm->table->window(comm, COUNT * 4, &window));
    pthread_t thread;
    if (pthread_create(&thread, NULL, lose, NULL) != 0)
        return TX_MEMORY;
    tx_status status;
    if (way == 3) {
        status = comm->table->begin_message(comm, &message, &request);
        TX_THEN(status, comm->table->wait_message(comm, request));
    } else
        status = tx_comm_collect(comm, way == 2 ? TX_BARRIER : TX_ALL_REDUCE, window, COUNT, TX_F32, 0);
    pthread_join(thread, NULL);
    return status;
}

/* The window of a communicator is a collective call of all ranks. */
static tx_status stay_away(tx_comm *comm, int way)
{
    void *window;
    return way == 0 ? comm->table->window(comm, COUNT * 4, &window) : TX_OK;
}

static tx_status abandon_all(const fixture *f)
{
    const int32_t last = f->size - 1;
    tx_comm *comm[WAYS], *left;
    float sum = 1.0f;
    for (int way = 0; way < WAYS; way++)
        TX_TRY(tx_comm_sub(f->comm, 0, f->rank, &comm[way]));
    TX_TRY(tx_comm_sub(f->comm, f->rank == last, f->rank, &left));
    for (int way = 0; way < WAYS; way++) {
        const tx_status status = (f->rank == last ? stay_away : wait_for_last)(comm[way], way);
        if (f->rank == last ? status != TX_OK : status != TX_IO || strcmp(tx_error(), lost) != 0)
            return tx_fail_in(status ? status : TX_INTERNAL, "way %d", way);
        tx_comm_resume();
    }
    if (tx_comm_abandoned())
        return TX_INTERNAL;
    TX_TRY(tx_comm_collect(left, TX_ALL_REDUCE, &sum, 1, TX_F32, 0));
    return (int32_t)sum == left->size ? TX_OK : tx_fail(TX_INTERNAL, "the sum is %g", (double)sum);
}

/* MPI cannot end any more: the last rank waits for the others' files, and ends all by its end. */
int abandon(fixture *f)
{
    char folder[32] = "/tmp/tx_test_comm_XXXXXX", path[64];
    if (f->size == 1)
        return 77;
    if (f->rank == 0 && !mkdtemp(folder))
        return 1;
    if (tx_comm_collect(f->comm, TX_BROADCAST, folder, sizeof folder / 4, TX_I32, 0))
        return 1;
    if (abandon_all(f)) {
        fprintf(stderr, "test_comm: rank %d: %s\n", (int)f->rank, tx_error());
        _exit(1);
    }
    snprintf(path, sizeof path, "%s/%d", folder, (int)f->rank);
    if (f->rank < f->size - 1)
        close(open(path, O_WRONLY | O_CREAT, 0600));
    for (int32_t r = 0, i = 0; r < f->size - 1 || f->rank < f->size - 1; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, (int)r);
        if (f->rank == f->size - 1 && access(path, F_OK) == 0) {
            unlink(path);
            r++;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if (i == 6000)
            _exit(1);
    }
    rmdir(folder);
    puts("all waits ended");
    fflush(stdout);
    _exit(0); /* the launcher kills the others */
}
