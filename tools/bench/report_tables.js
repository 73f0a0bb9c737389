/* SPDX-License-Identifier: Apache-2.0
 * The figures of a report, and the findings. */

const part = (report, name) => report.parts.find(p => p.part === name)?.figures;
const precisions = [["fp32", "F32"], ["bf16", "BF16"], ["fp16", "F16"], ["tf32", "F32"]];
const gib = bytes => `${figure(bytes / 2 ** 30)} GiB`;
const median = list => [...list].sort((a, b) => a - b)[list.length >> 1];
const startOf = figures => figures?.start && figures.start.open_seconds + figures.start.compile_seconds + figures.start.first_step_seconds;
/* The share of a step outside of operations: launches, and waiting for the host. */
const outside = figures => figures?.profile && 1 - figures.profile.seconds / median(figures.tx.seconds_per_step);
const productPeak = (report, dtype) => Math.max(0, ...report.parts.map(p => p.figures?.peaks?.product_gflops?.[dtype] || 0)) || undefined;

/* Describes measurements that were left out; "" if there are none. */
const leftOut = p => {
    const count = Array.isArray(p.figures?.left_out) ? p.figures.left_out.length : p.figures?.left_out || 0;
    return p.message || (count ? `${count} ${Array.isArray(p.figures.left_out) ? "ops" : "measurements"} left out because of the time limit` : "");
};

/* The figures by which reports are compared: name, value, format, and whether more is better (undefined for neither). */
const measures = [
    ["conformance: cases passed", r => part(r, "conformance") && part(r, "conformance").passed / part(r, "conformance").cases, percent, true],
    ["copy on the device", r => part(r, "copy")?.peaks.copy_gbytes, v => `${figure(v)} GB/s`, true],
    ["to the device, pinned", r => part(r, "copy")?.transfer_gbytes.to_device_pinned, v => `${figure(v)} GB/s`, true],
    ["from the device, pinned", r => part(r, "copy")?.transfer_gbytes.from_device_pinned, v => `${figure(v)} GB/s`, true],
    ["launch, queued", r => part(r, "copy")?.peaks.launch_seconds, time, false],
    ["launch, synchronous", r => part(r, "copy")?.peaks.alone_seconds, time, false],
    ...precisions.slice(0, 3).map(([name, dtype]) => [`best product, ${name}`, r => productPeak(r, dtype), rate, true]),
    ["tokens of a step", r => (s => s && s.batch * s.block)(precisions.map(([name]) => part(r, `step ${name}`)).find(s => s)), figure],
    ...precisions.map(([name]) => [`training step, ${name}`, r => part(r, `step ${name}`)?.tx.tokens_per_second, v => `${figure(v)} tokens/s`, true]),
    ...precisions.map(([name, dtype]) => [`… of the best product, ${name}`,
        r => part(r, `step ${name}`) && part(r, `step ${name}`).gflops / productPeak(r, dtype), percent, true]),
    ...precisions.map(([name]) => [`… memory, ${name}`, r => part(r, `step ${name}`)?.memory.counted.total, gib, false]),
    ["launches per step, fp32", r => part(r, "step fp32")?.traffic.launches, figure, false],
    ["step outside of operations, fp32", r => outside(part(r, "step fp32")), percent, false],
    ["first start: open, compile, first step", r => startOf(part(r, "cold start")), time, false],
    ["start with cached kernels", r => startOf(part(r, "warm start")), time, false],
    ["loss beside the CPU, first steps", r => part(r, "curve")?.first_difference, percent, false],
    ["generation", r => part(r, "generation")?.tx.tokens_per_second, v => `${figure(v)} tokens/s`, true],
];

/* Sentences about errors and slow parts. */
function findings(report) {
    const found = [];
    for (const p of report.parts)
        if (p.state === "failed" || p.state === "stopped") found.push(`${p.part} ${p.state}: ${p.message}`);
    for (const p of report.parts)
        if (p.state === "ok" && leftOut(p)) found.push(`${p.part}: ${leftOut(p)}.`);
    if (!report.complete) found.push("This report is incomplete: it ended before its last part.");
    for (const row of part(report, "conformance")?.rows || [])
        if (row.passed < row.cases) found.push(`${row.op}: ${row.cases - row.passed} of ${row.cases} cases are wrong: ${row.failure || ""}`);
    const copy = part(report, "copy")?.peaks.copy_gbytes, base = part(report, "step fp32")?.tx.tokens_per_second;
    for (const [name, dtype] of precisions) {
        const step = part(report, `step ${name}`), peak = productPeak(report, dtype);
        if (!step) continue;
        const {planned, counted} = step.memory;
        if (planned.total !== counted.total) found.push(`step ${name}: ${planned.total} bytes were planned, ${counted.total} counted.`);
        if (step.tx.tokens_per_second < base) found.push(`A step in ${name} is slower than one in fp32: ${figure(step.tx.tokens_per_second)} and ${figure(base)} tokens/s.`);
        if (outside(step) > 0.15) found.push(`step ${name}: ${percent(outside(step))} of the time is outside of operations (${step.traffic.launches} launches).`);
        for (const row of step.profile?.kernels || []) {
            const reached = Math.max(row.gflops / (peak || Infinity), row.gbytes / (copy || Infinity));
            if (row.share >= 0.05 && reached < 0.3)
                found.push(`step ${name}: ${row.op} ${row.direction} takes ${percent(row.share)} of the operations' time and reaches `
                    + `${percent(reached)} of the device's peaks (${row.variant}).`);
        }
    }
    for (const p of report.parts)
        if (p.part.startsWith("cold start") && startOf(p.figures) > 15) found.push(`A first start takes ${time(startOf(p.figures))} (${p.part}).`);
    return found;
}
