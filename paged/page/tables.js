// The sequences and their block tables.

// Blocks are drawn smaller where there are many, so that all sequences of a busy moment can be seen at once.
const NAMES = 196, SIZES = [[11, 15, 9, 11], [9, 12, 8, 9], [7, 9, 6, 7], [5, 7, 4, 5]], SEEN = 430;
let lines = [], cell = { side: 11, line: 15, wide: 9, tall: 11 };
function layTables(width) {
  for (const [side, line, wide, tall] of SIZES) {
    cell = { side, line, wide, tall };
    const height = layLines(Math.max(8, Math.floor((width - NAMES - 4) / side)));
    if (height <= SEEN || side === 5) return height;
  }
}
function layLines(across) {
  lines = [];
  let y = 3;
  now[HELD].slice(0, MOST_LISTED).forEach((sequence, index) => {
    const high = Math.max(15, Math.ceil(state.lists[index].length / across) * cell.line);
    lines.push({ index, y, high, across });
    y += high + 3;
  });
  return y + 3;
}
const entryPlace = (line, entry) => [
  NAMES + (entry % line.across) * cell.side + 2, line.y + Math.floor(entry / line.across) * cell.line,
];
function drawTables() {
  const canvas = $("table"), height = Math.max(60, layTables(canvas.clientWidth));
  const [pen, width] = prepare(canvas, height);
  pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "middle";
  for (const line of lines) {
    const sequence = now[HELD][line.index], table = state.lists[line.index];
    if (selection && selection.sequence === line.index) {
      pen.fillStyle = colours.faint; pen.fillRect(0, line.y - 2, width, line.high + 2);
    }
    swatch(pen, sequence[NUMBER], 2, line.y + 1, 11, 11);
    pen.fillStyle = colours.ink; pen.textAlign = "left"; pen.fillText(who(sequence), 19, line.y + 7);
    pen.fillStyle = colours.soft; pen.textAlign = "right"; pen.fillText(`${count(sequence[TOKENS])} tok`, NAMES - 8, line.y + 7);
    const last = table.length - 1, filled = sequence[TOKENS] - (sequence[DROPPED] + last) * about.block_size;
    for (let entry = 0; entry < table.length; entry++) {
      const [x, y] = entryPlace(line, entry);
      const part = entry === last ? Math.max(0.12, Math.min(1, filled / about.block_size)) : 1;
      if (part < 1) { pen.fillStyle = colours.free; pen.fillRect(x, y + 1, cell.wide, cell.tall); }
      swatch(pen, sequence[NUMBER], x, y + 1, Math.max(1, Math.round(cell.wide * part)), cell.tall);
      if (state.owners.get(table[entry]).length > 1) sharedMark(pen, x, y + 1, cell.wide);
    }
  }
  const chosen = highlighted();
  if (chosen && chosen.block >= 0) {
    for (const line of lines) {
      const entry = state.lists[line.index].indexOf(chosen.block);
      if (entry >= 0) frame(pen, ...entryPlace(line, entry).map((v, i) => v + i), cell.wide, cell.tall);
    }
  }
  const more = now[HELD].length - lines.length;
  const shared = state.shared;
  $("table-note").textContent = `${plural(now[HELD].length, "sequence")}, ${plural(state.owners.size, "block")} held` +
    (shared ? `, ${count(shared)} of them shared` : "") + (more > 0 ? `; the first ${count(lines.length)} are drawn` : "");
}
