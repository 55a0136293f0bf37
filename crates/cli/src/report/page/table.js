// The table of tensors. Rows are made for what is in view, so that a hundred thousand cost as much as thirty.
const LINE = 24;
const COLUMNS = [
  { key: "name", label: "name", left: true, value: null },
  { key: "dtype", label: "dtype", left: true, value: dtypeOf },
  { key: "shape", label: "shape", wide: true, value: (t) => kinds.elements[tensorKind[t]] },
  { key: "bytes", label: "bytes", value: bytesOf },
  { key: "bits", label: "bits/weight", wide: true, value: (t) => bitsOf(bytesOf(t), weightsOf(t)) },
];
if (statistics) {
  COLUMNS.push({ key: "std", label: "std", wide: true, value: (t) => statisticOf("std", t) });
  COLUMNS.push({ key: "absmax", label: "largest |x|", wide: true, value: (t) => quantityOf("absmax", [t]) });
}

// `scope`: the tensors that are searched, and what they are called; `rows`: those that are listed, in order.
const table = { scope: null, label: "", rows: [], sort: "file", down: false, selected: -1, lower: null };

function allTensors(from = 0, to = tensorCount) {
  return Int32Array.from({ length: to - from }, (_, i) => from + i);
}

/** Lists what is open in the treemap. */
function setTableScope() {
  const [from, to] = rangeOf(treemap.node);
  let tensors = allTensors(from, to);
  if (treemap.dtype !== null) tensors = tensors.filter((t) => dtypeOf(t) === treemap.dtype);
  const parts = [treemap.node < 0 ? "" : nodeName(treemap.node), treemap.dtype].filter((x) => x);
  listTensors(tensors, parts.join(", "), false);
}

/** Lists some tensors; `show` scrolls to the table. */
function listTensors(tensors, label, show = true) {
  Object.assign(table, { scope: Int32Array.from(tensors), label });
  updateTable();
  if (show) byId("tensors").scrollIntoView({ block: "start" });
}

/** A test of names for a query: all of its words, with `*` for any text; `dtype:` and `shape:` for the columns. */
function matcher(query) {
  const tests = query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [, field, text] = /^(?:(dtype|shape):)?(.*)$/.exec(word);
    const of = field
      ? (t) => kinds[field][tensorKind[t]].toLowerCase().replaceAll(" ", "")
      : (t) => table.lower[t];
    if (!text.includes("*")) return (t) => of(t).includes(text);
    const pieces = text.split("*");
    // pieces in order, without a regular expression of the query's making
    return (t) => {
      const name = of(t);
      let at = 0;
      for (const piece of pieces) {
        const found = name.indexOf(piece, at);
        if (found < 0) return false;
        at = found + piece.length;
      }
      return true;
    };
  });
  return (t) => tests.every((test) => test(t));
}

function updateTable() {
  const query = byId("search").value.trim();
  let rows = table.scope;
  if (query) {
    if (!table.lower) table.lower = Array.from({ length: tensorCount }, (_, t) => tensorName(t).toLowerCase());
    rows = rows.filter(matcher(query));
  }
  const column = COLUMNS.find((c) => c.key === table.sort);
  if (column && column.value) {
    const value = column.value;
    const values = new Map();
    for (const t of rows) values.set(t, value(t));
    const order = (a, b) => (a === b ? 0 : Number.isNaN(a) ? 1 : Number.isNaN(b) ? -1 : a < b ? -1 : 1);
    rows = Array.from(rows).sort((a, b) => order(values.get(a), values.get(b)) || a - b);
    if (table.down) rows.reverse();
  } else if (column && table.down) rows = Array.from(rows).reverse();
  table.rows = rows;
  const nbytes = rows.reduce((sum, t) => sum + bytesOf(t), 0);
  const of = table.label ? ` in ${table.label}` : "";
  byId("tensors-count").replaceChildren(`${pluralText(rows.length, "tensor")}${query ? " found" : ""}${of} · ${sizeText(nbytes)}`);
  if (table.label || query) {
    const all = make("button", { type: "button" }, "show all");
    all.addEventListener("click", () => {
      byId("search").value = "";
      Object.assign(treemap, { node: -1, dtype: null });
      searched();
      treemapMoved();
    });
    byId("tensors-count").append(" ", all);
  }
  drawHead();
  byId("table").querySelector(".rows").scrollTop = 0;
  drawRows();
}

function drawHead() {
  const cells = COLUMNS.map((column) => {
    const sorted = table.sort === column.key;
    const mark = sorted ? (table.down ? " ↓" : " ↑") : "";
    const button = make("button", { type: "button" }, column.label + mark);
    button.addEventListener("click", () => {
      // sizes: the largest first
      table.down = sorted ? !table.down : !column.left;
      table.sort = column.key;
      updateTable();
      byId("table").querySelectorAll(".headings button")[COLUMNS.indexOf(column)].focus();
    });
    return make("div", { role: "columnheader", class: cellClass(column), "aria-sort": sorted ? (table.down ? "descending" : "ascending") : "none" }, button);
  });
  byId("table").querySelector(".headings").replaceChildren(...cells);
}

const cellClass = (column) => [column.left ? "left" : column.key === "shape" ? "left" : "right", column.wide && "wide", `c-${column.key}`].filter(Boolean).join(" ");

function cellText(column, t) {
  const kind = tensorKind[t];
  switch (column.key) {
    case "name": return tensorName(t) || "(unnamed)";
    case "dtype": return kinds.dtype[kind];
    case "shape": return kinds.shape[kind] || "scalar";
    case "bytes": return sizeText(kinds.nbytes[kind]);
    case "bits": return bitsText(column.value(t));
    default: return numberText(column.value(t), 4);
  }
}

function drawRows(printed = 0) {
  const view = byId("table").querySelector(".rows");
  const first = printed ? 0 : Math.max(0, Math.floor(view.scrollTop / LINE) - 6);
  const last = printed ? Math.min(printed, table.rows.length) : Math.min(table.rows.length, first + Math.ceil(view.clientHeight / LINE) + 12);
  const body = make("div", { class: "body", role: "presentation" });
  const room = charactersIn(byId("table").querySelector(".headings > .c-name")?.clientWidth || 300);
  body.style.height = `${(printed ? last : table.rows.length) * LINE}px`;
  for (let i = first; i < last; i++) {
    const t = table.rows[i];
    const row = make("div", { class: "row", role: "row", id: `row-${t}`, "aria-rowindex": i + 2, "aria-selected": t === table.selected ? "true" : "false" });
    row.style.top = `${i * LINE}px`;
    row.tensor = t;
    for (const column of COLUMNS) {
      const text = cellText(column, t);
      const cell = make("div", { role: "gridcell", class: cellClass(column) });
      if (column.key === "name") cell.append(nameElement(text, "span", room));
      else cell.textContent = text;
      row.append(cell);
    }
    body.append(row);
  }
  if (!table.rows.length) body.append(make("p", { class: "empty" }, "No tensor matches."));
  view.replaceChildren(body);
  view.setAttribute("aria-activedescendant", table.selected >= 0 ? `row-${table.selected}` : "");
  byId("table").firstChild.setAttribute("aria-rowcount", table.rows.length + 1);
}

/** Selects a tensor and shows its details; `find` scrolls the table to it. */
function selectTensor(t, find) {
  table.selected = t;
  const view = byId("table").querySelector(".rows");
  const at = table.rows.indexOf(t);
  if (at >= 0 && (find || at * LINE < view.scrollTop || (at + 1) * LINE > view.scrollTop + view.clientHeight)) {
    const above = find ? view.clientHeight / 2 : at * LINE < view.scrollTop ? 0 : view.clientHeight - LINE;
    view.scrollTop = at * LINE - above;
  }
  drawRows();
  drawDetails(t);
  if (find) byId("tensors").scrollIntoView({ block: "start" });
}

function startTable() {
  const rows = make("div", { class: "rows", tabindex: "0", role: "rowgroup", "aria-label": "Tensors: up and down select" });
  byId("table").append(make("div", { class: "sheet", role: "grid", "aria-label": "Tensors", "aria-colcount": COLUMNS.length },
    make("div", { class: "headings", role: "row" }), rows));
  if (statistics) byId("table").classList.add("with-statistics");
  let waiting = false;
  rows.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; drawRows(); });
  });
  rows.addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row) selectTensor(row.tensor, false);
  });
  rows.addEventListener("keydown", (event) => {
    const at = table.rows.indexOf(table.selected);
    const page = Math.max(1, Math.floor(rows.clientHeight / LINE) - 1);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: table.rows.length - 1 }[event.key];
    if (to === undefined || !table.rows.length) return;
    event.preventDefault();
    selectTensor(table.rows[Math.min(table.rows.length - 1, Math.max(0, to))], false);
  });
  onResize(byId("table"), () => drawRows());
  setTableScope();
}
