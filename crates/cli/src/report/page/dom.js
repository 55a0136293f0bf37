// Elements. Text from the file becomes text nodes and properties, and never markup.
const byId = (id) => document.getElementById(id);

/** An element with attributes, and children that are elements or text. Attribute names are this script's own. */
function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function makeSvg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** A name, with the whole of it as a tooltip; of more than `room` characters, the middle is left out. */
function nameElement(text, tag = "span", room = Infinity) {
  return make(tag, { class: "name", title: text }, shortText(text, room));
}

/** Text without its middle: the start and, with more room, the end are what tells names apart. */
function shortText(text, room) {
  if (text.length <= room) return text;
  const characters = Array.from(text);
  if (characters.length <= room) return text;
  const head = Math.max(1, Math.floor((room - 1) * (room < 30 ? 0.25 : 0.36)));
  return `${characters.slice(0, head).join("")}…${characters.slice(characters.length - Math.max(1, room - 1 - head)).join("")}`;
}

let glyph = 0;
/** Characters of a name in a width in pixels. */
function charactersIn(width) {
  if (!glyph) {
    const paint = document.createElement("canvas").getContext("2d");
    paint.font = `12px ${getComputedStyle(document.body).getPropertyValue("--mono")}`;
    glyph = paint.measureText("0123456789").width / 10;
  }
  return Math.max(6, Math.floor(width / glyph));
}

/** A labelled list of choices; calls back with the chosen value. */
function choice(label, options, chosen, onChange) {
  const select = make("select", { "aria-label": label });
  for (const [value, text] of options) {
    select.append(make("option", { value, selected: value === chosen }, text));
  }
  select.addEventListener("change", () => onChange(select.value));
  return make("label", { class: "choice" }, make("span", null, label), select);
}

/** A table of cells; columns: [heading, "left" or "right"]. */
function plainTable(columns, rows, className) {
  const cell = (tag, content, i) => make(tag, { class: columns[i][1] }, content);
  return make(
    "div",
    { class: "scroll" },
    make(
      "table",
      { class: className },
      make("thead", null, make("tr", null, columns.map((c, i) => cell("th", c[0], i)))),
      make("tbody", null, rows.map((row) => make("tr", null, row.map((c, i) => cell("td", c, i))))),
    ),
  );
}

/** Calls back when the width of an element has changed, at most once per frame. */
function onResize(element, callback) {
  let width = element.clientWidth;
  let waiting = false;
  new ResizeObserver(() => {
    if (waiting || element.clientWidth === width) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      width = element.clientWidth;
      if (width > 0) callback();
    });
  }).observe(element);
}
