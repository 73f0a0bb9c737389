/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract between the engine and a communicator: the ranks that train together. `self` is one rank and does all of
 * it for real; `mpi` is many. The engine and the trainer see this header only.
 *
 * Every rank begins the same transfers in the same order. Sums go in one order, that of the
 * pairwise tree over the ranks, (0 + 1) + (2 + 3) and so on (tx_comm_split), whatever the timing and wherever the ranks
 * are: the bits depend on the number of ranks alone. A transfer is in place, on host memory.
 *
 * Ranks of one host reach each other's memory where it was given by `window`: there the sum of a range is made slice by
 * slice, each rank one slice of all ranks' ranges, without a message. What leaves a host, and everything outside
 * windows, goes by messages. TX_COMM_SHM in the environment is the most ranks of a host that share memory: 0 switches
 * windows off (as NCCL_P2P_DISABLE=1 does for NCCL), 2 lets four ranks of one host work as two hosts of two do.
 *
 * One thread at a time calls these functions, but for `tell`, `hear`, `laggard` and `leave`, which another one may
 * call.
 */
#ifndef TX_COMM_H
#define TX_COMM_H

#include "tx.h"

/* X(NAME, "name") */
#define TX_COLLECTIVE_MAP(X)                                                                          \
    X(ALL_REDUCE, "all_reduce")         /* every rank gets the sum */                                 \
    X(REDUCE_SCATTER, "reduce_scatter") /* rank r gets the sum in its shard; the rest is undefined */ \
    X(ALL_GATHER, "all_gather")         /* every rank gets every rank's shard */                      \
    X(BROADCAST, "broadcast")           /* every rank gets what root has */                           \
    X(BARRIER, "barrier")               /* of no data */

typedef enum tx_collective {
#define X(name, text) TX_##name,
    TX_COLLECTIVE_MAP(X)
#undef X
        TX_COLLECTIVE_COUNT
} tx_collective;

typedef struct tx_transfer {
    tx_collective kind;
    tx_dtype dtype; /* F32, BF16 (summed in fp32, rounded once) or I32 (wraps round) */
    tx_dtype wire;  /* BF16: what each host adds to a sum of F32 data is rounded to 16 bits, that is summed in fp32, and
                       the sum is rounded again for everybody; not where no data leave a host, nor in what is no sum.
                       Else the same as dtype */
    int32_t root;   /* of BROADCAST */
    int32_t bucket; /* what messages call it; -1: none */
    void *data;     /* in a window at the same place on all ranks, or outside windows on all */
    int64_t count;  /* elements; may pass 2^31 */
    /* Of ALL_GATHER: by rank, and one more, where its shard begins; all ranks give the same numbers, which belong to
     * the transfer as its data do. NULL: tx_comm_shard's. */
    const int64_t *shard;
} tx_transfer;

/* What one rank sends to another, which calls for it. Two ranks know it by its number: messages of one number arrive in
 * the order in which they began, those of others when they come. */
typedef struct tx_message {
    bool out; /* to `other`, or from it */
    int32_t other, number;
    void *data; /* outside windows or in them; only read where it goes out */
    int64_t count;
    tx_dtype dtype; /* F32, BF16, F16 or I32 */
} tx_message;

/* Messages of a rank on their way at most, and their numbers, 0 to the last but one. */
enum { TX_MESSAGES = 32, TX_MESSAGE_NUMBERS = 1 << 14 };

/* Shards: elements first .. next rank's first - 1 of `count`. They begin on multiples of TX_PARAM_BLOCK. */
int64_t tx_comm_shard(int64_t count, int32_t size, int32_t rank);
/* The tree of sums: [first, first + count) is the sum of its first tx_comm_split(count) ranks plus that of the others.
 * The largest power of two below count. */
int32_t tx_comm_split(int32_t count);

typedef struct tx_comm tx_comm;
typedef struct tx_queue tx_queue;
typedef struct tx_heartbeat tx_heartbeat;

/* A rank, as another one sees it. */
typedef struct tx_comm_rank {
    int32_t host;  /* number of its host; hosts are numbered by their lowest ranks */
    char name[64]; /* of the host */
} tx_comm_rank;

/* A rank that another one waits for. */
typedef struct tx_comm_laggard {
    int32_t rank;
    int32_t bucket; /* of the transfer that it did not reach; -1: none */
} tx_comm_laggard;

/* What a rank last told of itself. */
typedef struct tx_comm_peer {
    int64_t beats;     /* how often it was heard: another number says that its process lives */
    int64_t step;      /* the last that it has done; -1: none */
    int32_t waits_for; /* a rank, -1: none */
    char doing[96];    /* "training", "reading book.txt (43 %)" */
} tx_comm_peer;

/* What moved since the communicator was opened. */
typedef struct tx_comm_traffic {
    int64_t sent;          /* bytes sent by messages */
    int64_t shared;        /* bytes read from or written to other ranks' windows */
    double moving, waited; /* seconds that transfers took, and that wait() kept its caller */
} tx_comm_traffic;

typedef struct tx_comm_table {
    const char *name; /* "self", "mpi" */

    /* Joins the ranks. Fails when the launcher started more ranks than this communicator sees, naming
     * the launcher to use. */
    tx_status (*open)(int *argc, char ***argv, tx_comm **comm);
    void (*close)(tx_comm *comm);
    /* tx_comm_sub, of a colour of 0 or more. The new one tells and hears nothing: `laggard` of the one that was opened
     * speaks for it too. */
    tx_status (*sub)(tx_comm *parent, int32_t colour, int32_t key, tx_comm **sub);

    /* Collective: zeroed memory, page-aligned, of the same size on every rank; it goes when the communicator is closed.
     * Private memory where the ranks share none. MEMORY says what the host lacks. */
    tx_status (*window)(tx_comm *comm, int64_t bytes, void **memory);

    /* Starts a transfer; its data belong to it until wait() has returned. Requests are waited for in the order they
     * began. Blocking is begin and wait (tx_comm_run). */
    tx_status (*begin)(tx_comm *comm, const tx_transfer *transfer, int32_t *request);
    tx_status (*wait)(tx_comm *comm, int32_t request);
    /* Whether a thread of the communicator makes the transfers as soon as they begin, or wait() does; at first wait()
     * does. Nothing may be outstanding. The results are the same. */
    tx_status (*background)(tx_comm *comm, bool on);

    /* From one rank to another: the data belong to the message until wait_message() has returned. Messages are waited
     * for in any order; who waits for one moves all on that this rank has begun. A receiver need not have begun when
     * the sender does, but a sender may wait for it. Not beside transfers that a thread makes in the background. */
    tx_status (*begin_message)(tx_comm *comm, const tx_message *message, int32_t *request);
    tx_status (*wait_message)(tx_comm *comm, int32_t request);

    void (*traffic)(const tx_comm *comm, tx_comm_traffic *traffic);
    /* Tells the others that the process of this rank lives, which step it has done (-1: none) and what it does. */
    void (*tell)(tx_comm *comm, int64_t step, const char *doing);
    /* What another rank told; false where it was never heard. Rank 0 hears all, the others hear rank 0. Of the thread
     * that tells. */
    bool (*hear)(tx_comm *comm, int32_t rank, tx_comm_peer *peer);
    /* The rank that the oldest transfer waits for; false when none waits for another. */
    bool (*laggard)(tx_comm *comm, tx_comm_laggard *laggard);
    /* Optional: the last that a process does before it leaves with an exit status other than 0, whether or not the
     * communicator has been closed: launchers may lose the status (MPICH's often ends with 0). Any thread may call. */
    void (*leave)(void);
    /* Optional: the library's own all-reduce of F32 data out of place, for comparison. */
    tx_status (*peer_all_reduce)(tx_comm *comm, const float *data, float *sum, int64_t count);
} tx_comm_table;

/* What every communicator begins with. */
struct tx_comm {
    const tx_comm_table *table;
    int32_t rank, size;
    int32_t local_rank, local_size; /* among the ranks of this host */
    const tx_comm_rank *ranks;      /* all of them */
    tx_queue *queue;                /* of transfers that have begun */
    tx_heartbeat *heartbeat;        /* NULL: none, of one rank or a group */
};

/* The communicator of this process: mpi where it was built in and a launcher says that it started several ranks, else
 * self. */
const tx_comm_table *tx_comm_default(void);
const tx_comm_table *tx_comm_self(void);

/* Makes one transfer and waits for it; others must not be outstanding. */
tx_status tx_comm_run(tx_comm *comm, const tx_transfer *transfer);
/* The same for data whose wire type is their own. `root` matters to BROADCAST alone. */
tx_status tx_comm_collect(tx_comm *comm, tx_collective kind, void *data, int64_t count, tx_dtype dtype, int32_t root);
/* Blocks of any sizes from every rank to every other. Those of a rank lie one behind the other in the order of the
 * ranks that they go to, and so do those that come to it, by the ranks that they are of. */
typedef struct tx_all_to_all {
    const void *out;          /* only read; apart from `in` */
    const int64_t *out_count; /* elements to each rank, itself included; 0: nothing is sent */
    void *in;
    const int64_t *in_count; /* from each rank: what that one has as out_count of this one */
    tx_dtype dtype;          /* F32, BF16, F16 or I32 */
} tx_all_to_all;
/* Every rank calls it. Messages of number 0 (begin_message) of the communicator, of which none may be on their way;
 * what stays on the rank is copied. INVALID where a count or a type cannot be. */
tx_status tx_comm_all_to_all(tx_comm *comm, const tx_all_to_all *all_to_all);
/* Each rank's record of `bytes` (a multiple of 4) in records[rank] of all of them: puts everybody's there. */
tx_status tx_comm_share(tx_comm *comm, void *records, size_t bytes);
/* The records of all ranks, by rank; this one's is `mine`, of `bytes` (a multiple of 4). The caller frees them. NULL if
 * that failed, with `status` set. All ranks call it. */
void *tx_comm_gather(tx_comm *comm, const void *mine, size_t bytes, tx_status *status);
/* Fails on all ranks if it failed on one, which the others name: "rank R could not WHAT". All ranks call it. */
tx_status tx_comm_agree(tx_comm *comm, tx_status status, const char *what);

#endif
