/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides before anything is allocated whether a run fits in memory. Without this the system would kill a process that
 * uses too much, and drivers would fail in the middle of a run. */
#ifndef TX_JOB_FIT_H
#define TX_JOB_FIT_H

#include "models/job/job.h"

/* The planned memory of one rank, and the memory available to it. */
typedef struct tx_fit_rank {
    int32_t host;    /* number of its host */
    bool on_host;    /* its device uses host memory */
    char device[32]; /* id of its device on the host: "cpu", "opencl:0" */
    tx_memory planned;
    int64_t device_memory; /* bytes of the device; 0 if unknown */
    int64_t left;          /* bytes of host memory available to this rank */
    char owner[120];       /* of the limit `left`: "the host", "the control group /x" */
} tx_fit_rank;

/* The planned and the available bytes of one memory. */
typedef struct tx_fit {
    int64_t planned; /* by all ranks that share the memory */
    int64_t lasting; /* the part of `planned` for weights, gradients and optimizer states */
    int64_t limit;   /* available; INT64_MAX if unknown */
    int32_t ranks;   /* that share the memory */
    char owner[120]; /* of the limit: "the host", "opencl:0" */
} tx_fit;

/* The memory in which the ranks exceed the limit most, or have the least left. */
tx_fit tx_fit_narrowest(const tx_fit_rank *ranks, int32_t count);
/* "12.00 GiB are planned by 2 ranks, the host has 8.00 GiB". */
void tx_fit_text(const tx_fit *fit, char *text, size_t size);

/* Compares the memory that all ranks plan with the available memory. All ranks call it and get the same answer. */
tx_status tx_job_judge_fit(tx_job *job, const tx_memory *planned, tx_fit *fit);
/* The same with the whole memory of the devices and of unlimited hosts, which is the same in each run. */
tx_status tx_job_judge_devices(tx_job *job, const tx_memory *planned, tx_fit *fit);
/* As tx_job_judge_fit, for the plans of the current options with `scratch` bytes of scratch memory. The device is not
 * used. If one rank fails, all fail. TX_MEMORY if a tensor is too large for a device. */
tx_status tx_job_forecast_fit(tx_job *job, int64_t scratch, tx_fit *fit);

#endif
