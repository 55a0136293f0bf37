// The data: columns of small numbers, and the tree of names. Nodes and tensors are in one order, so that the tensors of a
// module are a range, and a sum over it is a difference of two prefix sums.
const data = JSON.parse(document.getElementById("data").textContent);
const kinds = data.tensors.kinds;
const words = data.tensors.names.words;
const nodeWord = data.tensors.names.word;
const nodeDepth = data.tensors.names.depth;
const nodeCount = nodeWord.length;
const tensorKind = data.tensors.kind;
const tensorFile = data.tensors.file;
const tensorCount = tensorKind.length;

const nodeParent = new Int32Array(nodeCount);
// the node behind the last one of a node's subtree
const nodeEnd = new Int32Array(nodeCount);
// the first tensor whose node is this one or a later one
const nodeTensors = new Int32Array(nodeCount + 1);
const tensorNode = new Int32Array(tensorCount);
const tensorOffset = new Float64Array(tensorCount);
// row of the statistics, or -1
const tensorRow = new Int32Array(tensorCount).fill(-1);

{
  const open = [];
  for (let node = 0; node < nodeCount; node++) {
    while (open.length > nodeDepth[node]) nodeEnd[open.pop()] = node;
    nodeParent[node] = open.length ? open[open.length - 1] : -1;
    open.push(node);
  }
  while (open.length) nodeEnd[open.pop()] = nodeCount;
  const ends = new Map();
  let node = 0;
  let filled = 0;
  for (let t = 0; t < tensorCount; t++) {
    node += data.tensors.node[t];
    tensorNode[t] = node;
    while (filled <= node) nodeTensors[filled++] = t;
    const gap = data.tensors.gap[t];
    if (gap === null) {
      tensorOffset[t] = NaN;
    } else {
      const offset = (ends.get(tensorFile[t]) || 0) + gap;
      tensorOffset[t] = offset;
      ends.set(tensorFile[t], offset + kinds.nbytes[tensorKind[t]]);
    }
  }
  while (filled <= nodeCount) nodeTensors[filled++] = tensorCount;
}

const bytesOf = (t) => kinds.nbytes[tensorKind[t]];
const weightsOf = (t) => kinds.weights[tensorKind[t]];
const dtypeOf = (t) => kinds.dtype[tensorKind[t]];
const wordOf = (node) => words[nodeWord[node]];

/** The dotted name of a node, from below `above` (-1: the whole name). */
function nodeName(node, above = -1) {
  const parts = [];
  for (let at = node; at !== above && at !== -1; at = nodeParent[at]) parts.push(wordOf(at));
  return parts.reverse().join(".");
}

const tensorName = (t) => nodeName(tensorNode[t]);

/** Sums of a value over the first n tensors. */
function prefixSums(value) {
  const sums = new Float64Array(tensorCount + 1);
  for (let t = 0; t < tensorCount; t++) sums[t + 1] = sums[t] + value(t);
  return sums;
}

const byteSums = prefixSums(bytesOf);
const weightSums = prefixSums(weightsOf);
const sumOver = (sums, from, to) => sums[to] - sums[from];

/** The tensors of a node's subtree: [first, end). */
const rangeOf = (node) =>
  node < 0 ? [0, tensorCount] : [nodeTensors[node], nodeTensors[nodeEnd[node]]];

const dtypeSums = new Map();
/** Bytes of one dtype over the first n tensors. */
function sumsOfDtype(dtype) {
  if (!dtypeSums.has(dtype)) {
    dtypeSums.set(dtype, prefixSums((t) => (dtypeOf(t) === dtype ? bytesOf(t) : 0)));
  }
  return dtypeSums.get(dtype);
}

/** The dtypes that are shown, the one with the most bytes first. */
const dtypes = data.dtypes.map((row) => row[0]);
const dtypeRank = new Map(dtypes.map((dtype, rank) => [dtype, rank]));

/** Bytes by dtype of a range of tensors, largest first. */
function dtypesIn(from, to) {
  const sums = new Map();
  for (let t = from; t < to; t++) {
    const dtype = dtypeOf(t);
    sums.set(dtype, (sums.get(dtype) || 0) + bytesOf(t));
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}

// Statistics, where there are any: columns of floats of 24 bits (those of 32 without the last eight), in base64, and the
// tensor of each row, as the number of tensors from the row before.
const statistics = data.statistics ? decodeStatistics(data.statistics) : null;

function decodeStatistics(packed) {
  let t = 0;
  packed.tensors.forEach((step, row) => {
    t += step;
    tensorRow[t] = row;
  });
  const columns = {};
  const word = new DataView(new ArrayBuffer(4));
  for (const [name, text] of Object.entries(packed.columns)) {
    const bytes = atob(text);
    const values = new Float32Array(bytes.length / 3);
    for (let i = 0; i < values.length; i++) {
      word.setUint8(0, bytes.charCodeAt(3 * i));
      word.setUint8(1, bytes.charCodeAt(3 * i + 1));
      word.setUint8(2, bytes.charCodeAt(3 * i + 2));
      values[i] = word.getFloat32(0);
    }
    columns[name] = values;
  }
  return columns;
}

/** A statistic of a tensor; NaN where there is none. */
function statisticOf(name, t) {
  const row = tensorRow[t];
  return row < 0 ? NaN : statistics[name][row];
}
