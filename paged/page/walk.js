// From a token to memory in words, and the thread between the two pictures.

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
    state.idle[chosen.block] ? "kept by the prefix cache only" : "free";
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
  if (scroll && (line.y < box.scrollTop || line.y + line.high > box.scrollTop + box.clientHeight)) {
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
  pen.bezierCurveTo(x0 + (x1 - x0) * 0.5, y0, x0 + (x1 - x0) * 0.5, y1, x1 - cell.wide / 2 - 2, y1);
  pen.stroke(); pen.globalAlpha = 1;
}
