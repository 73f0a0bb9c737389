/* SPDX-License-Identifier: Apache-2.0
 * The roofline chart of a measurement by txbench, with its table. */

/* Draws the JSON of txbench ops, gemm or attention at the end of `main`: peaks, roofline, table. */
function drawRoofline(main, data) {
    const {peaks, rows} = data;
    const groups = [...new Set(rows.map(row => row.group))];
    const roofs = Object.entries(peaks.product_gflops).map(([dtype, gflops]) => ({dtype, gflops}));
    const lines = new Map(); /* lines of the table, by the index of their row */
    const colour = row => `var(--c${groups.indexOf(row.group) % 6})`;
    const intensity = row => row.bytes > 0 ? row.flops / row.bytes : 0;

    /* ---- the chart ---- */

    /* The points that can be drawn on logarithmic axes. */
    const points = rows.map((row, index) => ({row, index, x: intensity(row), y: row.gflops})).filter(p => p.x > 0 && p.y > 0);

    /* The area with all points and the ridges of the roofs, and a margin on all sides. */
    function domain() {
        const ridges = roofs.map(roof => ({x: roof.gflops / peaks.copy_gbytes, y: roof.gflops}));
        const all = [...points, ...ridges], xs = all.map(p => p.x), ys = all.map(p => p.y);
        return {left: Math.min(...xs) / 2, right: Math.max(...xs) * 4, low: Math.min(...ys) / 2, high: Math.max(...ys) * 2};
    }

    /* The ticks of an axis, and their labels. */
    const ticks = (low, high) => logTicks(low, high, Infinity).map(value => {
        const e = Math.floor(Math.log10(value) + 1e-9), m = +(value / 10 ** e).toPrecision(2);
        return {value, text: e >= -2 && e <= 4 ? String(value) : (m > 1 ? `${m}·10` : "10") + superscript(e)};
    });

    function axes(svg, area, d, x, y) {
        let last = -Infinity; /* the end of the previous label */
        for (const {value, text} of ticks(d.left, d.right)) {
            element("line", {x1: x(value), x2: x(value), y1: area.top, y2: area.bottom, stroke: "var(--grid)"}, svg);
            const half = text.length * glyph / 2;
            if (x(value) - half < last + glyph) continue;
            last = x(value) + half;
            element("text", {x: x(value), y: area.bottom + 18, "text-anchor": "middle"}, svg, text);
        }
        for (const {value, text} of ticks(d.low, d.high)) {
            element("line", {x1: area.left, x2: area.right, y1: y(value), y2: y(value), stroke: "var(--grid)"}, svg);
            element("text", {x: area.left - 8, y: y(value) + 4, "text-anchor": "end"}, svg, text);
        }
        element("line", {x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom, stroke: "var(--axis)"}, svg);
        element("text", {x: 0, y: 12}, svg, "GFLOP/s");
        element("text", {x: (area.left + area.right) / 2, y: area.bottom + 38, "text-anchor": "middle"}, svg,
            "arithmetic intensity: flop per byte read or written");
    }

    /* Draws the label of a roof as near to (x, y) as possible without overlapping those in `placed`. */
    const line = 16, glyph = 6.7; /* height of a text, and about the width of its characters */
    function label(svg, area, placed, text, x, y, anchor) {
        const width = text.length * glyph, left = Math.max(area.left, anchor === "end" ? x - width : x);
        const free = top => top >= area.top && top + line <= area.bottom
            && placed.every(p => left + width < p.left || p.right < left || top + line <= p.top || p.bottom <= top);
        let top = y - line; /* at the line, or else below it, so that labels keep their order */
        for (let away = 0; !free(top) && away < area.bottom; away++) top = free(y + 2 + away) ? y + 2 + away : y - line - away;
        placed.push({left, right: left + width, top, bottom: top + line});
        element("text", {x: left, y: top + 12, class: "roof", textLength: width.toFixed(1), lengthAdjust: "spacingAndGlyphs"}, svg, text);
    }

    /* The roofs: the slope of the copy rate up to the ridge, then a horizontal line. */
    function drawRoofs(svg, area, d, x, y) {
        const highest = Math.max(...roofs.map(roof => roof.gflops)), start = Math.max(d.left, d.low / peaks.copy_gbytes);
        for (const [i, roof] of roofs.entries())
            element("path", {d: `M${x(roof.gflops / peaks.copy_gbytes)} ${y(roof.gflops)}H${area.right}`, fill: "none",
                stroke: "var(--ink)", "stroke-width": 1.6, "stroke-dasharray": ["", "7 4", "2 3"][i % 3]}, svg);
        const end = highest / peaks.copy_gbytes;
        element("path", {d: `M${x(start)} ${y(start * peaks.copy_gbytes)}L${x(end)} ${y(highest)}`, fill: "none", stroke: "var(--ink)",
            "stroke-width": 1.6}, svg);
    }

    /* The labels of the roofs, on top of the points. */
    function nameRoofs(svg, area, d, x, y) {
        const placed = [], middle = Math.sqrt(d.left * roofs[0].gflops / peaks.copy_gbytes);
        for (const roof of [...roofs].sort((a, b) => b.gflops - a.gflops))
            label(svg, area, placed, `best product ${roof.dtype}: ${rate(roof.gflops)}`, area.right - 4, y(roof.gflops) - 2, "end");
        label(svg, area, placed, `copy: ${figure(peaks.copy_gbytes)} GB/s`, x(middle) + 10, y(middle * peaks.copy_gbytes) + line, "start");
    }

    /* A point, with a tooltip. It highlights its line of the table under the pointer. */
    function drawPoint(svg, {row, index}, cx, cy) {
        const dot = element("circle", {cx, cy, r: 6, fill: colour(row), "fill-opacity": 0.8, stroke: "var(--card)"}, svg);
        element("title", {}, dot, `${row.name}\n${row.case}\n${time(row.seconds)} · ${rate(row.gflops)} · ${figure(row.gbytes)} GB/s\n`
            + `${percent(row.share)} of the attainable rate by the ${row.bound === "copy" ? "copy rate" : "best product"}, `
            + `${rate(row.attainable_gflops)}\n${row.variant}`);
        for (const event of ["pointerenter", "pointerleave"])
            dot.addEventListener(event, () => lines.get(index).classList.toggle("near", event === "pointerenter"));
    }

    function render(view) {
        const width = Math.max(280, view.section.clientWidth - 28), height = 460;
        const svg = element("svg", {width, height, role: "img", "aria-label": "Roofline: performance over arithmetic intensity"});
        const d = domain(), area = {left: 52, right: width - 10, top: 22, bottom: height - 46};
        const x = scale(d.left, d.right, true, area.left, area.right), y = scale(d.low, d.high, true, area.bottom, area.top);
        axes(svg, area, d, x, y);
        drawRoofs(svg, area, d, x, y);
        for (const point of points) drawPoint(svg, point, x(point.x), y(point.y));
        nameRoofs(svg, area, d, x, y);
        if (view.svg) view.svg.replaceWith(svg); else view.section.prepend(svg);
        view.svg = svg;
    }

    /* ---- the table ---- */

    const steps = rows.some(row => row.count);
    const columns = [
        {head: data.what === "ops" ? "op" : "name", value: row => row.name, text: true},
        {head: "case", value: row => row.case, text: true},
        ...(steps ? [{head: "per step", value: row => row.count || 0, show: v => `${v} ×`},
                     {head: "ms per step", value: row => (row.count || 0) * row.seconds * 1e3, show: figure}] : []),
        {head: "µs", value: row => row.seconds * 1e6, show: figure},
        {head: "spread", value: row => row.spread, show: percent},
        {head: "GFLOP/s", value: row => row.gflops, show: figure},
        {head: "GB/s", value: row => row.gbytes, show: figure},
        {head: "flop/byte", value: intensity, show: figure},
        {head: "of attainable", value: row => row.share, show: percent, share: true},
        {head: "bound", value: row => row.bound, text: true},
        {head: "kernel", value: row => row.variant, text: true},
    ];

    const first = section(main);
    facts(first, [
        ["Copy rate", `${figure(peaks.copy_gbytes)} GB/s`, `${peaks.copy_bytes / 2 ** 20} MiB, read and written`],
        ...roofs.map(roof => [`Best product, ${roof.dtype}`, rate(roof.gflops)]),
        ["Launch", time(peaks.launch_seconds), `queued, ${time(peaks.alone_seconds)} synchronous`],
        ...(data.step ? [["The products of a step", time(data.step.seconds), `${data.step.operations} products, ${rate(data.step.gflops)}`]] : []),
    ]);
    element("p", {class: "note"}, first, "All peaks were measured on this device in the same run. The best product is the fastest measured matrix "
        + "product, which is below the theoretical peak of the arithmetic units. The attainable rate of an operation is the lower of the best product "
        + "and of the rate at which the copy rate delivers its operands. Above 100 %, the operands stayed in the caches.");
    const view = {section: section(main)}, legend = element("div", {class: "legend"}, view.section);
    for (const group of groups) {
        const item = element("span", {}, legend);
        element("i", {style: `background: ${colour({group})}`}, item);
        item.append(group);
    }
    makeTable(section(main), columns, rows, (row, index, line) => lines.set(index, line));
    drawn(() => render(view));
}
