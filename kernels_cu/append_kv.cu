// append_kv: write the K and V of new tokens to their slots.
//
// Computes   K[slots[t], h, d] = key[t, h, d] and V[slots[t], h, d] = value[t, h, d]   for T tokens
// Threads    one block of threads a token; the threads walk over (head, d), neighbours in d side by side
// Constants  ELEMENT, HEAD_DIM (D), LAYOUT_VLLM
//
// Why it is simple: each thread moves single elements. In hnd and nhd the 32 threads of a warp write neighbours, so
// that the memory sees whole sectors; in vllm each element of V goes to a sector of its own, which is the price of
// that layout at every append. No thread waits for another, so there is no barrier.
#include "paged_kv.cuh"

extern "C" __global__ void append_kv(
    Element* key_pool,    // K of block 0, in the pool's layout
    Element* value_pool,  // V of block 0
    int64 block_stride,   // strides in elements, here and below
    int64 head_stride,
    int64 slot_stride,
    int block_size,
    int kv_heads,          // Hkv
    const Element* key,    // [T, Hkv, D], the tokens key_stride apart
    const Element* value,  // [T, Hkv, D], the tokens value_stride apart
    int64 key_stride,
    int64 value_stride,
    const int64* slots) {  // [T] block * block_size + slot; negative: no place for this token
    const int64 token = blockIdx.x;
    const int64 slot_index = slots[token];
    if (slot_index < 0) return;  // guard: a padded row of the batch, which has no token

    const PagedKV kv{key_pool, value_pool, block_stride, head_stride, slot_stride, block_size};
    const Place at = locate(slot_index, block_size);
    for (int i = threadIdx.x; i < kv_heads * HEAD_DIM; i += blockDim.x) {
        const int head = i / HEAD_DIM;
        const int d = i % HEAD_DIM;
        kv.key[key_row(kv, at, head) + key_step(kv, d)] = key[token * key_stride + i];
        kv.value[value_row(kv, at, head) + value_step(kv, d)] = value[token * value_stride + i];
    }
}
