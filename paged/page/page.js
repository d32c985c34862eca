"use strict";
// One recording: data is unpacked, a moment is chosen, everything is drawn from that moment. No network, no library.

const $ = (id) => document.getElementById(id);
const SEQUENCES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"]; // Okabe and Ito
const CALLS = ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#8a8f98"];
const WASTE = { live: "#0072b2", tail: "#e69f00", row: "#d55e00", prefix: "#009e73", retiring: "#cc79a7", unused: "#8a8f98" };
const MEANING = {
  live: "tokens that exist", tail: "room of sequences without a token", row: "rest of rows in which some block is held",
  prefix: "blocks that only the prefix cache keeps", retiring: "given up, work may still be running",
  unused: "mapped rows in which nothing is held",
};
const AT = 0, FIGURES = 1, LOW = 2, HIGH = 3, PARTS = 4, ROWS = 5, CACHED = 6, ASLEEP = 7, EVENTS = 8, HELD = 9;
const NUMBER = 0, LABEL = 1, TOKENS = 2, DROPPED = 3, TABLE = 4;
const MOST_LISTED = 400;
const pagewalk = { ready: false, index: 0, selected: null, lastRender: 0 };
window.pagewalk = pagewalk;

let data, about, moments, at = 0, now, selection = null, hover = null, playing = 0, figure = {};

// -- words ------------------------------------------------------------------------------------------------------

const units = ["B", "KiB", "MiB", "GiB", "TiB"];
function size(bytes) {
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return `${bytes >= 100 || unit === 0 || bytes === Math.round(bytes) ? Math.round(bytes) : bytes.toFixed(bytes >= 10 ? 1 : 2)} ${units[unit]}`;
}
const count = (n) => Math.round(n).toLocaleString("en-US");
const seconds = (ns) => `${(ns / 1e9).toFixed(data.part.stop - data.part.start < 20e9 ? 4 : 2)} s`;
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const who = (s) => (s[LABEL] >= 0 ? `request ${s[LABEL]}` : `sequence ${s[NUMBER]}`);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const span = (text) => { const made = document.createElement("span"); made.textContent = text; return made; };

// -- canvases ---------------------------------------------------------------------------------------------------

function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  if (height) canvas.style.height = `${height}px`;
  const tall = height || canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(tall * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(tall * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, tall);
  return [pen, width, tall];
}

// A sequence is a colour and, for every second round of the colours, a notch: so that colour alone never decides.
function swatch(pen, number, x, y, w, h) {
  pen.fillStyle = SEQUENCES[number % SEQUENCES.length];
  pen.fillRect(x, y, w, h);
  if (Math.floor(number / SEQUENCES.length) % 2) {
    pen.fillStyle = colours.card;
    const side = Math.max(1, Math.floor(Math.min(w, h) / 3));
    pen.fillRect(x + Math.floor((w - side) / 2), y + Math.floor((h - side) / 2), side, side);
  }
}
function sharedMark(pen, x, y, w) {
  const side = Math.max(1, Math.floor(w / 2)); // a corner of two steps: a path would cost ten times as much
  pen.fillStyle = colours.mark;
  pen.fillRect(x + w - side, y, side, Math.ceil(side / 2));
  pen.fillRect(x + w - Math.ceil(side / 2), y, Math.ceil(side / 2), side);
}
function idleMark(pen, x, y, w, h) {
  pen.fillStyle = colours.idle;
  pen.fillRect(x, y, w, h);
  pen.fillStyle = colours.card;
  pen.fillRect(x, y + Math.floor(h / 2), w, 1);
}
function emptyMark(pen, x, y, w, h) {
  pen.strokeStyle = colours.soft;
  pen.lineWidth = 1;
  pen.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
}
function frame(pen, x, y, w, h, grow = 1.5) {
  pen.strokeStyle = colours.card; pen.lineWidth = 4; pen.strokeRect(x - grow, y - grow, w + 2 * grow, h + 2 * grow);
  pen.strokeStyle = colours.mark; pen.lineWidth = 2; pen.strokeRect(x - grow, y - grow, w + 2 * grow, h + 2 * grow);
}
let colours = {};
function readColours() {
  for (const name of ["card", "ink", "soft", "line", "faint", "accent", "mark", "free", "bare", "idle"]) colours[name] = css(`--${name}`);
}

// -- a moment, unpacked -----------------------------------------------------------------------------------------

function unpack(moment) {
  const found = { owners: new Map(), idle: new Set(), committed: new Uint8Array(rowCount), lists: [] };
  for (let i = 0; i < moment[ROWS].length; i += 2) found.committed.fill(1, moment[ROWS][i], moment[ROWS][i] + moment[ROWS][i + 1]);
  for (let i = 0; i < moment[CACHED].length; i += 2)
    for (let b = 0; b < moment[CACHED][i + 1]; b++) found.idle.add(moment[CACHED][i] + b);
  moment[HELD].forEach((sequence, index) => {
    const table = [];
    for (let i = 0; i < sequence[TABLE].length; i += 2)
      for (let b = 0; b < sequence[TABLE][i + 1]; b++) table.push(sequence[TABLE][i] + b);
    found.lists.push(table);
    for (const block of table) {
      const holders = found.owners.get(block);
      if (holders === undefined) found.owners.set(block, [index]);
      else if (holders[holders.length - 1] !== index) holders.push(index);
    }
  });
  return found;
}
const firstRow = (block) => Math.floor((block * about.block_stride) / about.chunk);
const lastRow = (block) => Math.floor(((block + 1) * about.block_stride - 1) / about.chunk);
const blocksOf = (row) => [
  Math.floor((row * about.chunk) / about.block_stride),
  Math.min(about.blocks, Math.ceil(((row + 1) * about.chunk) / about.block_stride)),
];
let rowCount = 1;

// -- time -------------------------------------------------------------------------------------------------------

const LEFT = 66, RIGHT = 12;
const CURVES = [["live", "#009e73"], ["cached", "#cc79a7"], ["held", "#e69f00"], ["committed", "#0072b2"]];
function place(width, ns) {
  const span = data.part.stop - data.part.start || 1;
  return LEFT + ((ns - data.part.start) / span) * (width - LEFT - RIGHT);
}
function niceStep(most, lines) {
  let step = 1;
  while (most / step > lines) step *= 2;
  return step;
}
let curvesDrawn = null;
function drawCurves() {
  const [pen, width, height] = prepare($("curves"));
  const key = `${width}x${height}${document.documentElement.className}`;
  if (!curvesDrawn || curvesDrawn.key !== key) curvesDrawn = { key, picture: paintCurves(width, height) };
  pen.drawImage(curvesDrawn.picture, 0, 0, width, height);
  const x = place(width, now[AT]);
  pen.fillStyle = colours.mark;
  pen.fillRect(Math.round(x) - 0.5, 0, 1.5, height - 16);
}
function paintCurves(width, height) {
  const ratio = window.devicePixelRatio || 1;
  const picture = document.createElement("canvas");
  picture.width = Math.round(width * ratio); picture.height = Math.round(height * ratio);
  const pen = picture.getContext("2d");
  pen.scale(ratio, ratio);
  const bottom = height - 18, top = 6;
  let most = 1;
  for (const m of moments) most = Math.max(most, m[HIGH][figure.committed]);
  if (about.budget < 1.6 * most) most = Math.max(most, about.budget);
  const y = (bytes) => bottom - (bytes / most) * (bottom - top);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const step = niceStep(most, 4);
  for (let bytes = 0; bytes <= most; bytes += step) {
    pen.fillStyle = colours.faint; pen.fillRect(LEFT, Math.round(y(bytes)), width - LEFT - RIGHT, 1);
    pen.fillStyle = colours.soft; pen.textAlign = "right"; pen.fillText(size(bytes), LEFT - 7, y(bytes));
  }
  timeAxis(pen, width, bottom);
  for (const [name, colour] of CURVES) {
    const index = figure[name];
    if (!moments.some((m) => m[HIGH][index])) continue;
    pen.fillStyle = colour;
    pen.globalAlpha = 0.18;
    pen.beginPath();
    moments.forEach((m, i) => pen.lineTo(place(width, m[AT]), y(m[HIGH][index])));
    for (let i = moments.length - 1; i >= 0; i--) pen.lineTo(place(width, moments[i][AT]), y(moments[i][LOW][index]));
    pen.fill();
    pen.globalAlpha = name === "live" ? 0.3 : 1;
    pen.strokeStyle = colour; pen.lineWidth = name === "committed" ? 1.4 : 1;
    pen.beginPath();
    moments.forEach((m) => pen.lineTo(place(width, m[AT]), y(m[FIGURES][index])));
    if (name === "live") { // an area, under the lines
      pen.lineTo(place(width, moments[moments.length - 1][AT]), bottom);
      pen.lineTo(place(width, moments[0][AT]), bottom);
      pen.fill();
    } else pen.stroke();
    pen.globalAlpha = 1;
  }
  if (about.budget <= most) {
    pen.strokeStyle = "#d55e00"; pen.setLineDash([2, 3]); pen.beginPath();
    pen.moveTo(LEFT, y(about.budget)); pen.lineTo(width - RIGHT, y(about.budget)); pen.stroke(); pen.setLineDash([]);
  }
  return picture;
}
function timeAxis(pen, width, bottom) {
  const span = (data.part.stop - data.part.start) / 1e9 || 1e-9;
  const raw = span / 8, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  pen.textAlign = "center"; pen.textBaseline = "top"; pen.fillStyle = colours.soft; pen.font = "11px system-ui, sans-serif";
  for (let t = Math.ceil(data.part.start / 1e9 / step) * step; t <= data.part.stop / 1e9 + step / 1e6; t += step) {
    const x = place(width, t * 1e9);
    pen.fillRect(Math.round(x), bottom, 1, 3);
    pen.fillText(`${Number(t.toPrecision(8))} s`, Math.min(x, width - 22), bottom + 4);
  }
  pen.textBaseline = "middle";
}

// -- chunks -----------------------------------------------------------------------------------------------------

// A cell is a chunk of every plane (a row), or several; where a row holds several blocks and there is room, the cell is
// a box with a square for each of them.
let grid = {};
const MOST_TALL = 400;
function layGrid(width) {
  const each = Math.ceil(about.chunk / about.block_stride);
  for (let square = 10; each > 1 && square >= 4; square--) {
    const across = Math.min(each, Math.ceil(Math.sqrt(each * 2)));
    const found = { square, across, rows: 1, wide: across * square + 3, tall: Math.ceil(each / across) * square + 3, gap: 3 };
    if (fits(found, width)) return;
  }
  for (let side = 16; side >= 4; side--) {
    const wide = side > 5 ? side - 1 : side;
    if (fits({ square: 0, across: 1, rows: 1, wide, tall: wide, gap: side - wide }, width)) return;
  }
  for (let rows = 2; !fits({ square: 0, across: 1, rows, wide: 4, tall: 4, gap: 0 }, width); rows++);
}
function fits(found, width) {
  found.columns = Math.floor((width + found.gap) / (found.wide + found.gap));
  found.cells = Math.ceil(rowCount / found.rows);
  if (!found.columns) return false;
  found.height = Math.ceil(found.cells / found.columns) * (found.tall + found.gap) + 4;
  grid = found;
  return found.height <= MOST_TALL;
}
const cellPlace = (cell) => [
  (cell % grid.columns) * (grid.wide + grid.gap) + 2, Math.floor(cell / grid.columns) * (grid.tall + grid.gap) + 2,
];
const cellOf = (row) => Math.floor(row / grid.rows);
const startingIn = (row) => Math.ceil((row * about.chunk) / about.block_stride);
function blockPlace(block) { // [x, y, width, height] of a block among the chunks
  const row = firstRow(block), [x, y] = cellPlace(cellOf(row));
  if (!grid.square) return [x, y, grid.wide, grid.tall];
  const at = block - startingIn(row);
  return [x + 2 + (at % grid.across) * grid.square, y + 2 + Math.floor(at / grid.across) * grid.square, grid.square - 1, grid.square - 1];
}
function heldIn(row) {
  const [first, stop] = blocksOf(row), held = [], idle = [];
  for (let block = first; block < stop; block++) {
    if (state.owners.has(block)) held.push(block);
    else if (state.idle.has(block)) idle.push(block);
  }
  return { first, stop, held, idle };
}
function drawChunks() {
  const canvas = $("chunks");
  layGrid(canvas.clientWidth - 4);
  const [pen] = prepare(canvas, grid.height);
  for (let cell = 0; cell < grid.cells; cell++) grid.square ? drawBox(pen, cell) : drawCell(pen, cell);
  const chosen = highlighted();
  if (chosen && chosen.block >= 0) {
    if (grid.square) frame(pen, ...blockPlace(chosen.block));
    const cells = new Set();
    for (let row = firstRow(chosen.block); row <= lastRow(chosen.block); row++) cells.add(cellOf(row));
    for (const cell of cells) if (cell < grid.cells) frame(pen, ...cellPlace(cell), grid.wide, grid.tall);
  } else if (chosen && chosen.row >= 0) frame(pen, ...cellPlace(cellOf(chosen.row)), grid.wide, grid.tall);
}
function drawBox(pen, row) { // one row and each of its blocks
  const [x, y] = cellPlace(row);
  pen.fillStyle = state.committed[row] ? colours.free : colours.bare;
  pen.fillRect(x, y, grid.wide, grid.tall);
  if (!state.committed[row]) return;
  const stop = Math.min(about.blocks, startingIn(row + 1));
  let any = false;
  for (let block = startingIn(row); block < stop; block++) {
    const holders = state.owners.get(block);
    if (!holders && !state.idle.has(block)) continue;
    const [left, top, wide, tall] = blockPlace(block);
    any = true;
    if (!holders) { idleMark(pen, left, top, wide, tall); continue; }
    swatch(pen, now[HELD][holders[0]][NUMBER], left, top, wide, tall);
    if (holders.length > 1) sharedMark(pen, left, top, wide);
  }
  if (!any) emptyMark(pen, x, y, grid.wide, grid.tall);
}
function drawCell(pen, cell) {
  const [x, y] = cellPlace(cell), inner = grid.wide;
  const start = cell * grid.rows, stop = Math.min(rowCount, start + grid.rows);
  let committed = 0, held = [], idle = 0, room = 0;
  for (let row = start; row < stop; row++) {
    if (!state.committed[row]) continue;
    committed++;
    const found = heldIn(row);
    held = held.length ? held.concat(found.held) : found.held;
    idle += found.idle.length;
    room += found.stop - found.first;
  }
  if (!committed) {
    pen.fillStyle = colours.bare;
    pen.fillRect(x, y, inner, inner);
    return;
  }
  if (!held.length && !idle) { emptyMark(pen, x, y, inner, inner); return; }
  pen.fillStyle = colours.free;
  pen.fillRect(x, y, inner, inner);
  if (!held.length) { idleMark(pen, x, y, inner, inner); return; }
  const stripes = Math.min(held.length, Math.max(1, Math.floor(inner / 3)));
  const tall = Math.max(1, Math.round((inner * held.length) / Math.max(room, 1)));
  let shared = false;
  for (let i = 0; i < stripes; i++) {
    const holders = state.owners.get(held[Math.floor((i * held.length) / stripes)]);
    const from = Math.round((i * inner) / stripes), to = Math.round(((i + 1) * inner) / stripes);
    swatch(pen, now[HELD][holders[0]][NUMBER], x + from, y + inner - tall, to - from, tall);
  }
  for (const block of held) if (state.owners.get(block).length > 1) shared = true;
  if (shared) sharedMark(pen, x, y, inner);
}
function drawOverview() {
  const [pen, width, height] = prepare($("overview"));
  pen.fillStyle = colours.bare; pen.fillRect(0, 4, width, 8);
  pen.strokeStyle = colours.line; pen.strokeRect(0.5, 4.5, width - 1, 7);
  pen.fillStyle = colours.accent;
  for (let i = 0; i < now[ROWS].length; i += 2) {
    const x = (now[ROWS][i] / about.rows) * width;
    pen.fillRect(x, 4, Math.max(1, (now[ROWS][i + 1] / about.rows) * width), 8);
  }
  pen.strokeStyle = colours.mark; pen.lineWidth = 1;
  pen.strokeRect(0.5, 1.5, Math.max(3, (rowCount / about.rows) * width) - 1, height - 3);
}

// -- block tables -----------------------------------------------------------------------------------------------

const NAMES = 196, LINE = 15, SIDE = 11;
let lines = [];
function layTables(width) {
  const across = Math.max(8, Math.floor((width - NAMES - 4) / SIDE));
  lines = [];
  let y = 3;
  now[HELD].slice(0, MOST_LISTED).forEach((sequence, index) => {
    const tall = Math.max(1, Math.ceil(state.lists[index].length / across));
    lines.push({ index, y, tall, across });
    y += tall * LINE + 3;
  });
  return y + 3;
}
const entryPlace = (line, entry) => [NAMES + (entry % line.across) * SIDE + 2, line.y + Math.floor(entry / line.across) * LINE];
function drawTables() {
  const canvas = $("table"), height = Math.max(60, layTables(canvas.clientWidth));
  const [pen, width] = prepare(canvas, height);
  pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "middle";
  for (const line of lines) {
    const sequence = now[HELD][line.index], table = state.lists[line.index];
    if (selection && selection.sequence === line.index) {
      pen.fillStyle = colours.faint; pen.fillRect(0, line.y - 2, width, line.tall * LINE + 2);
    }
    swatch(pen, sequence[NUMBER], 2, line.y + 1, 11, 11);
    pen.fillStyle = colours.ink; pen.textAlign = "left"; pen.fillText(who(sequence), 19, line.y + 7);
    pen.fillStyle = colours.soft; pen.textAlign = "right"; pen.fillText(`${count(sequence[TOKENS])} tok`, NAMES - 8, line.y + 7);
    const last = table.length - 1, filled = sequence[TOKENS] - (sequence[DROPPED] + last) * about.block_size;
    for (let entry = 0; entry < table.length; entry++) {
      const [x, y] = entryPlace(line, entry);
      const part = entry === last ? Math.max(0.12, Math.min(1, filled / about.block_size)) : 1;
      if (part < 1) { pen.fillStyle = colours.free; pen.fillRect(x, y + 1, SIDE - 2, 11); }
      swatch(pen, sequence[NUMBER], x, y + 1, Math.max(1, Math.round((SIDE - 2) * part)), 11);
      if (state.owners.get(table[entry]).length > 1) sharedMark(pen, x, y + 1, SIDE - 2);
    }
  }
  const chosen = highlighted();
  if (chosen && chosen.block >= 0) {
    for (const line of lines) {
      const entry = state.lists[line.index].indexOf(chosen.block);
      if (entry >= 0) frame(pen, ...entryPlace(line, entry).map((v, i) => v + i), SIDE - 2, 11);
    }
  }
  const more = now[HELD].length - lines.length;
  const shared = [...state.owners.values()].filter((holders) => holders.length > 1).length;
  $("table-note").textContent = `${plural(now[HELD].length, "sequence")}, ${plural(state.owners.size, "block")} held` +
    (shared ? `, ${count(shared)} of them shared` : "") + (more > 0 ? `; the first ${count(lines.length)} are drawn` : "");
}

// -- what it is spent on, and the driver ------------------------------------------------------------------------

function parts() {
  const found = { live: now[FIGURES][figure.live] };
  data.causes.forEach((cause, i) => { found[cause] = now[PARTS][i]; });
  return found;
}
function drawSpent() {
  const found = parts(), committed = now[FIGURES][figure.committed];
  const [pen, width, height] = prepare($("bar"));
  let x = 0;
  for (const [name, bytes] of Object.entries(found)) {
    const wide = committed ? (bytes / committed) * width : 0;
    wastePattern(pen, name, x, 0, wide, height);
    x += wide;
  }
  Object.entries(found).forEach(([name, bytes], i) => {
    const cells = $("waste").rows[i].cells;
    cells[2].textContent = size(bytes);
    cells[3].textContent = committed ? `${((100 * bytes) / committed).toFixed(1)} %` : "";
  });
  $("ratio").textContent = found.live ? `committed over live ${(committed / found.live).toFixed(3)}` : "nothing lives";
}
function wastePattern(pen, name, x, y, w, h) {
  pen.fillStyle = WASTE[name];
  pen.fillRect(x, y, w, h);
  if (name === "live" || w < 3) return;
  pen.save(); // stripes, so that no cause is told by its colour alone
  pen.beginPath(); pen.rect(x, y, w, h); pen.clip();
  pen.strokeStyle = colours.card; pen.lineWidth = 1; pen.globalAlpha = 0.75;
  const gap = { tail: 4, row: 6, prefix: 8, retiring: 5, unused: 3 }[name], lean = name === "row" || name === "unused" ? -h : h;
  for (let at = x - h; at < x + w + h; at += gap) { pen.beginPath(); pen.moveTo(at, y); pen.lineTo(at + lean, y + h); pen.stroke(); }
  pen.restore();
}
let stripDrawn = null;
function drawStrip() {
  const [pen, width, height] = prepare($("strip"));
  const key = `${width}x${height}${document.documentElement.className}`;
  if (!stripDrawn || stripDrawn.key !== key) stripDrawn = { key, picture: paintStrip(width, height) };
  pen.drawImage(stripDrawn.picture, 0, 0, width, height);
  pen.fillStyle = colours.mark;
  pen.fillRect(Math.round(place(width, now[AT])) - 0.5, 0, 1.5, height - 16);
  const strip = data.strip, since = at ? moments[at - 1][AT] : now[AT];
  let spent = 0;
  strip.names.forEach((name, i) => {
    const made = at ? strip.counts[i][at - 1] : 0;
    spent += at ? strip.ns[i][at - 1] : 0;
    $("strip-legend").children[i].lastChild.textContent = `${name} ${count(made)}`;
  });
  $("driver-note").textContent = `from ${seconds(since)} to ${seconds(now[AT])}, ${plural(now[EVENTS], "pool event")}; ` +
    `${(spent / 1e6).toFixed(2)} ms in the driver, ${about.durations || "measured"}`;
  listCalls(since);
}
function paintStrip(width, height) {
  const ratio = window.devicePixelRatio || 1, picture = document.createElement("canvas");
  picture.width = Math.round(width * ratio); picture.height = Math.round(height * ratio);
  const pen = picture.getContext("2d");
  pen.scale(ratio, ratio);
  const bottom = height - 18, strip = data.strip, columns = Math.max(1, Math.floor((width - LEFT - RIGHT) / 2));
  const totals = strip.names.map(() => new Float64Array(columns));
  for (let i = 1; i < moments.length; i++) {
    const from = Math.min(columns - 1, Math.floor((place(width, moments[i - 1][AT]) - LEFT) / 2));
    const to = Math.min(columns - 1, Math.max(from, Math.ceil((place(width, moments[i][AT]) - LEFT) / 2) - 1));
    strip.names.forEach((name, n) => { for (let c = from; c <= to; c++) totals[n][c] += strip.counts[n][i - 1] / (to - from + 1); });
  }
  let most = 1;
  for (let c = 0; c < columns; c++) most = Math.max(most, totals.reduce((sum, t) => sum + t[c], 0));
  pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle"; pen.textAlign = "right";
  const perSecond = most / (((data.part.stop - data.part.start) / 1e9 || 1) / columns);
  pen.fillStyle = colours.soft; pen.fillText(`${count(perSecond)}/s`, LEFT - 7, 10); pen.fillText("0", LEFT - 7, bottom);
  pen.fillStyle = colours.faint; pen.fillRect(LEFT, bottom, width - LEFT - RIGHT, 1); pen.fillRect(LEFT, 8, width - LEFT - RIGHT, 1);
  for (let c = 0; c < columns; c++) {
    let y = bottom;
    totals.forEach((t, n) => {
      const tall = (t[c] / most) * (bottom - 8);
      pen.fillStyle = CALLS[n];
      pen.fillRect(LEFT + 2 * c, y - tall, 1.6, tall);
      y -= tall;
    });
  }
  timeAxis(pen, width, bottom);
  return picture;
}
function listCalls(since) {
  const calls = data.calls, box = $("calls");
  box.replaceChildren();
  let low = 0, high = calls.length;
  while (low < high) { const mid = (low + high) >> 1; if (calls[mid][0] <= now[AT]) low = mid + 1; else high = mid; }
  for (let i = low - 1; i >= 0 && i >= low - 12 && calls[i][0] > since; i--) {
    const [, name, address, bytes, us, result] = calls[i], line = document.createElement("div");
    line.textContent = `${name}${address !== "0x0" ? " " + address : ""}${bytes ? " " + size(bytes) : ""}, ${us} us${result ? `, result ${result}` : ""}`;
    box.append(line);
  }
}

// -- the walk ---------------------------------------------------------------------------------------------------

const highlighted = () => hover || selection;
function inspect() {
  const list = $("inspector"), chosen = highlighted();
  list.replaceChildren();
  for (const name of ["block", "chunk", "row", "address", "sequence", "token", "holders"]) delete list.dataset[name];
  const input = $("token");
  input.disabled = !selection || selection.sequence < 0;
  if (!chosen) { say(list, "Click a block or a chunk."); return; }
  if (chosen.sequence >= 0) sayToken(list, chosen, input);
  if (chosen.block >= 0) sayBlock(list, chosen);
  sayChunk(list, chosen);
}
function say(list, html, here) {
  const item = document.createElement("li");
  item.innerHTML = html;
  if (here) item.className = "here";
  list.append(item);
}
function sayToken(list, chosen, input) {
  const sequence = now[HELD][chosen.sequence];
  const entry = state.lists[chosen.sequence].indexOf(chosen.block) + sequence[DROPPED];
  const slot = chosen.slot || 0, token = entry * about.block_size + slot;
  if (selection === chosen) { input.max = Math.max(0, sequence[TOKENS] - 1); if (document.activeElement !== input) input.value = token; }
  list.dataset.sequence = sequence[NUMBER]; list.dataset.token = token;
  say(list, `<b>${who(sequence)}</b>: ${plural(sequence[TOKENS], "token")} in ${plural(state.lists[chosen.sequence].length, "block")}` +
    (sequence[DROPPED] ? `, ${plural(sequence[DROPPED], "block")} dropped` : ""), true);
  say(list, token < sequence[TOKENS] ? `token <b>${count(token)}</b> = entry ${entry} × ${about.block_size} + slot ${slot}` : `entry ${entry}, slot ${slot}: no token yet`, true);
}
function sayBlock(list, chosen) {
  const holders = state.owners.get(chosen.block) || [];
  list.dataset.block = chosen.block; list.dataset.holders = holders.length;
  const names = holders.slice(0, 6).map((i) => who(now[HELD][i])).join(", ") + (holders.length > 6 ? ` and ${holders.length - 6} more` : "");
  const held = holders.length ? `held by ${names}${holders.length > 1 ? " (shared)" : ""}` :
    state.idle.has(chosen.block) ? "kept by the prefix cache only" : "free";
  say(list, `<b>block ${count(chosen.block)}</b>, ${size(about.block_bytes)}: ${held}`, true);
}
function sayChunk(list, chosen) {
  const row = chosen.block >= 0 ? firstRow(chosen.block) : chosen.row;
  const last = chosen.block >= 0 ? lastRow(chosen.block) : row;
  const address = about.base + (chosen.block >= 0 ? chosen.block * about.block_stride : row * about.chunk);
  list.dataset.row = row; list.dataset.chunk = row; list.dataset.address = `0x${address.toString(16)}`;
  const planes = about.planes > 1 ? ` of each of ${about.planes} planes` : "";
  const found = heldIn(row);
  say(list, `<b>chunk ${count(row)}${last > row ? ` to ${count(last)}` : ""}</b>${planes}, ${size(about.chunk)} each: ` +
    `${state.committed[row] ? "committed" : "reserved only"}, ${count(found.held.length)} of ${plural(found.stop - found.first, "block")} held`, true);
  say(list, `address <code>0x${address.toString(16)}</code> = <code>0x${about.base.toString(16)}</code> + ${size(address - about.base)}` +
    (about.planes > 1 ? `, and ${about.planes - 1} more, ${size(about.plane_stride)} apart` : ""), true);
}
function select(block, sequence = -1, row = -1, slot = 0) {
  if (sequence < 0 && block >= 0 && state.owners.has(block)) sequence = state.owners.get(block)[0];
  selection = { block, sequence, row, slot, number: sequence >= 0 ? now[HELD][sequence][NUMBER] : -1 };
  hover = null;
  drawMarked(true);
}
function drawMarked(scroll) {
  drawChunks(); drawTables(); inspect(); drawThread(scroll);
  pagewalk.selected = selection && { ...$("inspector").dataset };
}
function drawThread(scroll) {
  const canvas = $("thread"), drawn = selection && selection.block >= 0 && selection.sequence >= 0;
  canvas.hidden = !drawn; // as large as the page: not worth clearing where nothing is to be seen
  if (!drawn) return;
  const [pen] = prepare(canvas, Math.round($("walk").getBoundingClientRect().top + window.scrollY));
  const line = lines.find((l) => l.index === selection.sequence);
  const box = $("scroll"), from = line && pagewalk.entryAt(selection.sequence, state.lists[selection.sequence].indexOf(selection.block));
  if (!line) return;
  if (scroll && (line.y < box.scrollTop || line.y + line.tall * LINE > box.scrollTop + box.clientHeight)) {
    box.scrollTop = line.y - 40;
    drawThread(false);
    return;
  }
  const area = box.getBoundingClientRect();
  if (from.y < area.top || from.y > area.bottom) return;
  const chunks = $("chunks").getBoundingClientRect(), [left, top, wide, tall] = blockPlace(selection.block);
  const x0 = chunks.left + left + wide + window.scrollX, y0 = chunks.top + top + tall / 2 + window.scrollY, x1 = from.x + window.scrollX, y1 = from.y + window.scrollY;
  pen.strokeStyle = colours.mark; pen.globalAlpha = 0.55; pen.lineWidth = 1.2;
  pen.beginPath(); pen.moveTo(x0 + 2, y0);
  pen.bezierCurveTo(x0 + (x1 - x0) * 0.5, y0, x0 + (x1 - x0) * 0.5, y1, x1 - SIDE / 2 - 1, y1);
  pen.stroke(); pen.globalAlpha = 1;
}

// -- from a place on a canvas to what is there, and back --------------------------------------------------------

pagewalk.entryAt = (index, entry) => {
  const line = lines.find((l) => l.index === index), box = $("table").getBoundingClientRect();
  const [x, y] = entryPlace(line, entry);
  return { x: box.left + x + SIDE / 2 - 1, y: box.top + y + 6 };
};
pagewalk.chunkAt = (row) => {
  const box = $("chunks").getBoundingClientRect(), [x, y] = cellPlace(cellOf(row));
  return { x: box.left + x + grid.wide / 2, y: box.top + y + grid.tall / 2 };
};
function entryUnder(event) {
  const box = $("table").getBoundingClientRect(), x = event.clientX - box.left - NAMES - 2, y = event.clientY - box.top;
  const line = lines.find((l) => y >= l.y && y < l.y + l.tall * LINE);
  if (!line || x < 0) return null;
  const column = Math.floor(x / SIDE), entry = Math.floor((y - line.y) / LINE) * line.across + column;
  const table = state.lists[line.index];
  if (column >= line.across || entry >= table.length) return null;
  return { sequence: line.index, block: table[entry], row: -1 };
}
function chunkUnder(event) {
  const box = $("chunks").getBoundingClientRect();
  const x = event.clientX - box.left - 2, y = event.clientY - box.top - 2;
  const column = Math.floor(x / (grid.wide + grid.gap)), line = Math.floor(y / (grid.tall + grid.gap));
  const cell = line * grid.columns + column;
  if (column < 0 || column >= grid.columns || cell < 0 || cell >= grid.cells) return null;
  const row = cell * grid.rows, found = heldIn(row);
  let block = found.held[0] ?? found.idle[0] ?? -1;
  if (grid.square) { // the very block
    const across = Math.floor((x - column * (grid.wide + grid.gap) - 2) / grid.square);
    const under = Math.floor((y - line * (grid.tall + grid.gap) - 2) / grid.square);
    block = startingIn(row) + under * grid.across + Math.max(0, Math.min(grid.across - 1, across));
    if (block < 0 || block >= startingIn(row + 1)) block = -1;
  }
  return { row, block, sequence: block >= 0 && state.owners.has(block) ? state.owners.get(block)[0] : -1, found };
}
function clickChunk(event) {
  const found = chunkUnder(event);
  if (!found) return;
  if (grid.square) { select(found.block, -1, found.row); return; }
  const inside = [...found.found.held, ...found.found.idle], was = selection ? inside.indexOf(selection.block) : -1;
  const block = inside.length ? inside[(was + 1) % inside.length] : -1; // a second click goes on to the next block
  select(block, -1, found.row);
}
function moveIn(event) { // arrows in the block tables
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(event.key) || !now[HELD].length) return;
  event.preventDefault(); event.stopPropagation();
  const at = selection && selection.sequence >= 0 ? selection.sequence : -1;
  if (at < 0) { select(state.lists[0][0] ?? -1, 0); return; }
  let sequence = at, entry = state.lists[at].indexOf(selection.block);
  if (event.key === "ArrowLeft") entry--;
  if (event.key === "ArrowRight") entry++;
  if (event.key === "ArrowUp") sequence--;
  if (event.key === "ArrowDown") sequence++;
  sequence = Math.max(0, Math.min(now[HELD].length - 1, sequence));
  entry = Math.max(0, Math.min(state.lists[sequence].length - 1, entry));
  if (state.lists[sequence].length) select(state.lists[sequence][entry], sequence);
}
function moveChunk(event) { // arrows in the chunks
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns };
  if (event.key === "Enter") { $("table").focus(); return; }
  if (!(event.key in steps)) return;
  event.preventDefault(); event.stopPropagation();
  const was = selection ? cellOf(selection.block >= 0 ? firstRow(selection.block) : selection.row) : -1;
  const cell = Math.max(0, Math.min(grid.cells - 1, was + steps[event.key])), found = heldIn(cell * grid.rows);
  select(found.held[0] ?? found.idle[0] ?? -1, -1, cell * grid.rows);
}

// -- putting it together ----------------------------------------------------------------------------------------

let state = null;
function show(index) {
  const began = performance.now();
  at = Math.max(0, Math.min(moments.length - 1, index));
  now = moments[at];
  state = unpack(now);
  pagewalk.index = at;
  if (Number($("slider").value) !== at) $("slider").value = at;
  $("clock").textContent = seconds(now[AT]);
  $("slider").setAttribute("aria-valuetext", seconds(now[AT]));
  hover = null;
  if (selection) keepSelection();
  data.figures.forEach((name, i) => {
    $("figures").children[i].lastChild.textContent = name === "sequences" ? count(now[FIGURES][i]) : size(now[FIGURES][i]);
  });
  drawCurves(); drawOverview(); drawMarked(false); drawSpent(); drawStrip();
  $("range-note").textContent = rangeNote();
  pagewalk.lastRender = performance.now() - began;
}
function keepSelection() { // the same sequence and entry, while it lives
  const index = now[HELD].findIndex((s) => s[NUMBER] === selection.number);
  const row = selection.block >= 0 ? firstRow(selection.block) : selection.row;
  if (index >= 0 && state.lists[index].includes(selection.block)) selection.sequence = index;
  else if (selection.block >= 0 && state.owners.has(selection.block)) selection = { ...selection, sequence: state.owners.get(selection.block)[0] };
  else selection = { ...selection, sequence: -1, row };
  selection.number = selection.sequence >= 0 ? now[HELD][selection.sequence][NUMBER] : selection.number;
}
function rangeNote() {
  let rows = 0;
  for (let i = 1; i < now[ROWS].length; i += 2) rows += now[ROWS][i];
  const cell = grid.rows > 1 ? `; a cell is ${grid.rows} chunks` : about.planes > 1 ? `; a ${grid.square ? "box" : "cell"} is one chunk in each of ${about.planes} planes` : grid.square ? "; a box is a chunk, a square a block" : "";
  return `${count(rows)} of ${count(about.rows)} committed${now[ASLEEP] ? ", asleep: no physical memory" : ""}; the first ${count(rowCount)} below${cell}`;
}
function legend(id, entries) {
  for (const [text, paint] of entries) {
    const item = document.createElement("span"), mark = document.createElement("canvas");
    item.append(mark, span(text));
    $(id).append(item);
    const [pen] = [mark.getContext("2d")];
    mark.width = 24; mark.height = 24; pen.scale(2, 2);
    paint(pen);
  }
}
function legends() {
  for (const id of ["curve-legend", "chunk-legend", "strip-legend"]) $(id).replaceChildren();
  const filled = (colour) => (pen) => { pen.fillStyle = colour; pen.fillRect(0, 0, 12, 12); };
  legend("curve-legend", [
    ...CURVES.filter(([name]) => moments.some((m) => m[HIGH][figure[name]])).map(([name, colour]) => [name, filled(colour)]),
    ["band: least to greatest between two moments", (pen) => { pen.globalAlpha = 0.25; filled("#0072b2")(pen); }],
  ]);
  legend("chunk-legend", [
    ["held, in its sequence's colour", (pen) => swatch(pen, 0, 0, 0, 12, 12)],
    ["shared", (pen) => { swatch(pen, 4, 0, 0, 12, 12); sharedMark(pen, 0, 0, 12); }],
    ["prefix cache only", (pen) => idleMark(pen, 0, 0, 12, 12)],
    ["committed, nothing held", (pen) => emptyMark(pen, 0, 0, 12, 12)],
    ["reserved only", (pen) => { pen.fillStyle = colours.bare; pen.fillRect(0, 0, 12, 12); pen.strokeStyle = colours.line; pen.strokeRect(0.5, 0.5, 11, 11); }],
  ]);
  legend("strip-legend", data.strip.names.map((name, i) => [name, filled(CALLS[i])]));
  const body = $("waste");
  body.replaceChildren();
  for (const name of ["live", ...data.causes]) {
    const row = body.insertRow();
    const mark = document.createElement("canvas");
    mark.width = mark.height = 24;
    const pen = mark.getContext("2d"); pen.scale(2, 2); wastePattern(pen, name, 0, 0, 12, 12);
    row.insertCell().append(mark);
    row.insertCell().textContent = name; row.insertCell(); row.insertCell(); row.insertCell().textContent = MEANING[name];
  }
}
function introduce() {
  $("source").textContent = about.source || `pool ${about.range}`;
  const facts = [about.model, `${about.spec}`, `blocks of ${about.block_size} tokens, ${size(about.block_bytes)}`, `chunks of ${size(about.chunk)}`,
    `order ${about.order}`, `budget ${size(about.budget)}`, `${data.reserved} reserved at 0x${about.base.toString(16)}`,
    `driver ${about.driver}, ${about.device}, backing ${about.backing}`];
  $("facts").textContent = facts.filter(Boolean).join(" · ");
  const clock = about.clock === "simulated" ? "simulated time" : "time";
  $("honest").textContent = `${plural(data.moments.length, "moment")} of ${plural(data.part.events, "event")} from ${seconds(data.part.start)} to ${seconds(data.part.stop)} of ${clock}. ` +
    (!data.part.every ? "Each state shown is the true state at its moment; what happened between two moments is only in the bands and the counts. A part is shown in finer steps with view --from and --to." : "Every change is shown.") +
    (about.dropped ? ` ${plural(about.dropped, "earlier event")} had left the ring: the recording begins with the state they led to.` : "");
  for (const name of data.figures) {
    const box = document.createElement("div"), term = document.createElement("dt"), value = document.createElement("dd");
    term.textContent = name; box.append(term, value); $("figures").append(box);
  }
  data.figures.forEach((name, i) => { figure[name] = i; });
  for (const m of moments) for (let i = 0; i < m[ROWS].length; i += 2) rowCount = Math.max(rowCount, m[ROWS][i] + m[ROWS][i + 1]);
  $("slider").max = moments.length - 1;
}
function restyle() { readColours(); curvesDrawn = stripDrawn = null; legends(); show(at); }
function seek(canvas, event) {
  const box = canvas.getBoundingClientRect(), span = data.part.stop - data.part.start;
  const ns = data.part.start + ((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * span;
  let low = 0, high = moments.length - 1;
  while (low < high) { const mid = (low + high + 1) >> 1; if (moments[mid][AT] <= ns) low = mid; else high = mid - 1; }
  show(low);
}
function play() {
  playing = playing ? (clearInterval(playing), 0) : setInterval(() => (at + 1 < moments.length ? show(at + 1) : play()), 60);
  $("play").textContent = playing ? "Pause" : "Play";
}
function listen() {
  $("slider").addEventListener("input", (event) => show(Number(event.target.value)));
  $("play").addEventListener("click", play);
  $("theme").addEventListener("click", () => { document.documentElement.classList.toggle("dark"); restyle(); });
  for (const id of ["curves", "strip"]) {
    $(id).addEventListener("pointerdown", (event) => { $(id).setPointerCapture(event.pointerId); seek($(id), event); });
    $(id).addEventListener("pointermove", (event) => { if (event.buttons) seek($(id), event); });
  }
  $("table").addEventListener("click", (event) => { const f = entryUnder(event); if (f) select(f.block, f.sequence); });
  $("chunks").addEventListener("click", clickChunk);
  const follow = (find) => (event) => {
    const found = find(event), same = found && hover && found.block === hover.block && found.row === hover.row;
    if (same || (!found && !hover)) return;
    hover = found;
    drawChunks(); drawTables(); inspect();
  };
  $("table").addEventListener("pointermove", follow(entryUnder));
  $("chunks").addEventListener("pointermove", follow(chunkUnder));
  for (const id of ["table", "chunks"]) $(id).addEventListener("pointerleave", follow(() => null));
  $("table").addEventListener("keydown", moveIn);
  $("chunks").addEventListener("keydown", moveChunk);
  $("scroll").addEventListener("scroll", () => drawThread(false));
  $("token").addEventListener("input", (event) => {
    const token = Number(event.target.value), sequence = now[HELD][selection.sequence];
    const entry = Math.floor(token / about.block_size) - sequence[DROPPED], table = state.lists[selection.sequence];
    if (entry >= 0 && entry < table.length) select(table[entry], selection.sequence, -1, token % about.block_size);
  });
  document.addEventListener("keydown", keys);
  window.addEventListener("resize", () => show(at));
}
function keys(event) {
  if (event.target instanceof HTMLInputElement && event.target.type === "number") return;
  const step = event.shiftKey ? 10 : 1;
  const to = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: moments.length - 1 }[event.key];
  if (to !== undefined) { event.preventDefault(); show(to); }
  if (event.key === " " && !(event.target instanceof HTMLButtonElement)) { event.preventDefault(); play(); }
  if (event.key === "t" || event.key === "T") $("theme").click();
}
async function start() {
  const packed = Uint8Array.from(atob($("data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  data = JSON.parse(await new Response(stream).text());
  $("data").textContent = "";
  about = data.about; moments = data.moments;
  if (window.matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.classList.add("dark");
  introduce(); readColours(); legends(); listen();
  let fullest = 0; // begin where most is committed
  moments.forEach((m, i) => { if (m[FIGURES][figure.committed] > moments[fullest][FIGURES][figure.committed]) fullest = i; });
  pagewalk.show = show; pagewalk.select = select; pagewalk.moments = moments;
  show(fullest);
  pagewalk.ready = true;
}
start().catch((error) => { $("honest").textContent = `This page could not be shown: ${error}`; });
