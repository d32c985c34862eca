// One moment, unpacked: which sequences hold each block, and which rows are committed.

const decoded = []; // tables, each at its longest
function tableOf(sequence) {
  const key = sequence[TABLE];
  if (!decoded[key]) {
    let block = 0;
    decoded[key] = Int32Array.from(data.tables[key], (step) => (block += step));
  }
  return decoded[key].subarray(0, sequence[LENGTH]);
}
function toggled(index, field, length) { // a set at one moment: the last that is whole, and what changed since
  const found = new Uint8Array(length);
  for (let i = index - (index % data.every); i <= index; i++) {
    const runs = moments[i][field];
    for (let r = 0; r < runs.length; r += 2)
      for (let n = runs[r]; n < runs[r] + runs[r + 1]; n++) found[n] ^= 1;
  }
  return found;
}
function unpack(index) {
  const moment = moments[index];
  const found = {
    committed: toggled(index, ROWS, rowCount), idle: toggled(index, CACHED, data.most_blocks),
    owners: new Map(), lists: moment[HELD].map(tableOf), rows: 0, shared: 0,
  };
  for (const row of found.committed) found.rows += row;
  found.lists.forEach((table, index) => {
    for (const block of table) {
      const holders = found.owners.get(block);
      if (holders === undefined) found.owners.set(block, [index]);
      else if (holders[holders.length - 1] !== index) { if (holders.length === 1) found.shared++; holders.push(index); }
    }
  });
  return found;
}
const firstRow = (block) => Math.floor((block * about.block_stride) / about.chunk);
const lastRow = (block) => Math.floor(((block + 1) * about.block_stride - 1) / about.chunk);
const blocksOf = (row) => [
  Math.floor((row * about.chunk) / about.block_stride),
  Math.min(about.blocks, Math.ceil(((row + 1) * about.chunk) / about.block_stride)),
];
let rowCount = 1;
