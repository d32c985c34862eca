// fill_blocks: one pattern into whole blocks. With all bits set, free blocks hold NaN in every type: who reads one by
// mistake is found out.
//
// Computes   memory[p, blocks[i]] = pattern, pattern, ...   for every block i and plane p
// Threads    any number of blocks of 256 threads; they take pieces of 16 KiB in turn
// Constants  none
//
// Why it is fast: stores of 16 bytes, neighbours in a warp side by side; no thread waits for anything.
#include "paged_kv.cuh"

#define THREADS 256
#define STORES 4
#define PIECE (THREADS * STORES * 16)

extern "C" __global__ void __launch_bounds__(THREADS) fill_blocks(
    char* memory,        // block 0 of plane 0; strides and sizes in bytes, multiples of 16
    int64 plane_stride,
    int64 block_stride,
    int64 block_bytes,
    int planes,
    unsigned pattern,      // of 4 bytes, repeated
    int64 block_count,
    const int64* blocks) {  // [block_count] ids; a negative one is skipped
    const Blocks places{memory, plane_stride, block_stride};
    const uint4 value = make_uint4(pattern, pattern, pattern, pattern);
    const int64 pieces = (block_bytes + PIECE - 1) / PIECE;
    for (int64 i = blockIdx.x; i < block_count * planes * pieces; i += gridDim.x) {
        const int64 first = i % pieces * PIECE;
        const int64 block = blocks[i / pieces / planes];
        if (block < 0) continue;  // guard: a padded row
        char* to = block_at(places, (int)(i / pieces % planes), block);
        for (int64 at = first + threadIdx.x * 16; at < first + PIECE && at < block_bytes; at += THREADS * 16)
            ptx_store_once(to + at, value);
    }
}
