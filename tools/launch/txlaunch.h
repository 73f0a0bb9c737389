/* SPDX-License-Identifier: Apache-2.0
 *
 * The interfaces of txlaunch's files. txlaunch.c has the options and the loop over attempts.
 *
 * An attempt runs `mpiexec ... txlaunch --agent COMMAND`. The agent and the watchdog of each rank write reports as
 * lines on standard error (comm/report.h). txlaunch removes the reports from the output and forwards the rest.
 *
 * job.c and decide.c depend only on their arguments: they use no clock, process or file. */
#ifndef TX_TOOLS_TXLAUNCH_H
#define TX_TOOLS_TXLAUNCH_H

#include "tools/cli/options.h"

#include <signal.h>
#include <sys/types.h>
#include <wordexp.h>

typedef struct tx_launch_settings {
    int64_t ranks, per_host;         /* of all hosts, or of each; 0 if not given */
    int64_t max_restarts, min_ranks; /* min_ranks is 0 if all ranks are needed */
    const char *hosts, *hostfile, *launcher, *launcher_args, *log_dir;
    double restart_delay, heartbeat_timeout, start_timeout, grace, rejoin_interval;
    tx_words command;
} tx_launch_settings;

/* ---- Hosts (hosts.c) --------------------------------------------------------------------------- */

typedef struct tx_launch_host {
    char name[256];
    int32_t slots; /* largest number of ranks on the host */
    bool excluded; /* excluded from further attempts */
    bool answers;  /* in the last test */
} tx_launch_host;

typedef struct tx_launch_hosts {
    tx_launch_host *host;
    int32_t count; /* 0 if no hosts are given: all ranks run on this host */
    size_t room;
} tx_launch_hosts;

/* Reads the list "H1,H2:4" or a file with one host per line: H, H:4 or "H slots=4"; # starts a comment. `list` and
 * `file` may be NULL. Hosts without slots get `per_host`, or if that is 0 share the remaining ranks evenly. Fails if
 * there are fewer slots than `ranks`. */
tx_status tx_launch_hosts_read(const char *list, const char *file, int32_t ranks, int32_t per_host,
                               tx_launch_hosts *hosts);
void tx_launch_hosts_free(tx_launch_hosts *hosts);
/* Returns the number of slots of the hosts that are not gone, at most `ranks`. */
int32_t tx_launch_hosts_room(const tx_launch_hosts *hosts, int32_t ranks);
/* Returns the host of a rank, or NULL if no hosts are given. Ranks fill the hosts in order. */
tx_launch_host *tx_launch_host_of(const tx_launch_hosts *hosts, int32_t rank);

/* ---- An agent (agent.c) ----------------------------------------------------------------------------- */

#define TX_LAUNCH_AGENT "--agent" /* the first argument of an agent; the command follows */
#define TX_LAUNCH_NO_PROGRAM 127  /* exit status if the command cannot be started */

/* Runs the command as one rank. A program in txlaunch's folder is preferred, and replaces argv[0]. Reports its start
 * and its end, and returns its exit status. */
int tx_launch_agent(const char **argv);

/* ---- A job (job.c) ---------------------------------------------------------------------------------- */

typedef struct tx_launch_rank {
    bool started; /* its process has started */
    bool spoke;   /* it reported how it ends */
    bool done;    /* that it has finished */
    char host[64];
    int64_t pid;
} tx_launch_rank;

/* Kinds of the first sign of a failure. */
typedef enum tx_launch_kind {
    TX_LAUNCH_NONE,
    TX_LAUNCH_LEFT,   /* the rank's process ended without a report of the reason */
    TX_LAUNCH_FAILED, /* the rank reported an error */
    TX_LAUNCH_LOST,   /* a rank reported that this rank does not answer, or that it is stuck itself */
    TX_LAUNCH_SILENT, /* no report within the heartbeat timeout */
    TX_LAUNCH_ABSENT, /* the rank did not start within the start timeout */
    TX_LAUNCH_ENDED   /* the launcher ended without any report of a failure */
} tx_launch_kind;

typedef struct tx_launch_sign {
    tx_launch_kind kind;
    int32_t rank, teller; /* the rank that failed, or -1; the rank that reported it */
    int32_t status;       /* LEFT and FAILED: exit status */
    double seconds;       /* SILENT and ABSENT: seconds without a report */
    char text[512];       /* FAILED: the error message */
} tx_launch_sign;

typedef struct tx_launch_job {
    tx_launch_rank *rank;
    int32_t size;
    double began, heard;  /* start of the attempt; time of the last report, seconds */
    bool reported;        /* a rank's program has reported, not only its agent */
    bool done;            /* rank 0 reported that all output is written */
    int64_t step, stride; /* the last reported step, or -1; steps between the last two reports */
    char saved[4096];     /* the newest checkpoint, or "" */
    char kept[4096];      /* the folder of ranks that survive a failure (comm/report.h), or "" */
    bool rescued;         /* the newest checkpoint is of such a rank */
    bool rejoins;         /* the ranks were stopped because an excluded host answers again */
    int32_t worst;        /* the first nonzero exit status of a rank, or 0 */
    tx_launch_sign sign;
    /* The end of the attempt, set by attempt.c. */
    bool exited;    /* the launcher ended by itself */
    int32_t status; /* if so, its exit status, or 128 + signal */
    int caught;     /* the first signal that txlaunch received, or 0 */
} tx_launch_job;

tx_status tx_launch_job_start(tx_launch_job *job, int32_t size, double now);
void tx_launch_job_free(tx_launch_job *job);
/* Processes a report, without its mark and newline. Returns false if it is not a valid report. */
bool tx_launch_job_hear(tx_launch_job *job, const char *report, double now);
/* Returns true if the last report is older than the timeout. */
bool tx_launch_job_silent(const tx_launch_job *job, double now, double heartbeat_timeout, double start_timeout);
/* Records the sign SILENT or ABSENT if a timeout has passed. */
void tx_launch_job_poll(tx_launch_job *job, double now, double heartbeat_timeout, double start_timeout);
/* Extends the timeouts by `seconds` in which txlaunch itself did not run. */
void tx_launch_job_forgive(tx_launch_job *job, double seconds);

/* ---- The decision (decide.c) ------------------------------------------------------------------------ */

/* The results of earlier attempts. */
typedef struct tx_launch_history {
    int64_t restarts;
    tx_launch_kind kind;
    int64_t step, stride;
    int32_t same; /* consecutive failures of this kind at this step */
} tx_launch_history;

typedef enum tx_launch_verdict {
    TX_LAUNCH_SUCCESS,
    TX_LAUNCH_STOPPED,
    TX_LAUNCH_RESTART,
    TX_LAUNCH_GIVE_UP
} tx_launch_verdict;

typedef struct tx_launch_decision {
    tx_launch_verdict verdict;
    int32_t status;   /* exit status of txlaunch, unless it restarts the command */
    double wait;      /* delay of the restart, as a multiple of --restart_delay */
    char reason[160]; /* GIVE_UP: the reason */
} tx_launch_decision;

#define TX_LAUNCH_SAME 3 /* number of failures at the same step after which txlaunch gives up */

/* Decides how to continue after an attempt, and adds the attempt to the history. */
void tx_launch_decide(const tx_launch_job *job, int64_t max_restarts, tx_launch_history *history,
                      tx_launch_decision *decision);
/* Whether the attempt ended by an error in the command line, which was printed. */
bool tx_launch_explained(const tx_launch_job *job);
/* Describes the end of the attempt: "rank 1 on HOST (pid 12) was killed by signal 9; the last known step is 41
 * (mpiexec: status 9)". `launcher` is the name of the launcher. */
void tx_launch_describe(const tx_launch_job *job, const char *launcher, char *line, size_t room);

/* ---- The output folder (output.c) -------------------------------------------------------------------- */

/* The checkpoint that the command resumes from: none, the newest one, or one that it names. */
typedef enum tx_launch_resumption { TX_LAUNCH_FRESH, TX_LAUNCH_NEWEST, TX_LAUNCH_NAMED } tx_launch_resumption;

/* The output folder of a command, and the options about it. */
typedef struct tx_launch_output {
    char *folder;                 /* --output_dir, or NULL */
    bool overwrites;              /* the command has --overwrite_output_dir, with any value */
    tx_launch_resumption resumes; /* from --resume_from_checkpoint */
    bool vacant;                  /* a run may start in the folder without --overwrite_output_dir */
    bool others;                  /* the folder has checkpoints of earlier runs */
} tx_launch_output;

/* Reads these options from the command or the JSON file that it names, and inspects the folder. */
tx_status tx_launch_output_find(const tx_words *command, tx_launch_output *output);
void tx_launch_output_free(tx_launch_output *output);

/* ---- Commands (command.c) ---------------------------------------------------------------------------- */

typedef enum tx_launch_family { TX_LAUNCH_HYDRA, TX_LAUNCH_OPENMPI, TX_LAUNCH_OTHER } tx_launch_family;

/* Finds the family from the output of `launcher --version`. */
tx_launch_family tx_launch_family_of(const char *version);

/* How the command starts. */
typedef enum tx_launch_how {
    TX_LAUNCH_AS_IS,
    TX_LAUNCH_RESUME, /* from a checkpoint of an earlier attempt */
    TX_LAUNCH_ANEW    /* from the beginning, overwriting the files of an earlier attempt */
} tx_launch_how;

typedef struct tx_launch_start {
    tx_launch_how how;
    char checkpoint[4096]; /* RESUME: path of the checkpoint, or "" for the newest one */
} tx_launch_start;

/* The launcher's arguments. The words point into the settings and into the members below. */
typedef struct tx_launch_argv {
    const char **word; /* NULL-terminated */
    size_t count;
    wordexp_t args;
    char *hosts, ranks[16], resume[4200], self[4096];
} tx_launch_argv;

/* Builds the launcher's command line, which points into the settings. */
tx_status tx_launch_command(const tx_launch_settings *set, tx_launch_family family, const tx_launch_hosts *hosts,
                            int32_t ranks, const tx_launch_output *output, const tx_launch_start *start,
                            tx_launch_argv *argv);
/* Builds the command line that runs `true` on one host, to test whether the host answers. */
tx_status tx_launch_probe(const tx_launch_settings *set, tx_launch_family family, const char *host,
                          tx_launch_argv *argv);
void tx_launch_argv_free(tx_launch_argv *argv);

/* ---- Processes (process.c) ------------------------------------------------------------------------------ */

/* Starts a program in a new process group, with standard input from /dev/null and signal mask `mask`. It gets SIGTERM
 * if txlaunch dies. Its output goes to the descriptors `output` and `errors`. */
tx_status tx_launch_spawn(const char *const *argv, const sigset_t *mask, int output, int errors, pid_t *pid);
typedef struct tx_launch_child {
    pid_t pid; /* 0 if there is none */
    bool ended;
    int32_t status; /* as in a shell */
} tx_launch_child;

/* Reaps all children of this process that ended, and marks those of the list. */
void tx_launch_reap(tx_launch_child *child, int32_t count);
/* Sends a signal to a descendant. Returns false if `pid` is not a descendant. */
bool tx_launch_signal(int64_t pid, int number);
/* Kills `pid`, its process group and all other descendants. */
void tx_launch_kill_all(pid_t pid);
/* Runs a program with a small output, for at most `seconds` or until txlaunch gets a signal, and kills all that is left
 * of it. Returns true if it ended with status 0. `text` receives its output. `started` is TX_NOT_FOUND if there is no
 * such program. */
bool tx_launch_try(const char *const *argv, double seconds, char *text, size_t room, tx_status *started);

/* ---- The ranks' output (forward.c) ------------------------------------------------------------------------ */

typedef struct tx_launch_attempt tx_launch_attempt;

/* A stream that is forwarded: standard output or standard error of the launcher to that of txlaunch. */
typedef struct tx_launch_stream {
    int from, to;       /* descriptors */
    bool middle;        /* the start of the current line is already forwarded */
    bool banner;        /* the launcher's report of a failed rank is being left out */
    int32_t empty;      /* empty lines that may begin such a report */
    int32_t rank;       /* the rank that printed the current line, or -1 if unknown */
    size_t used;        /* bytes in `text` */
    char text[1 << 16]; /* bytes that are not forwarded yet */
} tx_launch_stream;

#define TX_LAUNCH_LINES 64 /* lines that are remembered */

/* Log files of the ranks, DIR/rank-N.log. */
typedef struct tx_launch_logs {
    const char *folder; /* NULL without logs */
    int *file;          /* descriptor of each rank's log */
    int32_t count;
    bool failed; /* writing a log failed, and a message was printed */
    /* Hashes of the lines on standard error before the first step: a mistake that all ranks report is printed once. */
    uint64_t line[TX_LAUNCH_LINES];
    int32_t lines;
} tx_launch_logs;

/* Creates the folder and opens the logs for appending. */
tx_status tx_launch_logs_open(const char *folder, int32_t ranks, tx_launch_logs *logs);
void tx_launch_logs_close(tx_launch_logs *logs);
/* Returns the rank in the prefix of a line by MPICH ("[0] ...") or Open MPI ("[1,0]<stdout>:..."), or -1 if it has no
 * prefix. Sets `text` to the rest of the line. */
int32_t tx_launch_logs_rank(const char *line, const char **text);
/* Reads available output, passes reports to the job and forwards the rest. With logs, forwards whole lines and also
 * appends them to the log of their rank. Returns false at the end of the stream. */
bool tx_launch_forward(tx_launch_stream *stream, tx_launch_logs *logs, tx_launch_job *job,
                       const tx_launch_attempt *attempt);

/* ---- Surviving ranks (survivors.c) ----------------------------------------------------------------------- */

typedef struct tx_launch_survivors {
    int64_t change; /* changes if any of the ranks shows that it is alive */
    double began, seen, changed;
} tx_launch_survivors;

/* Whether ranks are still saving their last step, or may begin to do so. Call it repeatedly, first with zeroed
 * `survivors`. `folder` is that of the job, or "". */
bool tx_launch_survivors_live(tx_launch_survivors *survivors, const char *folder, double now);
/* Removes the folder, so that no rank saves anything any more, and sets the newest checkpoint. */
void tx_launch_survivors_end(tx_launch_job *job);

/* ---- One attempt (attempt.c) ---------------------------------------------------------------------------- */

struct tx_launch_attempt {
    const tx_launch_settings *set;
    tx_launch_family family;
    tx_launch_hosts hosts;
    tx_launch_argv argv;
    int32_t ranks;
    const volatile sig_atomic_t *caught, *signals; /* the first signal that txlaunch got; the number of signals */
    sigset_t open;                                 /* signal mask while txlaunch waits: all signals are delivered */
};

/* Runs one attempt. All its processes have ended when it returns. `job` describes its course. */
tx_status tx_launch_run(tx_launch_attempt *attempt, tx_launch_job *job);

/* ---- Tests of hosts (probe.c) ------------------------------------------------------------------------------ */

typedef struct tx_launch_probes {
    bool running;
    double began;
    tx_launch_child *child; /* by host; of the caller */
} tx_launch_probes;

/* Starts a test of each host, or only of the excluded ones. `probes` has room for one child of each. */
void tx_launch_probes_start(tx_launch_probes *probes, const tx_launch_attempt *attempt, bool excluded, double now);
/* Returns true if the tests have ended or their time is over, and sets which hosts answer. The caller reaps. */
bool tx_launch_probes_end(tx_launch_probes *probes, const tx_launch_attempt *attempt, double now);
/* Tests all hosts and waits. */
void tx_launch_probe_all(const tx_launch_attempt *attempt);

#endif
