// Opens pages of `anamnesis report` in Chromium: no message on the console, no violation of the policy, nothing wider than
// the window, the first paint in time, keys that work, and names of a hostile file that are text. Next to a page, a document of
// `check --stats --json` with its name says which findings and statistics it shows.
//
//   browse.js CHROMIUM SCREENSHOTS NAME=PAGE…
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { pathToFileURL } = require("node:url");
const { chromium } = require("playwright-core");

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const SIZES = [[1280, 800], [400, 800]];
const FIRST_PAINT = 1000;
const LOADS = 4;
const MOST_BYTES = 2000000;

const [executablePath, screenshots, ...pages] = process.argv.slice(2);

async function main() {
  const browser = await chromium.launch({ executablePath, args: FLAGS });
  let checks = 0;
  try {
    for (const argument of pages) {
      const at = argument.indexOf("=");
      const [name, file] = [argument.slice(0, at), argument.slice(at + 1)];
      for (const [width, height] of SIZES) {
        for (const colorScheme of ["light", "dark"]) {
          await visit(browser, { name, file, width, height, colorScheme });
          checks++;
        }
      }
    }
  } finally {
    await browser.close();
  }
  console.log(`${checks} pages are as they should be`);
}

async function visit(browser, { name, file, width, height, colorScheme }) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, deviceScaleFactor: 1 });
  const page = await context.newPage();
  const what = `${name} ${width}×${height} ${colorScheme}`;
  assert(fs.statSync(file).size < MOST_BYTES, `${what}: a page of ${fs.statSync(file).size} bytes`);
  const problems = [];
  page.on("console", (message) => problems.push(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => { problems.push("a dialog"); dialog.dismiss(); });
  page.on("request", (request) => { if (!request.url().startsWith("file://") || problems.loaded) problems.push(`request ${request.url()}`); });
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
  });
  let paint = Infinity;
  // the fastest of a few: other processes of the machine slow a page too
  for (let load = 0; load < LOADS && paint >= FIRST_PAINT; load++) {
    problems.loaded = false;
    await page.goto(pathToFileURL(path.resolve(file)).href);
    problems.loaded = true;
    await page.waitForFunction(() => document.documentElement.dataset.drawn === "yes", null, { timeout: 20000 });
    paint = Math.min(paint, await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime));
  }
  assert(paint < FIRST_PAINT, `${what}: first paint after ${paint} ms`);
  await unbroken(page, what);
  if (screenshots) await page.screenshot({ path: path.join(screenshots, `${name}-${width}-${colorScheme}.png`), fullPage: true });
  await keys(page, what);
  await search(page, what);
  const document = file.replace(/\.html$/, ".json");
  if (fs.existsSync(document)) await values(page, JSON.parse(fs.readFileSync(document)).models[0], what, screenshots && path.join(screenshots, `${name}-values-${width}-${colorScheme}.png`));
  await unbroken(page, `${what} after keys`);
  await printed(page, what);
  const found = await page.evaluate(() => ({ ran: window.ran, violations: window.violations, images: document.querySelectorAll("img, iframe, object, embed, a[href^=javascript], svg [onload]").length, scripts: document.scripts.length, title: document.title }));
  assert.strictEqual(found.ran, undefined, `${what}: a name ran`);
  assert.deepStrictEqual(found.violations, [], what);
  assert.strictEqual(found.images, 0, `${what}: a name became an element`);
  assert.strictEqual(found.scripts, 2, `${what}: the data and the script`);
  assert.deepStrictEqual([...problems], [], what);
  console.log(`${what}: first paint ${Math.round(paint)} ms`);
  await context.close();
}

/** Nothing is wider than the window, except inside of what scrolls. */
async function unbroken(page, what) {
  const wide = await page.evaluate(() => {
    const clips = (element) => /auto|scroll|hidden/.test(getComputedStyle(element).overflowX);
    const found = [];
    if (document.documentElement.scrollWidth > innerWidth) found.push(`page of ${document.documentElement.scrollWidth}`);
    for (const element of document.body.querySelectorAll("*")) {
      const r = element.getBoundingClientRect();
      if (r.width === 0 || (r.right <= innerWidth + 0.5 && r.left >= -0.5) || element.closest(".skip")) continue;
      let above = element.parentElement;
      while (above && above !== document.body && !clips(above)) above = above.parentElement;
      if (!above || above === document.body) found.push(`${element.tagName} ${element.className.baseVal ?? element.className} ${Math.round(r.left)}–${Math.round(r.right)}`);
    }
    return found;
  });
  assert.deepStrictEqual(wide, [], `${what}: wider than the window`);
}

const text = (page, id) => page.locator(`#${id}`).innerText();

/** Tiles, cells, points and rows are reached and opened by keys alone. */
async function keys(page, what) {
  const all = await text(page, "bytes-readout");
  await page.locator("#treemap .top").first().focus();
  const first = await text(page, "bytes-readout");
  assert.notStrictEqual(first, all, `${what}: a focused tile is read`);
  const tiles = await page.locator("#treemap .top").count();
  if (tiles > 1) {
    let moved = false;
    for (const key of ["ArrowRight", "ArrowDown"]) {
      await page.keyboard.press(key);
      moved ||= (await text(page, "bytes-readout")) !== first;
    }
    assert(moved, `${what}: arrows move among tiles`);
  }
  // down to a tensor: its details are shown
  await page.locator("#treemap .top").first().focus();
  for (let depth = 0; depth < 30 && !(await page.locator("#details h3").count()); depth++) await page.keyboard.press("Enter");
  assert.strictEqual(await page.locator("#details h3").count(), 1, `${what}: Enter opens down to a tensor`);
  for (let depth = 0; depth < 30 && (await page.locator("#crumbs button").count()) > 1; depth++) await page.keyboard.press("Backspace");
  assert.strictEqual(await page.locator("#crumbs button").count(), 1, `${what}: Backspace closes`);
  if (await page.locator("#heatmap .pane").count()) {
    await page.locator("#heatmap .pane").focus();
    const cell = await text(page, "layers-readout");
    await page.keyboard.press("ArrowRight");
    assert.notStrictEqual(await text(page, "layers-readout"), cell, `${what}: arrows move among cells`);
    const row = page.locator("#tensors-count");
    const before = await row.innerText();
    await page.keyboard.press("Home");
    await page.keyboard.press("Enter");
    if (!(await text(page, "layers-readout")).endsWith("none")) assert.notStrictEqual(await row.innerText(), before, `${what}: Enter lists a cell`);
  }
  if (await page.locator("#curve .plot").count()) {
    await page.locator("#curve .plot").focus();
    const read = () => page.locator("#curve .readout").innerText();
    const end = await read();
    await page.keyboard.press("Home");
    assert.notStrictEqual(await read(), end, `${what}: Home moves along the curve`);
  }
  await page.locator("#table .rows").focus();
  await page.keyboard.press("Home");
  assert.strictEqual(await page.locator("#table .row[aria-selected=true]").count(), 1, `${what}: Home selects a row`);
  const theme = await page.evaluate(() => document.documentElement.dataset.theme);
  await page.keyboard.press("t");
  assert.notStrictEqual(await page.evaluate(() => document.documentElement.dataset.theme), theme, `${what}: t changes the theme`);
}

async function search(page, what) {
  await page.keyboard.press("/");
  assert.strictEqual(await page.evaluate(() => document.activeElement.id), "search", `${what}: / searches`);
  await page.keyboard.type("no such tensor at all");
  await page.waitForFunction(() => document.getElementById("tensors-count").textContent.startsWith("0 "));
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.getElementById("tensors-count").textContent.startsWith("0 "));
  await page.keyboard.type("*.weight");
  await page.waitForFunction(() => document.getElementById("tensors-count").textContent.includes("found"));
  await page.keyboard.press("Escape");
}

const isClose = (found, expected) => Math.abs(found - expected) <= 1e-3 * Math.abs(expected) + 1e-12;
const numberIn = (text) => Number(text.replaceAll("−", "-").replaceAll(",", ""));

/** Layers coloured by each statistic, the distribution of a tensor, and the findings are those of a check. */
async function values(page, model, what, screenshot) {
  const tensors = model.tensors.filter((tensor) => tensor.values && tensor.values.elements);
  const options = page.locator("#layers-options select[aria-label=colour]");
  const names = await options.locator("option").evaluateAll((list) => list.map((option) => option.value));
  assert.deepStrictEqual(names, ["bits", "bytes", "std", "absmax", "mean", "zeros", "nonfinite"], what);
  for (const name of names) {
    await options.selectOption(name);
    await page.locator("#heatmap .pane").focus();
    await page.keyboard.press("Home");
    const cell = await text(page, "layers-readout");
    // the weights of the cell: a layer, and a kind with a * for the number of an expert
    const pattern = cell.split(" · ")[0];
    const parts = pattern.split("*").map((part) => part.replace(/[.\\^$+?()[\]{}|]/g, "\\$&"));
    const inCell = tensors.filter((tensor) => new RegExp(`^${parts.join("\\d+")}(\\.weight)?$`).test(tensor.name));
    assert(inCell.length > 0, `${what}: ${pattern} has values`);
    if (name === "std" || name === "mean") {
      const finite = inCell.map(({ values }) => [values.elements - values.nan - values.inf, values]);
      const count = finite.reduce((sum, [n]) => sum + n, 0);
      const sum = finite.reduce((all, [n, values]) => all + n * (name === "std" ? values.std ** 2 : values.mean), 0) / count;
      const expected = name === "std" ? Math.sqrt(sum) : sum;
      const found = numberIn(cell.split(" ").pop());
      assert(isClose(found, expected), `${what}: ${cell}: ${name} is ${expected}`);
      const colours = await page.evaluate(() => {
        const canvas = document.querySelector("#heatmap canvas");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Set();
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) found.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
        return found.size;
      });
      assert(colours > 6, `${what}: cells have ${colours} colours`);
    }
  }
  await options.selectOption("std");
  const legend = await text(page, "layers-legend");
  assert(legend.includes("standard deviation"), `${what}: ${legend}`);
  // the search is within what is listed
  const all = page.locator("#tensors-count button");
  if (await all.count()) await all.click();
  // of one tensor that is sound, and of one with a value that is no number
  const wrong = new Set(model.findings.map((finding) => finding.tensor));
  const chosen = [tensors.find((tensor) => !wrong.has(tensor.name) && /proj/.test(tensor.name)), tensors.find((tensor) => tensor.values.nan > 0)];
  for (const tensor of chosen.filter((tensor) => tensor)) {
    await page.locator("#search").fill(tensor.name);
    await page.waitForFunction((name) => [...document.querySelectorAll("#table .row .name")].some((row) => row.title === name), tensor.name);
    await page.locator(`#table .row:has([title="${tensor.name}"])`).first().click();
    const pairs = await page.locator("#details dl").last().evaluate((list) => [...list.querySelectorAll("dt")].map((term) => [term.textContent, term.nextElementSibling.textContent]));
    const shown = Object.fromEntries(pairs);
    const { min, max, mean, std, nan, inf, zeros } = tensor.values;
    for (const [term, expected] of [["smallest", min], ["largest", max], ["mean", mean], ["std", std], ["NaN, infinities", nan + inf]]) {
      assert(isClose(numberIn(shown[term]), expected), `${what}: ${tensor.name}: ${term} ${shown[term]} is ${expected}`);
    }
    assert.strictEqual(numberIn(shown.zeros.split(" ")[0]), zeros, `${what}: ${tensor.name}: zeros`);
    assert((await page.locator("#details .percentiles svg").count()) > 0, `${what}: ${tensor.name}: percentiles`);
    await unbroken(page, `${what} with ${tensor.name}`);
  }
  if (screenshot) await page.screenshot({ path: screenshot, fullPage: true });
  await page.locator("#search").fill("");
  const listed = await page.locator("#findings-list li .rule").allInnerTexts();
  assert.deepStrictEqual(listed, model.findings.slice(0, listed.length).map((finding) => finding.rule), what);
  assert(listed.length === model.findings.length || listed.length >= 1000, `${what}: ${listed.length} findings`);
  const named = page.locator("#findings-list .places button").first();
  if (await named.count()) {
    const name = await named.innerText();
    await named.click();
    assert.strictEqual(await page.locator("#details h3").innerText(), name, `${what}: a finding opens its tensor`);
  } else assert(!model.findings.some((finding) => finding.tensor), `${what}: a finding has its tensor`);
}

/** On paper: light, whole, without what only works on a screen. */
async function printed(page, what) {
  const pdf = await page.pdf({ format: "A4" });
  assert(pdf.length > 10000, `${what}: a printed page`);
  await page.emulateMedia({ media: "print" });
  const paper = await page.evaluate(() => getComputedStyle(document.body).getPropertyValue("--paper").trim());
  assert.strictEqual(paper, "#fcfcfa", `${what}: paper is light`);
  await page.emulateMedia({ media: "screen" });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
