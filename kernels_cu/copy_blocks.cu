// copy_blocks: whole blocks from one place to another: within a pool, between two, to pinned host memory and back.
//
// Computes   destination[p, pairs[i, 1]] = source[p, pairs[i, 0]]   for every pair i and plane p
// Threads    any number of blocks of 256 threads; they take pieces of 16 KiB in turn, a piece lies in one block
// Constants  STAGE: 0 as above; 1 to block i of the destination, 2 from block i of the source. Stage 1 into memory of
//            its own and stage 2 out of it copy all pairs as if at once
//
// Pairs have no order among them: a block that is both source and destination would be copied old or new, or in part.
//
// Why it is fast: a thread has four loads of 16 bytes under way before it stores the first, so that 64 KiB and more are
// under way on each multiprocessor; neighbours in a warp touch neighbours in memory; nothing stays in the L1 cache.
// A piece takes its place from its number alone, so a grid of any size, a small one beside other kernels too, does it.
#include "paged_kv.cuh"

#define THREADS 256
#define LOADS 4  // of one thread, under way at once
#define PIECE (THREADS * LOADS * 16)

__device__ inline void copy_piece(char* to, const char* from, int64 bytes) {
    uint4 held[LOADS];
    for (int i = 0; i < LOADS; i++) {
        const int64 at = (i * THREADS + threadIdx.x) * 16;
        if (at < bytes) held[i] = ptx_load_once(from + at);  // guard: the last piece of a block is shorter
    }
    for (int i = 0; i < LOADS; i++) {
        const int64 at = (i * THREADS + threadIdx.x) * 16;
        if (at < bytes) ptx_store_once(to + at, held[i]);  // guard, as above
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) copy_blocks(
    char* source,       // block 0 of plane 0; strides and sizes in bytes, multiples of 16
    char* destination,  // block 0 of plane 0
    int64 source_plane_stride,
    int64 source_block_stride,
    int64 destination_plane_stride,
    int64 destination_block_stride,
    int64 block_bytes,
    int planes,
    int64 pair_count,
    const int64* pairs) {  // [pair_count, 2] source and destination block; a pair with a negative one is skipped
    const Blocks sources{source, source_plane_stride, source_block_stride};
    const Blocks destinations{destination, destination_plane_stride, destination_block_stride};
    const int64 pieces = (block_bytes + PIECE - 1) / PIECE;
    for (int64 i = blockIdx.x; i < pair_count * planes * pieces; i += gridDim.x) {
        const int64 at = i % pieces * PIECE;
        const int plane = (int)(i / pieces % planes);
        const int64 pair = i / pieces / planes;
        const int64 from = pairs[2 * pair], to = pairs[2 * pair + 1];
        if (from < 0 || to < 0) continue;  // guard: a padded row
        copy_piece(block_at(destinations, plane, STAGE == 1 ? pair : to) + at,
                   block_at(sources, plane, STAGE == 2 ? pair : from) + at, block_bytes - at);
    }
}
