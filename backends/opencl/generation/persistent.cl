/* SPDX-License-Identifier: Apache-2.0
 *
 * One launch that executes all launches of a program, one after the other (persistent.c). persistent_text.c writes the
 * bodies of the kernels before this text, and defines:
 *
 *   GROUP              Work-items of a work-group.
 *   MEMORIES           1 + the buffers, which are the arguments m1, m2, ...
 *   MEMORY_PARAMETERS, MEMORY_LIST   Their parameters, and statements that store their addresses in memory[1..].
 *   TX_NVIDIA          If defined, the device is a GPU of NVIDIA.
 *   CASES              A case for each kernel: calls it for work-group `place` of the step at w, in kernels whose
 *                      work-items do not wait for each other only if IS_ITEM.
 *
 * All work-groups of this launch wait for each other between two steps. This ends only if the device runs all of them
 * at a time, which OpenCL does not promise. So a group waits for a limited number of polls.
 */

#define FAILED 0x80000000u
#define IS_ITEM (get_local_id(0) < place.w && place.x * place.w + get_local_id(0) < w[6])

/* Orders the memory accesses of this work-item, and of those that it met at a barrier, for the whole device.
 * OpenCL C 1.2 has no such function. */
#if defined(TX_NVIDIA)
#define DEVICE_FENCE __asm__ volatile("membar.gl;" ::: "memory")
#elif defined(__AMDGCN__)
#define DEVICE_FENCE __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent")
#else
#define DEVICE_FENCE mem_fence(CLK_GLOBAL_MEM_FENCE)
#endif

/* Waits until state[0], which counts the groups that finished each step, reaches `target`. If it does not within
 * `polls` reads, sets FAILED there. Returns false if any group did. All work-items of the group get the same answer. */
TX_INLINE int arrive(volatile __global uint *state, uint target, uint polls, __local uint *seen_by_all)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        DEVICE_FENCE;
        uint seen = atomic_inc(state) + 1;
        for (uint i = 0; seen < target && i < polls; i++)
            seen = atomic_or(state, 0u);
        if (seen < target)
            seen = atomic_or(state, FAILED) | FAILED;
        DEVICE_FENCE;
        *seen_by_all = seen;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    return *seen_by_all < FAILED;
}

/* plan[s] is the place in `plan` of step s, whose words are:
 *
 *   0          the kernel's number in CASES
 *   1, 2, 3    work-groups in each dimension
 *   4          the first vector of `pool` that is free for arrays of the kernel (TX_LOCAL)
 *   5          work-items of its work-groups, at most GROUP
 *   6          work-items in dimension 0
 *   7...       arguments: the number of a buffer, a value in whole words, or a place in `pool`
 *
 * state[0] is 0 before and after a launch unless it failed. state[1] counts the groups that leave. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
persistent(const __global ulong *plan, int steps, volatile __global uint *state, uint polls,
           __local float16 *pool MEMORY_PARAMETERS)
{
    __local ulong memory[MEMORIES];
    __local uint seen;
    const uint groups = (uint)get_num_groups(0);
    if (get_local_id(0) == 0) {
        memory[0] = 0;
        MEMORY_LIST
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = 0; s < steps; s++) {
        const __global ulong *const w = plan + plan[s];
        const uint across = (uint)w[1], down = (uint)w[2], count = across * down * (uint)w[3];
        for (uint g = (uint)get_group_id(0); g < count; g += groups) {
            const uint4 place = (uint4)(g % across, g / across % down, g / across / down, (uint)w[5]);
            switch ((int)w[0]) {
                CASES
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (s + 1 < steps && !arrive(state, (uint)(s + 1) * groups, polls, &seen))
            return;
    }
    if (get_local_id(0) == 0 && atomic_inc(state + 1) == groups - 1) {
        state[0] = 0;
        state[1] = 0;
    }
}
