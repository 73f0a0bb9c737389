/* SPDX-License-Identifier: Apache-2.0
 *
 * Heartbeats: what the ranks of a job tell the program that started them (txlaunch), by lines of text over TCP. The
 * launcher says nothing. Where it listens stands in TX_LAUNCH, ADDRESS:PORT:TOKEN; the first line of a rank repeats
 * the token. */
#ifndef TX_COMM_BEAT_H
#define TX_COMM_BEAT_H

#include "tx.h"

#define TX_BEAT_VARIABLE "TX_LAUNCH"
#define TX_BEAT_LINE 1024 /* bytes of the longest line, its end included */
#define TX_BEAT_TOKEN 32  /* characters, hexadecimal */

/* What follows the word: Token, Rank, number of raNks (n), Pid, Host, Step, Bucket, Exit status, a File, a Message. A
 * file or a message goes to the line's end; a message may be empty. X(NAME, "word", "fields") */
#define TX_BEAT_MAP(X)                                                                    \
    X(HELLO, "hello", "trnph") /* the first line */                                       \
    X(STEP, "step", "s")       /* this is the last one done; told again and again */      \
    X(WAIT, "wait", "rsb")     /* it waits for another rank, see tx_comm_laggard */       \
    X(SAVED, "saved", "f")     /* a checkpoint */                                         \
    X(LOST, "lost", "rsb")     /* it ends because that one (or itself) does not get on */ \
    X(FAILED, "failed", "em")  /* it ends with this exit status */                        \
    X(DONE, "done", "")        /* it has nothing left to do; of rank 0: everything is written */

typedef enum tx_beat_kind {
#define X(name, word, fields) TX_BEAT_##name,
    TX_BEAT_MAP(X)
#undef X
        TX_BEAT_COUNT
} tx_beat_kind;

/* A line; what its kind does not hold is 0. */
typedef struct tx_beat {
    tx_beat_kind kind;
    int32_t rank, size, bucket, status;
    int64_t pid, step;
    char token[TX_BEAT_TOKEN + 1];
    char host[64];
    char text[512];
} tx_beat;

/* The line with its end; returns its length. Control characters of the text become blanks; what is too long is cut. */
size_t tx_beat_print(const tx_beat *beat, char line[TX_BEAT_LINE]);
/* Reads a line of `length` bytes without its end; false, and nothing set, where it is none. */
bool tx_beat_parse(const char *line, size_t length, tx_beat *beat);

/* ---- The rank's end ---------------------------------------------------------------------------------- */

/* Connects to where `place` (ADDRESS:PORT:TOKEN) says, within `seconds`, and gives the token that the first line
 * repeats. The socket is closed in programs that this process starts. */
tx_status tx_beat_connect(const char *place, double seconds, int *link, char token[TX_BEAT_TOKEN + 1]);
/* Sends a line, waiting at most `seconds` for room; no signal is raised. False when the launcher is gone; a line that
 * finds no room is left out, which is true for `seconds` 0. Uses no memory but the stack. */
bool tx_beat_send(int link, const tx_beat *beat, double seconds);
/* Whether the launcher closed its end. */
bool tx_beat_gone(int link);

#endif
