// The treemap of bytes: rectangles by module path, or by dtype first. One level is open at a time; what is inside of its
// tiles is drawn as far as there is room.
const HEADER = 17;
const MAX_TILES = 3500;
const MAX_PARTS = 400;
// width of a character of a label
const GLYPH = 6.7;

// What is open: a node of the names (-1: all), and a dtype whose bytes alone are counted (null: all).
const treemap = { by: "module", colour: "dtype", node: -1, dtype: null, matches: null };

const treemapSums = () => (treemap.dtype === null ? byteSums : sumsOfDtype(treemap.dtype));

/** The parts of a node: items {label, node | tensor | dtype, from, to, nbytes}, largest first. */
function partsOf(node, sums) {
  if (treemap.by === "dtype" && treemap.dtype === null) {
    return data.dtypes.map((row) => ({
      label: row[0], dtype: row[0], from: 0, to: tensorCount, nbytes: sumsOfDtype(row[0])[tensorCount],
    })).filter((item) => item.nbytes > 0).sort((a, b) => b.nbytes - a.nbytes);
  }
  const items = [];
  const [from, to] = rangeOf(node);
  for (let t = from; t < to && tensorNode[t] === node; t++) {
    const nbytes = sums[t + 1] - sums[t];
    items.push({ label: node < 0 ? "" : wordOf(node), tensor: t, from: t, to: t + 1, nbytes });
  }
  const end = node < 0 ? nodeCount : nodeEnd[node];
  for (let child = node + 1; child < end; child = nodeEnd[child]) {
    const [first, last] = rangeOf(child);
    const nbytes = sums[last] - sums[first];
    if (nbytes > 0 || last - first === 1) items.push(itemOf(child, first, last, nbytes, node));
  }
  return items.filter((item) => item.nbytes > 0).sort((a, b) => b.nbytes - a.nbytes);
}

/** A node as an item; chains of single children are one. */
function itemOf(child, from, to, nbytes, above) {
  let node = child;
  while (node + 1 < nodeEnd[node] && nodeEnd[node + 1] === nodeEnd[node] && tensorNode[from] !== node) node++;
  const item = { label: nodeName(node, above), node, from, to, nbytes };
  if (to - from === 1) item.tensor = from;
  return item;
}

/** Squarified rectangles (Bruls, Huizing, van Wijk) of items of falling size: calls back with item, x, y, width, height. */
function squarify(items, x, y, width, height, place) {
  let left = items.reduce((sum, item) => sum + item.nbytes, 0);
  for (let i = 0; i < items.length; ) {
    const area = width * height;
    if (!(area > 0) || !(left > 0)) return;
    const short = Math.min(width, height);
    const size = (item) => (item.nbytes / left) * area;
    let [sum, worst, end] = [0, Infinity, i];
    while (end < items.length) {
      const next = sum + size(items[end]);
      const side = next / short;
      const [big, small] = [size(items[i]) / side, size(items[end]) / side];
      const ratio = Math.max(big / side, side / small);
      if (ratio > worst) break;
      [sum, worst] = [next, ratio];
      end++;
    }
    const side = sum / short;
    let at = 0;
    let used = 0;
    for (; i < end; i++) {
      const length = size(items[i]) / side;
      if (width >= height) place(items[i], x, y + at, side, length);
      else place(items[i], x + at, y, length, side);
      at += length;
      used += items[i].nbytes;
    }
    left -= used;
    if (width >= height) [x, width] = [x + side, width - side];
    else [y, height] = [y + side, height - side];
  }
}

function tensorsOf(item, sums) {
  const found = [];
  for (let t = item.from; t < item.to; t++) if (sums[t + 1] > sums[t]) found.push(t);
  return found;
}

/** The colour of an item, and what it says of it. */
function treemapColour(item, sums, scale) {
  if (treemap.colour === "dtype") {
    const dtype = item.dtype || treemap.dtype || (item.tensor !== undefined ? dtypeOf(item.tensor) : dtypesIn(item.from, item.to)[0][0]);
    return dtypeColour(dtype);
  }
  const value = quantityOf(treemap.colour, tensorsOf(item, sums));
  return Number.isNaN(value) ? OTHER_HUE : scale.colour(value);
}

function drawTreemap() {
  const box = byId("treemap");
  const [width, height] = [box.clientWidth, box.clientHeight];
  const sums = treemapSums();
  let top = partsOf(treemap.node, sums);
  // what is all of it need not be opened
  while (top.length === 1 && top[0].tensor === undefined && top[0].dtype === undefined) top = partsOf(top[0].node, sums);
  let scale = null;
  if (treemap.colour !== "dtype") {
    const values = [];
    for (const item of top) {
      const inner = item.node === undefined || item.tensor !== undefined ? [item] : partsOf(item.node, sums).slice(0, 300);
      for (const part of inner) values.push(quantityOf(treemap.colour, tensorsOf(part, sums)));
    }
    scale = scaleOver(treemap.colour, values);
  }
  const tiles = [];
  let count = 0;

  /** Places items in an element of this size; returns the tiles. */
  function place(items, parent, width, height, level) {
    const placed = [];
    squarify(items.slice(0, MAX_PARTS), 0, 0, width, height, (item, x, y, w, h) => {
      if (w < 2.5 || h < 2.5) return;
      const tile = make(level === 0 ? "button" : "div", { class: level === 0 ? "tile top" : "tile" });
      if (level === 0) {
        tile.type = "button";
        tile.tabIndex = -1;
        tile.setAttribute("aria-label", describeItem(item));
        tiles.push(tile);
      }
      tile.style.left = `${(x / width) * 100}%`;
      tile.style.top = `${(y / height) * 100}%`;
      tile.style.width = `${(w / width) * 100}%`;
      tile.style.height = `${(h / height) * 100}%`;
      tile.item = item;
      if (treemap.matches && treemap.matches[item.to] === treemap.matches[item.from]) tile.classList.add("unmatched");
      parent.append(tile);
      placed.push({ tile, item, w, h });
    });
    count += placed.length;
    return placed;
  }

  function label({ tile, item, w, h }, open, level) {
    const text = item.label || "(unnamed)";
    const fits = h > 13 && w > 16 && (w > 74 || text.length * GLYPH + 8 <= w);
    if (!fits && !open) {
      if (w > 14 && w < 60 && h > text.length * GLYPH + 10) tile.append(make("span", { class: "label vertical" }, text));
      return;
    }
    const size = open ? w > text.length * GLYPH + 70 : level < 2 && h > 30 && w > 62;
    tile.append(make("span", { class: "label" }, text, size ? make("small", null, sizeText(item.nbytes)) : null));
  }

  /** Opens the tiles of a level, all that have room or none, and then those inside of them. */
  function openLevel(placed, level) {
    for (const one of placed) {
      const opens = level < 4 && one.item.tensor === undefined && one.item.dtype === undefined && one.w > 46 && one.h > HEADER + 22;
      const inside = opens ? partsOf(one.item.node, sums) : [];
      const room = ((one.w - 4) * (one.h - HEADER - 3)) / Math.min(inside.length, MAX_PARTS);
      one.inside = inside.length > 1 && room > 56 ? inside : null;
    }
    const more = placed.reduce((sum, one) => sum + Math.min(MAX_PARTS, one.inside ? one.inside.length : 0), 0);
    const next = [];
    for (const one of placed) {
      const open = one.inside && count + more <= MAX_TILES;
      if (open) {
        one.tile.classList.add("open");
        label(one, true, level);
        const body = make("span", { class: "body" });
        one.tile.append(body);
        next.push([one, body]);
      } else {
        const colour = treemapColour(one.item, sums, scale);
        one.tile.style.background = rgb(colour);
        one.tile.style.color = inkOn(colour);
        label(one, false, level);
      }
    }
    const below = next.flatMap(([one, body]) => place(one.inside, body, one.w - 4, one.h - HEADER - 3, level + 1));
    if (below.length) openLevel(below, level + 1);
  }

  const fragment = document.createDocumentFragment();
  if (top.length) openLevel(place(top, fragment, width, height, 0), 0);
  else fragment.append(make("p", { class: "empty" }, "No tensor here has bytes."));
  box.replaceChildren(fragment);
  if (tiles.length) tiles[0].tabIndex = 0;
  const legend = treemap.colour === "dtype"
    ? dtypeLegend(dtypesIn(...rangeOf(treemap.node)).slice(0, 9).map((row) => row[0]))
    : scaleLegend(treemap.colour, scale);
  byId("bytes-legend").replaceChildren(...legend);
  drawCrumbs();
  readTreemap(null);
}

/** What a tile says: name, bytes, share, bits per weight, dtypes. */
function describeItem(item) {
  const sums = treemapSums();
  const total = sumOver(sums, ...rangeOf(treemap.node));
  const name = item.tensor !== undefined ? tensorName(item.tensor) : item.dtype || nodeName(item.node);
  const parts = [name || "(unnamed)", sizeText(item.nbytes), `${percentText(item.nbytes / total)} of what is shown`];
  if (item.tensor !== undefined) {
    const kind = tensorKind[item.tensor];
    parts.push(`${kinds.dtype[kind]} ${kinds.shape[kind]}`);
  } else {
    parts.push(pluralText(item.dtype ? tensorsOf(item, sumsOfDtype(item.dtype)).length : item.to - item.from, "tensor"));
  }
  if (!item.dtype && treemap.dtype === null) {
    const bits = bitsOf(item.nbytes, sumOver(weightSums, item.from, item.to));
    if (!Number.isNaN(bits)) parts.push(`${bitsText(bits)} bits per weight`);
  }
  if (treemap.colour !== "dtype" && treemap.colour !== "bits" && treemap.colour !== "bytes") {
    parts.push(quantityText(treemap.colour, quantityOf(treemap.colour, tensorsOf(item, sums))));
  }
  return parts.join(" · ");
}

function readTreemap(item) {
  const [from, to] = rangeOf(treemap.node);
  const all = { node: treemap.node, dtype: treemap.dtype || undefined, from, to, nbytes: sumOver(treemapSums(), from, to) };
  if (item) return void (byId("bytes-readout").textContent = describeItem(item));
  const name = [treemap.dtype, treemap.node < 0 ? null : nodeName(treemap.node)].filter((x) => x !== null).join(": ") || "All tensors";
  const count = treemap.dtype === null ? to - from : tensorsOf(all, treemapSums()).length;
  byId("bytes-readout").textContent = `${name} · ${sizeText(all.nbytes)} · ${pluralText(count, "tensor")}`;
}

/** Opens a part: a dtype, a module, or a tensor's details. */
function openItem(item) {
  if (item.tensor !== undefined) return selectTensor(item.tensor, true);
  if (item.dtype !== undefined) treemap.dtype = item.dtype;
  else treemap.node = item.node;
  treemapMoved();
}

/** Shows another part, and lists its tensors. */
function treemapMoved() {
  const focused = byId("treemap").contains(document.activeElement);
  drawTreemap();
  setTableScope();
  if (focused) byId("treemap").querySelector(".top")?.focus();
}

/** Closes the innermost part that is open. */
function closeItem() {
  if (treemap.node >= 0) {
    let node = nodeParent[treemap.node];
    // chains of single children were opened as one
    while (node >= 0 && nodeEnd[node + 1] === nodeEnd[node] && nodeTensors[node] === nodeTensors[node + 1]) node = nodeParent[node];
    treemap.node = node;
  } else if (treemap.dtype !== null) treemap.dtype = null;
  else return false;
  treemapMoved();
  return true;
}

function drawCrumbs() {
  const crumbs = [];
  const add = (label, go) => crumbs.push([label, go]);
  add("All", () => { treemap.node = -1; treemap.dtype = null; });
  if (treemap.dtype !== null) add(treemap.dtype, () => { treemap.node = -1; });
  const path = [];
  for (let node = treemap.node; node >= 0; node = nodeParent[node]) path.push(node);
  for (const node of path.reverse()) add(wordOf(node) || "(unnamed)", () => { treemap.node = node; });
  byId("crumbs").replaceChildren(
    ...crumbs.map(([label, go], i) => {
      const last = i + 1 === crumbs.length;
      const crumb = make("button", { type: "button", class: "name", disabled: last, "aria-current": last ? "location" : null }, label);
      crumb.addEventListener("click", () => { go(); treemapMoved(); });
      return crumb;
    }),
  );
}

function startTreemap() {
  const box = byId("treemap");
  byId("bytes-options").append(
    choice("by", [["module", "module"], ["dtype", "dtype, module"]], "module", (value) => {
      Object.assign(treemap, { by: value, node: -1, dtype: null });
      treemapMoved();
    }),
    choice("colour", [["dtype", "dtype"], ...quantities.filter(([n]) => n !== "bytes").map(([n, q]) => [n, q.label])], "dtype", (value) => {
      treemap.colour = value;
      drawTreemap();
    }),
  );
  const itemAt = (event) => event.target.closest(".tile")?.item;
  box.addEventListener("click", (event) => {
    const tile = event.target.closest(".top");
    if (tile) openItem(tile.item);
  });
  box.addEventListener("pointermove", (event) => { const item = itemAt(event); if (item) readTreemap(item); });
  box.addEventListener("pointerleave", () => readTreemap(null));
  box.addEventListener("focusin", (event) => {
    const tile = event.target.closest(".top");
    if (!tile) return;
    box.querySelectorAll(".top").forEach((other) => (other.tabIndex = other === tile ? 0 : -1));
    readTreemap(tile.item);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Backspace" || event.key === "Escape") {
      if (closeItem()) event.preventDefault();
      return;
    }
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const tile = event.target.closest(".top");
    if (!step || !tile) return;
    event.preventDefault();
    nextTile(tile, step)?.focus();
  });
  onResize(box, drawTreemap);
  drawTreemap();
}

/** The nearest tile in a direction. */
function nextTile(tile, [dx, dy]) {
  const here = tile.getBoundingClientRect();
  const middle = (r) => [r.left + r.width / 2, r.top + r.height / 2];
  const [x, y] = middle(here);
  let [best, least] = [null, Infinity];
  for (const other of byId("treemap").querySelectorAll(".top")) {
    const r = other.getBoundingClientRect();
    const beyond = dx > 0 ? r.left - here.right : dx < 0 ? here.left - r.right : dy > 0 ? r.top - here.bottom : here.top - r.bottom;
    if (other === tile || beyond < -1) continue;
    const [ox, oy] = middle(r);
    const aside = dx ? Math.max(0, r.top - y, y - r.bottom) : Math.max(0, r.left - x, x - r.right);
    const distance = Math.max(0, beyond) + 4 * aside + 0.01 * (Math.abs(ox - x) + Math.abs(oy - y));
    if (distance < least) [best, least] = [other, distance];
  }
  return best;
}
