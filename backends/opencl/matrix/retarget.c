/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes PTX for sm_90 into PTX for sm_90a; see retarget.h.
 */
#include "backends/opencl/matrix/retarget.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define TARGET ".target sm_90"
#define MARK "//@90a "
#define SIGN "@90a" /* part of a mark, whatever surrounds it */

/* Returns the start of a marked instruction in a line of PTX, or NULL. */
static const char *marked(const char *line)
{
    line += strspn(line, " \t");
    return strncmp(line, MARK, strlen(MARK)) == 0 ? line + strlen(MARK) : NULL;
}

/* Returns the end of "sm_90" if the line sets target sm_90 or sm_90a, or NULL. */
static const char *target_of(const char *line)
{
    line += strspn(line, " \t");
    if (strncmp(line, TARGET, strlen(TARGET)) != 0)
        return NULL;
    line += strlen(TARGET);
    const char *end = line + (*line == 'a');
    return isalnum((unsigned char)*end) || *end == '_' ? NULL : line;
}

static void append(char **end, const char *from, const char *to)
{
    memcpy(*end, from, (size_t)(to - from));
    *end += to - from;
}

tx_status tx_cl_retarget_ptx(const char *ptx, size_t size, char **text)
{
    char *all = strndup(ptx, size), *made = all ? malloc(strlen(all) + 2) : NULL, *end = made;
    int targets = 0, marks = 0;
    if (!made) {
        free(all);
        return tx_fail(TX_MEMORY, "out of host memory");
    }
    for (const char *line = all, *next; *line; line = next) {
        const char *newline = strchr(line, '\n'), *name = target_of(line), *instruction = marked(line);
        next = newline ? newline + 1 : line + strlen(line);
        if (name && targets++ == 0) {
            append(&end, line, name);
            *end++ = 'a';
            line = name + (*name == 'a');
        }
        if (instruction) {
            marks++;
            line = instruction;
        }
        append(&end, line, next);
    }
    *end = '\0';
    free(all);
    const bool left = strstr(made, SIGN) != NULL;
    if (targets == 1 && marks > 0 && !left) {
        *text = made;
        return TX_OK;
    }
    free(made);
    return tx_fail(TX_DEVICE, targets != 1 ? "the driver's binary is not PTX for sm_90"
                              : left       ? "the driver's PTX has an sm_90a mark that does not begin a line"
                                           : "the driver's PTX has no sm_90a mark");
}

const tx_cl_reviser tx_cl_retarget = {.option = "-DATOM=WGMMA", .version = "sm_90a 4", .revise = tx_cl_retarget_ptx};
