/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of programs, from the embedded sources. A program has one kernel, as drivers take seconds for all of a source,
 * unless the source says that its kernels are launched together.
 */
#include "backends/opencl/runtime/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The enumerators of api/tx.h and backend.h, defined for kernels under the same names. */
static const char numbers[] = "enum {\n"
#define X(name, ...) "    TX_CONTROL_" #name ",\n"
    TX_CONTROL_MAP(X)
#undef X
        "    TX_CONTROL_COUNT\n};\nenum {\n"
#define X(name) "    TX_RESULT_" #name ",\n"
    TX_RESULT_MAP(X)
#undef X
        "    TX_RESULT_COUNT\n};\nenum {\n"
#define X(name) "    TX_EPILOGUE_" #name ",\n"
    TX_EPILOGUE_MAP(X)
#undef X
        "};\n";

static const tx_cl_source *find_source(const char *name)
{
    for (int32_t i = 0; i < tx_cl_source_count; i++)
        if (strcmp(tx_cl_sources[i].name, name) == 0)
            return &tx_cl_sources[i];
    return NULL;
}

bool tx_cl_one_program(const char *name)
{
    const tx_cl_source *source = find_source(name);
    return source && strstr((const char *)source->text, "\n#define TX_ONE_PROGRAM");
}

/* Returns the line after this one. */
static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* Returns the name without `map_` before it and `_grad` after it. */
static const char *stem_of(const char *name, size_t *length)
{
    static const char grad[] = "_grad";
    name += strncmp(name, "map_", 4) == 0 ? 4 : 0;
    *length = strlen(name);
    if (*length > strlen(grad) && strcmp(name + *length - strlen(grad), grad) == 0)
        *length -= strlen(grad);
    return name;
}

/* A macro's kernels and those of its gradient are one program. */
static bool of_macro(const char *kernel, const char *name)
{
    size_t wanted, found;
    kernel = stem_of(kernel, &wanted);
    name = stem_of(name, &found);
    return wanted == found && strncmp(kernel, name, found) == 0;
}

bool tx_cl_in_program(const char *source, const char *held, const char *kernel)
{
    return strcmp(held, kernel) == 0 || (strcmp(source, "elementwise") == 0 && of_macro(held, kernel));
}

/* If a definition of another kernel begins at this line, returns the line after it; otherwise NULL. A definition is
 * `__kernel ... void NAME(`, to a line that begins with a brace, or a macro KERNEL...(NAME, ...), whose kernels are
 * NAME, map_NAME or NAME_grad. */
static const char *other_end(const char *line, const char *kernel)
{
    char name[64] = "";
    const bool function = strncmp(line, "__kernel", 8) == 0, macro = !function && strncmp(line, "KERNEL", 6) == 0;
    if (!*kernel || !(function || macro))
        return NULL;
    if (sscanf(function ? strstr(line, "void") : strchr(line, '('), function ? "void %63[a-z0-9_]" : "(%63[a-z0-9_]",
               name) != 1 ||
        (function ? strcmp(name, kernel) == 0 : of_macro(kernel, name)))
        return NULL;
    for (; *line; line = next_line(line))
        if (function ? *line == '}' : line[strcspn(line, "\n") - 1] == ')')
            return next_line(line);
    return line;
}

/* A line `#include "FOLDER/NAME.cl"`, or of a header, is replaced by source NAME. */
static tx_status write_source(FILE *text, const char *name, const char *kernel)
{
    const tx_cl_source *source = find_source(name);
    if (!source)
        return tx_fail(TX_INTERNAL, "no OpenCL source is named %s", name);
    for (const char *line = (const char *)source->text, *next; *line; line = next) {
        char included[96];
        if ((next = other_end(line, kernel)) != NULL)
            continue;
        next = next_line(line);
        if (sscanf(line, "#include \"%95[a-z0-9_./]\"", included) != 1) {
            fwrite(line, 1, (size_t)(next - line), text);
            continue;
        }
        char *slash = strrchr(included, '/'), *file = slash ? slash + 1 : included;
        file[strcspn(file, ".")] = '\0';
        TX_TRY(write_source(text, file, kernel));
    }
    return TX_OK;
}

/* Writes `begin` and some sources, which may be NULL. */
static tx_status write_text(const char *begin, const char *const part[3], const char *kernel, char **text)
{
    char *made = NULL;
    size_t size;
    FILE *to = open_memstream(&made, &size);
    tx_status status = to && fputs(begin, to) >= 0 ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
    for (int i = 0; i < 3; i++)
        TX_THEN(status, part[i] ? write_source(to, part[i], kernel) : TX_OK);
    if (to && fclose(to) && status == TX_OK)
        status = tx_fail(TX_MEMORY, "out of host memory");
    if (status == TX_OK)
        *text = made;
    else
        free(made);
    return status;
}

tx_status tx_cl_program_text(const char *source, const char *kernel, char **text)
{
    return write_text(numbers, (const char *const[]){"rng", "common", source}, kernel, text);
}

tx_status tx_cl_shared_text(char **text)
{
    return write_text(numbers, (const char *const[]){"rng", NULL, NULL}, "", text);
}

tx_status tx_cl_own_text(const char *source, const char *kernel, char **text)
{
    return write_text("", (const char *const[]){"common", source, NULL}, kernel, text);
}
