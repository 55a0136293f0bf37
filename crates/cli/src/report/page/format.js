// Numbers as text. Sizes are in binary units and counts in decimal ones, as the command prints them.
const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function scaled(n, base, units) {
  let unit = 0;
  while (unit + 1 < units.length && Math.round((n * 100) / base ** unit) / 100 >= base) unit++;
  if (unit === 0) return `${grouped.format(n)}${units[0] ? " " + units[0] : ""}`;
  return `${(n / base ** unit).toFixed(2)} ${units[unit]}`;
}

const sizeText = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
const countText = (n) => scaled(n, 1000, ["", "K", "M", "B", "T", "Qa", "Qi"]);
const exactText = (n) => grouped.format(n);
/** A count that is a float of 24 bits: exact up to 65 536. */
const floatCountText = (n) => (n > 65536 ? `≈ ${countText(n)}` : exactText(n));
const percentText = (share) => {
  const percent = 100 * share;
  if (percent === 0) return "0 %";
  if (percent < 0.1) return "< 0.1 %";
  return `${percent.toFixed(percent < 99.95 || percent === 100 ? 1 : 2)} %`;
};
const pluralText = (n, noun) => `${exactText(n)} ${noun}${n === 1 ? "" : "s"}`;

/** A number with a few significant digits; exponents where they are shorter. */
function numberText(x, digits = 4) {
  if (Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text =
    size >= 1e6 || size < 1e-3 ? x.toExponential(digits - 1) : x.toPrecision(digits);
  return text.replace("e+", "e").replaceAll("-", "−");
}

/** Bits per weight of some bytes; NaN where they hold no weights of their own. */
const bitsOf = (bytes, weights) => (weights > 0 ? (8 * bytes) / weights : NaN);
const bitsText = (bits) => (Number.isNaN(bits) ? "–" : bits.toFixed(bits < 10 ? 2 : 1));

/** Tokens of a context: 32K, 128K; exact where it is no power of two. */
function contextText(n) {
  if (n >= 1 << 20 && n % (1 << 20) === 0) return `${n / (1 << 20)}M`;
  if (n >= 1024 && n % 1024 === 0) return `${n / 1024}K`;
  return exactText(n);
}
