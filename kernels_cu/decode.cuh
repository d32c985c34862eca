// Decode attention on tensor cores: one query token of each sequence attends to all tokens of its sequence.
//
// A tensor core multiplies 16 x 16 by 16 x 8 matrices. One query token has a row for each query head of its KV head,
// 8 or fewer, which would leave most of a 16-row operand empty. So the operands change places: K is the tall operand,
// 16 tokens a tile, and the query heads are the 8 columns:
//
//     scores[16 tokens x 8 heads] = K[16 x D] * query^T       softmax down the columns
//     out[D x 8 heads]           += V^T[D x 16] * weights     a tile's weights are this product's operand
//
// so that K and V pass through the tensor core once, whether 1 or 8 heads share them. What a lane holds of scores and
// of out belongs to the same two heads, so it keeps their maximum itself.
//
//     thread block   a share of the plan: segments (sequence, heads, tokens), one after the other
//     4 warps        tiles of a segment in turn; each warp has an output of its own, joined at the segment's end
//     lane           g = lane / 4, c = 2 (lane % 4): tokens g and g + 8 of a tile, heads c and c + 1 of 8
//
// Why it is fast: the memory must never wait. Each warp has a ring of STAGES tiles in shared memory, which it alone
// fills and reads, so that no barrier of the block stands in the loop. While a tile is computed the next STAGES - 1 are
// on their way, those of the next segment too: the ring does not run dry between segments. The block id of a tile is
// read one turn before the tile's address is needed.
//
// The softmax is online: `highest` is the largest score of a head so far, and whenever a tile raises it, what was
// summed before shrinks by exp2(old - new).
#pragma once
#include "decode_join.cuh"
#include "decode_segment.cuh"
#include "score.cuh"

__device__ __forceinline__ void clear(State& state) {
#pragma unroll
    for (int n = 0; n < SETS; n++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int e = 0; e < 4; e++) state.out[n][step][e] = 0;
        state.highest[n][0] = state.highest[n][1] = MINUS_INFINITY;
        state.total[n][0] = state.total[n][1] = 0;
    }
}

// The query as the products' B operand, kept for the whole segment. Heads that do not exist are zeros.
__device__ __forceinline__ void load_query(
    uint32 (&fragment)[SETS][STEPS][2], const Decode& decode, const Segment& segment, int lane) {
    const int heads = heads_of(decode, segment), g = lane / 4, i = lane % 4;
#pragma unroll
    for (int n = 0; n < SETS; n++) {
        const bool exists = n * 8 + g < heads;
        const Query* row = decode.query + segment.sequence * decode.query_stride +
                           (int64)(segment.head + (exists ? n * 8 + g : 0)) * HEAD_DIM;
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const float low = to_float(row[step * 16 + key_column(i, upper, 0)]);
                const float high = to_float(row[step * 16 + key_column(i, upper, 1)]);
                fragment[n][step][upper] = exists ? Core::pack(low, high) : 0;
            }
    }
}

// How scores of a segment are made from products: what the options are compiled to.
struct Score {
    Scale scale;
    float slope[SETS][2];
    int last_token;

    __device__ __forceinline__ Score(const Decode& decode, const Segment& segment, int lane)
        : scale(decode.scale_log2 * (NARROW ? decode.key_scale[segment.kv_head * decode.scale_stride] : 1),
                decode.soft_cap) {
        if (ALIBI) {
            const int heads = heads_of(decode, segment);
            last_token = decode.lengths[segment.sequence] - 1;
#pragma unroll
            for (int n = 0; n < SETS; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int head = n * 8 + lane % 4 * 2 + e;
                    slope[n][e] = head < heads ? decode.alibi[segment.head + head] * LOG2_E : 0;
                }
        }
    }

    __device__ __forceinline__ float operator()(float product, int token, int n, int e) const {
        return scale(product) + (ALIBI ? slope[n][e] * (float)(token - last_token) : 0);
    }
};

// One tile: scores, online softmax, and the weighted V added to the output.
__device__ __forceinline__ void add_tile(
    State& state, const unsigned char* shared, int tile, const uint32 (&query)[SETS][STEPS][2], const Score& score,
    int token, const Segment& segment, int lane) {
    float scores[SETS][4] = {};
    multiply_keys<SETS>(scores, shared, tile, query, lane);

    const int mine = token + lane / 4;
    uint32 weights[SETS][2];
#pragma unroll
    for (int n = 0; n < SETS; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {  // token mine or mine + 8, head c or c + 1
            const int t = mine + e / 2 * 8;
            const float here = score(scores[n][e], t, n, e % 2);
            scores[n][e] = t < segment.end && (!WINDOW || t >= segment.first) ? here : MINUS_INFINITY;
        }
        float shrink[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {  // the lanes with the same heads are 4, 8 and 16 away
            float raised = fmaxf(state.highest[n][e], fmaxf(scores[n][e], scores[n][e + 2]));
#pragma unroll
            for (int step = 4; step < LANES; step *= 2)
                raised = fmaxf(raised, __shfl_xor_sync(ALL_LANES, raised, step));
            shrink[e] = ptx_exp2(state.highest[n][e] - raised);
            state.highest[n][e] = raised;
            scores[n][e] = ptx_exp2(scores[n][e] - raised);
            scores[n][e + 2] = ptx_exp2(scores[n][e + 2] - raised);
            state.total[n][e] = state.total[n][e] * shrink[e] + scores[n][e] + scores[n][e + 2];
        }
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int e = 0; e < 4; e++) state.out[n][step][e] *= shrink[e % 2];
        weights[n][0] = ptx_movmatrix_trans(Core::pack(scores[n][0], scores[n][1]));
        weights[n][1] = ptx_movmatrix_trans(Core::pack(scores[n][2], scores[n][3]));
    }
    multiply_values<SETS>(state.out, shared, tile + MATRIX_BYTES, weights, lane);
}

// The whole kernel. `shared` has RING_BYTES and a Joint behind them.
template <typename Walk>
__device__ __forceinline__ void decode_share(
    const Decode& decode, const PagedKV& kv, const Walk& walk, unsigned char* shared) {
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int begin = decode.share_starts[blockIdx.x], end = decode.share_starts[blockIdx.x + 1];
    const int ring = warp * STAGES * TILE_BYTES;  // bytes from the beginning of shared memory
    Joint& joint = *(Joint*)(shared + RING_BYTES);

    Ahead<Walk> ahead(kv, walk, decode.segments, begin, end, warp);
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (ahead.valid()) {
            ahead.load(shared, ring + stage * TILE_BYTES, lane);
            ahead.next(warp);
        }
        ptx_cp_async_commit_group();  // one group a turn, also an empty one: so the waits below count turns
    }
    int stage = 0;
    for (int number = begin; number < end; number++) {
        const Segment segment = segment_at(decode.segments, number);
        const Score score(decode, segment, lane);
        uint32 query[SETS][STEPS][2];
        load_query(query, decode, segment, lane);
        State state;
        clear(state);
        for (int token = first_tile(segment, warp); token < segment.end; token += WARPS * TILE) {
            ptx_cp_async_wait_group<STAGES - 2>();
            __syncwarp();  // the tile's copies of all lanes are there, and all lanes are done with the tile before it
            if (ahead.valid()) {
                ahead.load(shared, ring + (stage == 0 ? STAGES - 1 : stage - 1) * TILE_BYTES, lane);
                ahead.next(warp);
            }
            ptx_cp_async_commit_group();
            add_tile(state, shared, ring + stage * TILE_BYTES, query, score, token, segment, lane);
            stage = stage == STAGES - 1 ? 0 : stage + 1;
        }
        finish(joint, state, decode, segment, warp, lane);
    }
}
