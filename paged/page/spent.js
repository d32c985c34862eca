// What the committed bytes are spent on.

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
