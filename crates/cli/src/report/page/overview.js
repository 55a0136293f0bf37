// The first figures: what the model is, how large, in which dtypes.
function drawOverview() {
  const { totals, memory } = data;
  const title = (data.path || "standard input").replace(/\/+$/, "").split("/").pop() || data.path;
  document.title = `${title} – anamnesis`;
  byId("title").textContent = title;
  byId("title").title = data.path || "";
  const parts = [memory.model_type, memory.layers && pluralText(memory.layers, "layer"), data.format];
  byId("subtitle").textContent = parts.filter(Boolean).join(" · ");

  const weights = memory.parameters || totals.weights;
  const figures = [
    ["Parameters", weights === null ? "–" : countText(weights), memory.active && memory.active < weights ? `${countText(memory.active)} active` : ""],
    ["Stored", sizeText(totals.nbytes), totals.bf16_nbytes === null ? "" : `${sizeText(totals.bf16_nbytes)} in BF16`],
    ["Bits per weight", totals.weights === null ? "–" : bitsText(bitsOf(totals.nbytes, totals.weights)), ""],
    ["Tensors", exactText(totals.tensors), totals.quantised ? `${exactText(totals.quantised)} quantised weights` : ""],
    ["Files", exactText(totals.files), sizeText(totals.file_nbytes)],
    ["Context", memory.context_max ? contextText(memory.context_max) : "–", memory.context_max ? "made for" : "unknown"],
  ];
  const list = figures.map(([name, value, more]) =>
    make("div", null, make("dt", null, name), make("dd", null, value, make("small", null, more))),
  );

  const bar = make("div", { class: "bar", "aria-hidden": "true" });
  for (const [dtype, , , nbytes] of data.dtypes) {
    if (nbytes < totals.nbytes / 2000) continue;
    const part = make("span", { title: `${dtype} ${sizeText(nbytes)}` });
    part.style.flexGrow = nbytes / totals.nbytes;
    part.style.background = rgb(dtypeColour(dtype));
    bar.append(part);
  }
  const rows = data.dtypes.map(([dtype, tensors, elements, nbytes]) => {
    const [key] = dtypeLegend([dtype]);
    return [key, exactText(tensors), countText(elements), sizeText(nbytes), percentText(nbytes / totals.nbytes || 0)];
  });
  const table = plainTable(
    [["dtype", "left"], ["tensors", "right"], ["elements", "right"], ["bytes", "right"], ["share", "right"]],
    rows,
    "dtypes",
  );
  const notes = [];
  if (data.partial) notes.push("Not all of this model could be opened: see the findings. Everything else here is of the rest.");
  const [tensors, , nbytes] = data.tensors.omitted;
  if (tensors) {
    notes.push(`This page shows the ${exactText(tensorCount)} largest tensors; ${exactText(tensors)} others, of ${sizeText(nbytes)}, are counted in the sums only.`);
  }
  byId("overview").replaceChildren(
    make("dl", { class: "figures" }, list),
    make("div", { class: "dtype-table" }, bar, table),
    ...notes.map((text) => make("p", { class: "note" }, text)),
  );
}
