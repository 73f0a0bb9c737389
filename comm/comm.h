/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between the engine and a communicator, which connects the ranks that train together. The
 * communicator `self` has one rank and runs every operation. The communicator `mpi` has many ranks. The engine and
 * the trainer include only this header.
 *
 * Every rank begins the same transfers in the same order. Sums are always evaluated in the order of a pairwise tree
 * over the ranks: (0 + 1) + (2 + 3) and so on (tx_comm_split). The bits of a sum therefore depend only on the number
 * of ranks, not on timing or on the placement of ranks. A transfer works in place on host memory.
 *
 * The ranks of a host share memory that `window` allocated. For data in a window, each rank sums one slice of the
 * ranges of all ranks, without messages. Traffic between hosts, and all data outside windows, uses messages. The
 * environment variable TX_COMM_SHM limits how many ranks of a host share memory. 0 disables shared memory (as
 * NCCL_P2P_DISABLE=1 does for NCCL); 2 makes four ranks of one host behave like two hosts with two ranks each.
 *
 * Only one thread at a time may call these functions. Exceptions are `send_status`, `read_status`, `laggard`, `leave`
 * and tx_comm_abandon, which another thread may call. */
#ifndef TX_COMM_H
#define TX_COMM_H

#include "tx.h"

/* X(NAME, "name") */
#define TX_COLLECTIVE_MAP(X)                                                                              \
    X(ALL_REDUCE, "all_reduce")         /* every rank receives the sum */                                 \
    X(REDUCE_SCATTER, "reduce_scatter") /* rank r receives the sum in its shard; the rest is undefined */ \
    X(ALL_GATHER, "all_gather")         /* every rank receives every rank's shard */                      \
    X(BROADCAST, "broadcast")           /* every rank receives the data of root */                        \
    X(BARRIER, "barrier")               /* transfers no data */

typedef enum tx_collective {
#define X(name, text) TX_##name,
    TX_COLLECTIVE_MAP(X)
#undef X
        TX_COLLECTIVE_COUNT
} tx_collective;

enum { TX_COMM_BLOCK = 64 }; /* elements with one scale in messages of 8 bits */

typedef struct tx_transfer {
    tx_collective kind;
    tx_dtype dtype; /* F32, BF16 (summed in fp32 and rounded once) or I32 (wraps on overflow) */
    /* Usually equal to dtype. BF16 with F32 data: each host's contribution to a sum is rounded to 16 bits, the sum is
     * computed in fp32 and rounded again. U8 with F32 or BF16 data: the same in 8 bits, with a scale for each
     * TX_COMM_BLOCK elements, of whose largest magnitude each rounding is off by at most 1/253. Ignored if all ranks
     * share memory, and for kinds without a sum. */
    tx_dtype wire;
    int32_t root;   /* root of a BROADCAST */
    int32_t bucket; /* bucket number in status messages; -1 if none */
    void *data;     /* in a window at the same offset on all ranks, or outside windows on all ranks */
    int64_t count;  /* elements; may exceed 2^31 */
    /* For ALL_GATHER: the first element of each rank's shard, and the end of the last. All ranks pass the same
     * numbers; they must live as long as the data. NULL means the shards of tx_comm_shard. */
    const int64_t *shard;
} tx_transfer;

/* A message from one rank to another. The receiver must begin it too. Both ranks identify it by its number:
 * messages of the same number arrive in the order in which they began; messages of different numbers may overtake
 * each other. */
typedef struct tx_message {
    bool out; /* true: sent to `other`; false: received from it */
    int32_t other, number;
    void *data; /* inside or outside windows; only read if `out` is true */
    int64_t count;
    tx_dtype dtype; /* F32, BF16, F16 or I32 */
} tx_message;

/* Limit of outstanding messages per rank, and of message numbers (0 to TX_MESSAGE_NUMBERS - 1). */
enum { TX_MESSAGES = 32, TX_MESSAGE_NUMBERS = 1 << 14 };

/* Returns the bytes of so many elements in a message between hosts: those of the data, or of blocks with U8. */
int64_t tx_comm_bytes(int64_t count, tx_dtype dtype);
/* Returns the first element of a rank's shard of `count` elements. The shard ends before the first element of the
 * next rank. Shards begin at multiples of TX_PARAM_BLOCK. */
int64_t tx_comm_shard(int64_t count, int32_t size, int32_t rank);
/* Defines the tree of sums: the sum over `count` ranks is the sum over the first tx_comm_split(count) of them plus
 * the sum over the others. Returns the largest power of two below count. */
int32_t tx_comm_split(int32_t count);

typedef struct tx_comm tx_comm;
typedef struct tx_queue tx_queue;
typedef struct tx_heartbeat tx_heartbeat;

/* A rank, as seen by another rank. */
typedef struct tx_comm_rank {
    int32_t host;  /* index of its host; hosts are numbered in the order of their lowest ranks */
    char name[64]; /* name of the host */
} tx_comm_rank;

/* A rank that another rank is waiting for. */
typedef struct tx_comm_laggard {
    int32_t rank;
    int32_t bucket; /* bucket of the transfer that it has not reached; -1 if none */
    int64_t begun;  /* transfers and messages of the waiting rank so far: a change shows progress */
} tx_comm_laggard;

/* The last status that a rank sent. */
typedef struct tx_comm_peer {
    int64_t beats;     /* number of received datagrams; a change shows that the process is alive */
    int64_t step;      /* last completed step; -1 if none */
    int32_t waits_for; /* rank that it waits for; -1 if none */
    char doing[96];    /* "training", "reading book.txt (43 %)" */
} tx_comm_peer;

/* Traffic since the communicator was opened. */
typedef struct tx_comm_traffic {
    int64_t sent;          /* bytes sent by messages */
    int64_t shared;        /* bytes read from or written to other ranks' windows */
    double moving, waited; /* seconds that transfers took, and seconds that wait() blocked its caller */
} tx_comm_traffic;

typedef struct tx_comm_table {
    const char *name; /* "self", "mpi" */

    /* Joins the ranks. Fails if the launcher started more ranks than this communicator sees; the message names the
     * launcher to use. */
    tx_status (*open)(int *argc, char ***argv, tx_comm **comm);
    void (*close)(tx_comm *comm);
    /* See tx_comm_sub; the colour is at least 0. The new communicator has no heartbeat. `laggard` of the
     * communicator that was opened also covers its subgroups. */
    tx_status (*sub)(tx_comm *parent, int32_t colour, int32_t key, tx_comm **sub);

    /* Collective. Allocates zeroed, page-aligned memory of the same size on every rank. It is freed when the
     * communicator is closed. Without shared memory it is private. On failure with TX_MEMORY the message names the
     * resource that the host lacks. */
    tx_status (*window)(tx_comm *comm, int64_t bytes, void **memory);

    /* Starts a transfer. The transfer owns its data until wait() has returned. Requests must be waited for in the
     * order in which they began. tx_comm_run is the blocking form. */
    tx_status (*begin)(tx_comm *comm, const tx_transfer *transfer, int32_t *request);
    tx_status (*wait)(tx_comm *comm, int32_t request);
    /* Selects whether a thread of the communicator executes transfers as soon as they begin, or wait() executes
     * them. The default is wait(). No transfer may be outstanding. The results are the same. */
    tx_status (*background)(tx_comm *comm, bool on);

    /* Starts a message between two ranks. The message owns its data until wait_message() has returned. Messages may
     * be waited for in any order. A thread that waits for one message makes progress on all that this rank has
     * begun. The receiver may begin after the sender, and a sender may have to wait for it. Messages must not run
     * concurrently with transfers of the background thread. */
    tx_status (*begin_message)(tx_comm *comm, const tx_message *message, int32_t *request);
    tx_status (*wait_message)(tx_comm *comm, int32_t request);

    void (*traffic)(const tx_comm *comm, tx_comm_traffic *traffic);
    /* Sends a heartbeat with the last completed step (-1 if none) and the current activity to the other ranks. */
    void (*send_status)(tx_comm *comm, int64_t step, const char *doing);
    /* Returns the last heartbeat of another rank; false if none has arrived. Rank 0 receives the heartbeats of all
     * ranks; the other ranks receive those of rank 0. Call it from the thread that calls `send_status`. */
    bool (*read_status)(tx_comm *comm, int32_t rank, tx_comm_peer *peer);
    /* Returns the rank that the oldest transfer waits for; false if it waits for none. Always sets `begun`. */
    bool (*laggard)(tx_comm *comm, tx_comm_laggard *laggard);
    /* Optional. Call it last before a process exits with a nonzero status, even if the communicator has been
     * closed. Launchers may otherwise lose the status (MPICH's launcher often returns 0). Any thread may call it. */
    void (*leave)(void);
    /* Optional. The library's own out-of-place all-reduce of F32 data, for comparison. */
    tx_status (*peer_all_reduce)(tx_comm *comm, const float *data, float *sum, int64_t count);
} tx_comm_table;

/* The first member of every communicator. */
struct tx_comm {
    const tx_comm_table *table;
    int32_t rank, size;
    int32_t local_rank, local_size; /* index among the ranks of this host, and their number */
    const tx_comm_rank *ranks;      /* all ranks, in order */
    tx_queue *queue;                /* transfers that have begun */
    tx_heartbeat *heartbeat;        /* heartbeat; NULL for one rank and for subgroups */
};

/* Returns the communicator of this process: `mpi` if TX was built with it and a launcher announces several ranks,
 * else `self`. */
const tx_comm_table *tx_comm_default(void);
const tx_comm_table *tx_comm_self(void);

/* Executes one transfer and waits for it. No other transfer may be outstanding. */
tx_status tx_comm_run(tx_comm *comm, const tx_transfer *transfer);
/* Like tx_comm_run, with wire type equal to dtype. Only BROADCAST uses `root`. */
tx_status tx_comm_collect(tx_comm *comm, tx_collective kind, void *data, int64_t count, tx_dtype dtype, int32_t root);
/* Blocks of arbitrary sizes from every rank to every other rank. In `out` the blocks are contiguous, ordered by
 * destination rank; in `in` they are ordered by source rank. */
typedef struct tx_all_to_all {
    const void *out;          /* only read; must not overlap `in` */
    const int64_t *out_count; /* elements for each rank, including this one; 0 sends nothing */
    void *in;
    const int64_t *in_count; /* elements from each rank; equals that rank's out_count for this rank */
    tx_dtype dtype;          /* F32, BF16, F16 or I32 */
} tx_all_to_all;
/* Collective. Uses messages of number 0 (begin_message) of the communicator; none of these may be outstanding. The
 * block of the rank itself is copied. Returns INVALID for an impossible count or type. */
tx_status tx_comm_all_to_all(tx_comm *comm, const tx_all_to_all *all_to_all);
/* Collective. Every rank has filled records[rank], `bytes` bytes each (a multiple of 4); afterwards all ranks have
 * all records. */
tx_status tx_comm_share(tx_comm *comm, void *records, size_t bytes);
/* Collective. Returns the records of all ranks, ordered by rank. `mine` is the record of this rank, `bytes` bytes
 * (a multiple of 4). The caller frees the result. Returns NULL and sets `status` on failure. */
void *tx_comm_gather(tx_comm *comm, const void *mine, size_t bytes, tx_status *status);
/* Collective. Fails on all ranks if `status` is an error on any rank. The other ranks then report "rank R could not
 * WHAT". */
tx_status tx_comm_agree(tx_comm *comm, tx_status status, const char *what);

/* Ends all waits of this process for other ranks, now and later: they fail with TX_IO and the message `why`. The
 * watchdog calls it, once, if another rank is lost, or the communicator if its library fails. Transfers that have begun
 * are left incomplete. */
void tx_comm_abandon(const char *why);
/* Returns TX_OK, or TX_IO with the message after tx_comm_abandon. */
tx_status tx_comm_abandoned(void);
/* Allows waits again. From now on use only communicators that were not used before: their ranks agree on their state.
 */
void tx_comm_resume(void);

#endif
