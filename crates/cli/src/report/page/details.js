// One tensor: where it is, what it is a part of, and how its values are distributed.
function drawDetails(t) {
  const box = byId("details");
  if (t < 0) {
    box.replaceChildren(make("p", { class: "empty" }, "Select a tensor: a row, or a tile without parts."));
    return;
  }
  const kind = tensorKind[t];
  const facts = [
    ["dtype", kinds.dtype[kind]],
    ["shape", kinds.shape[kind] || "scalar"],
    ["elements", exactText(kinds.elements[kind])],
    ["bytes", `${exactText(kinds.nbytes[kind])} (${sizeText(kinds.nbytes[kind])})`],
    ["share", percentText(kinds.nbytes[kind] / data.totals.nbytes || 0)],
  ];
  if (kinds.scheme[kind]) {
    facts.push(["scheme", kinds.scheme[kind]], ["role", kinds.role[kind]]);
    if (kinds.weights[kind]) facts.push(["weights", exactText(kinds.weights[kind])]);
  }
  const file = data.files[tensorFile[t]];
  if (file) facts.push(["file", nameElement(file[0])]);
  if (!Number.isNaN(tensorOffset[t])) facts.push(["offset", exactText(tensorOffset[t])]);
  if (kinds.notes[kind]) facts.push(["notes", kinds.notes[kind]]);
  const name = make("h3", { class: "name" }, tensorName(t) || "(unnamed)");
  const list = make("dl", null, facts.map(([term, value]) => [make("dt", null, term), make("dd", null, value)]).flat());
  box.replaceChildren(name, list, ...weightParts(t), ...distribution(t));
}

/** The other parts of a quantised weight: the tensors of the same module. */
function weightParts(t) {
  const above = nodeParent[tensorNode[t]];
  if (!kinds.scheme[tensorKind[t]] || above < 0) return [];
  const [from, to] = rangeOf(above);
  if (to - from < 2 || to - from > 12) return [];
  const items = [];
  let nbytes = 0;
  let weights = 0;
  for (let other = from; other < to; other++) {
    nbytes += bytesOf(other);
    weights += weightsOf(other);
    const button = make("button", { type: "button", class: "name", disabled: other === t },
      `${nodeName(tensorNode[other], above)} · ${kinds.role[tensorKind[other]] || "plain"} · ${sizeText(bytesOf(other))}`);
    button.addEventListener("click", () => selectTensor(other, false));
    items.push(make("li", null, button));
  }
  const bits = bitsOf(nbytes, weights);
  return [make("h4", null, `Parts: ${bitsText(bits)} bits per weight`), make("ul", { class: "parts" }, items)];
}

/** Statistics and percentiles, where there are any. */
function distribution(t) {
  if (!statistics) return [make("p", { class: "note" }, "No statistics of values: the page was made without --stats.")];
  if (tensorRow[t] < 0) return [make("p", { class: "note" }, "No statistics of this tensor's values.")];
  const of = (name) => statisticOf(name, t);
  const elements = of("elements");
  const rows = [
    ["smallest", numberText(of("min"))], ["largest", numberText(of("max"))], ["mean", numberText(of("mean"))],
    ["std", numberText(of("std"))], ["zeros", `${floatCountText(of("zeros"))} (${percentText(of("zeros") / elements)})`],
    ["NaN, infinities", floatCountText(of("nonfinite"))],
  ];
  const list = make("dl", null, rows.map(([term, value]) => [make("dt", null, term), make("dd", null, value)]).flat());
  return [make("h4", null, "Values"), ...percentilePlot(of), list];
}

/** Percentiles on an axis: 0.1 to 99.9 as a line, 1 to 99 as a box, the median, and the smallest and largest as dots. */
function percentilePlot(of) {
  const [low, p01, p1, p50, p99, p999, high] = ["min", "p0_1", "p1", "p50", "p99", "p99_9", "max"].map(of);
  if (![low, p01, p1, p50, p99, p999, high].every(Number.isFinite) || !(high > low)) return [];
  const draw = (from, to, caption) => {
    const [width, height] = [280, 44];
    const x = (value) => 6 + ((value - from) / (to - from)) * (width - 12);
    const tick = (value, anchor) => makeSvg("text", { class: "tick", x: x(value), y: 42, "text-anchor": anchor }, numberText(value, 3));
    const inside = (value) => value >= from && value <= to;
    const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": caption },
      makeSvg("line", { class: "hair", x1: 6, x2: width - 6, y1: 15, y2: 15 }),
      makeSvg("line", { class: "whisker", x1: x(p01), x2: x(p999), y1: 15, y2: 15 }),
      makeSvg("rect", { class: "boxed", x: x(p1), y: 7, width: Math.max(1, x(p99) - x(p1)), height: 16 }),
      makeSvg("line", { class: "median", x1: x(p50), x2: x(p50), y1: 4, y2: 26 }),
      [low, high].filter(inside).map((value) => makeSvg("circle", { class: "extreme", cx: x(value), cy: 15, r: 2.5 })),
      from < 0 && to > 0 ? makeSvg("line", { class: "zero", x1: x(0), x2: x(0), y1: 27, y2: 31 }) : null,
      tick(from, "start"), tick(to, "end"));
    return make("figure", { class: "percentiles" }, make("figcaption", null, caption), svg);
  };
  const plots = [draw(low, high, "All values")];
  if (p999 > p01 && high - low > 3 * (p999 - p01)) plots.push(draw(p01, p999, "0.1 % to 99.9 %"));
  return plots;
}
