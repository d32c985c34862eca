// Threads that exchange a word in shared memory, with and without the barrier that orders them. Each kind says in its
// name what stands between the two accesses, and test_races.py which of them are races. KIND is a constant, so that no
// compiler merges what two kinds have in common, and each access keeps its line.
#include "ptx.cuh"

enum {
    WARP_BARRIER, NOTHING, BLOCK_BARRIER, WARP_BARRIER_FOR_BLOCK, SHUFFLE, READ_THEN_WRITE, READ_BARRIER_WRITE, HALF_MASK,
    OTHER_HALF_MASK, HALVES_THEN_ALL, BYTES_OF_A_WORD, SAME_BYTE, COPY_WAIT_BARRIER, COPY_WAIT, COPY_BARRIER,
    COPY_OVER_READ, COPY_OVER_READ_BARRIER, OWN_COPY, OWN_COPY_WAIT, MATRIX_BARRIER, MATRIX, ATOMIC, DYNAMIC, CHAIN
};

__device__ inline void copy_from(unsigned int* shared, const unsigned int* in) {
    ptx_cp_async_16(shared + 4 * threadIdx.x, in + 4 * threadIdx.x, 16);
    ptx_cp_async_commit_group();
}

extern "C" __global__ void races(unsigned int* out, const unsigned int* in) {  // 64 threads
    const int kind = KIND;
    __shared__ __align__(16) unsigned int word[256];
    DYNAMIC_SHARED(dynamic);
    const unsigned int t = threadIdx.x, neighbour = t ^ 1, opposite = t ^ 32;
    unsigned int result = 0;
    if (kind == WARP_BARRIER) { word[t] = t; __syncwarp(); result = word[neighbour]; }
    if (kind == NOTHING) {
        word[t] = t;                // the first access
        result = word[neighbour];   // the second access
    }
    if (kind == BLOCK_BARRIER) { word[t] = t; __syncthreads(); result = word[opposite]; }
    if (kind == WARP_BARRIER_FOR_BLOCK) { word[t] = t; __syncwarp(); result = word[opposite]; }
    if (kind == SHUFFLE) { word[t] = t; result = __shfl_xor_sync(~0u, t, 1); result += word[neighbour]; }
    if (kind == READ_THEN_WRITE) { word[t] = t; __syncwarp(); result = word[neighbour]; word[t] = 7; }
    if (kind == READ_BARRIER_WRITE) { word[t] = t; __syncwarp(); result = word[neighbour]; __syncwarp(); word[t] = 7; }
    if (kind == HALF_MASK && t < 16) { word[t] = t; __syncwarp(0xffffu); result = word[neighbour]; }
    if (kind == OTHER_HALF_MASK && t < 32) {
        word[t] = t;
        if (t < 16) __syncwarp(0xffffu);
        else __syncwarp(0xffff0000u);
        result = word[t ^ 16];
    }
    if (kind == HALVES_THEN_ALL && t < 32) {  // what a half knows, all know after the barrier of all
        word[t] = t;
        if (t < 16) __syncwarp(0xffffu);
        __syncwarp();
        result = word[t ^ 16];
    }
    if (kind == BYTES_OF_A_WORD) { ((unsigned short*)word)[t] = 1; result = ((unsigned short*)word)[t]; }
    if (kind == SAME_BYTE) { ((unsigned char*)word)[t / 2] = 1; __syncthreads(); result = ((unsigned char*)word)[t / 2]; }
    if (kind == COPY_WAIT_BARRIER) { copy_from(word, in); ptx_cp_async_wait_group<0>(); __syncwarp(); result = word[4 * neighbour]; }
    if (kind == COPY_WAIT) { copy_from(word, in); ptx_cp_async_wait_group<0>(); result = word[4 * neighbour]; }
    if (kind == COPY_BARRIER) { copy_from(word, in); __syncthreads(); result = word[4 * neighbour]; }
    if (kind == COPY_OVER_READ || kind == COPY_OVER_READ_BARRIER) {
        copy_from(word, in);
        ptx_cp_async_wait_group<0>();
        __syncwarp();
        result = word[4 * neighbour];
        if (kind == COPY_OVER_READ_BARRIER) __syncwarp();
        copy_from(word, in);  // into what a neighbour may still read
        ptx_cp_async_wait_group<0>();
    }
    if (kind == OWN_COPY) { copy_from(word, in); result = word[4 * t]; }
    if (kind == OWN_COPY_WAIT) { copy_from(word, in); ptx_cp_async_wait_group<0>(); result = word[4 * t]; }
    if (kind == MATRIX || kind == MATRIX_BARRIER) {
        for (int i = 0; i < 4; i++) word[4 * t + i] = t;
        if (kind == MATRIX_BARRIER) __syncwarp();
        unsigned int r[4];
        ptx_ldmatrix_x4(r, word + 4 * neighbour);
        result = r[0];
    }
    if (kind == ATOMIC) { if (t == 0) word[0] = 0; __syncthreads(); atomicAdd(&word[0], t); __syncthreads(); result = word[0]; }
    if (kind == DYNAMIC) { ((unsigned int*)dynamic)[t] = t; result = ((unsigned int*)dynamic)[neighbour]; }
    if (kind == CHAIN && t < 3) {  // 0 meets 1, then 1 meets 2: 2 knows what 0 did
        if (t == 0) { word[0] = 5; __syncwarp(3u); }
        if (t == 1) { __syncwarp(3u); __syncwarp(6u); }
        if (t == 2) { __syncwarp(6u); result = word[0]; }
    }
    out[t] = result;
}
