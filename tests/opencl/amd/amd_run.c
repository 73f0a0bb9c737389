/* SPDX-License-Identifier: Apache-2.0
 * Memory, control flow and work-groups of the emulator. */
#include "tests/opencl/amd/amd_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WAVES 32
#define UNWRITTEN 0x7fa5a5a5 /* a NaN: what registers and local memory hold before they are written */

/* ---- Programs ---------------------------------------------------------------------------------------------------- */

bool amd_open(amd_program *p, unsigned char *image, size_t size)
{
    const amd_header *h = (const amd_header *)(const void *)image;
    memset(p, 0, sizeof *p);
    if (size < sizeof *h || h->magic != AMD_MAGIC)
        return false;
    p->header = h;
    p->memory = image + sizeof *h;
    p->name = (char(*)[AMD_NAME])(p->memory + h->bytes);
    p->code = (const amd_instruction *)(const void *)(p->name + h->names);
    p->kernel = (const amd_kernel *)(const void *)(p->code + h->instructions);
    p->argument = (const amd_argument *)(const void *)(p->kernel + h->kernels);
    p->run = calloc(h->names + 1, sizeof *p->run);
    for (uint32_t n = 0; p->run && n < h->names; n++)
        p->run[n] = (void (*)(void))amd_function_of(p->name[n]);
    return p->run && (size_t)((const unsigned char *)(p->argument + h->arguments) - image) == size;
}

void amd_close(amd_program *p)
{
    free(p->run);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void *place_of(const amd_state *w, uint64_t address, uint64_t bytes)
{
    const amd_launch *launch = w->group->launch;
    for (int n = 0; n < launch->ranges; n++)
        if (address >= launch->range[n].first && address + bytes <= launch->range[n].first + launch->range[n].bytes)
            return (void *)(uintptr_t)address; /* NOLINT */
    for (int n = 0; n < launch->ranges; n++)
        fprintf(stderr, "    buffer of %llu bytes at 0x%llx\n", (unsigned long long)launch->range[n].bytes,
                (unsigned long long)launch->range[n].first);
    amd_stop(w, "%d bytes at 0x%llx lie in none of these buffers", (int)bytes, (unsigned long long)address);
}

static void *local_place(const amd_state *w, uint32_t address, uint32_t bytes)
{
    if (address + (uint64_t)bytes > w->group->launch->local_bytes)
        amd_stop(w, "%d bytes at %u lie outside of local memory", (int)bytes, address);
    return w->group->local + address;
}

/* number: bytes, offset. from: base, offset in a register. */
void amd_s_load(amd_state *w, const amd_instruction *x)
{
    uint64_t base;
    uint32_t offset, word;
    amd_fetch_one(w, &x->from[0], sizeof base, &base);
    amd_fetch_one(w, &x->from[1], sizeof offset, &offset);
    base += offset + (uint64_t)x->number[1];
    for (uint32_t n = 0; n < (uint32_t)x->number[0] / 4; n++) {
        memcpy(&word, place_of(w, base + 4 * n, 4), 4);
        amd_put_scalar(w, x->to.reg + n, word);
    }
}

/* from: the lanes' addresses, or offsets from one in from[2]. */
static void addresses(const amd_state *w, const amd_instruction *x, uint64_t out[AMD_LANES])
{
    uint64_t base = 0;
    uint32_t offset[AMD_LANES];
    if (x->from[2].kind == AMD_NONE) {
        amd_fetch(w, &x->from[0], sizeof *out, out);
    } else {
        amd_fetch_one(w, &x->from[2], sizeof base, &base);
        amd_fetch(w, &x->from[0], sizeof *offset, offset);
        for (uint32_t n = 0; n < w->lanes; n++)
            out[n] = base + offset[n];
    }
    for (uint32_t n = 0; n < w->lanes; n++)
        out[n] += (uint64_t)x->number[1];
}

/* Words of a lane's registers from `reg` on; the last may be half a word. number[3] selects only one half of a
 * register: 1 the lower, 2 the upper. */
static void load_words(amd_state *w, const amd_instruction *x, uint32_t reg, uint32_t lane, const unsigned char *from)
{
    const uint32_t bytes = (uint32_t)x->number[0];
    if (x->number[3]) {
        memcpy((unsigned char *)&w->v[reg][lane] + 2 * (x->number[3] - 1), from, bytes);
        return;
    }
    for (uint32_t n = 0; n < bytes; n += 4) {
        uint32_t word = 0;
        memcpy(&word, from + n, bytes - n < 4 ? bytes - n : 4);
        w->v[reg + n / 4][lane] = word;
    }
}

static void store_words(const amd_state *w, const amd_instruction *x, uint32_t reg, uint32_t lane, unsigned char *to)
{
    const uint32_t bytes = (uint32_t)x->number[0];
    if (x->number[3]) {
        memcpy(to, (const unsigned char *)&w->v[reg][lane] + 2 * (x->number[3] - 1), bytes);
        return;
    }
    for (uint32_t n = 0; n < bytes; n += 4)
        memcpy(to + n, &w->v[reg + n / 4][lane], bytes - n < 4 ? bytes - n : 4);
}

void amd_global_load(amd_state *w, const amd_instruction *x)
{
    uint64_t at[AMD_LANES];
    const uint32_t bytes = (uint32_t)x->number[0];
    addresses(w, x, at);
    for (uint32_t n = 0; n < w->lanes; n++)
        if (amd_exec(w) >> n & 1)
            load_words(w, x, x->to.reg, n, place_of(w, at[n], bytes));
}

void amd_global_store(amd_state *w, const amd_instruction *x)
{
    uint64_t at[AMD_LANES];
    const uint32_t bytes = (uint32_t)x->number[0];
    addresses(w, x, at);
    for (uint32_t n = 0; n < w->lanes; n++)
        if (amd_exec(w) >> n & 1)
            store_words(w, x, x->from[1].reg, n, place_of(w, at[n], bytes));
}

/* Computes a private address. number: bytes and offset. The operands are the lane's offset and the common one. */
static unsigned char *private_place(const amd_state *w, const amd_instruction *x, const amd_operand *all, uint32_t lane)
{
    uint32_t own[AMD_LANES], base;
    amd_fetch(w, &x->from[0], sizeof *own, own);
    amd_fetch_one(w, all, sizeof base, &base);
    const uint64_t at = (uint64_t)own[lane] + base + (uint64_t)x->number[1];
    if (at + (uint64_t)x->number[0] > w->group->private_bytes)
        amd_stop(w, "%d bytes at %llu lie outside of private memory", x->number[0], (unsigned long long)at);
    return w->private + (size_t)lane * w->group->private_bytes + at;
}

void amd_scratch_load(amd_state *w, const amd_instruction *x)
{
    for (uint32_t n = 0; n < w->lanes; n++)
        if (amd_exec(w) >> n & 1)
            load_words(w, x, x->to.reg, n, private_place(w, x, &x->from[2], n));
}

void amd_scratch_store(amd_state *w, const amd_instruction *x)
{
    for (uint32_t n = 0; n < w->lanes; n++)
        if (amd_exec(w) >> n & 1)
            store_words(w, x, x->from[1].reg, n, private_place(w, x, &x->from[2], n));
}

uint64_t amd_local_clocks[2];

/* Returns the phase in which a lane accesses local memory. A phase moves 128 bytes of its lanes: 8 lanes in a row, but
 * two quads of reads of 16 bytes (ROCm documentation of CK Tile, "LDS Bank Conflicts"). */
static uint32_t phase_of(uint32_t lane, uint32_t bytes, bool load)
{
    const uint32_t quad = lane / 4 % 8;
    return load && bytes == 16 ? lane / 32 * 4 + (quad < 4 ? quad : quad - 4 ^ 1) : lane * bytes / 128;
}

/* Counts the clocks of an access: each of 32 banks reads one word in a clock, for all lanes that want this word. */
static void count_clocks(const amd_state *w, const uint32_t at[AMD_LANES], uint32_t offset, uint32_t bytes, bool load)
{
    const uint32_t size = bytes < 4 ? 4 : bytes;
    for (uint32_t phase = 0; phase < w->lanes * size / 128; phase++) {
        uint32_t word[32][32], count[32] = {0}, most = 0, all = 0;
        for (uint32_t n = 0; n < w->lanes * (size / 4); n++) {
            const uint32_t lane = n / (size / 4), address = (at[lane] + offset) / 4 + n % (size / 4),
                           bank = address % 32;
            uint32_t i = 0;
            if (phase_of(lane, size, load) != phase || !(amd_exec(w) >> lane & 1))
                continue;
            while (i < count[bank] && word[bank][i] != address)
                i++;
            all += i == count[bank];
            count[bank] += i == count[bank];
            word[bank][i] = address;
            most = count[bank] > most ? count[bank] : most;
        }
        amd_local_clocks[0] += most;
        amd_local_clocks[1] += (all + 31) / 32;
    }
}

/* Registers of an operand `index` are at number[1 + index] from the lanes' addresses. */
static void local_move(amd_state *w, const amd_instruction *x, uint32_t reg, int index, bool load)
{
    uint32_t at[AMD_LANES];
    const uint32_t bytes = (uint32_t)x->number[0];
    amd_fetch(w, &x->from[0], sizeof *at, at);
    count_clocks(w, at, (uint32_t)x->number[1 + index], bytes, load);
    for (uint32_t n = 0; n < w->lanes; n++) {
        if (!(amd_exec(w) >> n & 1))
            continue;
        unsigned char *place = local_place(w, at[n] + (uint32_t)x->number[1 + index], bytes);
        if (load)
            load_words(w, x, reg, n, place);
        else
            store_words(w, x, reg, n, place);
    }
}

void amd_ds_read(amd_state *w, const amd_instruction *x)
{
    local_move(w, x, x->to.reg, 0, true);
}

void amd_ds_write(amd_state *w, const amd_instruction *x)
{
    local_move(w, x, x->from[1].reg, 0, false);
}

/* The destination registers may hold the addresses: the first result is kept in spare registers. */
void amd_ds_read2(amd_state *w, const amd_instruction *x)
{
    const uint32_t words = (uint32_t)x->number[0] / 4, aside = AMD_VECTORS - 2;
    local_move(w, x, aside, 0, true);
    local_move(w, x, x->to.reg + words, 1, true);
    for (uint32_t n = 0; n < words; n++)
        amd_put_word(w, x->to.reg + n, w->v[aside + n]);
}

void amd_ds_write2(amd_state *w, const amd_instruction *x)
{
    local_move(w, x, x->from[1].reg, 0, false);
    local_move(w, x, x->from[2].reg, 1, false);
}

/* Returns the value of the lane that a byte address names, or 0 for a lane that is not active. */
void amd_ds_bpermute(amd_state *w, const amd_instruction *x)
{
    uint32_t at[AMD_LANES], a[AMD_LANES], out[AMD_LANES];
    amd_fetch(w, &x->from[0], sizeof *at, at);
    amd_fetch(w, &x->from[1], sizeof *a, a);
    for (uint32_t n = 0; n < AMD_LANES; n++) {
        const uint32_t lane = (at[n] + (uint32_t)x->number[1]) / 4 % w->lanes;
        out[n] = amd_exec(w) >> lane & 1 ? a[lane] : 0;
    }
    amd_put_word(w, x->to.reg, out);
}

/* ---- Control flow ------------------------------------------------------------------------------------------------ */

static void branch(amd_state *w, const amd_instruction *x, bool taken)
{
    if (taken)
        w->next = (uint32_t)x->number[0];
}

static uint64_t vcc_of(const amd_state *w)
{
    return w->lanes == 32 ? w->s[AMD_VCC] : amd_two(w->s[AMD_VCC], w->s[AMD_VCC + 1]);
}

#define BRANCH(name, taken)                                 \
    void amd_##name(amd_state *w, const amd_instruction *x) \
    {                                                       \
        branch(w, x, taken);                                \
    }
BRANCH(s_branch, true)
BRANCH(s_cbranch_scc0, !w->scc)
BRANCH(s_cbranch_scc1, w->scc)
BRANCH(s_cbranch_vccz, vcc_of(w) == 0)
BRANCH(s_cbranch_vccnz, vcc_of(w) != 0)
BRANCH(s_cbranch_execz, amd_exec(w) == 0)
BRANCH(s_cbranch_execnz, amd_exec(w) != 0)

void amd_s_getpc_b64(amd_state *w, const amd_instruction *x)
{
    const uint64_t here = (uint64_t)(uintptr_t)w->group->launch->program->memory + x->at + (uint64_t)x->number[0];
    amd_put_one(w, &x->to, sizeof here, &here);
}

void amd_s_setpc_b64(amd_state *w, const amd_instruction *x)
{
    const amd_program *p = w->group->launch->program;
    uint64_t address;
    uint32_t low = 0, high = p->header->instructions;
    amd_fetch_one(w, &x->from[0], sizeof address, &address);
    address -= (uint64_t)(uintptr_t)p->memory;
    while (low < high) { /* the first instruction from there on: those that do nothing are not in the image */
        const uint32_t middle = (low + high) / 2;
        if (p->code[middle].at < address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == p->header->instructions)
        amd_stop(w, "a jump out of the program");
    w->next = low;
}

void amd_s_swappc_b64(amd_state *w, const amd_instruction *x)
{
    amd_s_setpc_b64(w, x);
    amd_s_getpc_b64(w, x);
}

void amd_s_barrier(amd_state *w, const amd_instruction *x)
{
    (void)x;
    w->waits = true;
}

void amd_s_endpgm(amd_state *w, const amd_instruction *x)
{
    (void)x;
    w->ended = true;
}

/* ---- Work-groups ------------------------------------------------------------------------------------------------- */

/* The fields of an AQL packet that kernels read (HSA Platform System Architecture, 2.9.6). */
typedef struct packet {
    uint16_t header, setup, items[3], reserved;
    uint32_t grid[3], private_bytes, local_bytes;
    uint64_t object, arguments, more, signal;
} packet;

/* Bits of kernel_code_properties, in the order of the registers that they ask for, and how many (AMDGPU backend guide
 * of LLVM, "Initial Kernel Execution State"). */
enum {
    PRIVATE_BUFFER,
    DISPATCH_POINTER,
    QUEUE_POINTER,
    ARGUMENTS,
    DISPATCH_ID,
    SCRATCH_INIT,
    PRIVATE_SIZE,
    PROPERTIES
};
static const uint32_t registers[PROPERTIES] = {4, 2, 2, 2, 2, 2, 1};

static void put_address(amd_state *w, uint32_t reg, const void *p)
{
    const uint64_t address = (uint64_t)(uintptr_t)p;
    w->s[reg] = (uint32_t)address;
    w->s[reg + 1] = (uint32_t)(address >> 32);
}

static void begin_scalars(amd_state *w, const packet *aql, const uint32_t group[3])
{
    const amd_launch *launch = w->group->launch;
    uint32_t reg = 0;
    for (int n = 0; n < PROPERTIES; n++) {
        if (!(launch->kernel->properties >> n & 1))
            continue;
        if (n == DISPATCH_POINTER)
            put_address(w, reg, aql);
        if (n == ARGUMENTS)
            put_address(w, reg, launch->arguments);
        reg += registers[n];
    }
    reg = launch->kernel->resources >> 1 & 31; /* gfx11 leaves some unused */
    if (launch->gfx12) {
        w->s[AMD_TTMP + 9] = group[0];
        w->s[AMD_TTMP + 7] = group[1] | group[2] << 16;
        return;
    }
    for (int n = 0; n < 3; n++)
        if (launch->kernel->resources >> (7 + n) & 1)
            w->s[reg++] = group[n];
}

static void begin_wave(amd_state *w, const amd_group *group, const packet *aql, const uint32_t number[3],
                       uint32_t first)
{
    const amd_launch *launch = group->launch;
    const uint32_t *size = launch->items, items = size[0] * size[1] * size[2];
    uint64_t exec = 0;
    unsigned char *private = w->private;
    *w = (amd_state){.group = group, .private = private, .lanes = launch->kernel->lanes, .next = launch->kernel->entry};
    for (int n = 0; n < AMD_SCALARS; n++)
        w->s[n] = UNWRITTEN;
    for (int n = 0; n < AMD_VECTORS; n++)
        for (int lane = 0; lane < AMD_LANES; lane++)
            w->v[n][lane] = UNWRITTEN;
    for (uint32_t lane = 0; lane < w->lanes && first + lane < items; lane++) {
        const uint32_t item = first + lane;
        w->v[0][lane] = item % size[0] | item / size[0] % size[1] << 10 | item / size[0] / size[1] << 20;
        exec |= (uint64_t)1 << lane;
    }
    w->s[AMD_EXEC] = (uint32_t)exec;
    w->s[AMD_EXEC + 1] = (uint32_t)(exec >> 32);
    begin_scalars(w, aql, number);
}

/* Up to the next barrier, or the end. */
static void run_wave(amd_state *w)
{
    const amd_program *p = w->group->launch->program;
    w->waits = false;
    while (!w->waits && !w->ended) {
        w->now = &p->code[w->next++];
        const amd_function function = (amd_function)p->run[w->now->name];
        if (!function)
            amd_stop(w, "this is not emulated");
        function(w, w->now);
    }
}

/* Waves take turns from barrier to barrier, forwards and backwards, so that a missing one shows. */
static void run_group(amd_group *group, amd_state *wave, const packet *aql, const uint32_t number[3])
{
    const amd_launch *launch = group->launch;
    const uint32_t items = launch->items[0] * launch->items[1] * launch->items[2], lanes = launch->kernel->lanes;
    const uint32_t waves = (items + lanes - 1) / lanes, unwritten = UNWRITTEN;
    for (uint32_t n = 0; n + 4 <= launch->local_bytes; n += 4)
        memcpy(group->local + n, &unwritten, 4);
    for (uint32_t n = 0; n < waves; n++)
        begin_wave(&wave[n], group, aql, number, n * lanes);
    uint32_t left = waves;
    for (uint32_t turn = 0; left > 0; turn++) {
        left = 0;
        for (uint32_t n = 0; n < waves; n++) {
            amd_state *w = &wave[turn % 2 ? waves - 1 - n : n];
            if (!w->ended)
                run_wave(w);
            left += !w->ended;
        }
    }
}

void amd_run(const amd_launch *given)
{
    amd_launch launch = *given;
    packet aql = {.arguments = (uint64_t)(uintptr_t)launch.arguments, .local_bytes = launch.local_bytes};
    amd_group group = {&launch, malloc(launch.local_bytes + 1), launch.kernel->private_bytes};
    amd_state *wave = malloc(MOST_WAVES * sizeof *wave);
    if (!group.local || !wave)
        abort();
    for (int n = 0; n < MOST_WAVES; n++)
        wave[n].private = malloc((size_t)AMD_LANES * group.private_bytes + 1);
    for (int n = 0; n < 3; n++) {
        aql.items[n] = (uint16_t)launch.items[n];
        aql.grid[n] = launch.items[n] * launch.groups[n];
    }
    launch.range[launch.ranges++] = (amd_range){(uint64_t)(uintptr_t)&aql, sizeof aql};
    launch.range[launch.ranges++] = (amd_range){aql.arguments, AMD_ARGUMENT_BYTES(launch.kernel)};
    launch.range[launch.ranges++] =
        (amd_range){(uint64_t)(uintptr_t)launch.program->memory, launch.program->header->bytes};
    uint32_t number[3];
    for (number[2] = 0; number[2] < launch.groups[2]; number[2]++)
        for (number[1] = 0; number[1] < launch.groups[1]; number[1]++)
            for (number[0] = 0; number[0] < launch.groups[0]; number[0]++)
                run_group(&group, wave, &aql, number);
    for (int n = 0; n < MOST_WAVES; n++)
        free(wave[n].private);
    free(wave);
    free(group.local);
}
