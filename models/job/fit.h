/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether runs fit the memory that there is, known before anything is allocated: the system kills a process that takes
 * more, and drivers fail in the middle. */
#ifndef TX_JOB_FIT_H
#define TX_JOB_FIT_H

#include "models/job/job.h"

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

/* What ranks plan to take of one memory, and what there is of it. */
typedef struct tx_fit {
    int64_t planned, lasting; /* bytes; lasting: weights, gradients, optimizer states */
    int64_t limit;            /* INT64_MAX: unknown */
    int32_t ranks;
    char owner[120]; /* who has no more than that */
} tx_fit;

/* The memory that is furthest above what there is, or else nearest to it. */
tx_fit tx_fit_narrowest(const tx_fit_rank *ranks, int32_t count);
/* "12.00 GiB are planned by 2 ranks, the host has 8.00 GiB". */
void tx_fit_text(const tx_fit *fit, char *text, size_t size);

/* Compares the memory that all ranks plan with the memory that there is. All ranks call it and get the same answer. */
tx_status tx_job_judge_fit(tx_job *job, const tx_memory *planned, tx_fit *fit);
/* The same for the plans of the present options with `scratch` bytes of scratch; the device is not used. A failure of
 * one rank is a failure of all; TX_MEMORY if a device has no room for a tensor. */
tx_status tx_job_forecast_fit(tx_job *job, int64_t scratch, tx_fit *fit);

#endif
