// gather_kv: read K and V back from their slots into packed arrays, the reverse of append_kv.
//
// Computes   key[t, h, d] = key_scale[h] * K[slots[t], h, d]  and  value[t, h, d] = value_scale[h] * V[slots[t], h, d]
//            for T tokens; zeros where the slot is negative
// Threads    one block of threads a token; a thread takes 8 neighbours in d of one head at a time
// Constants  ELEMENT (of the cache), OUTPUT (of key and value), HEAD_DIM (D), LAYOUT_VLLM
//
// Why it is fast: as in append_kv, with loads and stores in each other's place.
#include "chunk.cuh"

typedef OUTPUT Output;

extern "C" __global__ void gather_kv(
    Element* key_pool,    // K of block 0, in the pool's layout
    Element* value_pool,  // V of block 0
    int64 block_stride,   // strides in elements
    int64 head_stride,
    int64 slot_stride,
    int block_size,
    int kv_heads,        // Hkv
    Output* key,         // [T, Hkv, D] packed
    Output* value,       // [T, Hkv, D] packed
    const int64* slots,  // [T] block * block_size + slot; negative: zeros
    const float* key_scale,    // [Hkv] or [1] of a narrow cache, scale_stride 1 or 0; else null
    const float* value_scale,
    int scale_stride) {
    const int64 token = blockIdx.x;
    const int64 slot_index = slots[token];
    const PagedKV kv{key_pool, value_pool, block_stride, head_stride, slot_stride, block_size};
    const Place at = locate(slot_index < 0 ? 0 : slot_index, block_size);
    for (int i = threadIdx.x * CHUNK; i < kv_heads * HEAD_DIM; i += blockDim.x * CHUNK) {
        const int head = i / HEAD_DIM, d = i % HEAD_DIM;
        Chunk<Output> k = {}, v = {};
        if (slot_index >= 0) {  // guard: without a slot nothing is read
            const float key_by = key_scale ? key_scale[head * scale_stride] : 1;
            const float value_by = value_scale ? value_scale[head * scale_stride] : 1;
            k = converted<Output>(read_key(kv, at, head, d).element, key_by);
            v = converted<Output>(read_value(kv, at, head, d).element, value_by);
        }
        *(Chunk<Output>*)(key + (int64)token * kv_heads * HEAD_DIM + i) = k;
        *(Chunk<Output>*)(value + (int64)token * kv_heads * HEAD_DIM + i) = v;
    }
}
