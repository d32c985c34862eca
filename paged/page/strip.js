// The driver's calls over the same time.

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
