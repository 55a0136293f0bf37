// Layers against kinds of tensors. A layer is the first number in a name; what is behind it, with other numbers as `*`, is the
// kind. The parts of a quantised weight are one kind, so that its bits are those of codes and scales together.
const ROW = 18;
const MAX_LAYERS = 2048;
const MAX_KINDS = 80;

const heatmap = { stacks: [], stack: 0, quantity: "bits", cell: null, values: null };

/** The stacks of layers in the names: {name, layers, kinds, cells}, the one with the most bytes first. */
function findStacks() {
  const layerOf = new Int32Array(nodeCount).fill(-1);
  const stackOf = new Array(nodeCount).fill("");
  const kindOf = new Array(nodeCount).fill("");
  const stacks = new Map();
  for (let node = 0; node < nodeCount; node++) {
    const above = nodeParent[node];
    const word = wordOf(node);
    const inLayer = above >= 0 && layerOf[above] >= 0;
    const number = /^(?:[A-Za-z_]*_)?(\d{1,6})$/.exec(word);
    if (inLayer) {
      layerOf[node] = layerOf[above];
      stackOf[node] = stackOf[above];
      const part = /^\d+$/.test(word) ? "*" : word;
      kindOf[node] = kindOf[above] ? `${kindOf[above]}.${part}` : part;
    } else if (number && above >= 0) {
      layerOf[node] = Number(number[1]);
      stackOf[node] = stackOf[above];
    } else {
      stackOf[node] = above >= 0 && stackOf[above] ? `${stackOf[above]}.${word}` : word;
    }
  }
  for (let t = 0; t < tensorCount; t++) {
    const node = tensorNode[t];
    if (layerOf[node] < 0) continue;
    const name = stackOf[node];
    if (!stacks.has(name)) stacks.set(name, { name, nbytes: 0, layers: new Set(), kinds: new Map() });
    const stack = stacks.get(name);
    stack.layers.add(layerOf[node]);
    stack.nbytes += bytesOf(t);
    const isPart = kinds.scheme[tensorKind[t]] !== "";
    const kind = (isPart && nodeParent[node] >= 0 && kindOf[nodeParent[node]]) || kindOf[node].replace(/\.weight$/, "") || "(itself)";
    if (!stack.kinds.has(kind)) stack.kinds.set(kind, { nbytes: 0, cells: new Map() });
    const row = stack.kinds.get(kind);
    row.nbytes += bytesOf(t);
    if (!row.cells.has(layerOf[node])) row.cells.set(layerOf[node], []);
    row.cells.get(layerOf[node]).push(t);
  }
  return [...stacks.values()]
    .filter((stack) => stack.layers.size > 1)
    .sort((a, b) => b.nbytes - a.nbytes)
    .slice(0, 40)
    .map((stack) => {
      const layers = [...stack.layers].sort((a, b) => a - b);
      const rows = [...stack.kinds].sort((a, b) => b[1].nbytes - a[1].nbytes);
      const kept = rows.slice(0, MAX_KINDS).map(([kind, row]) => ({ kind, cells: row.cells }));
      return { name: stack.name, layers: layers.slice(0, MAX_LAYERS), kinds: kept, hidden: rows.length - kept.length };
    });
}

function drawHeatmap() {
  const stack = heatmap.stacks[heatmap.stack];
  const box = byId("heatmap");
  const values = stack.kinds.map((row) => stack.layers.map((layer) => {
    const tensors = row.cells.get(layer);
    return tensors ? quantityOf(heatmap.quantity, tensors) : undefined;
  }));
  const scale = scaleOver(heatmap.quantity, values.flat());
  Object.assign(heatmap, { values, scale });
  // a little smaller than other names
  const room = charactersIn((Math.min(340, box.clientWidth * 0.42) - 12) * 1.04);
  const labels = stack.kinds.map((row) => nameElement(row.kind, "div", room));
  const canvas = make("canvas", { "aria-hidden": "true" });
  const pane = make("div", {
    class: "pane", tabindex: "0", role: "application",
    "aria-label": `${pluralText(stack.layers.length, "layer")} by ${pluralText(stack.kinds.length, "kind")}: arrows move, Enter lists the tensors`,
  }, canvas);
  const more = stack.hidden ? make("p", { class: "note" }, `${pluralText(stack.hidden, "smaller kind")} not shown.`) : null;
  box.replaceChildren(make("div", { class: "grid" }, make("div", { class: "labels" }, make("div", { class: "corner" }, "layer"), labels), pane), ...(more ? [more] : []));
  byId("layers-legend").replaceChildren(...scaleLegend(heatmap.quantity, scale));
  pane.addEventListener("pointermove", (event) => readCell(cellAt(event, pane)));
  pane.addEventListener("pointerleave", () => readCell(null));
  pane.addEventListener("click", (event) => openCell(cellAt(event, pane)));
  pane.addEventListener("focus", () => moveCell(heatmap.cell || [0, 0]));
  pane.addEventListener("blur", () => paintCells());
  pane.addEventListener("keydown", (event) => {
    const [row, column] = heatmap.cell || [0, 0];
    const to = {
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      Home: [row, 0], End: [row, stack.layers.length - 1], Enter: [row, column],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    if (event.key === "Enter") openCell(to);
    else moveCell(to);
  });
  heatmap.cell = null;
  paintCells();
  readCell(null);
}

/** Paints the cells: at most as wide as there is room, at least so wide that they can be told apart. */
function paintCells() {
  const stack = heatmap.stacks[heatmap.stack];
  const pane = byId("heatmap").querySelector(".pane");
  if (!pane) return;
  const canvas = pane.firstChild;
  const columns = stack.layers.length;
  const cell = Math.max(7, Math.min(30, Math.floor(pane.clientWidth / columns)));
  const [width, height] = [cell * columns, ROW * (stack.kinds.length + 1)];
  const ratio = Math.max(2, window.devicePixelRatio || 1);
  canvas.width = Math.min(32000, width * ratio);
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  heatmap.width = cell;
  const paint = canvas.getContext("2d");
  paint.scale(canvas.width / width, ratio);
  const style = getComputedStyle(document.body);
  const [ink, faint] = [style.getPropertyValue("--muted"), style.getPropertyValue("--hair")];
  paint.font = `10.5px ${style.getPropertyValue("--mono")}`;
  paint.textAlign = "center";
  paint.textBaseline = "middle";
  const every = [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 256, 512].find((n) => n * cell >= 26) || 1024;
  stack.layers.forEach((layer, column) => {
    if (layer % every === 0) {
      paint.fillStyle = ink;
      paint.fillText(String(layer), Math.max(4 + 3 * String(layer).length, column * cell + cell / 2), ROW / 2);
    }
  });
  const gap = cell > 9 ? 1 : 0.5;
  heatmap.values.forEach((row, i) => {
    row.forEach((value, column) => {
      const [x, y] = [column * cell, ROW * (i + 1)];
      if (value === undefined || Number.isNaN(value)) {
        paint.fillStyle = faint;
        if (value === undefined) paint.fillRect(x + cell / 2 - 1, y + ROW / 2 - 1, 2, 2);
        else paint.fillRect(x, y, cell - gap, ROW - gap);
        return;
      }
      paint.fillStyle = rgb(heatmap.scale.colour(value));
      paint.fillRect(x, y, cell - gap, ROW - gap);
    });
  });
  if (heatmap.cell && document.activeElement === pane) {
    const [row, column] = heatmap.cell;
    paint.strokeStyle = style.getPropertyValue("--focus");
    paint.lineWidth = 2;
    paint.strokeRect(column * cell, ROW * (row + 1), cell - gap, ROW - gap);
  }
}

function cellAt(event, pane) {
  const rect = pane.firstChild.getBoundingClientRect();
  const row = Math.floor((event.clientY - rect.top) / ROW) - 1;
  const column = Math.floor((event.clientX - rect.left) / heatmap.width);
  const { layers, kinds: rows } = heatmap.stacks[heatmap.stack];
  return row >= 0 && column >= 0 && row < rows.length && column < layers.length ? [row, column] : null;
}

function moveCell([row, column]) {
  const { layers, kinds: rows } = heatmap.stacks[heatmap.stack];
  const within = (n, length) => Math.min(length - 1, Math.max(0, n));
  heatmap.cell = [within(row, rows.length), within(column, layers.length)];
  paintCells();
  readCell(heatmap.cell);
  const pane = byId("heatmap").querySelector(".pane");
  const x = heatmap.cell[1] * heatmap.width;
  if (x < pane.scrollLeft || x + heatmap.width > pane.scrollLeft + pane.clientWidth) pane.scrollLeft = x - pane.clientWidth / 2;
}

function cellName([row, column]) {
  const stack = heatmap.stacks[heatmap.stack];
  return `${stack.name}.${stack.layers[column]}.${stack.kinds[row].kind}`;
}

function readCell(cell) {
  const stack = heatmap.stacks[heatmap.stack];
  const out = byId("layers-readout");
  if (!cell) {
    out.textContent = `${stack.name} · ${pluralText(stack.layers.length, "layer")}, ${pluralText(stack.kinds.length, "kind")} of tensors`;
    return;
  }
  const [row, column] = cell;
  const tensors = stack.kinds[row].cells.get(stack.layers[column]);
  if (!tensors) return void (out.textContent = `${cellName(cell)} · none`);
  const nbytes = tensors.reduce((sum, t) => sum + bytesOf(t), 0);
  const weights = tensors.reduce((sum, t) => sum + weightsOf(t), 0);
  const names = [...new Set(tensors.map(dtypeOf))].join(", ");
  const parts = [cellName(cell), `${names}`, pluralText(tensors.length, "tensor"), sizeText(nbytes), `${bitsText(bitsOf(nbytes, weights))} bits per weight`];
  if (QUANTITIES[heatmap.quantity].statistic) parts.push(quantityText(heatmap.quantity, heatmap.values[row][column]));
  out.textContent = parts.join(" · ");
}

/** Lists the tensors of a cell. */
function openCell(cell) {
  if (!cell) return;
  const [row, column] = cell;
  const stack = heatmap.stacks[heatmap.stack];
  const tensors = stack.kinds[row].cells.get(stack.layers[column]);
  if (tensors) listTensors(tensors, cellName(cell));
}

function startHeatmap() {
  heatmap.stacks = findStacks();
  if (!heatmap.stacks.length) {
    byId("heatmap").replaceChildren(make("p", { class: "empty" }, "No names with numbers of layers."));
    return;
  }
  const options = byId("layers-options");
  if (heatmap.stacks.length > 1) {
    options.append(choice("stack", heatmap.stacks.map((s, i) => [String(i), s.name.slice(0, 60) || "(root)"]), "0", (value) => {
      heatmap.stack = Number(value);
      drawHeatmap();
    }));
  }
  options.append(choice("colour", quantities.map(([name, q]) => [name, q.label]), "bits", (value) => {
    heatmap.quantity = value;
    drawHeatmap();
  }));
  onResize(byId("heatmap"), drawHeatmap);
  drawHeatmap();
}
