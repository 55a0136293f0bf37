// The page as a whole: theme, search, keys, printing, and the order in which it is drawn.
const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  const root = document.documentElement;
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  byId("theme").textContent = { auto: "Auto", light: "Light", dark: "Dark" }[theme];
  byId("theme").setAttribute("aria-label", `Theme: ${theme}`);
  if (heatmap.stacks.length) paintCells();
}

function nextTheme() {
  const now = document.documentElement.dataset.theme || "auto";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
}

const KEYS = [
  ["/", "search"], ["t", "theme"], ["?", "keys"], ["arrows", "move among tiles, cells, points, rows"], ["Enter", "open"],
  ["Backspace", "close the module"], ["Esc", "leave the search"],
];

function toggleKeys() {
  const list = byId("keys");
  list.hidden = !list.hidden;
  byId("help").setAttribute("aria-expanded", String(!list.hidden));
}

/** Lists what the search finds, and marks where it is in the treemap. */
function searched() {
  updateTable();
  const query = byId("search").value.trim();
  treemap.matches = query ? prefixSums(((test) => (t) => (test(t) ? 1 : 0))(matcher(query))) : null;
  drawTreemap();
  drawMetadata();
}

function startKeys() {
  const search = byId("search");
  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(searched, tensorCount > 20000 ? 150 : 40);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (search.value) {
        search.value = "";
        searched();
      } else search.blur();
    }
    if (event.key === "Enter" || event.key === "ArrowDown") {
      event.preventDefault();
      byId("tensors").scrollIntoView({ block: "start" });
      byId("table").querySelector(".rows").focus({ preventScroll: true });
    }
  });
  byId("theme").addEventListener("click", nextTheme);
  byId("help").addEventListener("click", toggleKeys);
  byId("keys").append(...KEYS.map(([key, what]) => make("div", null, make("dt", null, make("kbd", null, key)), make("dd", null, what))));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "/") {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "t") nextTheme();
    else if (event.key === "?") toggleKeys();
  });
}

// Paper is light and shows the first rows of the table, as it does not scroll.
const PRINTED_ROWS = 200;

function startPrinting() {
  window.addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    if (heatmap.stacks.length) paintCells();
    drawRows(PRINTED_ROWS);
    if (table.rows.length > PRINTED_ROWS) byId("tensors-count").append(make("span", { class: "printed" }, ` · the first ${PRINTED_ROWS}`));
  });
  window.addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    if (heatmap.stacks.length) paintCells();
    updateTable();
  });
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => { if (heatmap.stacks.length) paintCells(); });
}

/** Draws parts one after the other, so that the first are on the screen while the others are computed. */
function drawInTurn(parts) {
  const [part, ...rest] = parts;
  if (!part) {
    document.documentElement.dataset.drawn = "yes";
    return;
  }
  part();
  setTimeout(() => drawInTurn(rest), 0);
}

setTheme("auto");
startKeys();
drawOverview();
requestAnimationFrame(() =>
  drawInTurn([startTreemap, startHeatmap, startCurve, drawFindings, startTable, () => drawDetails(-1), drawMetadata, drawFiles, startPrinting]),
);
