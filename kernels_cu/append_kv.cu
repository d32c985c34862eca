// append_kv: write the K and V of new tokens to their slots, turned by their positions and quantised if wanted.
//
// Computes   K[slots[t], h, d] = key[t, h, d] / key_scale[h]  and  V[slots[t], h, d] = value[t, h, d] / value_scale[h]
//            for T tokens; with ROTARY, key is turned first (rotary.cuh)
// Threads    one block of threads a token; a thread takes 8 neighbours in d of one head at a time
// Constants  ELEMENT (of the cache), SOURCE (of key and value), HEAD_DIM (D), LAYOUT_VLLM, ROTARY, WIDE: 1 where rows
//            of key and value begin at multiples of 16 bytes, 0 for any
//
// Why it is fast: a thread moves 8 elements with one load and one store (two of float32), its neighbours the next 8, so
// that a row of a head is one piece. In vllm, K goes 8 elements at a time as well, but each element of V to a sector of
// its own, which is the price of that layout at every append. No thread waits for another, so there is no barrier.
#include "chunk.cuh"
#include "rotary.cuh"

typedef SOURCE Source;
typedef Chunk<Source, WIDE ? 16 : sizeof(Source)> Piece;

extern "C" __global__ void append_kv(
    Element* key_pool,    // K of block 0, in the pool's layout
    Element* value_pool,  // V of block 0
    int64 block_stride,   // strides in elements, here and below
    int64 head_stride,
    int64 slot_stride,
    int block_size,
    int kv_heads,         // Hkv
    const Source* key,    // [T, Hkv, D], the tokens key_stride apart
    const Source* value,  // [T, Hkv, D], the tokens value_stride apart
    int64 key_stride,
    int64 value_stride,
    const int64* slots,        // [T] block * block_size + slot; negative: no place for this token
    const float* key_scale,    // [Hkv] or [1] of a narrow cache, scale_stride 1 or 0; else null
    const float* value_scale,
    const float* turns,    // [positions, rotary_dim]: cosines, then sines; null without ROTARY
    const int* positions,  // [T] of each token in its sequence; null without ROTARY
    int scale_stride,
    int rotary_dim) {
    const int64 token = blockIdx.x;
    const int64 slot_index = slots[token];
    if (slot_index < 0) return;  // guard: a padded row of the batch, which has no token

    const PagedKV kv{key_pool, value_pool, block_stride, head_stride, slot_stride, block_size};
    const Place at = locate(slot_index, block_size);
    const Rotation by{ROTARY ? turns + (int64)positions[token] * rotary_dim : nullptr, rotary_dim};
    for (int i = threadIdx.x * CHUNK; i < kv_heads * HEAD_DIM; i += blockDim.x * CHUNK) {
        const int head = i / HEAD_DIM, d = i % HEAD_DIM;
        const float key_by = key_scale ? 1 / key_scale[head * scale_stride] : 1;
        const float value_by = value_scale ? 1 / value_scale[head * scale_stride] : 1;
        if (ROTARY) {
            float turned[CHUNK];
            load_turned_chunk(turned, key + token * key_stride + head * HEAD_DIM, d, by);
            write_key(kv, at, head, d, converted<Element>(turned, key_by));
        } else {
            const Piece piece = *(const Piece*)(key + token * key_stride + i);
            write_key(kv, at, head, d, converted<Element>(piece.element, key_by));
        }
        const Piece piece = *(const Piece*)(value + token * value_stride + i);
        write_value(kv, at, head, d, converted<Element>(piece.element, value_by));
    }
}
