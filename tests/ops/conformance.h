/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite: compares every op of ops.def on any backend with a naive reference in double precision, and
 * times the same cases. It is the only header of tests/ that the programs in tools/ use.
 *
 * A case passes under four conditions. The result is within a tolerance that depends on the storage type and the length
 * of the sums. Only the outputs were written (guard bands between all operands, inputs compared byte by byte). Every
 * element of the outputs was written. A second run gives the same bits. */
#ifndef TX_TESTS_OPS_CONFORMANCE_H
#define TX_TESTS_OPS_CONFORMANCE_H

#include "backends/backend.h"

/* A device under test. */
typedef struct tx_target {
    const tx_backend *backend;
    tx_context *context;
    tx_device_info info;
} tx_target;

/* Opens a device by a name that tx_device_find takes. */
tx_status tx_target_open(const char *device, const tx_open_options *options, tx_target *target);
void tx_target_close(tx_target *target);

typedef struct tx_verdict {
    const char *op;
    int32_t cases, passed;
    int32_t refused;     /* other cases, which the device may and does refuse */
    double worst;        /* largest error / tolerance of a case that passed */
    char worst_case[96]; /* its label */
    char variants[512];  /* kernels or libraries that ran, separated by commas */
    char failure[1024];  /* label and error of the first case that failed or was refused */
} tx_verdict;

typedef struct tx_conformance_options {
    int32_t every,
        turn;   /* only the cases whose number leaves `turn` when divided by `every`; all cases if `every` is 0 */
    bool small; /* only cases that a simulator, which takes minutes for a million products, can do */
    const tx_target *peer; /* if not NULL, compares bit by bit with this target instead of the reference */
    /* Called after each case (may be NULL). `failure` is NULL when it passed. */
    void (*progress)(void *user, const char *op, const char *label, double worst, const char *failure);
    void *user;
} tx_conformance_options;

/* Runs the cases of one op. The status says whether they could run, the verdict whether they passed. */
tx_status tx_conformance_op(const tx_target *target, tx_op op, const tx_conformance_options *options,
                            tx_verdict *verdict);

typedef struct tx_timing {
    const char *op;
    tx_op_class op_class;
    tx_dtype dtype; /* of the first operand */
    char label[96];
    char variant[256];
    double seconds;        /* median of the timed runs */
    double spread;         /* (90th - 10th percentile) / median */
    double flops, bytes;   /* least arithmetic and traffic */
    double gflops, gbytes; /* a second */
} tx_timing;

/* Times the big cases of one op, `repeats` runs each. With 0 repeats it makes as many as fit in about half a second.
 * `report` is called once for each case, and returns whether to continue. The target must have been opened with
 * `profile` to measure device time; otherwise the host's clock is used. */
tx_status tx_conformance_bench(const tx_target *target, tx_op op, int32_t repeats, bool profiled,
                               bool (*report)(void *user, const tx_timing *timing), void *user);

/* Times one command of any shapes. `command` holds the op, its attributes, and types, shapes and arenas of the inputs
 * (absent ones TX_DTYPE_COUNT). For outputs it holds the arenas, and type and shape of the first if the op has a choice
 * (tx_op_infer). This function chooses the offsets in the arenas. Floating-point inputs hold random numbers in [-1, 1);
 * integers and run-time scalars are 0. Sets all of `timing` except the label. The target must have been opened with
 * `profile`. */
tx_status tx_conformance_time(const tx_target *target, const tx_command *command, int32_t repeats, tx_timing *timing);

/* Seconds that a copy of one element takes on the host's clock: as one of many that are then waited for, and by itself,
 * waited for. For targets that were opened without `profile`, which may slow launches down. */
tx_status tx_conformance_launches(const tx_target *target, int32_t repeats, double *in_a_row, double *alone);

typedef struct tx_beside {
    double copy, run, both; /* seconds until all was done: the least of some */
    int32_t runs;
    int64_t transfers; /* copies of the last case that the transfer queue made */
} tx_beside;

/* Times a copy of `bytes` from the device to pinned memory on the transfer queue. Times runs of one command (as for
 * tx_conformance_time) on the compute queue, as many as take some times as long. Then times both at once. Each
 * measurement is by the host's clock and ends with the events of the last operations. */
tx_status tx_conformance_beside(const tx_target *target, const tx_command *command, int64_t bytes, tx_beside *beside);

/* Differentiates small graphs on the device and compares each gradient with central finite differences of the loss in
 * double precision. `report` is called once a graph with the largest error / tolerance; `failure` is NULL when it
 * passed. Returns TX_INTERNAL when one did not. */
tx_status tx_conformance_autodiff(const tx_target *target,
                                  void (*report)(void *user, const char *graph, double worst, const char *failure),
                                  void *user);

#define TX_ONNX_OPS 128

typedef struct tx_onnx_count {
    char op[48];
    bool known;          /* TX has an op for it */
    int32_t cases;       /* in the folder */
    int32_t run, passed; /* those that TX's ops can say */
    char reasons[512];   /* why the others cannot be said */
    char failure[512];   /* of the first that failed */
} tx_onnx_count;

typedef struct tx_onnx_report {
    int32_t ops;
    tx_onnx_count op[TX_ONNX_OPS];
} tx_onnx_report;

/* Runs the ONNX backend node cases of a folder (manifest.jsonl, *.safetensors) on a device. Operands may be reordered
 * and padded on the host; the device does all arithmetic. The status says whether the folder could be read. */
tx_status tx_conformance_onnx(const tx_target *target, const char *folder, tx_onnx_report *report);

/* Plants faults in a mock backend and checks that the harness catches each; `report` gets a line a fault. */
tx_status tx_conformance_selftest(void (*report)(void *user, const char *fault, bool caught, const char *how),
                                  void *user);

#endif
