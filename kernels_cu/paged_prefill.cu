// paged_prefill: attention of many query tokens of each sequence over its tokens in blocks: a prompt, or a part of it.
//
// Computes   out[i, h] = sum over the tokens t that i may see of softmax_t(score(query[i, h] . K[t, h / group])) * V[t]
//            The queries of a sequence are its last tokens, so query i of T stands at position length - T + i; with
//            CAUSAL it sees the tokens up to there, with WINDOW only the last `window` of these
// Threads    grid (tiles, Hkv): one block of 4 warps for 64 rows. A row is one query head of one token, the heads of a
//            group side by side, so that all of them use the same K and V
// Constants  ELEMENT (of the cache), QUERY (of query and out), HEAD_DIM (D: 64, 128 or 256), BLOCK_SIZE, MIN_BLOCKS,
//            and the options CAUSAL, WINDOW, SOFT_CAP, ALIBI, SINKS: 0 or 1
//
//     turn n     copies of turn n + 1 under way    |  scores, softmax, out of turn n  |  barrier of the block
//
// Why it is fast: tensor cores do 16 x 16 x 8 with two loads of shared memory for four products; the next 64 tokens
// arrive meanwhile; tokens that no row of the block may see are never loaded.
#include "prefill.cuh"

// Where a sequence's output goes, and what it is still to be multiplied by.
struct Output {
    Query* out;  // of the sequence's first query, as lse
    float* lse;
    int64 out_stride, lse_stride;
    const float* sinks;
    float value_scale;
};

__device__ __forceinline__ void write_row(
    const Output& output, const float (&sums)[COLUMNS][4], const Rows& rows, const Tile64& tile, int r, int lane) {
    float total = rows.total[r];
    total += __shfl_xor_sync(ALL_LANES, total, 1);
    total += __shfl_xor_sync(ALL_LANES, total, 2);
    const int packed = packed_row(tile, r);
    if (packed >= tile.rows) return;  // guard: rows that the sequence does not have
    const int64 token = packed / tile.group;
    const int query_head = tile.head * tile.group + packed % tile.group;
    const float sink = SINKS ? output.sinks[query_head] * LOG2_E : MINUS_INFINITY;
    const float highest = fmaxf(rows.highest[r], sink), shrink = weight_of(rows.highest[r], highest);
    total = total * shrink + weight_of(sink, highest);
    const float factor = total > 0 ? shrink * output.value_scale / total : total;  // no tokens: 0; NaN stays NaN
    Query* to = output.out + token * output.out_stride + (int64)query_head * HEAD_DIM;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            from_float(sums[n][2 * r + e] * factor, &to[n / 2 * 16 + value_row_of(lane % 4 * 2 + e, n % 2)]);
    if (output.lse && lane % 4 == 0)
        output.lse[token * output.lse_stride + query_head] = total > 0 ? highest + ptx_log2(total) : MINUS_INFINITY;
}

extern "C" __global__ void __launch_bounds__(WARPS * LANES, MIN_BLOCKS) paged_prefill(
    Element* key_pool,    // K of block 0, hnd or nhd
    Element* value_pool,  // V of block 0
    int64 block_stride,   // strides in elements, here and below
    int64 head_stride,
    int64 slot_stride,
    int block_size,
    int group,                // query heads that share a KV head, Hq / Hkv
    Query* out,               // [N, Hq, D], the tokens out_stride apart
    float* lse,               // [N, Hq] in base 2, the tokens lse_stride apart; or null
    const Query* query,       // [N, Hq, D] tokens of all sequences one after the other, query_stride apart
    const int* block_tables,  // [B, max_blocks], the tables table_stride apart
    const int* query_starts,  // [B + 1] the first token of each sequence among the N
    const int* lengths,       // [B] tokens of each sequence, those of the query included
    const int* tiles,         // [n, 2] sequence and first row
    int64 out_stride,
    int64 query_stride,
    int64 table_stride,
    int64 lse_stride,
    int window,                // tokens; for WINDOW alone
    const float* alibi,        // [Hq] slopes; null without ALIBI
    const float* sinks,        // [Hq] logits in base e; null without SINKS
    const float* key_scale,    // [Hkv] or [1] of a narrow cache, scale_stride 1 or 0; else null
    const float* value_scale,
    int scale_stride,
    float scale_log2,  // scale * log2 e
    float soft_cap) {
    DYNAMIC_SHARED(shared);
    const PagedKV kv{key_pool, value_pool, block_stride, head_stride, slot_stride, block_size};
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, head = blockIdx.y;
    const int sequence = tiles[2 * blockIdx.x];
    const int64 first_query = query_starts[sequence];
    const int queries = query_starts[sequence + 1] - (int)first_query;
    const Tile64 tile = tile_of(tiles[2 * blockIdx.x + 1], queries, lengths[sequence], group, head, window);
    const Scale scale(scale_log2 * (NARROW ? key_scale[head * scale_stride] : 1), soft_cap);
    stage_query(shared, query + first_query * query_stride, query_stride, tile);
    Rows rows = rows_of(tile, alibi);
    float sums[COLUMNS][4] = {};

    BlockWalk walk{block_tables, table_stride, nullptr, 0, 0};
    walk.enter(sequence, head);
    const int begin = tile.first / TILE * TILE;
    int buffer = QUERY_BYTES;
    if (begin < tile.end) {
        walk.look_ahead(min(begin + warp * TILE, tile.end - 1), tile.end);
        load_turn(walk, kv, shared, buffer, begin, tile);
    }
    ptx_cp_async_commit_group();
    for (int token = begin; token < tile.end; token += TOKENS) {
        ptx_cp_async_wait_group<0>();
        __syncthreads();  // the turn is there for all warps, and all are done with the one before it; so is the query
        const int other = 2 * QUERY_BYTES + TURN_BYTES - buffer;
        if (token + TOKENS < tile.end) load_turn(walk, kv, shared, other, token + TOKENS, tile);
        ptx_cp_async_commit_group();
        float scores[EIGHTS][4] = {};
        multiply_turn(scores, shared, buffer, 0, lane);
        uint32 weights[WARPS][4];
        weigh(weights, scores, sums, rows, scale, tile, token, window, lane);
        add_turn(sums, shared, buffer, weights, lane);
        buffer = other;
    }

    const Output output{out + first_query * out_stride, lse ? lse + first_query * lse_stride : nullptr, out_stride,
                        lse_stride, sinks, NARROW ? value_scale[head * scale_stride] : 1};
    write_row(output, sums, rows, tile, 0, lane);
    write_row(output, sums, rows, tile, 1, lane);
}
