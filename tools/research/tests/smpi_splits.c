/* SPDX-License-Identifier: Apache-2.0
 * Message patterns of model-parallel training under SimGrid's SMPI, built by run_splits.sh. Prints the simulated
 * seconds.
 *
 *   smpi_splits sum|exchange BYTES
 *   smpi_splits pipeline BYTES MICRO SECONDS     1F1B; SECONDS of a forward pass, and twice that of a backward pass
 *
 * The data are not added up, and all ranks share one buffer. */
#include <smpi/smpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO = 256 };

static char *data;
static int rank, ranks;

static void swap(int with, int count)
{
    MPI_Sendrecv(data, count, MPI_CHAR, with, 0, data, count, MPI_CHAR, with, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Recursive halving, then doubling (Rabenseifner). The number of ranks is a power of two. */
static void sum(int bytes)
{
    for (int far = ranks / 2, part = bytes / 2; far > 0; far /= 2, part /= 2)
        swap(rank ^ far, part);
    for (int far = 1, part = bytes / ranks; far < ranks; far *= 2, part *= 2)
        swap(rank ^ far, part);
}

/* All-to-all with one partner after the other. */
static void exchange(int bytes)
{
    for (int far = 1; far < ranks; far++)
        swap(rank ^ far, bytes / ranks);
}

/* Waits for the message of a neighbour, if there is one, computes, and sends the result at once. */
static void pass(MPI_Request *come, double seconds, int to, int tag, int bytes)
{
    MPI_Wait(come, MPI_STATUS_IGNORE);
    smpi_execute(seconds);
    if (to >= 0 && to < ranks)
        MPI_Send(data, bytes, MPI_CHAR, to, tag, MPI_COMM_WORLD);
}

static void pipeline(int bytes, int micro, double seconds)
{
    MPI_Request come[2][MICRO];
    for (int m = 0; m < micro; m++)
        for (int back = 0; back < 2; back++) {
            const int from = back ? rank + 1 : rank - 1;
            come[back][m] = MPI_REQUEST_NULL;
            if (from >= 0 && from < ranks)
                MPI_Irecv(data, bytes, MPI_CHAR, from, 2 * m + back, MPI_COMM_WORLD, &come[back][m]);
        }
    MPI_Barrier(MPI_COMM_WORLD);
    int f = 0;
    const int early = ranks - 1 - rank < micro ? ranks - 1 - rank : micro;
    for (; f < early; f++)
        pass(&come[0][f], seconds, rank + 1, 2 * f, bytes);
    for (int b = 0; b < micro; b++) {
        if (f < micro) {
            pass(&come[0][f], seconds, rank + 1, 2 * f, bytes);
            f++;
        }
        pass(&come[1][b], 2.0 * seconds, rank - 1, 2 * b + 1, bytes);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int bytes = argc > 2 ? atoi(argv[2]) : 0, micro = argc > 3 ? atoi(argv[3]) : 0;
    if (bytes < 1 || micro > MICRO)
        MPI_Abort(MPI_COMM_WORLD, 2);
    data = SMPI_SHARED_MALLOC((size_t)bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    if (strcmp(argv[1], "sum") == 0)
        sum(bytes);
    else if (strcmp(argv[1], "exchange") == 0)
        exchange(bytes);
    else
        pipeline(bytes, micro, atof(argv[4]));
    /* Ranks leave a barrier at different times. The start is that of the last rank. */
    const double mine[2] = {begin, MPI_Wtime()};
    double last[2];
    MPI_Reduce(mine, last, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("seconds %.9f\n", last[1] - last[0]);
    SMPI_SHARED_FREE(data);
    MPI_Finalize();
    return 0;
}
