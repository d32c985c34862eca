// The virtual range above, and its chunks.

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
    else if (state.idle[block]) idle.push(block);
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
    if (!holders && !state.idle[block]) continue;
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
  for (let row = 0; row < rowCount; row++) {
    let stop = row;
    while (state.committed[stop]) stop++;
    if (stop > row) pen.fillRect((row / about.rows) * width, 4, Math.max(1, ((stop - row) / about.rows) * width), 8);
    row = stop;
  }
  pen.strokeStyle = colours.mark; pen.lineWidth = 1;
  pen.strokeRect(0.5, 1.5, Math.max(3, (rowCount / about.rows) * width) - 1, height - 3);
}
