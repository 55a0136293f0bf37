// Findings, metadata and files.
const LEVELS = { error: "error", warning: "warning", note: "note" };

function drawFindings() {
  const rows = data.findings;
  const more = data.omitted[2];
  const box = byId("findings-list");
  if (!rows.length) {
    box.replaceChildren(make("p", { class: "empty" }, data.checked ? "None: every byte was checked." : "None in the headers. The bytes were not checked."));
    return;
  }
  const items = rows.map((row) => {
    const places = [];
    if (row.row !== null) places.push(tensorButton(row.tensor, row.row));
    else if (row.tensor !== null) places.push(nameElement(row.tensor, "code"));
    if (row.file !== null) places.push(nameElement(row.file, "code"));
    return make("li", null,
      make("span", { class: `level ${LEVELS[row.level] || "note"}` }, row.level),
      make("div", null, make("p", null, row.message), places.length ? make("p", { class: "places" }, places) : null,
        row.remedy ? make("p", { class: "remedy" }, row.remedy) : null),
      row.rule ? make("code", { class: "rule" }, row.rule) : null);
  });
  box.replaceChildren(make("ul", { class: "findings" }, items), ...(more ? [make("p", { class: "note" }, `${exactText(more)} more not shown.`)] : []));
}

/** A name that lists its tensor and shows its details. */
function tensorButton(name, t) {
  const button = make("button", { type: "button", class: "name", title: name }, name);
  button.addEventListener("click", () => {
    byId("search").value = "";
    searched();
    listTensors([t], name);
    selectTensor(t, false);
  });
  return button;
}

function drawMetadata() {
  const query = byId("search").value.trim().toLowerCase();
  const rows = data.metadata.filter(([key, value]) => !query || key.toLowerCase().includes(query) || value.toLowerCase().includes(query));
  // a search for tensors leaves the list as it is
  const shown = rows.length ? rows : data.metadata;
  const items = shown.map(([key, value]) => {
    const short = value.length <= 160 && !value.includes("\n");
    const text = short
      ? make("dd", null, value)
      : make("dd", null, make("details", null, make("summary", null, `${value.slice(0, 120).replaceAll("\n", " ")}…`), make("pre", { tabindex: "0" }, value)));
    return [make("dt", null, nameElement(key)), text];
  });
  byId("metadata-count").textContent = rows.length && query ? `${exactText(rows.length)} of ${exactText(data.metadata.length)} match` : "";
  const more = data.omitted[3] ? [make("p", { class: "note" }, `${exactText(data.omitted[3])} more not shown.`)] : [];
  byId("metadata-list").replaceChildren(
    data.metadata.length ? make("dl", { class: "pairs" }, items.flat()) : make("p", { class: "empty" }, "None."), ...more);
}

function drawFiles() {
  const counts = new Map();
  for (let t = 0; t < tensorCount; t++) counts.set(tensorFile[t], (counts.get(tensorFile[t]) || 0) + 1);
  const rows = data.files.map(([name, nbytes], i) => [nameElement(name), exactText(counts.get(i) || 0), sizeText(nbytes)]);
  const more = data.omitted[1] ? [make("p", { class: "note" }, `${exactText(data.omitted[1])} more not shown.`)] : [];
  byId("files-list").replaceChildren(plainTable([["file", "left"], ["tensors", "right"], ["bytes", "right"]], rows, "files"), ...more);
  byId("footer").textContent = `${data.generator}. ${data.checked ? "From headers and all values." : "From headers; no byte of the values was read."}`;
}
