/* SPDX-License-Identifier: Apache-2.0
 *
 * Identifies the build of TX, so that caches of different builds are kept separate. */
#ifndef TX_API_BUILD_ID_H
#define TX_API_BUILD_ID_H

#define TX_BUILD_ID 65 /* size of the text */

/* Writes the linker's build id of the program or shared library that contains this code, in hexadecimal: a digest of
 * its contents. Writes "unknown" if the linker wrote none. */
void tx_build_id(char text[TX_BUILD_ID]);

#endif
