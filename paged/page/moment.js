// One moment, unpacked: which sequences hold each block, and which rows are committed.

function unpack(moment) {
  const found = { owners: new Map(), idle: new Set(), committed: new Uint8Array(rowCount), lists: [] };
  for (let i = 0; i < moment[ROWS].length; i += 2) found.committed.fill(1, moment[ROWS][i], moment[ROWS][i] + moment[ROWS][i + 1]);
  for (let i = 0; i < moment[CACHED].length; i += 2)
    for (let b = 0; b < moment[CACHED][i + 1]; b++) found.idle.add(moment[CACHED][i] + b);
  moment[HELD].forEach((sequence, index) => {
    const table = [];
    for (let i = 0; i < sequence[TABLE].length; i += 2)
      for (let b = 0; b < sequence[TABLE][i + 1]; b++) table.push(sequence[TABLE][i] + b);
    found.lists.push(table);
    for (const block of table) {
      const holders = found.owners.get(block);
      if (holders === undefined) found.owners.set(block, [index]);
      else if (holders[holders.length - 1] !== index) holders.push(index);
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
