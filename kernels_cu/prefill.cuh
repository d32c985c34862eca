// The steps of paged_prefill: a block's tile of rows, its turns of 64 tokens, and the online softmax between products.
//
// Each warp owns 16 rows: the tall operand is the query here, and out = weights * V, whose weights leave the first
// product just as the second one takes them. All warps read the same 64 tokens, 4 tiles, each warp having copied one.
#pragma once
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

// The block's tile of its sequence, and the tokens that its rows may see.
__device__ __forceinline__ Tile64 tile_of(int first_row, int queries, int length, int group, int head, int window) {
    Tile64 tile{first_row, queries * group, group, head, length - queries, 0, 0, 0, length};
    const int last_row = min(first_row + ROWS, tile.rows) - 1;
    tile.lowest = tile.position + first_row / group;
    tile.highest = tile.position + last_row / group;
    if (CAUSAL) tile.end = min(length, tile.highest + 1);
    if (WINDOW) tile.first = max(0, tile.lowest - window + 1);
    return tile;
}

// Row r of a lane, among those of the sequence.
__device__ __forceinline__ int packed_row(const Tile64& tile, int r) {
    return tile.first_row + threadIdx.x / LANES * 16 + threadIdx.x % LANES / 4 + 8 * r;
}

__device__ __forceinline__ Rows rows_of(const Tile64& tile, const float* alibi) {
    Rows rows;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int packed = packed_row(tile, r);
        const int query_head = tile.head * tile.group + packed % tile.group;
        rows.position[r] = tile.position + packed / tile.group;
        rows.slope[r] = ALIBI && packed < tile.rows ? alibi[query_head] * LOG2_E : 0;
        rows.highest[r] = MINUS_INFINITY;
        rows.total[r] = 0;
    }
    return rows;
}
