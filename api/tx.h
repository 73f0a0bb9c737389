/* SPDX-License-Identifier: Apache-2.0
 *
 * TX: a portable transformer-training engine.
 *
 * A program builds a static graph of tensors, asks for its gradients, compiles it to a plan for one
 * device and replays the plan every step:
 *
 *     tx_engine  one device, its queues and its memory accounts
 *     tx_model   named parameters with their gradients, optimizer states and run-time scalars
 *     tx_graph   a static graph of operations over the parameters of one model
 *     tx_plan    a compiled graph: every offset known, replayed without allocation
 *
 * Errors. Functions that can fail return a tx_status (0 is success); outputs are set only on success
 * and tx_error() then holds one line that says what is wrong. Functions that add to a graph return
 * NULL on error instead; they accept NULL operands and pass the failure on, so a whole model can be
 * written down and checked once, at tx_backward or tx_plan_create.
 *
 * Ownership. Who creates frees. Parents outlive children: engine > model > graph > plan. Tensors belong to
 * their graph. Option structs begin with their size, so that they can grow.
 *
 * Threads. An engine and everything made from it belong to one thread at a time; several engines may
 * be used by several threads. The error message is thread-local; there are no other mutable globals.
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
