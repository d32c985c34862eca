// Writes where paged_kv.cuh puts each (slot index, head, d), in elements from the bases: [n] of K, [n] of V.
#include "paged_kv.cuh"

extern "C" __global__ void addresses(
    int64* keys,             // [n]
    int64* values,           // [n]
    const int64* questions,  // [n, 3] slot index, head, d
    int64 block_stride,
    int64 head_stride,
    int64 slot_stride,
    int block_size,
    int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;  // guard
    const PagedKV kv{nullptr, nullptr, block_stride, head_stride, slot_stride, block_size};
    const int64* question = questions + 3 * i;
    const Place at = locate(question[0], block_size);
    const int head = (int)question[1], d = (int)question[2];
    keys[i] = key_row(kv, at, head) + key_step(kv, d);
    values[i] = value_row(kv, at, head) + value_step(kv, d);
}
