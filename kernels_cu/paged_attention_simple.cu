// paged_attention_simple: one query token of each sequence attends to the sequence's tokens, which lie in blocks.
//
// Computes   out[b, h] = sum over tokens t of softmax_t(scale * query[b, h] . K[t, h / group]) * V[t, h / group]
// Threads    grid (Hq, B): one block of threads, a single warp, for each query head of each sequence
// Constants  ELEMENT, HEAD_DIM (D), LAYOUT_VLLM
//
// The warp takes 32 tokens in a pass. First each lane owns a token: it walks the block table to that token's K and
// computes the whole dot product alone. Then each lane owns elements of the output: it walks over the 32 tokens' V.
//
//     lanes own tokens              lanes own output elements
//     score = query . K[t]    ->    out[d] = sum over t of weight[t] * V[t][d]
//             (weights and places of the 32 tokens change hands in shared memory)
//
// The softmax is online: `highest` is the largest score so far, and whenever a pass raises it, what was summed before
// shrinks by exp2(old - new). Scores are in base 2 (scale_log2 = scale * log2 e), since the hardware has exp2.
//
// Why it is simple: query heads of one group read the same K and V each for itself, nothing is fetched ahead, and one
// warp walks a whole sequence. What it does well: lanes meet in shuffles once a pass of 32 tokens and not once a token.
#include "paged_kv.cuh"
#include "softmax.cuh"

// Output elements of one lane: d = lane, lane + 32, lane + 64, ...
#define OWNED ((HEAD_DIM + LANES - 1) / LANES)

// query . K of one token, 16 bytes of K a load. The SIZE sums are independent, so that none waits for another.
__device__ inline float score_of(const float* query, const PagedKV& kv, int64 row) {
    constexpr int SIZE = Vector<Element>::SIZE;
    float sums[SIZE] = {};
    for (int d = 0; d < HEAD_DIM; d += SIZE) {
        const Vector<Element> k = *(const Vector<Element>*)(kv.key + row + key_step(kv, d));
        for (int i = 0; i < SIZE; i++) sums[i] += query[d + i] * to_float(k.element[i]);
    }
    float score = 0;
    for (int i = 0; i < SIZE; i++) score += sums[i];
    return score;
}

// sum over the tokens of a pass of weight * V, for one element of the output; `v` is that element of slot 0 of block 0.
__device__ inline float weighted_sum(const float* weight, const int64* value_at, int tokens, const Element* v) {
    float sum = 0;
    for (int t = 0; t < tokens; t++) sum += weight[t] * to_float(v[value_at[t]]);
    return sum;
}

extern "C" __global__ void __launch_bounds__(LANES) paged_attention_simple(
    Element* key_pool,    // K of block 0, in the pool's layout
    Element* value_pool,  // V of block 0
    int64 block_stride,   // strides in elements, here and below
    int64 head_stride,
    int64 slot_stride,
    int block_size,
    int group,                // query heads that share a KV head, Hq / Hkv
    Element* out,             // [B, Hq, D], the sequences out_stride apart
    const Element* query,     // [B, Hq, D], the sequences query_stride apart
    const int* block_tables,  // [B, max_blocks], the tables table_stride apart
    const int* lengths,       // [B] tokens of each sequence
    int64 out_stride,
    int64 query_stride,
    int64 table_stride,
    int max_blocks,
    float scale_log2) {
    __shared__ float query_row[HEAD_DIM];
    __shared__ float weight[LANES];
    __shared__ int64 value_at[LANES];  // where the V of each token of the pass begins, from value_pool

    const int lane = threadIdx.x;
    const int head = blockIdx.x;
    const int64 sequence = blockIdx.y;
    const int length = lengths[sequence];
    const int* table = block_tables + sequence * table_stride;
    const PagedKV kv{key_pool, value_pool, block_stride, head_stride, slot_stride, block_size};

    const Element* query_of_head = query + sequence * query_stride + head * HEAD_DIM;
    for (int d = lane; d < HEAD_DIM; d += LANES) query_row[d] = to_float(query_of_head[d]) * scale_log2;
    __syncwarp();

    float highest = MINUS_INFINITY;
    float total = 0;  // of this lane's own tokens; the lanes' totals are added up once, at the end
    float sums[OWNED] = {};
    // A length beyond the table cannot be walked. NaN says so, where reading past the table's row would not.
    const bool walkable = length <= (int64)max_blocks * block_size;
    for (int first = 0; first < length && walkable; first += LANES) {
        const int token = first + lane;
        float score = MINUS_INFINITY;
        if (token < length) {  // guard: slots behind the last token may hold anything, NaN too, and are never read
            const Place at = locate(table, token, block_size);
            score = score_of(query_row, kv, key_row(kv, at, head / group));
            value_at[lane] = value_row(kv, at, head / group);
        }
        const float raised = fmaxf(highest, largest_of_warp(score));
        const float shrink = ptx_exp2(highest - raised);
        const float mine = ptx_exp2(score - raised);  // 0 for a lane without a token
        highest = raised;
        total = total * shrink + mine;
        weight[lane] = mine;
        __syncwarp();  // weights and places are written: from here lanes own output elements

        const int tokens = length - first < LANES ? length - first : LANES;
        for (int j = 0; j < OWNED; j++) {
            const int d = lane + j * LANES;
            if (d >= HEAD_DIM) break;  // guard: the last elements are fewer than the lanes
            sums[j] = sums[j] * shrink + weighted_sum(weight, value_at, tokens, kv.value + value_step(kv, d));
        }
        __syncwarp();  // all have read: the next pass may write
    }

    const float all = sum_of_warp(total);
    const float inverse = !walkable ? NOT_A_NUMBER : all > 0 ? 1 / all : 0;  // no tokens: zeros
    Element* out_of_head = out + sequence * out_stride + head * HEAD_DIM;
    for (int j = 0; j < OWNED; j++) {
        const int d = lane + j * LANES;
        if (d >= HEAD_DIM) break;  // guard, as above
        from_float(sums[j] * inverse, &out_of_head[d]);
    }
}
