/* SPDX-License-Identifier: Apache-2.0
 * Inside the conformance suite: a call laid out in a device's memory between guard bands, uploaded, run, read back. */
#ifndef TX_TESTS_OPS_RIG_H
#define TX_TESTS_OPS_RIG_H

#include "tests/ops/case.h"
#include "tests/ops/conformance.h"

#define TX_RIG_CHUNKS 2

/* Bytes of one chunk of an arena: as uploaded, and as found after the run. */
typedef struct tx_image {
    int64_t bytes; /* 0 if the chunk does not exist */
    uint8_t *before, *after;
    tx_buffer *buffer;
} tx_image;

/* Before the command under test the program has a trap: a fill that is never run, whose output must not change. */
#define TX_RIG_COMMAND 1
#define TX_RIG_COMMANDS 2

typedef struct tx_rig {
    const tx_target *target;
    tx_command program[TX_RIG_COMMANDS];
    tx_image image[TX_ARENA_COUNT][TX_RIG_CHUNKS];
    tx_executable *executable;
    int64_t scratch_bytes;
    uint32_t work; /* outputs whose contents are of no interest */
} tx_rig;

/* Places the operands of a call (whose inputs are filled), prepares the command and allocates. With `in_place` output 0
 * overwrites the input that ops.def allows. Shapes are those of tx_op_infer, which must agree with the call's. */
tx_status tx_rig_create(const tx_target *target, const tx_call *call, const tx_case *c, bool in_place, tx_rig *rig);
void tx_rig_free(tx_rig *rig);
/* Does this op have an in-place form for these operands, beyond those that it must use? */
bool tx_rig_may_be_in_place(const tx_call *call);

/* Fills the images: guards, inputs, old contents; outputs that are not read hold `poison`. Uploads them. */
tx_status tx_rig_upload(tx_rig *rig, const tx_call *call, uint32_t poison);
/* Runs once and reads everything back into `after`. */
tx_status tx_rig_run(tx_rig *rig, const tx_call *call);
/* Was anything but outputs and scratch changed? The failure message says where. */
tx_status tx_rig_check_untouched(const tx_rig *rig);
/* Returns the position of output o in `after`. */
const uint8_t *tx_rig_output(const tx_rig *rig, int32_t o);

#endif
