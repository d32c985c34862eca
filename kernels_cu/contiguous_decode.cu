// contiguous_decode: the attention of paged_decode without a block table: a sequence's tokens lie side by side in one
// span of addresses, and the MMU's page table is the only one that is walked. What the kernel saves is one load of an
// id, and a multiplication, for each tile of 16 tokens; what it costs is a reservation of addresses for each sequence.
//
// Computes   out[b, h] = sum over tokens t of softmax_t(score(query[b, h] . K[t, h / group])) * V[t, h / group]
// Threads    one block of 4 warps a share of the plan
// Constants  those of paged_decode without BLOCK_SIZE
#include "decode.cuh"

extern "C" __global__ void __launch_bounds__(WARPS * LANES, MIN_BLOCKS) contiguous_decode(
    Element* key_pool,    // what starts count from
    Element* value_pool,
    int64 block_stride,  // not used; strides in elements, here and below
    int64 head_stride,
    int64 slot_stride,
    int block_size,  // not used
    int group,  // query heads that share a KV head, Hq / Hkv
    Query* out,               // [B, Hq, D], the sequences out_stride apart
    float* lse,               // [B, Hq] in base 2, the sequences lse_stride apart; or null
    float* partial_out,       // [partials, HEADS, D]
    float* partial_lse,       // [partials, HEADS] in base 2
    const Query* query,       // [B, Hq, D], the sequences query_stride apart
    const int64* starts,      // [B] elements from the bases to token 0 of each sequence, start_stride apart
    const int* lengths,       // [B] tokens of each sequence
    const int* segments,      // [n, 6] of the plan
    const int* share_starts,  // [shares + 1] of the plan
    int64 out_stride,
    int64 query_stride,
    int64 start_stride,
    int64 lse_stride,
    const float* alibi,        // [Hq] slopes; null without ALIBI
    const float* sinks,        // [Hq] logits in base e; null without SINKS
    const float* key_scale,    // [Hkv] or [1] of a narrow cache, scale_stride 1 or 0; else null
    const float* value_scale,
    int scale_stride,
    float scale_log2,  // scale * log2 e
    float soft_cap) {
    DYNAMIC_SHARED(shared);
    const PagedKV kv{key_pool, value_pool, block_stride, head_stride, slot_stride, block_size};
    const Decode decode{out, lse, partial_out, partial_lse, query, lengths, segments, share_starts, alibi, sinks,
                        key_scale, value_scale, out_stride, query_stride, lse_stride, scale_stride, group, scale_log2,
                        soft_cap};
    decode_share(decode, kv, SpanWalk{starts, start_stride, 0, 0}, shared);
}
