// How figures read, and how they get into the page: as text, never as markup.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const number = (n) => (n < 1e6 ? whole.format(n) : short.format(n));
export const rate = (n) => (n === 0 ? "0" : n < 10 ? n.toFixed(n < 0.1 ? 2 : 1) : number(n));
export const percent = (part, all) => (all === 0 ? "–" : `${((100 * part) / all).toFixed(part > 0 && part < all / 100 ? 2 : 1)} %`);
export const ms = (n) => (n === null || n === undefined ? "–" : `${n < 10 ? n.toFixed(n < 1 ? 2 : 1) : whole.format(n)} ms`);

// signed is a duration with its sign, which one that rounds to nothing does not have.
export function signed(n) {
  const size = ms(Math.abs(n));
  if (!/[1-9]/.test(size)) return size;
  return `${n < 0 ? "−" : "+"}${size}`;
}

// tick is a figure of an axis, as short as it can be.
export const tick = (n) => (n < 1e4 ? String(Number(n.toPrecision(3))) : short.format(n));

const two = (n) => String(n).padStart(2, "0");
export const hoursMinutes = (t) => `${two(t.getHours())}:${two(t.getMinutes())}`;
export const clockTime = (t) => `${hoursMinutes(t)}:${two(t.getSeconds())}`;

// span tells a time to come or gone, in its largest unit.
export function span(milliseconds) {
  for (const [unit, size] of [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000]]) {
    if (milliseconds >= size) return `${Math.floor(milliseconds / size)} ${unit}`;
  }
  return `${Math.max(0, Math.round(milliseconds / 1000))} s`;
}

// lasting tells how long an override lasts from now on.
export const lasting = (milliseconds) => milliseconds === null ? "without end" : `for ${span(milliseconds)}`;

// shortKey is as much of a hashed key as the audit log has. It may be broken in the middle.
export const shortKey = (key) => make("code", "", key.slice(0, 8), make("wbr"), key.slice(8, 16));

// make returns an element with a class and children: elements and texts.
export function make(name, className, ...children) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

// headed returns the header of a table with these columns. Those whose name begins with "=" hold text.
export const headed = (...columns) => make("thead", "", make("tr", "", ...columns.map((name) => {
  const head = make("th", name.startsWith("=") ? "text" : "", name.replace("=", ""));
  head.scope = "col";
  return head;
})));

// roles are those of the parts of a table. Some browsers forget them where a phone's layout makes lines of the cells.
const roles = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TH: "columnheader", TD: "cell" };

// fill puts rows into a table's body: each a list of cells, which are texts, elements or [class, text]. Each cell knows its
// column's name, for where there is no room for the header.
export function fill(body, rows, empty) {
  const table = body.closest("table");
  const columns = table.tHead.rows[0].cells;
  if (rows.length === 0) {
    const cell = make("td", "empty", empty);
    cell.colSpan = columns.length;
    body.replaceChildren(make("tr", "", cell));
  } else {
    body.replaceChildren(...rows.map((row) => make("tr", "", ...row.map((content, i) => {
      const [extra, what] = Array.isArray(content) ? content : ["", content];
      const cell = make("td", [columns[i].className, extra].filter(Boolean).join(" "));
      cell.dataset.column = columns[i].textContent;
      cell.append(what);
      return cell;
    }))));
  }
  for (const part of [table, ...table.querySelectorAll("thead, tbody, tr, th, td")]) part.role = roles[part.tagName];
}

// count is a cell of a number, quiet where there is none.
export const count = (n) => [n === 0 ? "zero" : "", number(n)];
