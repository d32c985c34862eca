// Bytes over time: means are lines, what happened between two moments is a band.

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
