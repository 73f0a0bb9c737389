/* SPDX-License-Identifier: Apache-2.0
 * Common code of all pages: the data, elements, figures, scales, tables. */

const data = JSON.parse(document.getElementById("data").textContent), main = document.querySelector("main");

function element(name, attributes = {}, parent = null, text = null) {
    const svg = ["svg", "g", "path", "line", "circle", "rect", "text", "tspan", "title", "clipPath"].includes(name);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    if (parent) parent.append(made);
    return made;
}

/* A card with an optional heading and an optional note. */
function section(parent, title = "", note = "", attributes = {}) {
    const made = element("section", attributes, parent);
    if (title) element("h2", {}, made, title);
    if (note) element("p", {class: "note"}, made, note);
    return made;
}

/* Names with their values in large figures: [name, value, note]. */
function facts(parent, rows) {
    const list = element("dl", {class: "peaks"}, parent);
    for (const [name, value, note] of rows) {
        const box = element("div", {}, list), text = element("dd", {}, box, value);
        box.prepend(element("dt", {}, null, name));
        if (note) element("small", {}, text, ` ${note}`);
    }
}

/* Draws now, and again whenever the width of the window changes. */
function drawn(draw) {
    let width = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
    draw();
}

/* Formats a number with four digits and separated thousands. */
const figure = value => value >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(4));
const rate = gflops => gflops >= 1e4 ? `${figure(gflops / 1000)} TFLOP/s` : `${figure(gflops)} GFLOP/s`;
const time = seconds => seconds >= 1 ? `${figure(seconds)} s` : seconds >= 1e-3 ? `${figure(1e3 * seconds)} ms` : `${figure(1e6 * seconds)} µs`;
const percent = share => `${(100 * share).toFixed(1)} %`;
const superscript = n => String(n).replace(/./g, d => d === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]);

/* ---- Scales ---- */

/* The position of a value between `from` and `to`. */
const scale = (low, high, log, from, to) => value => {
    const f = log ? Math.log : v => v, width = f(high) - f(low);
    return width > 0 ? from + (f(value) - f(low)) / width * (to - from) : (from + to) / 2;
};

/* Multiples of 1, 2 or 5 times a power of ten between two values, about `count` of them, and their distance. */
function linearTicks(low, high, count) {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw)), ticks = [];
    const step = power * [1, 2, 5, 10].find(m => m * power >= raw * 0.999);
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(+(i * step).toPrecision(12));
    return {ticks, step};
}

/* Powers of ten, with some of their multiples if there are few; at most `most`. */
function logTicks(low, high, most) {
    const decades = Math.log10(high / low), found = [];
    const factors = decades < 1 ? [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9] : decades < 3 ? [1, 2, 5] : [1];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high) + 1e-9; e++)
        for (const m of factors) {
            const tick = +(m * 10 ** e).toPrecision(2);
            if (tick >= low * 0.999 && tick <= high * 1.001) found.push(tick);
        }
    const every = Math.max(1, Math.ceil(found.length / most));
    return found.filter((tick, i) => i % every === 0);
}

/* ---- Tables ---- */

/* Columns are [head, value of a row, format (undefined for text), true if it has a bar relative to the largest value]. A
 * value may be an element. */
function plainTable(parent, columns, rows) {
    const table = element("table", {}, element("div", {class: "scroll"}, parent));
    const head = element("tr", {}, element("thead", {}, table)), body = element("tbody", {}, table);
    for (const [name, , show] of columns) element("th", {scope: "col", class: show ? "plain" : "plain text"}, head, name);
    for (const row of rows) {
        const line = element("tr", row.state ? {class: row.state.replace(" ", "-")} : {}, body);
        for (const [, value, show, bar] of columns) {
            const v = value(row), there = v !== undefined && v !== null && !Number.isNaN(v);
            const cell = element("td", {class: bar ? "share" : show ? "" : "text"}, line);
            cell.append(there ? (show ? show(v) : v) : show ? "–" : "");
            if (bar) cell.style.setProperty("--share", `${100 * (v || 0) / Math.max(...rows.map(r => value(r) || 0))}%`);
        }
    }
    return table;
}

/* A table that is sorted by a click on the head of a column: {head, value, show, text, share}. Calls `made` for each line
 * of the table whenever the lines are created. */
function makeTable(parent, columns, rows, made) {
    const table = element("table", {}, element("div", {class: "scroll"}, parent));
    const head = element("tr", {}, element("thead", {}, table)), body = element("tbody", {}, table);
    function fill(column, down) {
        const order = rows.map((row, index) => ({row, index}));
        if (column) order.sort((a, b) => {
            const [p, q] = [column.value(a.row), column.value(b.row)];
            if (p === undefined || q === undefined) return (p === undefined) - (q === undefined) || a.index - b.index;
            return (column.text ? p.localeCompare(q) : p - q) * (down ? -1 : 1) || a.index - b.index;
        });
        body.replaceChildren();
        for (const {row, index} of order) {
            const line = element("tr", {}, body);
            made(row, index, line);
            for (const c of columns) {
                const value = c.value(row), cell = element("td", c.text ? {class: "text"} : c.share ? {class: "share"} : {}, line,
                    value === undefined ? "–" : c.show ? c.show(value) : value);
                if (c.share && value !== undefined) cell.style.setProperty("--share", `${Math.min(100, 100 * value)}%`);
            }
        }
    }
    for (const column of columns) {
        const cell = element("th", column.text ? {scope: "col", class: "text"} : {scope: "col"}, head);
        element("button", {type: "button"}, cell, column.head).addEventListener("click", () => {
            const before = cell.getAttribute("aria-sort"), down = before ? before === "ascending" : !column.text;
            for (const other of head.children) other.removeAttribute("aria-sort");
            cell.setAttribute("aria-sort", down ? "descending" : "ascending");
            fill(column, down);
        });
    }
    fill(null, false);
}
