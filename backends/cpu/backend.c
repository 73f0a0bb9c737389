/* SPDX-License-Identifier: Apache-2.0
 *
 * The cpu backend: the device, its memory and its table of functions. Work for the compute queue runs in the calling
 * thread and its OpenMP team before the call returns. The transfer queue is a thread (transfer.c).
 */
#include "api/base/cores.h"
#include "backends/cpu/cpu.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((int64_t)2 << 20)

/* ---- Device ---------------------------------------------------------------------------------------------- */

/* The OpenMP runtime would abort with more threads. A request above both this and the number of processors is an
 * error. */
#define MAX_THREADS 1024

/* Returns all threads that this process may use, or OMP_NUM_THREADS if it is set. */
static int32_t usable_threads(void)
{
    const int threads = getenv("OMP_NUM_THREADS") ? omp_get_max_threads() : tx_cores();
    return threads > 0 ? threads : 1;
}

/* Returns the requested threads, or all usable threads if the request is 0. */
static tx_status choose_threads(int32_t requested, int32_t *threads)
{
    const int procs = omp_get_num_procs();
    const int32_t limit = procs > MAX_THREADS ? procs : MAX_THREADS, usable = usable_threads();
    if (requested < 0)
        return tx_fail(TX_INVALID, "cpu: %d threads is invalid; use 0 for all that this process may use", requested);
    if (requested > limit)
        return tx_fail(TX_INVALID, "cpu: %d threads is out of range; the maximum is %d", requested, limit);
    if (requested == 0 && usable > limit)
        return tx_fail(TX_INVALID, "cpu: OMP_NUM_THREADS=%d is out of range; the maximum is %d", usable, limit);
    *threads = requested ? requested : usable;
    return TX_OK;
}

static int64_t physical_memory(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && size > 0 ? (int64_t)pages * size : 0;
}

static tx_status device_count(int32_t *count)
{
    *count = 1;
    return TX_OK;
}

/* Reads the value of a line "key : value" of /proc/cpuinfo. Without such a line `text` is not changed. */
static void read_cpuinfo(const char *key, char *text, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (colon && !strncmp(line, key, strlen(key))) {
            snprintf(text, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
            text[strcspn(text, "\n")] = '\0';
            break;
        }
    }
    if (file)
        fclose(file);
}

static tx_status check_index(int32_t index)
{
    return index == 0 ? TX_OK : tx_fail(TX_NOT_FOUND, "cpu: device %d does not exist; the only device is 0", index);
}

static tx_status device_info(int32_t index, tx_device_info *info)
{
    TX_TRY(check_index(index));
    const tx_cpu_kernels *kernels = tx_cpu_kernels_choose();
    *info = (tx_device_info){
        .id = "cpu",
        .name = "CPU",
        .vendor = "unknown",
        .platform = "host",
        .type = TX_DEVICE_CPU,
        .memory = physical_memory(),
        .max_allocation = physical_memory(),
        .compute_units = usable_threads(),
        .bf16 = tx_cpu_gemm_native(TX_BF16),
        .fp16 = tx_cpu_gemm_native(TX_F16),
    };
    read_cpuinfo("model name", info->name, sizeof info->name);
    read_cpuinfo("vendor_id", info->vendor, sizeof info->vendor);
    snprintf(info->driver, sizeof info->driver, "%s", kernels ? kernels->name : "none");
    return TX_OK;
}

static tx_status open_device(int32_t index, const tx_open_options *options, tx_context **context)
{
    int32_t threads = 0;
    TX_TRY(check_index(index));
    TX_TRY(choose_threads(options ? options->threads : 0, &threads));
    const tx_cpu_kernels *kernels = tx_cpu_kernels_choose();
    if (!kernels)
        return tx_fail(TX_UNSUPPORTED,
                       "cpu: TX_CPU_VARIANT=%s is invalid or not supported by this processor; use base, avx2 or avx512",
                       getenv("TX_CPU_VARIANT"));
    TX_TRY(tx_cpu_self_test(kernels));
    tx_context *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "cpu: no memory for a device");
    made->threads = threads;
    made->kernels = kernels;
    *context = made;
    return TX_OK;
}

static void close_device(tx_context *context)
{
    tx_cpu_transfers_free(context->transfers);
    free(context);
}

/* ---- Memory ---------------------------------------------------------------------------------------------- */

/* Maps zeroed memory from the system, in large pages if possible. Pages are committed at the first access. */
static char *map_pages(int64_t bytes)
{
    char *raw = mmap(NULL, (size_t)(bytes + HUGE_PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    const int64_t head = (HUGE_PAGE - (int64_t)((uintptr_t)raw % (uintptr_t)HUGE_PAGE)) % HUGE_PAGE;
    if (head > 0)
        munmap(raw, (size_t)head);
    if (head < HUGE_PAGE)
        munmap(raw + head + bytes, (size_t)(HUGE_PAGE - head));
#ifdef MADV_HUGEPAGE
    madvise(raw + head, (size_t)bytes, MADV_HUGEPAGE); /* a failure only means small pages */
#endif
    return raw + head;
}

static tx_status allocate(tx_context *context, tx_memory_kind kind, tx_memory_space space, int64_t bytes,
                          tx_buffer **buffer)
{
    (void)space; /* host memory serves for every space */
    const int64_t limit = physical_memory();
    if (bytes <= 0 || (limit > 0 && bytes > limit))
        return tx_fail(bytes <= 0 ? TX_INVALID : TX_MEMORY,
                       "cpu: %" PRId64 " bytes of %s requested, but the machine has %" PRId64
                       "; use a smaller batch or block size",
                       bytes, tx_memory_name(kind), limit);
    tx_buffer *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "cpu: no memory for a buffer");
    *made = (tx_buffer){.context = context, .kind = kind, .bytes = bytes};
    if (bytes >= HUGE_PAGE) {
        made->mapped = tx_round_up(bytes, HUGE_PAGE);
        made->data = map_pages(made->mapped);
    } else {
        const int64_t rounded = tx_round_up(bytes, TX_ALIGNMENT);
        made->data = aligned_alloc(TX_ALIGNMENT, (size_t)rounded);
        if (made->data)
            memset(made->data, 0, (size_t)rounded);
    }
    if (!made->data) {
        free(made);
        return tx_fail(TX_MEMORY, "cpu: the system refused %" PRId64 " bytes of %s; use a smaller batch", bytes,
                       tx_memory_name(kind));
    }
    context->held.bytes[kind] += bytes;
    context->traffic.allocations++;
    *buffer = made;
    return TX_OK;
}

static tx_status adopt(tx_context *context, tx_memory_kind kind, void *memory, int64_t bytes, tx_buffer **buffer)
{
    tx_buffer *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "cpu: no memory for a buffer");
    *made = (tx_buffer){.context = context, .kind = kind, .bytes = bytes, .data = memory, .adopted = true};
    context->held.bytes[kind] += bytes;
    context->traffic.allocations++;
    *buffer = made;
    return TX_OK;
}

static void release(tx_context *context, tx_buffer *buffer)
{
    if (!buffer)
        return;
    tx_cpu_transfers_wait(context->transfers, tx_cpu_transfers_given(context->transfers));
    context->held.bytes[buffer->kind] -= buffer->bytes;
    if (buffer->mapped)
        munmap(buffer->data, (size_t)buffer->mapped);
    else if (!buffer->adopted)
        free(buffer->data);
    free(buffer);
}

static void *map_buffer(tx_buffer *buffer)
{
    return buffer->data;
}

static void account(const tx_context *context, tx_memory *held, tx_traffic *traffic)
{
    *held = context->held;
    *traffic = context->traffic;
}

/* ---- Copies ---------------------------------------------------------------------------------------------- */

static tx_status check_range(const tx_buffer *buffer, int64_t offset, int64_t bytes)
{
    if (offset < 0 || bytes < 0 || bytes > buffer->bytes || offset > buffer->bytes - bytes)
        return tx_fail(TX_INVALID, "cpu: %" PRId64 " bytes at offset %" PRId64 " are outside a buffer of %" PRId64,
                       bytes, offset, buffer->bytes);
    return TX_OK;
}

/* Copies at once on the compute queue, or enqueues a copy on the transfer queue. */
static tx_status move(tx_context *context, tx_queue_id queue, void *to, const void *from, int64_t bytes)
{
    if (queue == TX_QUEUE_COMPUTE) {
        memcpy(to, from, (size_t)bytes);
        return TX_OK;
    }
    tx_status status = tx_cpu_transfer(&context->transfers, to, from, bytes);
    context->traffic.transfers += status == TX_OK;
    return status;
}

static tx_status write_buffer(tx_context *context, tx_queue_id queue, tx_buffer *to, int64_t offset, const void *data,
                              int64_t bytes)
{
    TX_TRY(check_range(to, offset, bytes));
    TX_TRY(move(context, queue, to->data + offset, data, bytes));
    context->traffic.to_device += bytes;
    return TX_OK;
}

static tx_status read_on(tx_context *context, tx_queue_id queue, const tx_buffer *from, int64_t offset, void *data,
                         int64_t bytes)
{
    TX_TRY(check_range(from, offset, bytes));
    TX_TRY(move(context, queue, data, from->data + offset, bytes));
    context->traffic.from_device += bytes;
    return TX_OK;
}

static tx_status read_buffer(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes)
{
    return read_on(context, TX_QUEUE_COMPUTE, from, offset, data, bytes);
}

static tx_status copy_buffer(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t from_offset,
                             tx_buffer *to, int64_t to_offset, int64_t bytes)
{
    TX_TRY(check_range(from, from_offset, bytes));
    TX_TRY(check_range(to, to_offset, bytes));
    return move(context, queue, to->data + to_offset, from->data + from_offset, bytes);
}

static tx_status fill_buffer(tx_context *context, tx_buffer *to, int64_t offset, uint8_t value, int64_t bytes)
{
    (void)context;
    TX_TRY(check_range(to, offset, bytes));
    memset(to->data + offset, value, (size_t)bytes);
    return TX_OK;
}

/* ---- Events ---------------------------------------------------------------------------------------------- */

/* An event is the number of the last copy enqueued on the transfer queue. On the compute queue it is 0, which has
 * always been reached. */
static tx_status mark(tx_context *context, tx_queue_id queue, tx_event **event)
{
    const int64_t number = queue == TX_QUEUE_TRANSFER ? tx_cpu_transfers_given(context->transfers) : 0;
    *event = (tx_event *)(intptr_t)number;
    return TX_OK;
}

static tx_status wait_event(tx_context *context, tx_event *event)
{
    tx_cpu_transfers_wait(context->transfers, (intptr_t)event);
    return TX_OK;
}

static tx_status await_event(tx_context *context, tx_queue_id queue, tx_event *event)
{
    return queue == TX_QUEUE_COMPUTE ? wait_event(context, event) : TX_OK;
}

static void forget_event(tx_context *context, tx_event *event)
{
    (void)context;
    (void)event;
}

static tx_status read_begin(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t offset, void *data,
                            int64_t bytes, tx_event **event)
{
    TX_TRY(read_on(context, queue, from, offset, data, bytes));
    return mark(context, queue, event);
}

static tx_status finish(tx_context *context)
{
    tx_cpu_transfers_wait(context->transfers, tx_cpu_transfers_given(context->transfers));
    return TX_OK;
}

extern const tx_backend tx_backend_cpu;
const tx_backend tx_backend_cpu = {
    .version = TX_BACKEND_VERSION,
    .name = "cpu",
    .host_memory = true,
    .blocks = true,
    .device_count = device_count,
    .device_info = device_info,
    .open = open_device,
    .close = close_device,
    .allocate = allocate,
    .adopt = adopt,
    .release = release,
    .map = map_buffer,
    .account = account,
    .write = write_buffer,
    .read_begin = read_begin,
    .read = read_buffer,
    .fill = fill_buffer,
    .copy = copy_buffer,
    .mark = mark,
    .await = await_event,
    .wait = wait_event,
    .forget = forget_event,
    .finish = finish,
    .prepare = tx_cpu_prepare,
    .bind = tx_cpu_bind,
    .run = tx_cpu_run,
    .command_info = tx_cpu_command_info,
    .destroy = tx_cpu_destroy,
    .choices = tx_cpu_choices,
    .choose = tx_cpu_choose,
    .facts = tx_cpu_facts,
};
