/* SPDX-License-Identifier: Apache-2.0
 * A step of data-parallel training under SimGrid's SMPI, built by run.sh. It executes a schedule of `txresearch scale`
 * with messages on a simulated network, and prints the seconds. The schedule has one line for each bucket: the
 * milliseconds until it is ready, and the bytes to send.
 *
 *   smpi SCHEDULE MILLISECONDS ring|exchange
 *
 * It simulates the communication thread, which computes until the next bucket is ready and then all-reduces it. The
 * data are not added up, and all ranks share one buffer, so that one machine can hold many ranks. */
#include <smpi/smpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024 };

typedef struct schedule {
    int count;
    double ready[BUCKETS];
    long bytes[BUCKETS];
} schedule;

static int read_schedule(const char *path, schedule *s)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    int read = 2;
    while (s->count < BUCKETS && (read = fscanf(file, " %lf %ld", &s->ready[s->count], &s->bytes[s->count])) == 2)
        s->count++;
    fclose(file);
    return s->count > 0 && read == EOF;
}

/* Returns the size of slice `i` of `bytes` bytes. */
static int slice(long bytes, int i, int ranks)
{
    return (int)(bytes * (i + 1) / ranks - bytes * i / ranks);
}

/* Reduce-scatter, then all-gather. Each rank communicates only with its neighbours. */
static void ring(char *data, long bytes, int rank, int ranks)
{
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int phase = 0; phase < 2; phase++)
        for (int step = 0; step < ranks - 1; step++) {
            const int out = (rank - step + phase + 2 * ranks) % ranks, in = (out + ranks - 1) % ranks;
            MPI_Sendrecv(data, slice(bytes, out, ranks), MPI_CHAR, next, phase, data, slice(bytes, in, ranks), MPI_CHAR,
                         before, phase, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
}

/* All ranks send slice j to rank j, which then sends its sum to all. */
static void exchange(char *data, long bytes, int rank, int ranks, MPI_Request *moving)
{
    for (int phase = 0; phase < 2; phase++) {
        int count = 0;
        for (int i = 1; i < ranks; i++) {
            const int from = (rank - i + ranks) % ranks;
            MPI_Irecv(data, slice(bytes, phase ? from : rank, ranks), MPI_CHAR, from, phase, MPI_COMM_WORLD,
                      &moving[count++]);
        }
        for (int i = 1; i < ranks; i++) {
            const int to = (rank + i) % ranks;
            MPI_Isend(data, slice(bytes, phase ? rank : to, ranks), MPI_CHAR, to, phase, MPI_COMM_WORLD,
                      &moving[count++]);
        }
        MPI_Waitall(count, moving, MPI_STATUSES_IGNORE);
    }
}

int main(int argc, char **argv)
{
    schedule s = {0};
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int pairs = argc == 4 && strcmp(argv[3], "exchange") == 0;
    if (argc != 4 || (!pairs && strcmp(argv[3], "ring") != 0) || !read_schedule(argv[1], &s)) {
        fprintf(stderr, "usage: smpi SCHEDULE MILLISECONDS ring|exchange, with a schedule of txresearch scale\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    long most = 1;
    for (int i = 0; i < s.count; i++)
        most = s.bytes[i] > most ? s.bytes[i] : most;
    char *data = SMPI_SHARED_MALLOC((size_t)most);
    MPI_Request *moving = malloc(2 * (size_t)ranks * sizeof *moving);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < s.count; i++) {
        const double left = 1e-3 * s.ready[i] - (MPI_Wtime() - begin);
        if (left > 0.0)
            smpi_execute(left);
        if (pairs)
            exchange(data, s.bytes[i], rank, ranks, moving);
        else
            ring(data, s.bytes[i], rank, ranks);
    }
    const double left = 1e-3 * atof(argv[2]) - (MPI_Wtime() - begin);
    if (left > 0.0)
        smpi_execute(left);
    double took = MPI_Wtime() - begin, longest = 0.0;
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("step %.9f\n", longest);
    free(moving);
    SMPI_SHARED_FREE(data);
    MPI_Finalize();
    return 0;
}
