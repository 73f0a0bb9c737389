/* SPDX-License-Identifier: Apache-2.0
 * What pages share: elements, figures, tables. */

function element(name, attributes = {}, parent = null, text = null) {
    const svg = ["svg", "g", "path", "line", "circle", "rect", "text", "tspan", "title"].includes(name);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    if (parent) parent.append(made);
    return made;
}

/* Four figures, in thousands apart. */
const figure = value => value >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(4));
const rate = gflops => gflops >= 1e4 ? `${figure(gflops / 1000)} TFLOP/s` : `${figure(gflops)} GFLOP/s`;
const time = seconds => seconds >= 1 ? `${figure(seconds)} s` : seconds >= 1e-3 ? `${figure(1e3 * seconds)} ms` : `${figure(1e6 * seconds)} µs`;
const percent = share => `${(100 * share).toFixed(1)} %`;
const superscript = n => String(n).replace(/./g, d => d === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]);

/* A table whose rows are put in order by the heads of its columns: {head, value, show, text, share}. `made` is told of each row's line,
 * whenever the lines are made. */
function makeTable(section, columns, rows, made) {
    const table = element("table", {}, element("div", {class: "scroll"}, section));
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
