/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside txlaunch: what its files give each other. txlaunch.c has the options, and attempt after attempt.
 *
 * Job and decision are functions of events alone: no clock, process or socket is in them. */
#ifndef TX_TOOLS_TXLAUNCH_H
#define TX_TOOLS_TXLAUNCH_H

#include "comm/beat.h"
#include "tools/cli/options.h"

#include <signal.h>
#include <sys/types.h>
#include <wordexp.h>

typedef struct tx_launch_settings {
    int64_t ranks, max_restarts, min_ranks; /* min_ranks 0: all */
    const char *hosts, *hostfile, *launcher, *launcher_args, *address, *log_dir;
    double heartbeat_timeout, start_timeout, grace;
    tx_words command;
} tx_launch_settings;

/* ---- Hosts (hosts.c) --------------------------------------------------------------------------- */

typedef struct tx_launch_host {
    char name[256];
    int32_t slots; /* ranks that it takes */
    bool suspect;  /* its ranks said nothing when the last attempt ended */
    bool gone;     /* no more ranks start there */
} tx_launch_host;

typedef struct tx_launch_hosts {
    tx_launch_host *host;
    int32_t count; /* 0: none were named, all ranks are here */
    size_t room;
} tx_launch_hosts;

/* Reads "H1,H2:4" or a file of hosts, one a line, as H, H:4 or "H slots=4"; # begins a comment. Slots that are not
 * given share the ranks that are left evenly. Fails where the slots do not hold `ranks`. Either may be NULL. */
tx_status tx_launch_hosts_read(const char *list, const char *file, int32_t ranks, tx_launch_hosts *hosts);
void tx_launch_hosts_free(tx_launch_hosts *hosts);
/* Slots of the hosts that are not gone, at most `ranks`. */
int32_t tx_launch_hosts_room(const tx_launch_hosts *hosts, int32_t ranks);
/* The host of a rank, where the first ranks fill the first host; NULL where none were named. */
tx_launch_host *tx_launch_host_of(const tx_launch_hosts *hosts, int32_t rank);

/* ---- A job (job.c) ---------------------------------------------------------------------------------- */

typedef struct tx_launch_rank {
    bool here;   /* it said hello */
    bool closed; /* its connection */
    bool done;   /* it said so */
    bool spoke;  /* it said why it ends */
    char host[64];
    int64_t pid;
    int64_t step;   /* the last that it told of; -1: none */
    int64_t stride; /* steps between the last two that it told of, which it does not do of each */
    bool awaited;   /* another rank said that it waits for this one, in this bucket (-1: none) */
    int32_t bucket;
    double heard; /* when it said something last; since the start before it did */
} tx_launch_rank;

/* The first sign of a failure. */
typedef enum tx_launch_kind {
    TX_LAUNCH_NONE,
    TX_LAUNCH_DIED,   /* the rank's connection closed without a word */
    TX_LAUNCH_FAILED, /* the rank said that it ends */
    TX_LAUNCH_LOST,   /* another rank said that this one does not answer */
    TX_LAUNCH_LATE,   /* its heartbeat */
    TX_LAUNCH_ABSENT, /* it never said hello */
    TX_LAUNCH_LEFT,   /* the launcher failed itself, and its ranks died of that */
    TX_LAUNCH_ENDED   /* the launcher ended, no rank having given a sign */
} tx_launch_kind;

typedef struct tx_launch_sign {
    tx_launch_kind kind;
    int32_t rank, teller; /* teller: who told, where that is another one; else -1 */
    int32_t status;       /* of FAILED */
    double seconds;       /* of LATE and ABSENT */
    char text[512];       /* of FAILED */
} tx_launch_sign;

typedef struct tx_launch_job {
    tx_launch_rank *rank;
    int32_t size;
    int32_t open;  /* ranks that said hello and whose connection is open */
    bool reported; /* some rank said hello */
    bool saved;    /* a checkpoint was told of */
    tx_launch_sign sign;
} tx_launch_job;

tx_status tx_launch_job_start(tx_launch_job *job, int32_t size, double now);
void tx_launch_job_free(tx_launch_job *job);
/* A line of a rank that said hello; the hello itself is refused (false) where it does not fit the job. */
bool tx_launch_job_hear(tx_launch_job *job, int32_t rank, const tx_beat *beat, double now);
/* The rank's connection closed. */
void tx_launch_job_close(tx_launch_job *job, int32_t rank);
/* The rank that has been silent for longest, where that is too long; else -1. What is done or closed is not late. */
int32_t tx_launch_job_late(const tx_launch_job *job, double now, double heartbeat_timeout, double start_timeout);
/* Takes a late rank for a sign. */
void tx_launch_job_look(tx_launch_job *job, double now, double heartbeat_timeout, double start_timeout);
/* `seconds` in which txlaunch itself stood still are nobody's silence. */
void tx_launch_job_forgive(tx_launch_job *job, double seconds);
/* The rank that told of the highest step, which is -1 where no step was made in this attempt. */
const tx_launch_rank *tx_launch_job_first(const tx_launch_job *job);
/* Rank 0's word that everything is written. */
bool tx_launch_job_done(const tx_launch_job *job);
/* Whether the ranks first .. first + count - 1 look as if their host did not answer: none closed its connection, and
 * all were silent for `seconds` or never came. */
bool tx_launch_job_silent(const tx_launch_job *job, int32_t first, int32_t count, double now, double seconds);

/* ---- The decision (decide.c) ------------------------------------------------------------------------ */

/* How an attempt ended. */
typedef struct tx_launch_outcome {
    tx_launch_sign sign;
    tx_launch_rank who; /* the rank of the sign */
    bool done, reported;
    int64_t step, stride; /* the last one known (-1: none was made), and how many more there may have been */
    bool exited;          /* the launcher by itself, with this status (128 + signal where one ended it) */
    int32_t status;
    int caught;       /* the signal that txlaunch got; 0: none */
    bool unreachable; /* a host did not answer */
} tx_launch_outcome;

/* What earlier attempts came to. */
typedef struct tx_launch_history {
    int64_t restarts;
    tx_launch_kind kind;
    int64_t step, stride;
    int32_t same; /* failures like the last one, one after the other */
} tx_launch_history;

typedef enum tx_launch_verdict {
    TX_LAUNCH_SUCCESS,
    TX_LAUNCH_STOPPED,
    TX_LAUNCH_RESTART,
    TX_LAUNCH_GIVE_UP
} tx_launch_verdict;

typedef struct tx_launch_decision {
    tx_launch_verdict verdict;
    int32_t status;   /* of txlaunch, unless it starts again */
    double wait;      /* seconds before the restart */
    char reason[160]; /* why it gives up */
} tx_launch_decision;

#define TX_LAUNCH_SAME 3 /* failures at the same step that end the run */

/* Judges an attempt and enters it in the history. */
void tx_launch_decide(const tx_launch_outcome *outcome, int64_t max_restarts, tx_launch_history *history,
                      tx_launch_decision *decision);
/* What happened, without an end: "rank 1 on HOST (pid 12) died after step 41 (mpiexec: status 9)". `launcher` is its
 * name. */
void tx_launch_describe(const tx_launch_outcome *outcome, const char *launcher, char *line, size_t room);

/* ---- The output folder (output.c) -------------------------------------------------------------------- */

/* What the command goes on from: nothing, the newest checkpoint, one that it names. */
typedef enum tx_launch_resumption { TX_LAUNCH_FRESH, TX_LAUNCH_NEWEST, TX_LAUNCH_NAMED } tx_launch_resumption;

/* What a command says of its output folder. */
typedef struct tx_launch_output {
    char *folder;                         /* NULL: none */
    bool overwrites;                      /* the command has --overwrite_output_dir, of any value */
    tx_launch_resumption resumes;         /* its --resume_from_checkpoint */
    struct tx_launch_checkpoints *before; /* what lies in the folder; NULL: nothing */
} tx_launch_output;

/* Reads these options from the words, or from the JSON file among them, and looks into the folder. */
tx_status tx_launch_output_find(const tx_words *command, tx_launch_output *output);
void tx_launch_output_free(tx_launch_output *output);
/* The step of the newest checkpoint that has come since (-1: none), and whether there are others from before. */
tx_status tx_launch_output_newest(const tx_launch_output *output, int64_t *step, bool *others);

/* ---- Commands (command.c) ---------------------------------------------------------------------------- */

typedef enum tx_launch_family { TX_LAUNCH_HYDRA, TX_LAUNCH_OPENMPI, TX_LAUNCH_OTHER } tx_launch_family;

/* By what `launcher --version` prints. */
tx_launch_family tx_launch_family_of(const char *version);

/* How the command starts. */
typedef enum tx_launch_how {
    TX_LAUNCH_AS_IS,
    TX_LAUNCH_RESUME, /* from a checkpoint that an earlier attempt has made */
    TX_LAUNCH_ANEW    /* in the folder that an earlier attempt began to fill */
} tx_launch_how;

typedef struct tx_launch_start {
    tx_launch_how how;
    char checkpoint[4096]; /* of RESUME: its path; "": the newest one */
} tx_launch_start;

/* Words of the settings and of what follows. */
typedef struct tx_launch_argv {
    const char **word; /* ends with NULL */
    size_t count;
    wordexp_t args;
    char *hosts, ranks[16], resume[4200];
} tx_launch_argv;

/* The launcher's command line. It does not outlive the settings. */
tx_status tx_launch_command(const tx_launch_settings *set, tx_launch_family family, const tx_launch_hosts *hosts,
                            int32_t ranks, const tx_launch_output *output, const tx_launch_start *start,
                            tx_launch_argv *argv);
/* One that runs `true` on one host, to see whether it answers. */
tx_status tx_launch_probe(const tx_launch_settings *set, tx_launch_family family, const char *host,
                          tx_launch_argv *argv);
void tx_launch_argv_free(tx_launch_argv *argv);

/* ---- The heartbeats' other end (server.c) --------------------------------------------------------------- */

typedef struct tx_launch_server tx_launch_server;

/* Listens on `address`, or where it is NULL on the loopback, or the address by which the first host that is not this
 * one is reached. */
tx_status tx_launch_server_open(const char *address, const tx_launch_hosts *hosts, tx_launch_server **server);
void tx_launch_server_close(tx_launch_server *server);
/* Begins an attempt: other connections and tokens are forgotten. `place` is the value of TX_LAUNCH. */
tx_status tx_launch_server_begin(tx_launch_server *server, int32_t ranks, char place[128]);
/* Hands the job what came within `seconds`, sooner when something comes; signals in `open` may interrupt the wait. */
void tx_launch_server_wait(tx_launch_server *server, tx_launch_job *job, double seconds, const sigset_t *open);

/* ---- Processes (process.c) ------------------------------------------------------------------------------ */

/* Starts a program in a process group of its own, without standard input; it gets SIGTERM should txlaunch die.
 * `mask` is its signal mask. With `output` >= 0 it writes there. */
tx_status tx_launch_spawn(const char *const *argv, const sigset_t *mask, int output, pid_t *pid);
/* Whether `pid` ended; other children that ended are buried as well. `status` is as a shell gives it; `killed`: by a
 * signal, other than by a status that tells of one. */
bool tx_launch_ended(pid_t pid, int32_t *status, bool *killed);
/* Sends a signal to a descendant; false where `pid` is none. */
bool tx_launch_signal(int64_t pid, int number);
/* Ends `pid` and its group at once, and every other descendant. */
void tx_launch_kill_all(pid_t pid);
/* Runs a program to its end, at most `seconds` or until a signal asks this one to end, and leaves nothing of it; false
 * where it did not end with status 0. What it prints goes to `text`, or nowhere where that is NULL. */
bool tx_launch_try(const char *const *argv, double seconds, char *text, size_t room, bool *started);

/* ---- The ranks' logs (logs.c) ---------------------------------------------------------------------------- */

typedef struct tx_launch_logs tx_launch_logs;

/* Makes the folder, and begins to sort what is written to `*output`, the end of a pipe that the caller closes once the
 * launcher has it, into its files rank-0.log, rank-1.log, ... Each line goes to standard output as well, as "[0] ...".
 */
tx_status tx_launch_logs_begin(const char *folder, int32_t ranks, tx_launch_logs **logs, int *output);
/* Waits until nobody writes any more; NULL is fine. */
void tx_launch_logs_end(tx_launch_logs *logs);
/* The rank of a line as MPICH's ("[0] ...") and Open MPI's launcher ("[1,0]<stdout>:...") mark it, and its text; -1:
 * the line is the launcher's own. */
int32_t tx_launch_logs_rank(const char *line, const char **text);

/* ---- One attempt (run.c) -------------------------------------------------------------------------------- */

typedef struct tx_launch_attempt {
    const tx_launch_settings *set;
    tx_launch_family family;
    tx_launch_hosts hosts; /* those that do not answer become suspect */
    tx_launch_server *server;
    tx_launch_argv argv;
    int32_t ranks;
    const volatile sig_atomic_t *caught, *signals; /* the first signal, and how many came */
    sigset_t open;                                 /* the mask in which they arrive */
} tx_launch_attempt;

/* Runs it; nothing of it is left when it returns. `job` is what the ranks told. */
tx_status tx_launch_run(tx_launch_attempt *attempt, tx_launch_job *job, tx_launch_outcome *outcome);

#endif
