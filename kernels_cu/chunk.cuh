// A chunk: 8 neighbours in d of one head's row, which a thread loads, converts and stores in as few instructions as
// alignment and layout allow.
//
// In hnd and nhd a chunk is one piece of memory; in vllm K's chunk is one or two pieces of x elements and V's is 8
// elements, each block_size apart.
#pragma once
#include "paged_kv.cuh"

// From one type to another through float; between equal types the bits themselves, the smallest numbers among them.
template <typename From, typename To>
struct Convert {
    static __device__ inline void one(From x, float factor, To* to) { from_float(to_float(x) * factor, to); }
};
template <typename T>
struct Convert<T, T> {
    static __device__ inline void one(T x, float, T* to) { *to = x; }
};

template <typename To, typename From>
__device__ inline Chunk<To> converted(const From* x, float factor) {
    Chunk<To> result;
    for (int i = 0; i < CHUNK; i++) Convert<From, To>::one(x[i], factor, &result.element[i]);
    return result;
}

constexpr int SIDE_BY_SIDE = LAYOUT_VLLM && sizeof(Element) == 4 ? 4 : CHUNK;  // of K
struct alignas(SIDE_BY_SIDE * sizeof(Element) < 16 ? 8 : 16) Part {
    Element element[SIDE_BY_SIDE];
};

__device__ inline void write_key(const PagedKV& kv, Place at, int head, int d, const Chunk<Element>& chunk) {
    for (int i = 0; i < CHUNK; i += SIDE_BY_SIDE)
        *(Part*)(kv.key + key_row(kv, at, head) + key_step(kv, d + i)) = *(const Part*)(chunk.element + i);
}

__device__ inline Chunk<Element> read_key(const PagedKV& kv, Place at, int head, int d) {
    Chunk<Element> chunk;
    for (int i = 0; i < CHUNK; i += SIDE_BY_SIDE)
        *(Part*)(chunk.element + i) = *(const Part*)(kv.key + key_row(kv, at, head) + key_step(kv, d + i));
    return chunk;
}

__device__ inline void write_value(const PagedKV& kv, Place at, int head, int d, const Chunk<Element>& chunk) {
    Element* row = kv.value + value_row(kv, at, head);
    if (!LAYOUT_VLLM) {
        *(Chunk<Element>*)(row + d) = chunk;
    } else {
        for (int i = 0; i < CHUNK; i++) row[value_step(kv, d + i)] = chunk.element[i];
    }
}

__device__ inline Chunk<Element> read_value(const PagedKV& kv, Place at, int head, int d) {
    const Element* row = kv.value + value_row(kv, at, head);
    if (!LAYOUT_VLLM) return *(const Chunk<Element>*)(row + d);
    Chunk<Element> chunk;
    for (int i = 0; i < CHUNK; i++) chunk.element[i] = row[value_step(kv, d + i)];
    return chunk;
}
