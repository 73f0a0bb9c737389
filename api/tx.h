/* SPDX-License-Identifier: Apache-2.0
 *
 * TX: a portable transformer-training engine.
 *
 * A program builds a static graph of tensors, adds its gradients, compiles it to a plan for one
 * device and replays the plan every step.
 * A tx_engine is one device with its queues and its memory accounts.
 * A tx_model has named parameters with their gradients, optimizer states and run-time scalars.
 * A tx_graph is a static graph of operations over the parameters of one model.
 * A tx_plan is a compiled graph with all offsets known. A run allocates nothing.
 *
 * Errors. Functions that can fail return a tx_status (0 is success); outputs are set only on success
 * and tx_error() then returns a one-line message. Functions that add to a graph return
 * NULL on error instead. They accept NULL operands and pass the failure on, so that a program can build
 * a whole model and check once, at tx_backward or tx_plan_create.
 *
 * Ownership. The caller frees each object it creates. Parents outlive children: engine > model > graph > plan.
 * Tensors belong to their graph. Option structs begin with their size, so that later versions can add members.
 *
 * Threads. Only one thread at a time may use an engine and the objects created from it. Different threads may
 * use different engines. The error message is thread-local; there are no other mutable globals.
 */
#ifndef TX_H
#define TX_H

#include "tx_base.h"
#include "tx_engine.h"
#include "tx_graph.h"
#include "tx_model.h"
#include "tx_parallel.h"
#include "tx_plan.h"

#endif
