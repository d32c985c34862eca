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
// Each warp owns 16 rows: the tall operand is the query here, and out = weights * V, whose weights leave the first
// product just as the second one takes them. All warps read the same 64 tokens, 4 tiles, each warp having copied one.
//
//     turn n     copies of turn n + 1 under way    |  scores, softmax, out of turn n  |  barrier of the block
//
// Why it is fast: tensor cores do 16 x 16 x 8 with two loads of shared memory for four products; the next 64 tokens
// arrive meanwhile; tokens that no row of the block may see are never loaded.
#include "score.cuh"
#include "walk.cuh"

#define WARPS 4
#define ROWS 64               // of a block
#define TOKENS (WARPS * TILE)  // of a turn
#define EIGHTS (TOKENS / 8)    // sets of 8 tokens in a turn
#define COLUMNS (HEAD_DIM / 8)  // sets of 8 d

typedef QUERY Query;

constexpr int TURN_BYTES = WARPS * TILE_BYTES;
constexpr int QUERY_CHUNKS = HEAD_DIM / 8;  // of 16 bytes in a row of 2-byte elements
constexpr int QUERY_BYTES = ROWS * HEAD_DIM * 2;  // in shared memory: the query, and two turns behind it

// As place_of, for the rows of the query.
__device__ __forceinline__ int query_place(int row, int chunk) { return (row * QUERY_CHUNKS + (chunk ^ row % 8)) * 16; }

// What every thread of a block knows of it.
struct Tile64 {
    int first_row, rows;  // of the block's 64, in the sequence; rows that the sequence has
    int group, head;      // query heads that share a KV head; the KV head
    int position;         // of query 0 in the sequence
    int lowest, highest;  // positions of the rows
    int first, end;       // tokens that any of the rows may see

    // Whether all rows see all tokens of the turn: most turns need no mask.
    __device__ __forceinline__ bool sees(int token, int window) const {
        return token + TOKENS <= end && (!CAUSAL || token + TOKENS - 1 <= lowest) &&
               (!WINDOW || token > highest - window);
    }
};

// Put the block's rows into shared memory as the first product's operand: of its type, d in the order of K's.
__device__ __forceinline__ void stage_query(
    unsigned char* shared, const Query* query, int64 query_stride, const Tile64& tile) {
    for (int i = threadIdx.x; i < ROWS * HEAD_DIM / 2; i += WARPS * LANES) {
        const int row = i / (HEAD_DIM / 2), column = i % (HEAD_DIM / 2) * 2;  // and the next one
        const int upper = column / 8 % 2, pair = column % 8 / 2, packed = tile.first_row + row;
        uint32 both = 0;
        if (packed < tile.rows) {  // guard: the last block of a sequence has fewer rows
            const int64 query_head = tile.head * tile.group + packed % tile.group;
            const Query* from = query + packed / tile.group * query_stride + query_head * HEAD_DIM + column / 16 * 16;
            both = Core::pack(to_float(from[key_column(pair, upper, 0)]), to_float(from[key_column(pair, upper, 1)]));
        }
        *(uint32*)(shared + query_place(row, column / 8) + column % 8 * 2) = both;
    }
}

// Each warp begins to copy its 16 of the 64 tokens from `token` on.
__device__ __forceinline__ void load_turn(
    BlockWalk& walk, const PagedKV& kv, unsigned char* shared, int buffer, int token, const Tile64& tile) {
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int mine = token + warp * TILE;
    load_tile(walk, kv, shared, buffer + warp * TILE_BYTES, mine, tile.first, tile.end, lane);
    walk.look_ahead(min(mine + TOKENS, tile.end - 1), tile.end);
}

// scores[n] of 8 tokens each: the warp's 16 rows times K of the turn.
__device__ __forceinline__ void multiply_turn(
    float (&scores)[EIGHTS][4], const unsigned char* shared, int buffer, int query, int lane) {
    const int row = query + query_place(threadIdx.x / LANES * 16 + lane % 16, lane / 16);
#pragma unroll
    for (int step = 0; step < STEPS; step += FRAGMENTS) {
        uint32 q[FRAGMENTS][4];
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++) ptx_ldmatrix_x4(q[f], shared + (row ^ (step + f) * 32));
#pragma unroll
        for (int t = 0; t < WARPS; t++) {
            uint32 k[FRAGMENTS][4];
            key_fragments(k, shared, buffer + t * TILE_BYTES, step / FRAGMENTS, lane);
#pragma unroll
            for (int f = 0; f < FRAGMENTS; f++) {
                const uint32 lower[2] = {k[f][0], k[f][2]}, upper[2] = {k[f][1], k[f][3]};
                Core::multiply(scores[2 * t], q[f], lower);
                Core::multiply(scores[2 * t + 1], q[f], upper);
            }
        }
    }
}

// out[n] of 8 d each += the warp's weights, packed as the operand of each 16 tokens, times V of the turn.
__device__ __forceinline__ void add_turn(
    float (&out)[COLUMNS][4], const unsigned char* shared, int buffer, const uint32 (&weights)[WARPS][4], int lane) {
#pragma unroll
    for (int t = 0; t < WARPS; t++)
#pragma unroll
        for (int step = 0; step < STEPS; step += FRAGMENTS) {
            uint32 v[FRAGMENTS][4];
            value_fragments(v, shared, buffer + t * TILE_BYTES + MATRIX_BYTES, step / FRAGMENTS, lane);
#pragma unroll
            for (int f = 0; f < FRAGMENTS; f++) {
                const uint32 lower[2] = {v[f][0], v[f][2]}, upper[2] = {v[f][1], v[f][3]};
                Core::multiply(out[2 * (step + f)], weights[t], lower);
                Core::multiply(out[2 * (step + f) + 1], weights[t], upper);
            }
        }
}

// The two rows that a lane has scores of: g and g + 8 of its warp's 16.
struct Rows {
    int position[2];  // of their tokens in the sequence
    float slope[2];
    float highest[2], total[2];  // the total of this lane's columns

    __device__ __forceinline__ bool sees(int r, int token, int end, int window) const {
        return token < end && (!CAUSAL || token <= position[r]) && (!WINDOW || token > position[r] - window);
    }
};

// Online softmax of a turn: scores become weights, packed; out and totals shrink as the maximum is raised.
__device__ __forceinline__ void weigh(
    uint32 (&weights)[WARPS][4], float (&scores)[EIGHTS][4], float (&out)[COLUMNS][4], Rows& rows, const Scale& scale,
    const Tile64& tile, int token, int window, int lane) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float raised = rows.highest[r];
#pragma unroll
        for (int n = 0; n < EIGHTS; n++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                const int t = token + n * 8 + lane % 4 * 2 + e % 2;
                scores[n][e] = scale(scores[n][e]) + (ALIBI ? rows.slope[r] * (float)(t - rows.position[r]) : 0);
            }
        if (!tile.sees(token, window)) {
#pragma unroll
            for (int n = 0; n < EIGHTS; n++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++)
                    if (!rows.sees(r, token + n * 8 + lane % 4 * 2 + e % 2, tile.end, window))
                        scores[n][e] = MINUS_INFINITY;
        }
#pragma unroll
        for (int n = 0; n < EIGHTS; n++)
            raised = fmaxf(raised, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
        raised = fmaxf(raised, __shfl_xor_sync(ALL_LANES, raised, 1));  // the lanes with other tokens of the same rows
        raised = fmaxf(raised, __shfl_xor_sync(ALL_LANES, raised, 2));
        const float base = raised > MINUS_INFINITY ? raised : 0;  // a row may see nothing of the turns so far
        const float shrink = ptx_exp2(rows.highest[r] - base);
        rows.highest[r] = raised;
        rows.total[r] *= shrink;
#pragma unroll
        for (int n = 0; n < EIGHTS; n++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                scores[n][e] = ptx_exp2(scores[n][e] - base);
                rows.total[r] += scores[n][e];
            }
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            out[n][2 * r] *= shrink;
            out[n][2 * r + 1] *= shrink;
        }
    }
#pragma unroll
    for (int t = 0; t < WARPS; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            weights[t][2 * half] = Core::pack(scores[2 * t + half][0], scores[2 * t + half][1]);
            weights[t][2 * half + 1] = Core::pack(scores[2 * t + half][2], scores[2 * t + half][3]);
        }
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
    const int sequence = tiles[2 * blockIdx.x], length = lengths[sequence];
    const int64 first_query = query_starts[sequence];
    const int queries = query_starts[sequence + 1] - (int)first_query;

    Tile64 tile{tiles[2 * blockIdx.x + 1], queries * group, group, head, length - queries, 0, 0, 0, length};
    const int last_row = min(tile.first_row + ROWS, tile.rows) - 1;
    tile.lowest = tile.position + tile.first_row / group;
    tile.highest = tile.position + last_row / group;
    if (CAUSAL) tile.end = min(length, tile.highest + 1);
    if (WINDOW) tile.first = max(0, tile.lowest - window + 1);

    stage_query(shared, query + first_query * query_stride, query_stride, tile);
    Rows rows;
    for (int r = 0; r < 2; r++) {
        const int packed = tile.first_row + warp * 16 + lane / 4 + 8 * r;
        rows.position[r] = tile.position + packed / group;
        rows.slope[r] = ALIBI && packed < tile.rows ? alibi[head * group + packed % group] * LOG2_E : 0;
        rows.highest[r] = MINUS_INFINITY;
        rows.total[r] = 0;
    }
    const Scale scale(scale_log2 * (NARROW ? key_scale[head * scale_stride] : 1), soft_cap);
    float result[COLUMNS][4] = {};

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
        weigh(weights, scores, result, rows, scale, tile, token, window, lane);
        add_turn(result, shared, buffer, weights, lane);
        buffer = other;
    }

    const float value_by = NARROW ? value_scale[head * scale_stride] : 1;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float total = rows.total[r];
        total += __shfl_xor_sync(ALL_LANES, total, 1);
        total += __shfl_xor_sync(ALL_LANES, total, 2);
        const int packed = tile.first_row + warp * 16 + lane / 4 + 8 * r;
        if (packed >= tile.rows) continue;  // guard: rows that the sequence does not have
        const int query_head = head * group + packed % group;
        float highest = rows.highest[r];
        if (SINKS) {
            const float sink = sinks[query_head] * LOG2_E, raised = fmaxf(highest, sink);
            const float shrink = weight_of(highest, raised);
            total = total * shrink + weight_of(sink, raised);
            for (int n = 0; n < COLUMNS; n++) {
                result[n][2 * r] *= shrink;
                result[n][2 * r + 1] *= shrink;
            }
            highest = raised;
        }
        const float inverse = total > 0 ? value_by / total : total;  // no tokens: 0; NaN stays NaN
        const int64 token = first_query + packed / group;
        Query* to = out + token * out_stride + (int64)query_head * HEAD_DIM;
#pragma unroll
        for (int n = 0; n < COLUMNS; n++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                from_float(result[n][2 * r + e] * inverse, &to[n / 2 * 16 + value_row_of(lane % 4 * 2 + e, n % 2)]);
        if (lse && lane % 4 == 0)
            lse[token * lse_stride + query_head] = total > 0 ? highest + ptx_log2(total) : MINUS_INFINITY;
    }
}
