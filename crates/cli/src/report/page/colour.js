// Colours. Quantities have a scale of rising lightness (viridis without its ends), which keeps its order for every kind of
// colour vision and in grey; dtypes have hues that remain distinct (after Okabe and Ito).
const SCALE = [
  [68, 40, 110], [65, 62, 132], [55, 84, 139], [45, 105, 141], [37, 125, 141], [31, 146, 139],
  [37, 166, 131], [68, 187, 115], [117, 203, 88], [172, 215, 62], [226, 222, 60],
];
const HUES = [
  [62, 111, 158], [222, 163, 66], [76, 155, 132], [190, 88, 56], [134, 104, 170], [130, 144, 62],
  [205, 137, 172], [104, 182, 214], [150, 115, 80],
];
const OTHER_HUE = [128, 132, 138];

const rgb = (c) => `rgb(${c[0]} ${c[1]} ${c[2]})`;

/** The colour of a share of the scale, 0 to 1. */
function scaleColour(share) {
  const at = Math.min(1, Math.max(0, share)) * (SCALE.length - 1);
  const low = Math.min(SCALE.length - 2, Math.floor(at));
  return SCALE[low].map((c, i) => Math.round(c + (SCALE[low + 1][i] - c) * (at - low)));
}

/** The colour of a dtype, by its rank in bytes. */
function dtypeColour(dtype) {
  return HUES[dtypeRank.get(dtype)] || OTHER_HUE;
}

/** Black or white text, whichever is read better on a colour. */
function inkOn(c) {
  const [r, g, b] = c.map((x) => {
    const s = x / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return luminance > 0.22 ? "#15171a" : "#ffffff";
}

// What a cell or tile may be coloured by. `value` is of sums over its tensors; `log` where values span decades.
const QUANTITIES = {
  bits: { label: "bits per weight", log: true, text: (x) => `${bitsText(x)} bits per weight`, tick: bitsText },
  bytes: { label: "bytes", log: true, text: sizeText, tick: sizeText },
  std: { label: "standard deviation", log: true, statistic: true },
  absmax: { label: "largest magnitude", log: true, statistic: true },
  mean: { label: "mean", statistic: true },
  zeros: { label: "zeros", statistic: true, text: percentText, tick: percentText },
  nonfinite: { label: "NaN and infinities", statistic: true, text: (x) => `${floatCountText(x)} NaN and infinities`, tick: floatCountText },
};

/** The quantities that this page has values of. */
const quantities = Object.entries(QUANTITIES).filter(([, q]) => !q.statistic || statistics);

/** The value of a quantity over some tensors, given as a list or a range. */
function quantityOf(name, tensors) {
  let [sum, weight, most, any] = [0, 0, 0, false];
  for (const t of tensors) {
    if (name === "bits" || name === "bytes") {
      sum += bytesOf(t);
      weight += weightsOf(t);
      any = true;
      continue;
    }
    const all = statisticOf("elements", t);
    if (!(all > 0)) continue;
    // all but two quantities are of the finite values
    const n = name === "zeros" || name === "nonfinite" ? all : all - statisticOf("nonfinite", t);
    if (!(n > 0)) continue;
    any = true;
    weight += n;
    if (name === "absmax") most = Math.max(most, -statisticOf("min", t), statisticOf("max", t));
    if (name === "mean") sum += n * statisticOf("mean", t);
    if (name === "std") sum += n * statisticOf("std", t) ** 2;
    if (name === "zeros") sum += statisticOf("zeros", t);
    if (name === "nonfinite") sum += statisticOf("nonfinite", t);
  }
  if (!any) return NaN;
  if (name === "bits") return bitsOf(sum, weight);
  if (name === "bytes" || name === "nonfinite") return sum;
  if (name === "absmax") return most;
  return name === "std" ? Math.sqrt(sum / weight) : sum / weight;
}

const quantityText = (name, x) =>
  Number.isNaN(x) ? "no value" : (QUANTITIES[name].text || ((y) => `${QUANTITIES[name].label} ${numberText(y)}`))(x);

/** A scale over the values that occur: share of a value, and ticks of the legend. */
function scaleOver(name, values) {
  const positive = values.filter((x) => Number.isFinite(x) && x > 0);
  const log = QUANTITIES[name].log && positive.length > 0;
  // zero has no logarithm: it has the colour of the smallest other value
  const finite = log ? positive : values.filter(Number.isFinite);
  let low = finite.reduce((a, b) => Math.min(a, b), Infinity);
  let high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!finite.length) [low, high] = [0, 1];
  const to = (x) => (log ? Math.log(Math.max(x, low)) : x);
  const from = (x) => (log ? Math.exp(x) : x);
  if (name === "bits" && log && high / low < 4) {
    // two octaves at least: one bit more is no contrast of the whole scale
    const middle = Math.sqrt(low * high);
    [low, high] = [middle / 2, middle * 2];
  }
  const span = to(high) - to(low);
  // one value alone is in the middle of the scale
  const share = (x) => (span > 0 ? (to(x) - to(low)) / span : 0.5);
  const shares = span <= 0 ? [0.5] : name === "bits" ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1];
  const ticks = shares.map((s) => [s, from(to(low) + s * span)]);
  return { share, ticks, colour: (x) => scaleColour(share(x)) };
}

/** The legend of a scale. */
function scaleLegend(name, scale) {
  const bar = make("span", { class: "ramp" });
  const stops = SCALE.map((c, i) => `${rgb(c)} ${(100 * i) / (SCALE.length - 1)}%`);
  bar.style.background =
    scale.ticks.length > 1 ? `linear-gradient(to right, ${stops.join(", ")})` : rgb(scaleColour(0.5));
  const tick = QUANTITIES[name].tick || ((x) => numberText(x, 3));
  const ticks = scale.ticks.map(([share, value]) => {
    const mark = make("span", null, tick(value));
    mark.style.left = `${100 * share}%`;
    mark.dataset.at = share === 0 ? "start" : share === 1 ? "end" : "middle";
    return mark;
  });
  return [
    make("span", { class: "caption" }, QUANTITIES[name].label + (QUANTITIES[name].log ? ", log" : "")),
    make("span", { class: "scale" }, bar, make("span", { class: "ticks" }, ticks)),
  ];
}

/** The legend of the dtypes. */
function dtypeLegend(names) {
  return names.map((dtype) => {
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = rgb(dtypeColour(dtype));
    return make("span", { class: "key" }, swatch, dtype);
  });
}
