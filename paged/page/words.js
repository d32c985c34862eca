"use strict";
// The page of one recording. Its scripts are joined in one, in the order of write.py. No network, no library.

const $ = (id) => document.getElementById(id);
const SEQUENCES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"]; // Okabe and Ito
const CALLS = ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#8a8f98"];
const WASTE = { live: "#0072b2", tail: "#e69f00", row: "#d55e00", prefix: "#009e73", retiring: "#cc79a7", unused: "#8a8f98" };
const MEANING = {
  live: "tokens that exist", tail: "room of sequences without a token", row: "rest of rows in which some block is held",
  prefix: "blocks that only the prefix cache keeps", retiring: "given up, work may still be running",
  unused: "mapped rows in which nothing is held",
};
const AT = 0, FIGURES = 1, LOW = 2, HIGH = 3, PARTS = 4, ROWS = 5, CACHED = 6, ASLEEP = 7, EVENTS = 8, HELD = 9;
const NUMBER = 0, LABEL = 1, TOKENS = 2, DROPPED = 3, TABLE = 4, LENGTH = 5;
const MOST_LISTED = 400;
const pagewalk = { ready: false, index: 0, selected: null, lastRender: 0 };
window.pagewalk = pagewalk;

let data, about, moments, at = 0, now, selection = null, hover = null, playing = 0, figure = {};

const units = ["B", "KiB", "MiB", "GiB", "TiB"];
function size(bytes) {
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return `${bytes >= 100 || unit === 0 || bytes === Math.round(bytes) ? Math.round(bytes) : bytes.toFixed(bytes >= 10 ? 1 : 2)} ${units[unit]}`;
}
const count = (n) => Math.round(n).toLocaleString("en-US");
const seconds = (ns) => `${(ns / 1e9).toFixed(data.part.stop - data.part.start < 20e9 ? 4 : 2)} s`;
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const who = (s) => (s[LABEL] >= 0 ? `request ${s[LABEL]}` : `sequence ${s[NUMBER]}`);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const span = (text) => { const made = document.createElement("span"); made.textContent = text; return made; };
