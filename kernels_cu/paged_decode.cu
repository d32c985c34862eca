// paged_decode: attention of one query token a sequence, over K and V in blocks, on tensor cores (decode.cuh says how).
//
// Computes   out[b, h] = sum over tokens t of softmax_t(score(query[b, h] . K[t, h / group])) * V[t, h / group]
// Threads    one block of 4 warps a share of the plan
// Constants  ELEMENT (of the cache), QUERY (of query and out), HEAD_DIM (D: 64, 128 or 256), BLOCK_SIZE, HEADS (query
//            heads of a segment: 8 or 16), STAGES (tiles in a warp's ring), MIN_BLOCKS (thread blocks a
//            multiprocessor), and the options WINDOW, SOFT_CAP, ALIBI, SINKS: 0 or 1
//
// The block table is read once a tile where blocks are multiples of 16 tokens, else once a token.
#include "decode.cuh"

extern "C" __global__ void __launch_bounds__(WARPS * LANES, MIN_BLOCKS) paged_decode(
    Element* key_pool,    // K of block 0, hnd or nhd
    Element* value_pool,  // V of block 0
    int64 block_stride,   // strides in elements, here and below
    int64 head_stride,
    int64 slot_stride,
    int block_size,
    int group,  // query heads that share a KV head, Hq / Hkv
    Query* out,               // [B, Hq, D], the sequences out_stride apart
    float* lse,               // [B, Hq] in base 2, the sequences lse_stride apart; or null
    float* partial_out,       // [partials, HEADS, D]
    float* partial_lse,       // [partials, HEADS] in base 2
    const Query* query,       // [B, Hq, D], the sequences query_stride apart
    const int* block_tables,  // [B, max_blocks], the tables table_stride apart
    const int* lengths,       // [B] tokens of each sequence
    const int* segments,      // [n, 6] of the plan
    const int* share_starts,  // [shares + 1] of the plan
    int64 out_stride,
    int64 query_stride,
    int64 table_stride,
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
    decode_share(decode, kv, BlockWalk{block_tables, table_stride, nullptr, 0, 0}, shared);
}
