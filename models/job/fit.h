/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether runs fit the memory that there is, known before anything is allocated: the system kills a process that takes
 * more, and drivers fail in the middle. */
#ifndef TX_JOB_FIT_H
#define TX_JOB_FIT_H

#include "tx.h"

/* What one rank will take, and where. */
typedef struct tx_fit_rank {
    int32_t host;    /* number of its host */
    bool on_host;    /* its device has the host's memory */
    char device[32]; /* of its host: "cpu", "opencl:0" */
    tx_memory planned;
    int64_t device_memory; /* bytes; 0: unknown */
    int64_t left;          /* bytes that the host has left for this rank */
    char owner[120];       /* who has no more than those: "the host", "the control group /x" */
} tx_fit_rank;

/* TX_MEMORY, with both numbers and what would take less, where the ranks of a host or of one of its devices plan more
 * than there is. Otherwise `text` says how much is planned and left where that is the least. */
tx_status tx_fit_judge(const tx_fit_rank *ranks, int32_t count, char *text, size_t size);

#endif
