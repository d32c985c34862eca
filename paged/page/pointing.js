// From a place on a canvas to what is there, and back; arrows.

pagewalk.entryAt = (index, entry) => {
  const line = lines.find((l) => l.index === index), box = $("table").getBoundingClientRect();
  const [x, y] = entryPlace(line, entry);
  return { x: box.left + x + cell.wide / 2, y: box.top + y + 1 + cell.tall / 2 };
};
pagewalk.chunkAt = (row) => {
  const box = $("chunks").getBoundingClientRect(), [x, y] = cellPlace(cellOf(row));
  return { x: box.left + x + grid.wide / 2, y: box.top + y + grid.tall / 2 };
};
function entryUnder(event) {
  const box = $("table").getBoundingClientRect(), x = event.clientX - box.left - NAMES - 2, y = event.clientY - box.top;
  const line = lines.find((l) => y >= l.y && y < l.y + l.high);
  if (!line || x < 0) return null;
  const column = Math.floor(x / cell.side), entry = Math.floor((y - line.y) / cell.line) * line.across + column;
  const table = state.lists[line.index];
  if (column >= line.across || entry >= table.length) return null;
  return { sequence: line.index, block: table[entry], row: -1 };
}
function chunkUnder(event) {
  const box = $("chunks").getBoundingClientRect();
  const x = event.clientX - box.left - 2, y = event.clientY - box.top - 2;
  const column = Math.floor(x / (grid.wide + grid.gap)), line = Math.floor(y / (grid.tall + grid.gap));
  const at = line * grid.columns + column;
  if (column < 0 || column >= grid.columns || at < 0 || at >= grid.cells) return null;
  const row = at * grid.rows, found = heldIn(row);
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
  const row = grid.rows * Math.max(0, Math.min(grid.cells - 1, was + steps[event.key])), found = heldIn(row);
  select(found.held[0] ?? found.idle[0] ?? -1, -1, row);
}
