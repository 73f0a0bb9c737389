/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells builds of TX apart. */
#ifndef TX_API_BUILD_ID_H
#define TX_API_BUILD_ID_H

#define TX_BUILD_ID 65 /* room for the text */

/* Writes the linker's build id of the program or shared library that this code is in, as hexadecimal digits: a digest
 * of its contents. "unknown" if the linker wrote none. */
void tx_build_id(char text[TX_BUILD_ID]);

#endif
