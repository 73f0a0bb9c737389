/* SPDX-License-Identifier: Apache-2.0
 *
 * The interfaces of txlaunch's files. txlaunch.c has the options and the loop over attempts.
 *
 * An attempt starts `mpiexec ... txlaunch --agent COMMAND`. Each rank's agent and watch report by lines on standard
 * error (comm/report.h), which txlaunch takes out of the output that it forwards.
 *
 * Job and decision are functions of events only: they use no clock, process or file. */
#ifndef TX_TOOLS_TXLAUNCH_H
#define TX_TOOLS_TXLAUNCH_H

#include "tools/cli/options.h"

#include <signal.h>
#include <sys/types.h>
#include <wordexp.h>

typedef struct tx_launch_settings {
    int64_t ranks, max_restarts, min_ranks; /* min_ranks 0: all */
    const char *hosts, *hostfile, *launcher, *launcher_args, *log_dir;
    double restart_delay, heartbeat_timeout, start_timeout, grace;
    tx_words command;
} tx_launch_settings;

/* ---- Hosts (hosts.c) --------------------------------------------------------------------------- */

typedef struct tx_launch_host {
    char name[256];
    int32_t slots; /* ranks that it takes */
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

/* ---- An agent (agent.c) ----------------------------------------------------------------------------- */

#define TX_LAUNCH_AGENT "--agent" /* the first argument of an agent; the command follows */
#define TX_LAUNCH_NO_PROGRAM 127  /* its status if the command cannot be started */

/* Starts the command as one rank, reports its begin and its end, and returns its exit status. */
int tx_launch_agent(const char *const *argv);

/* ---- A job (job.c) ---------------------------------------------------------------------------------- */

typedef struct tx_launch_rank {
    bool here;  /* its process has started */
    bool spoke; /* it said how it ends */
    char host[64];
    int64_t pid;
} tx_launch_rank;

/* The first sign of a failure. */
typedef enum tx_launch_kind {
    TX_LAUNCH_NONE,
    TX_LAUNCH_LEFT,   /* the rank's process ended and did not say why */
    TX_LAUNCH_FAILED, /* the rank said that it ends */
    TX_LAUNCH_LOST,   /* a rank said that this one does not answer, or is stuck itself */
    TX_LAUNCH_SILENT, /* no rank reported for the heartbeat's limit */
    TX_LAUNCH_ABSENT, /* the rank did not start in time */
    TX_LAUNCH_ENDED   /* the launcher ended, and no rank gave a sign */
} tx_launch_kind;

typedef struct tx_launch_sign {
    tx_launch_kind kind;
    int32_t rank, teller; /* the rank concerned (-1: none) and the one that reported it */
    int32_t status;       /* of LEFT and FAILED */
    double seconds;       /* of SILENT and ABSENT */
    char text[512];       /* of FAILED */
} tx_launch_sign;

typedef struct tx_launch_job {
    tx_launch_rank *rank;
    int32_t size;
    double began, heard;  /* the attempt; the last report */
    bool reported;        /* a rank's program reported, not only its agent */
    bool done;            /* rank 0 said that everything is written */
    int64_t step, stride; /* the last step known (-1: none) and the most that may have followed */
    char saved[4096];     /* the newest checkpoint, or "" */
    int32_t worst;        /* the first exit status of a rank that is not 0 */
    tx_launch_sign sign;
    /* The end of the attempt, from run.c. */
    bool exited;    /* the launcher ended by itself */
    int32_t status; /* then its status, or 128 + signal */
    int caught;     /* the first signal that txlaunch received, or 0 */
} tx_launch_job;

tx_status tx_launch_job_start(tx_launch_job *job, int32_t size, double now);
void tx_launch_job_free(tx_launch_job *job);
/* A report without its mark and its end; false if it is none. */
bool tx_launch_job_hear(tx_launch_job *job, const char *report, double now);
/* Whether no report came for too long. */
bool tx_launch_job_silent(const tx_launch_job *job, double now, double heartbeat_timeout, double start_timeout);
/* Takes such a silence, or a rank that did not start in time, for a sign. */
void tx_launch_job_poll(tx_launch_job *job, double now, double heartbeat_timeout, double start_timeout);
/* `seconds` in which txlaunch itself did not run count for nothing. */
void tx_launch_job_forgive(tx_launch_job *job, double seconds);

/* ---- The decision (decide.c) ------------------------------------------------------------------------ */

/* What earlier attempts came to. */
typedef struct tx_launch_history {
    int64_t restarts;
    tx_launch_kind kind;
    int64_t step, stride;
    int32_t same; /* failures in a row like the last one */
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
    double wait;      /* before the restart, as a multiple of --restart_delay */
    char reason[160]; /* why it gives up */
} tx_launch_decision;

#define TX_LAUNCH_SAME 3 /* failures at the same step that end the run */

/* Judges an attempt that ended and enters it in the history. */
void tx_launch_decide(const tx_launch_job *job, int64_t max_restarts, tx_launch_history *history,
                      tx_launch_decision *decision);
/* The end of the attempt in words: "rank 1 on HOST (pid 12) was killed by signal 9; the last known step is 41 (mpiexec:
 * status 9)". `launcher` is its name. */
void tx_launch_describe(const tx_launch_job *job, const char *launcher, char *line, size_t room);

/* ---- The output folder (output.c) -------------------------------------------------------------------- */

/* What the command goes on from: nothing, the newest checkpoint, one that it names. */
typedef enum tx_launch_resumption { TX_LAUNCH_FRESH, TX_LAUNCH_NEWEST, TX_LAUNCH_NAMED } tx_launch_resumption;

/* What a command says of its output folder. */
typedef struct tx_launch_output {
    char *folder;                 /* NULL: none */
    bool overwrites;              /* the command has --overwrite_output_dir, of any value */
    tx_launch_resumption resumes; /* its --resume_from_checkpoint */
    bool vacant;                  /* a run may begin in the folder as it is */
    bool others;                  /* the folder has checkpoints of earlier runs */
} tx_launch_output;

/* Reads these options from the words, or from the JSON file among them, and looks into the folder. */
tx_status tx_launch_output_find(const tx_words *command, tx_launch_output *output);
void tx_launch_output_free(tx_launch_output *output);

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
    char *hosts, ranks[16], resume[4200], self[4096];
} tx_launch_argv;

/* The launcher's command line. It does not outlive the settings. */
tx_status tx_launch_command(const tx_launch_settings *set, tx_launch_family family, const tx_launch_hosts *hosts,
                            int32_t ranks, const tx_launch_output *output, const tx_launch_start *start,
                            tx_launch_argv *argv);
/* One that runs `true` on one host, to see whether it answers. */
tx_status tx_launch_probe(const tx_launch_settings *set, tx_launch_family family, const char *host,
                          tx_launch_argv *argv);
void tx_launch_argv_free(tx_launch_argv *argv);

/* ---- Processes (process.c) ------------------------------------------------------------------------------ */

/* Starts a program in a process group of its own, without standard input; it gets SIGTERM should txlaunch die.
 * `mask` is its signal mask. It writes to `output` and `errors`. */
tx_status tx_launch_spawn(const char *const *argv, const sigset_t *mask, int output, int errors, pid_t *pid);
/* Whether `pid` ended, with a status as a shell gives it; other children that ended are reaped as well. */
bool tx_launch_ended(pid_t pid, int32_t *status);
/* Sends a signal to a descendant; false if `pid` is none. */
bool tx_launch_signal(int64_t pid, int number);
/* Ends `pid` and its group at once, and every other descendant. */
void tx_launch_kill_all(pid_t pid);
/* Runs a program that prints little to its end, at most `seconds` or until a signal asks this one to end, and leaves
 * nothing of it; false if it did not end with status 0. `text` gets its output, and TX_NOT_FOUND in `started` tells
 * that there is no such program. */
bool tx_launch_try(const char *const *argv, double seconds, char *text, size_t room, tx_status *started);

/* ---- The ranks' output (forward.c) ------------------------------------------------------------------------ */

typedef struct tx_launch_attempt tx_launch_attempt;

/* Standard output or standard error of the launcher, on its way to that of txlaunch. */
typedef struct tx_launch_stream {
    int from, to;
    bool middle;        /* the begin of the line was forwarded already */
    int32_t rank;       /* that printed the line; -1: unknown */
    size_t used;        /* of the text */
    char text[1 << 16]; /* not forwarded yet */
} tx_launch_stream;

/* Log files of the ranks, DIR/rank-N.log. */
typedef struct tx_launch_logs {
    const char *folder; /* NULL without logs */
    int *file;          /* by rank */
    int32_t count;
    bool failed; /* to write one, which was said */
} tx_launch_logs;

/* Makes the folder and opens the logs to append to them. */
tx_status tx_launch_logs_open(const char *folder, int32_t ranks, tx_launch_logs *logs);
void tx_launch_logs_close(tx_launch_logs *logs);
/* The rank of a line as MPICH's ("[0] ...") and Open MPI's launcher ("[1,0]<stdout>:...") mark it, and its text; -1:
 * the line has no mark. */
int32_t tx_launch_logs_rank(const char *line, const char **text);
/* Reads the output that has come, gives the reports to the job and forwards the rest; with logs whole lines, also to
 * the log of their rank. Returns false at the end of the stream. */
bool tx_launch_forward(tx_launch_stream *stream, tx_launch_logs *logs, tx_launch_job *job,
                       const tx_launch_attempt *attempt);

/* ---- One attempt (run.c) -------------------------------------------------------------------------------- */

struct tx_launch_attempt {
    const tx_launch_settings *set;
    tx_launch_family family;
    tx_launch_hosts hosts;
    tx_launch_argv argv;
    int32_t ranks;
    const volatile sig_atomic_t *caught, *signals; /* the first signal, and how many came */
    sigset_t open;                                 /* the mask in which they arrive */
};

/* Runs it; nothing of it is left when it returns. `job` is its story. */
tx_status tx_launch_run(tx_launch_attempt *attempt, tx_launch_job *job);

#endif
