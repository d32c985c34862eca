// Where a token's K and V lie. This arithmetic stands here once, and every kernel walks the pool through it.
//
// A token becomes an address in two steps. The kernel itself does the first, with the block table:
//
//     token 37, block_size 16  ->  block = table[37 / 16] = table[2],  slot = 37 % 16 = 5
//
// and the strides do the second, which ends at an address of the GPU's address space:
//
//     row = base + block * block_stride + head * head_stride + slot * slot_stride
//
// The third step is not ours: the GPU's MMU looks the address up in the page tables that the driver keeps, and finds
// the chunk of physical memory. The kernel cannot tell whether its blocks lie side by side or in a thousand chunks.
//
// Inside a block, for D = head_dim, Hkv KV heads and x = 16 bytes / size of an element:
//
//     layout   K                          V                      from one d to the next
//     hnd      [Hkv, block_size, D]       [Hkv, block_size, D]   1
//     nhd      [block_size, Hkv, D]       [block_size, Hkv, D]   1
//     vllm     [Hkv, D/x, block_size, x]  [Hkv, D, block_size]   K: 1 inside a group of x, V: block_size
//
// hnd and nhd differ in their strides alone, so one build serves both; LAYOUT_VLLM is 1 in the build for vllm.
// In all three, x neighbours in d of one K row are 16 bytes side by side: one Vector.
//
// Kernels that move whole blocks know neither heads nor elements: to them a block is a span of bytes in each plane.
#pragma once
#include "elements.cuh"

// Blocks of a pool, or of any other memory that is cut in the same way.
struct Blocks {
    char* base;  // block 0 of plane 0
    int64 plane_stride;  // in bytes
    int64 block_stride;
};

__device__ inline char* block_at(const Blocks& blocks, int plane, int64 block) {
    return blocks.base + plane * blocks.plane_stride + block * blocks.block_stride;
}

#ifdef ELEMENT

struct PagedKV {
    Element* key;        // K of block 0
    Element* value;      // V of block 0
    int64 block_stride;  // strides are in elements
    int64 head_stride;
    int64 slot_stride;
    int block_size;  // tokens in a block
};

struct Place {
    int64 block;  // 64 bits before the multiplication: block * block_stride passes 2^31 in a pool of a few GB
    int slot;
};

// Block and slot of a token of the sequence whose block table is `table`.
__device__ inline Place locate(const int* table, int token, int block_size) {
    return Place{table[token / block_size], token % block_size};
}

// Block and slot of a slot index, block * block_size + slot, as the scheduler gives it for each new token.
__device__ inline Place locate(int64 slot_index, int block_size) {
    return Place{slot_index / block_size, (int)(slot_index % block_size)};
}

// From a slot to that `slots` further on in the same block.
__device__ inline int64 rows_apart(const PagedKV& kv, int slots) { return slots * kv.slot_stride; }

// Where no block table stands between: all tokens of a sequence lie in one span of addresses, which begins `start`
// elements from the base, and the MMU alone finds the memory.
__device__ inline int64 span_row(const PagedKV& kv, int64 start, int64 token, int head) {
    return start + head * kv.head_stride + token * kv.slot_stride;
}

#if LAYOUT_VLLM

__device__ inline int64 key_row(const PagedKV& kv, Place at, int head) {
    return at.block * kv.block_stride + head * kv.head_stride + at.slot * Vector<Element>::SIZE;
}
__device__ inline int64 value_row(const PagedKV& kv, Place at, int head) {
    return at.block * kv.block_stride + head * kv.head_stride + at.slot;
}
__device__ inline int64 key_step(const PagedKV& kv, int d) {
    constexpr int x = Vector<Element>::SIZE;
    return (int64)(d / x) * kv.block_size * x + d % x;
}
__device__ inline int64 value_step(const PagedKV& kv, int d) { return (int64)d * kv.block_size; }

#else

__device__ inline int64 key_row(const PagedKV& kv, Place at, int head) {
    return at.block * kv.block_stride + head * kv.head_stride + at.slot * kv.slot_stride;
}
__device__ inline int64 value_row(const PagedKV& kv, Place at, int head) { return key_row(kv, at, head); }
__device__ inline int64 key_step(const PagedKV&, int d) { return d; }
__device__ inline int64 value_step(const PagedKV&, int d) { return d; }

#endif

#endif  // ELEMENT
