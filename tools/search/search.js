/* SPDX-License-Identifier: Apache-2.0
 * The results of a search: the best settings, parallel coordinates, history, importance, all trials. */

const {space, trials} = data, sign = data.greater ? -1 : 1;
const valued = trials.filter(t => t.value !== undefined), complete = trials.filter(t => t.state === "complete");
const glyph = 6.9, bold = 8.4; /* about the width of a character */
const short = value => value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(1).replace("e+", "e").replace(".0e", "e")
    : String(+value.toPrecision(3));
const exact = value => String(+value.toPrecision(6));
const setting = (d, value) => d.spread === "choice" ? d.values[value] : exact(value);
const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const strokes = new Map(), lines = new Map(); /* by trial number: its path, and its row in the table */

/* The share of the trials with a value that are better; 0 for the best. */
const order = [...valued].sort((a, b) => sign * (a.value - b.value));
const place = new Map(order.map((t, i) => [t.number, order.length > 1 ? i / (order.length - 1) : 0]));
function colour(trial) {
    if (!place.has(trial.number)) return "var(--bad)";
    const share = place.get(trial.number), half = share < 0.5;
    return `color-mix(in oklab, var(--${half ? "good" : "fair"}), var(--${half ? "fair" : "poor"}) ${(200 * (half ? share : share - 0.5)).toFixed(1)}%)`;
}

function mark(number, on) {
    for (const made of [strokes.get(number), lines.get(number)]) if (made) made.classList.toggle("near", on);
}

function tell(trial) {
    return [`trial ${trial.number}: ${trial.state}`, trial.value === undefined ? trial.message || "" : `${data.metric} ${exact(trial.value)}`,
        ...space.map((d, i) => `${d.name} ${setting(d, trial.point[i])}`)].filter(text => text).join("\n");
}

/* ---- Axes ---- */

const ticks = (low, high, log, most) => !(high > low) ? [low] : log ? logTicks(low, high, most) : linearTicks(low, high, most).ticks;

/* Breaks a name after underscores into lines of at most `most` characters. */
function broken(name, most) {
    const made = [""];
    for (const part of name.split(/(?<=_)/)) {
        if (made.at(-1) && (made.at(-1) + part).length > most) made.push("");
        made[made.length - 1] += part;
    }
    return made;
}

/* ---- Parallel coordinates ---- */

function objectiveAxis() {
    const values = valued.map(t => t.value).sort((a, b) => a - b);
    /* The axis is logarithmic if outliers would compress all other trials. */
    const log = values.length > 2 && values[0] > 0 && values.at(-1) - values[0] > 20 * (values[values.length >> 1] - values[0] || 1e-9);
    return {name: data.metric, low: values[0], high: values.at(-1), log, objective: true};
}

function renderCoordinates(card, svg) {
    const axes = [...space.map(d => ({...d, low: d.spread === "choice" ? 0 : d.low, high: d.spread === "choice" ? d.values.length - 1 : d.high})),
        ...(valued.length ? [objectiveAxis()] : [])];
    const marks = axes.map(a => a.spread === "choice" ? a.values.map((text, i) => ({at: i, text}))
        : ticks(a.low, a.high, a.log, 7).filter(v => !(a.step >= 1) || Number.isInteger(v)).map(v => ({at: v, text: short(v)})));
    const letters = marks.map(m => Math.max(...m.map(t => Math.min(t.text.length, 16))));
    const heads = axes.map(a => broken(a.name, 14)), rows = Math.max(...heads.map(h => h.length));
    const needs = axes.map((a, i) => Math.max(letters[i] * glyph + 30, Math.max(...heads[i].map(h => h.length)) * bold + 18, 84));
    const wanted = needs.reduce((sum, n) => sum + n, 0), width = Math.max(card.clientWidth - 28, wanted), spare = (width - wanted) / axes.length;
    const top = 16 * rows + 14, height = top + 300, bottom = height - 14;
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    let left = 0;
    axes.forEach((axis, i) => {
        axis.x = left + letters[i] * glyph + 12 + spare / 2; /* its labels are on the left */
        left += needs[i] + spare;
        axis.y = scale(axis.low, axis.high, axis.log, bottom, top);
    });
    for (const trial of [...trials].reverse()) {
        if (trial.state === "running") continue;
        const points = axes.filter(a => !a.objective || trial.value !== undefined)
            .map((a, i) => `${a.x.toFixed(1)} ${a.y(a.objective ? trial.value : trial.point[i]).toFixed(1)}`);
        const path = `M${points.join("L")}`, best = trial.number === data.best;
        strokes.set(trial.number, element("path", {d: path, class: `trial ${trial.state}${best ? " best" : ""}`,
            ...(trial.state === "failed" ? {} : {stroke: colour(trial)})}, svg));
        const hit = element("path", {d: path, class: "hit"}, svg);
        element("title", {}, hit, tell(trial));
        hit.addEventListener("pointerenter", () => mark(trial.number, true));
        hit.addEventListener("pointerleave", () => mark(trial.number, false));
    }
    if (strokes.has(data.best)) svg.append(strokes.get(data.best)); /* on top of all others */
    axes.forEach((axis, i) => {
        element("line", {x1: axis.x, x2: axis.x, y1: top, y2: bottom, class: "axis"}, svg);
        const name = element("text", {}, svg);
        const half = Math.max(...heads[i].map(h => h.length)) * bold / 2;
        const middle = Math.max(half, Math.min(width - half, axis.x - letters[i] * glyph / 2 + 8));
        heads[i].forEach((line, row) => element("tspan", {class: "name", "text-anchor": "middle", x: middle, y: 16 * (rows - heads[i].length + row) + 12}, name, line));
        let last = Infinity;
        for (const {at, text} of marks[i]) {
            const y = axis.y(at);
            element("line", {x1: axis.x - 4, x2: axis.x, y1: y, y2: y, class: "axis"}, svg);
            if (Math.abs(last - y) < 14) continue;
            last = y;
            element("text", {x: axis.x - 7, y: y + 4, "text-anchor": "end", class: "roof"}, svg, text.length > 16 ? `${text.slice(0, 15)}…` : text);
        }
    });
}

/* ---- History ---- */

function renderHistory(card, svg) {
    const width = Math.max(260, card.clientWidth - 28), height = 280, objective = objectiveAxis();
    const marks = ticks(objective.low, objective.high, objective.log, 5), letters = Math.max(...marks.map(v => short(v).length));
    const area = {left: letters * glyph + 16, right: width - 10, top: 14, bottom: height - 44}, last = trials.length - 1;
    const x = scale(0, Math.max(last, 1), false, area.left + 8, area.right - 8), y = scale(objective.low, objective.high, objective.log, area.bottom - 20, area.top);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    for (const v of marks) {
        element("line", {x1: area.left, x2: area.right, y1: y(v), y2: y(v), stroke: "var(--grid)"}, svg);
        element("text", {x: area.left - 7, y: y(v) + 4, "text-anchor": "end"}, svg, short(v));
    }
    for (const n of ticks(0, Math.max(last, 1), false, Math.min(10, area.right / 50)).filter(Number.isInteger))
        element("text", {x: x(n), y: area.bottom + 18, "text-anchor": "middle"}, svg, String(n));
    element("text", {x: (area.left + area.right) / 2, y: area.bottom + 36, "text-anchor": "middle"}, svg, "trial");
    element("line", {x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom, class: "axis"}, svg);
    let best = null, path = "";
    for (const t of complete) {
        if (best !== null && sign * (t.value - best) >= 0) continue;
        path += best === null ? `M${x(t.number)} ${y(t.value)}` : `H${x(t.number)}V${y(t.value)}`;
        best = t.value;
    }
    if (best !== null) element("path", {d: `${path}H${area.right}`, fill: "none", stroke: "var(--ink)", "stroke-width": 1.8}, svg);
    for (const t of trials) {
        if (t.state === "running") continue;
        const dot = t.value === undefined
            ? element("path", {d: `M${x(t.number) - 4} ${area.bottom - 11}l8 8m-8 0l8 -8`, stroke: "var(--bad)", "stroke-width": 1.8}, svg)
            : element("circle", {cx: x(t.number), cy: y(t.value), r: t.number === data.best ? 6.5 : 4.5, stroke: t.state === "stopped" ? colour(t) : "var(--card)",
                fill: t.state === "stopped" ? "var(--card)" : colour(t), "stroke-width": t.state === "stopped" ? 1.6 : 1}, svg);
        element("title", {}, dot, tell(t));
        dot.addEventListener("pointerenter", () => mark(t.number, true));
        dot.addEventListener("pointerleave", () => mark(t.number, false));
    }
}

/* ---- The page ---- */

const charts = [];

function addChart(parent, title, label, render) {
    const card = section(parent, title), box = element("div", {class: "scroll"}, card);
    charts.push(() => {
        const svg = element("svg", {role: "img", "aria-label": label});
        render(card, svg);
        box.replaceChildren(svg);
    });
    return card;
}

function addLegend(card) {
    const legend = element("div", {class: "legend"}, card), has = state => trials.some(t => t.state === state);
    const ramp = element("span", {}, legend);
    ramp.append("best", element("i", {class: "ramp"}), "worst");
    if (has("stopped")) element("span", {}, legend, "dashed: stopped early, with the value at that step");
    if (has("failed")) element("span", {}, legend, "dotted: failed");
}

function addHeader() {
    const header = element("header", {}, main), count = state => trials.filter(t => t.state === state).length;
    element("h1", {}, header, document.title);
    const states = ["complete", "stopped", "failed", "running"].filter(s => count(s)).map(s => `${count(s)} ${s}`);
    element("p", {}, header, `${counted(trials.length, "trial")} of ${data.wanted}: ${states.join(", ")} · method ${data.method}, seed ${data.seed}`
        + (data.halving ? ` · halving from step ${data.halving}, 1 of ${data.reduction_factor} trials continues` : ""));
}

function addBest() {
    const best = trials.find(t => t.number === data.best), card = section(main);
    if (!best) {
        element("p", {class: "note", style: "margin: 0"}, card, "No trial is complete yet.");
        return;
    }
    facts(card, [[`best ${data.metric}`, exact(best.value)], ["trial", String(best.number)],
        ...space.map((d, i) => [d.name, setting(d, best.point[i])])]);
    const code = element("code", {class: "line", style: "margin-top: 12px"}, card);
    for (const part of data.command.split(/ (?=--)/)) { /* lines break only before options */
        element("span", part.length < 40 ? {class: "whole"} : {}, code, part);
        code.append(" ");
    }
}

function addImportance(parent) {
    const card = section(parent, "Importance");
    makeTable(card, [{head: "option", value: d => d.name, text: true},
        {head: "explains", value: d => d.share, show: percent, share: true},
        {head: "correlation", value: d => d.correlation, show: v => v.toFixed(2).replace("-", "−")}],
    [...space].sort((a, b) => (b.share || 0) - (a.share || 0)), () => {});
    element("p", {class: "note"}, card, "The share of the variance of the trials' ranks (complete trials before stopped ones, then by value) that an option explains by itself. Its values are divided into bins of "
        + "about equal counts; a choice has one bin per value. The share is epsilon squared of a one-way analysis of variance over the bins, which subtracts the variance that "
        + "chance explains. Interactions of options are not included. The correlation is Spearman's, between the value and the rank of the objective; "
        + `${data.greater ? "the largest value has rank 1, so below 0 larger values are better" : "below 0 larger values are better"}.`
        + (data.method === "tpe" ? " TPE samples good regions more often, so treat both figures as hints." : ""));
}

function addTable() {
    const message = trials.some(t => t.message);
    makeTable(section(main, "Trials"), [{head: "trial", value: t => t.number}, {head: "state", value: t => t.state, text: true},
        {head: data.metric, value: t => t.value, show: exact},
        ...space.map((d, i) => d.spread === "choice" ? {head: d.name, value: t => d.values[t.point[i]], text: true} : {head: d.name, value: t => t.point[i], show: exact}),
        {head: "steps", value: t => t.steps || undefined, show: v => v.toLocaleString("en")}, {head: "seconds", value: t => t.seconds, show: v => v.toFixed(1)},
        ...(message ? [{head: "message", value: t => t.message || "", text: true}] : [])], trials, (trial, index, line) => {
        if (trial.state === "failed") line.classList.add("failed");
        lines.set(trial.number, line);
        line.addEventListener("pointerenter", () => mark(trial.number, true));
        line.addEventListener("pointerleave", () => mark(trial.number, false));
    });
}

document.title = `Search for the ${data.greater ? "largest" : "smallest"} ${data.metric}`;
addHeader();
addBest();
if (trials.some(t => t.state !== "running")) {
    addLegend(addChart(main, "Settings and objective", "Parallel coordinates: one axis per option, one line per trial", renderCoordinates));
    const halves = element("div", {class: "halves"}, main);
    if (valued.length) addChart(halves, "History", "The objective of each trial and the best so far", renderHistory);
    addImportance(halves);
    addTable();
}
element("footer", {}, main, `Made by txsearch ${data.version}.`);
drawn(() => charts.forEach(draw => draw()));
