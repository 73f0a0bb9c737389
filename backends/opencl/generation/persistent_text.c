/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the program of a persistent launch. It has the texts of the single kernels, unchanged and each with its own
 * options, so that it computes the same bits. The names that a text declares get a suffix by macros, and kernels become
 * functions with two more parameters: the work-group that they compute, and free local memory.
 */
#include "backends/opencl/generation/persistent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t tx_cl_words_of(const tx_cl_argument *a)
{
    return a->type ? (int32_t)((a->size + sizeof(uint64_t) - 1) / sizeof(uint64_t)) : 1;
}

/* ---- Names --------------------------------------------------------------------------------------------------- */

#define LETTERS "abcdefghijklmnopqrstuvwxyz"
#define WORD LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"

/* Receives a name that a text defines as a macro or declares outside of functions. Names may come several times. */
typedef void (*visit_fn)(void *user, const char *name, size_t length, bool macro);

/* Returns the end of a directive, with the lines that continue it. */
static const char *end_of_directive(const char *at)
{
    while (*at && *at != '\n')
        at += *at == '\\' && at[1] ? 2 : 1;
    return at;
}

/* Returns the end of a comment or of a text in quotes that begins here, or NULL. */
static const char *end_of_quote(const char *at)
{
    const char *end = NULL;
    if (at[0] == '/' && at[1] == '*')
        end = strstr(at + 2, "*/");
    else if (at[0] == '/' && at[1] == '/')
        return at + strcspn(at, "\n");
    else if (at[0] == '"')
        for (end = at + 1; *end && *end != '"';)
            end += *end == '\\' && end[1] ? 2 : 1;
    return end && *end ? end + (*at == '/' ? 2 : 1) : end;
}

/* Whether a word outside of braces is declared: a function, a variable, a type or the tag of a struct. Names of macros
 * have no small letters. */
static bool is_declared(const char *word, size_t length, bool tag)
{
    const char next = word[length + strspn(word + length, " \n")];
    const bool small = strcspn(word, LETTERS) < length;
    return small && strncmp(word, "__", 2) != 0 && (tag || (next && strchr("(;[=", next)));
}

static void visit_names(const char *text, visit_fn visit, void *user)
{
    int braces = 0, parentheses = 0;
    bool tag = false;
    for (const char *at = text, *end; *at; at = end) {
        const bool begins = at == text || at[-1] == '\n';
        const size_t length = strspn(at, WORD);
        if (begins && *at == '#') {
            end = end_of_directive(at);
            if (strncmp(at, "#define ", 8) == 0)
                visit(user, at + 8, strspn(at + 8, WORD), true);
        } else if ((end = end_of_quote(at)) != NULL) {
            continue;
        } else if (length > 0) {
            end = at + length;
            if (braces == 0 && parentheses == 0 && is_declared(at, length, tag))
                visit(user, at, length, false);
            tag = length == 6 && strncmp(at, "struct", 6) == 0;
        } else {
            braces += (*at == '{') - (*at == '}');
            parentheses += (*at == '(') - (*at == ')');
            if (begins && *at == '}') /* of a function; branches of #if need not balance */
                braces = parentheses = 0;
            end = at + 1;
        }
    }
}

typedef struct renaming {
    FILE *to;
    const char *kernel;
    int32_t number;
} renaming;

/* Macros are restored, not just undefined: PoCL's functions are macros, which common.cl may replace. */
static void rename_one(void *user, const char *name, size_t length, bool macro)
{
    const renaming *r = user;
    fprintf(r->to, "#pragma push_macro(\"%.*s\")\n", (int)length, name);
    const bool kernel = strlen(r->kernel) == length && strncmp(name, r->kernel, length) == 0;
    if (!macro && !kernel)
        fprintf(r->to, "#define %.*s %.*s_%d\n", (int)length, name, (int)length, name, (int)r->number);
}

static void restore_one(void *user, const char *name, size_t length, bool macro)
{
    const renaming *r = user;
    (void)macro;
    fprintf(r->to, "#pragma pop_macro(\"%.*s\")\n", (int)length, name);
}

/* ---- A kernel ------------------------------------------------------------------------------------------------ */

/* Macros that make a kernel a function. It gets its work-group as `tx_group`, whose last element is the size. */
static const char as_function[] =
    "#define __kernel static __attribute__((always_inline))\n"
    "#define reqd_work_group_size(x, y, z)\n"
    "#define get_group_id(d) ((d) == 0 ? tx_group.x : (d) == 1 ? tx_group.y : tx_group.z)\n"
    "#define get_global_id(d) ((d) == 0 ? (size_t)tx_group.x * tx_group.w + get_local_id(0) : "
    "(size_t)get_group_id(d))\n"
    "#define get_global_size not_in_a_persistent_launch\n"
    "#define get_num_groups not_in_a_persistent_launch\n"
    "#define get_local_size not_in_a_persistent_launch\n"
    "#define TX_LOCAL(type, name, count) __local type *const name = (__local type *)tx_pool; "
    "tx_pool += ((count) * sizeof(type) + 63) / 64\n";

static const char *const replaced[] = {"__kernel",       "reqd_work_group_size", "get_group_id",
                                       "get_global_id",  "get_global_size",      "get_num_groups",
                                       "get_local_size", "get_local_id",         "TX_LOCAL"};

static void write_pragmas(FILE *to, const char *pragma)
{
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
        fprintf(to, "#pragma %s_macro(\"%s\")\n", pragma, replaced[i]);
}

/* Writes the build options -DNAME or -DNAME=VALUE as definitions, or their end. */
static tx_status write_options(FILE *to, const char *options, bool begin)
{
    for (const char *at = options; *(at += strspn(at, " "));) {
        const size_t length = strcspn(at, " "), name = strcspn(at, " =");
        if (strncmp(at, "-D", 2) != 0)
            return tx_fail(TX_UNSUPPORTED, "an option that is no definition: %.*s", (int)length, at);
        if (!begin)
            fprintf(to, "#undef %.*s\n", (int)name - 2, at + 2);
        else if (name < length)
            fprintf(to, "#define %.*s %.*s\n", (int)name - 2, at + 2, (int)(length - name - 1), at + name + 1);
        else
            fprintf(to, "#define %.*s 1\n", (int)name - 2, at + 2);
        at += length;
    }
    return TX_OK;
}

/* Writes function run_NUMBER, which reads the arguments from the words of a step and calls the kernel. */
static void write_call(FILE *to, const tx_cl_body *body, const char *kernel, int32_t number)
{
    const tx_cl_command *c = body->command;
    int32_t at = TX_CL_HEAD;
    fprintf(to,
            "TX_INLINE void run_%d(const __global ulong *w, const __local ulong *memory, const uint4 tx_group, "
            "__local float16 *tx_pool)\n{\n    %s_%d(tx_group, tx_pool + w[4]",
            (int)number, kernel, (int)number);
    for (int32_t i = 0; i < c->argument_count; i++) {
        const tx_cl_argument *a = &c->arguments[i];
        if (a->step != body->step)
            continue;
        if (a->type)
            fprintf(to, ",\n        *(const __global %s *)(w + %d)", a->type, (int)at);
        else if (a->memory || a->at >= 0)
            fprintf(to, ",\n        (__global void *)(size_t)memory[w[%d]]", (int)at);
        else
            fprintf(to, ",\n        (__local void *)(tx_pool + w[%d])", (int)at);
        at += tx_cl_words_of(a);
    }
    fputs(");\n}\n", to);
}

/* Work-items beyond the kernel's work-group compute the same as the first ones, because they must meet at barriers. */
static void write_shadows(FILE *to, const tx_cl_joint *joint, const tx_cl_body *body)
{
    const size_t local = body->command->steps[body->step].local[0];
    if (!body->alone && local < joint->group)
        fprintf(to, "#define get_local_id(d) ((d) == 0 ? get_local_id(0) %% %zu : 0)\n", local);
}

static tx_status write_body(FILE *to, const tx_cl_joint *joint, int32_t number)
{
    const tx_cl_body *body = &joint->body[number];
    const tx_cl_step *s = &body->command->steps[body->step];
    static const char *const more[] = {"", "_grad"};
    renaming r = {to, s->name, number};
    char *text;
    TX_TRY(tx_cl_own_text(s->program->source, s->name, &text));
    visit_names(text, rename_one, &r);
    for (int i = 0; i < 2; i++) /* a macro may define a kernel with its gradient's (elementwise.cl) */
        fprintf(to, "#define %s%s(...) %s%s_%d(const uint4 tx_group, __local float16 *tx_pool, __VA_ARGS__)\n", s->name,
                more[i], s->name, more[i], (int)number);
    write_pragmas(to, "push");
    fputs(as_function, to);
    write_shadows(to, joint, body);
    tx_status status = write_options(to, s->program->options, true);
    fputs(text, to);
    write_call(to, body, s->name, number);
    TX_THEN(status, write_options(to, s->program->options, false));
    write_pragmas(to, "pop");
    fprintf(to, "#undef %s\n#undef %s%s\n", s->name, s->name, more[1]);
    visit_names(text, restore_one, &r);
    free(text);
    return status;
}

/* ---- The program --------------------------------------------------------------------------------------------- */

/* Writes the macros of persistent.cl. */
static void write_macros(FILE *to, const tx_context *context, const tx_cl_joint *joint)
{
    fprintf(to, "#define GROUP %zu\n#define MEMORIES %d\n#define MEMORY_PARAMETERS", joint->group,
            (int)joint->memories + 1);
    for (int32_t i = 1; i <= joint->memories; i++)
        fprintf(to, ", __global uchar *m%d", (int)i);
    fputs("\n#define MEMORY_LIST", to);
    for (int32_t i = 1; i <= joint->memories; i++)
        fprintf(to, " memory[%d] = (ulong)(size_t)m%d;", (int)i, (int)i);
    fputs("\n#define CASES", to);
    for (int32_t i = 0; i < joint->bodies; i++)
        fprintf(to, " case %d: %srun_%d(w, memory, place, pool); break;", (int)i,
                joint->body[i].alone ? "if (IS_ITEM) " : "", (int)i);
    fputs(context->can.vendor == TX_CL_NVIDIA ? "\n#define TX_NVIDIA\n" : "\n", to);
}

tx_status tx_cl_persistent_text(const tx_context *context, const tx_cl_joint *joint, char **text)
{
    char *shared = NULL, *last = NULL, *made = NULL;
    size_t size;
    FILE *to = open_memstream(&made, &size);
    tx_status status = to ? tx_cl_shared_text(&shared) : tx_fail(TX_MEMORY, "out of host memory");
    if (status == TX_OK)
        fputs(shared, to);
    for (int32_t i = 0; i < joint->bodies && status == TX_OK; i++)
        status = write_body(to, joint, i);
    TX_THEN(status, tx_cl_own_text("persistent", "persistent", &last));
    if (status == TX_OK) {
        write_macros(to, context, joint);
        fputs(last, to);
    }
    if (to && fclose(to) && status == TX_OK)
        status = tx_fail(TX_MEMORY, "out of host memory");
    free(shared);
    free(last);
    if (status == TX_OK)
        *text = made;
    else
        free(made);
    return status;
}
