// Canvases, and how a sequence, a shared block and an idle one are drawn.

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
