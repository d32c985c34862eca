// The sequences and their block tables.

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
