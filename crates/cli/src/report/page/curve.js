// The memory of the model over its context: weights, and what each engine adds to them.
const curve = { at: null };

function drawCurve() {
  const box = byId("curve");
  const { contexts, engines, memory_nbytes: line, weights_nbytes: weights } = data.memory;
  const drawn = engines.filter((e) => e.cache_nbytes.every((n) => n !== null));
  if (!drawn.length) {
    const why = [...new Set(engines.flatMap((e) => e.unknown))];
    box.replaceChildren(
      make("p", { class: "empty" }, "No curve: the memory of the cache is not known for this model."),
      make("ul", { class: "remarks" }, why.map((text) => make("li", null, text))),
    );
    return;
  }
  const base = weights || 0;
  // without a total, weights and cache are the sum of what is known
  const values = drawn.map((e) => e.cache_nbytes.map((cache, i) => e.total_nbytes[i] ?? base + cache));
  const width = Math.max(280, box.clientWidth);
  const narrow = width < 600;
  const height = narrow ? 260 : 320;
  const margin = { left: 74, right: narrow ? 14 : 128, top: 14, bottom: 36 };
  const most = Math.max(...values.flat(), line ? line * 1.06 : 0, 1);
  const { step, top } = binarySteps(most);
  const logs = contexts.map(Math.log2);
  const span = logs[logs.length - 1] - logs[0] || 1;
  const x = (context) => margin.left + ((Math.log2(context) - logs[0]) / span) * (width - margin.left - margin.right);
  const y = (nbytes) => height - margin.bottom - (nbytes / top) * (height - margin.top - margin.bottom);
  const [x0, x1] = [x(contexts[0]), x(contexts[contexts.length - 1])];

  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Memory over context" });
  for (let nbytes = 0; nbytes <= top * 1.001; nbytes += step) {
    svg.append(
      makeSvg("line", { class: "hair", x1: x0, x2: x1, y1: y(nbytes), y2: y(nbytes) }),
      makeSvg("text", { class: "tick", x: x0 - 8, y: y(nbytes) + 4, "text-anchor": "end" }, nbytes ? shortSize(nbytes) : "0"),
    );
  }
  const ticks = contextTicks(contexts, narrow ? 5 : 10).filter((context, i, all) => i + 1 === all.length || x1 - x(context) > 44);
  for (const context of ticks) {
    svg.append(
      makeSvg("line", { class: "hair", x1: x(context), x2: x(context), y1: y(0), y2: y(0) + 4 }),
      makeSvg("text", { class: "tick", x: x(context), y: y(0) + 17, "text-anchor": "middle" }, contextText(context)),
    );
  }
  svg.append(makeSvg("text", { class: "tick axis", x: x1, y: height - 3, "text-anchor": "end" }, "tokens per sequence"));
  if (base) {
    svg.append(makeSvg("rect", { class: "weights", x: x0, y: y(base), width: Math.max(1, x1 - x0), height: y(0) - y(base) }));
    const inside = y(0) - y(base) > 18;
    svg.append(makeSvg("text", { class: "tick", x: x0 + 6, y: inside ? y(base) + 14 : y(base) - 5 }, `weights ${sizeText(base)}`));
  }
  const labels = [];
  [...drawn.keys()].reverse().forEach((i) => {
    const engine = drawn[i];
    const points = contexts.map((context, p) => `${x(context).toFixed(1)},${y(values[i][p]).toFixed(1)}`);
    svg.append(makeSvg("polyline", { class: i === 0 ? "line first" : "line", stroke: engineColour(engine), points: points.join(" ") }));
    labels.push({ text: engine.engine, colour: engineColour(engine), y: y(values[i][values[i].length - 1]), first: i === 0 });
  });
  if (line) {
    svg.append(makeSvg("line", { class: "limit", x1: x0, x2: x1, y1: y(line), y2: y(line) }));
    svg.append(makeSvg("text", { class: "tick limit-label", x: x0 + 6, y: y(line) - 6 }, `memory ${sizeText(line)}`));
    drawn.forEach((engine) => {
      const largest = engine.memory?.largest_context;
      if (!largest || largest < contexts[0] || largest >= contexts[contexts.length - 1]) return;
      svg.append(makeSvg("circle", { class: "meets", cx: x(largest), cy: y(line), r: 4, fill: engineColour(engine) }));
    });
  }
  if (!narrow) {
    labels.sort((a, b) => a.y - b.y);
    labels.forEach((label, i) => { if (i) label.y = Math.max(label.y, labels[i - 1].y + 15); });
    const over = labels.length ? labels[labels.length - 1].y - (height - margin.bottom) : 0;
    for (const label of labels) {
      svg.append(makeSvg("text", { class: label.first ? "engine first" : "engine", x: x1 + 10, y: label.y - Math.max(0, over) + 4, fill: label.colour }, label.text));
    }
  }
  const cross = makeSvg("line", { class: "cross", y1: margin.top, y2: y(0), x1: 0, x2: 0, visibility: "hidden" });
  svg.append(cross);
  const readout = make("p", { class: "readout" });
  const pane = make("div", { class: "plot", tabindex: "0", role: "application", "aria-label": "Memory over context: left and right move" }, svg);

  const read = (at) => {
    curve.at = at;
    const point = at === null ? contexts.length - 1 : at;
    cross.setAttribute("visibility", at === null ? "hidden" : "visible");
    cross.setAttribute("x1", x(contexts[point]));
    cross.setAttribute("x2", x(contexts[point]));
    const parts = drawn.map((engine, i) => {
      const over = line && values[i][point] > line ? " (does not fit)" : "";
      return `${engine.engine} ${sizeText(values[i][point])}${over}`;
    });
    readout.textContent = `${data.memory.batch > 1 ? `${exactText(data.memory.batch)} × ` : ""}${exactText(contexts[point])} tokens · ${parts.join(" · ")}`;
  };
  pane.addEventListener("pointermove", (event) => {
    const px = ((event.clientX - svg.getBoundingClientRect().left) / svg.getBoundingClientRect().width) * width;
    let best = 0;
    contexts.forEach((context, i) => { if (Math.abs(x(context) - px) < Math.abs(x(contexts[best]) - px)) best = i; });
    read(best);
  });
  pane.addEventListener("pointerleave", () => read(null));
  pane.addEventListener("keydown", (event) => {
    const at = curve.at === null ? contexts.length - 1 : curve.at;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: contexts.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    read(Math.min(contexts.length - 1, Math.max(0, to)));
  });
  read(null);
  box.replaceChildren(pane, readout, engineTable(engines, contexts, line), ...remarks(engines));
}

/** The colours of the engines; those of the dtypes would be taken for them. */
const ENGINE_CLASS = { exact: "var(--e0)", transformers: "var(--e1)", "llama.cpp": "var(--e2)", vllm: "var(--e3)" };
const engineColour = (engine) => ENGINE_CLASS[engine.engine] || "var(--e0)";

/** Steps of an axis of bytes: a power of two, or a quarter of 10 of them. */
function binarySteps(most) {
  let step = 2 ** Math.floor(Math.log2(most / 4));
  if (most / step > 6) step *= 2;
  return { step, top: Math.ceil(most / step) * step };
}

const shortSize = (n) => sizeText(n).replace(".00 ", " ");

/** Powers of two among the contexts, not more than there is room for; and the last. */
function contextTicks(contexts, room) {
  const last = contexts[contexts.length - 1];
  const powers = contexts.filter((n) => Number.isInteger(Math.log2(n)) && n < last);
  const every = Math.ceil((powers.length + 1) / room);
  return [...powers.filter((_, i) => i % every === 0), last];
}

const BASIS = { exact: "exact", formula: "formula", bound: "at most", not_estimated: "not estimated" };

function engineTable(engines, contexts, line) {
  const wanted = [4096, 32768, contexts[contexts.length - 1]].map((n) => contexts.indexOf(n)).filter((i) => i >= 0);
  const chosen = [...new Set(wanted)];
  const columns = [["engine", "left"], ["cache", "left"], ["layers", "left wide"], ["basis", "left wide"]];
  chosen.forEach((i) => columns.push([contextText(contexts[i]), "right"]));
  if (line) columns.push(["largest context", "right"]);
  const rows = engines.map((engine) => {
    const swatch = make("span", { class: "swatch line" });
    swatch.style.background = engineColour(engine);
    const groups = engine.groups.map(([kind, window, n]) => `${n} ${kind}${window ? ` ${exactText(window)}` : ""}`);
    const cells = [
      make("span", { class: "key" }, swatch, engine.engine), engine.cache, groups.join(", ") || "–", BASIS[engine.basis] || engine.basis,
    ];
    chosen.forEach((i) => {
      const total = engine.total_nbytes[i] ?? engine.cache_nbytes[i];
      const fits = line && engine.total_nbytes[i] > line;
      cells.push(make("span", { class: fits ? "over" : null }, total === null ? "–" : sizeText(total)));
    });
    if (line) {
      const largest = engine.memory?.largest_context;
      const whole = largest && largest === data.memory.context_max;
      cells.push(largest ? `${exactText(largest)}${whole ? " (all)" : ""}` : "none");
    }
    return cells;
  });
  const what = engines.some((e) => e.total_nbytes.some((n) => n !== null)) ? "Weights, cache and what the engine is known to add" : "The cache alone";
  return make("div", null, make("p", { class: "caption" }, `${what}, by the rule of each engine, by context.`), plainTable(columns, rows, "engines"));
}

function remarks(engines) {
  const texts = [...new Set(engines.flatMap((e) => [...e.unknown, ...e.notes]))];
  return texts.length ? [make("ul", { class: "remarks" }, texts.map((text) => make("li", null, text)))] : [];
}

function startCurve() {
  onResize(byId("curve"), drawCurve);
  drawCurve();
}
