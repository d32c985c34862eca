// A moment is chosen and everything is drawn from it; legends, keys and the start.

let state = null;
function show(index) {
  const began = performance.now();
  at = Math.max(0, Math.min(moments.length - 1, index));
  now = moments[at];
  state = unpack(at);
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
  const cell = grid.rows > 1 ? `; a cell is ${grid.rows} chunks` : about.planes > 1 ? `; a ${grid.square ? "box" : "cell"} is one chunk in each of ${about.planes} planes` : grid.square ? "; a box is a chunk, a square a block" : "";
  return `${count(state.rows)} of ${count(about.rows)} committed${now[ASLEEP] ? ", asleep: no physical memory" : ""}; the first ${count(rowCount)} below${cell}`;
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
    (!data.part.every ? "Each state shown is the true state at its moment; what happened between two moments is only in the bands and the counts. A part is shown in finer steps with view --from and --until." : "Every change is shown.") +
    " It opens where most is committed." +
    (about.dropped ? ` ${plural(about.dropped, "earlier event")} had left the ring: the recording begins with the state they led to.` : "");
  for (const name of data.figures) {
    const box = document.createElement("div"), term = document.createElement("dt"), value = document.createElement("dd");
    term.textContent = name; box.append(term, value); $("figures").append(box);
  }
  data.figures.forEach((name, i) => { figure[name] = i; });
  rowCount = Math.max(1, data.most_rows);
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
