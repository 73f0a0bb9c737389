/* SPDX-License-Identifier: Apache-2.0
 * Writes the whole text of every OpenCL program, as a driver gets it, to FOLDER/NAME.cl: kernel_texts FOLDER. */
#include "backends/opencl/cl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int write_text(const char *folder, const char *name)
{
    char path[1024], *text;
    if (tx_cl_program_text(name, &text) != TX_OK) {
        fprintf(stderr, "kernel_texts: %s\n", tx_error());
        return 1;
    }
    snprintf(path, sizeof path, "%s/%s.cl", folder, name);
    FILE *file = fopen(path, "w");
    bool good = file && fputs(text, file) >= 0;
    if (file && fclose(file) != 0)
        good = false;
    free(text);
    if (!good)
        fprintf(stderr, "kernel_texts: %s cannot be written\n", path);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    for (int32_t i = 0; i < tx_cl_source_count; i++) {
        const char *name = tx_cl_sources[i].name;
        if (strcmp(name, "rng") != 0 && strcmp(name, "common") != 0 && write_text(argv[1], name) != 0)
            return 1;
    }
    return 0;
}
