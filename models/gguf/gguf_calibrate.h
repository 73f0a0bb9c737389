/* SPDX-License-Identifier: Apache-2.0
 *
 * Importance matrices of a model over a text. */
#ifndef TX_GGUF_CALIBRATE_H
#define TX_GGUF_CALIBRATE_H

#include "models/gguf/gguf_importance.h"
#include "models/tx_convert.h"

/* Runs the model of a folder over how->text, and computes the importance of the inputs of its matrices. Writes it to
 * how->file, unless it is NULL. `report` may be NULL. The caller closes. */
tx_status tx_gguf_calibrate(const char *folder, const tx_calibration *how, const tx_reporter *report,
                            tx_importance **importance);

#endif
