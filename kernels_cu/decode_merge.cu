// decode_merge: join the partial results of the items that a plan has cut.
//
// Computes   for each item and query head: out = sum over its partials of 2^(partial_lse - lse) * partial_out
//            with lse = log2 of the sum of 2^partial_lse, and of 2^sink where there is one
// Threads    grid (items, HEADS): one warp an item and head; lanes walk over d, or over partials for their LSE
// Constants  ELEMENT (the output's type), HEAD_DIM (D), HEADS (query heads of an item)
//
// Why it is fast enough: partials of an item lie side by side, a lane reads 4 of 32 neighbours' elements at once, and
// there are at most two partials more than shares: some 132 KB where the KV cache of the step has hundreds of MB.
#include "elements.cuh"
#include "softmax.cuh"

#define OWNED ((HEAD_DIM + LANES - 1) / LANES)

// Largest partial LSE of an item, and the sink's.
__device__ inline float highest_of(const float* partial_lse, int first, int end, int head, float sink) {
    float highest = sink;
    for (int p = first + threadIdx.x; p < end; p += LANES)
        highest = fmaxf(highest, partial_lse[(int64)p * HEADS + head]);
    return largest_of_warp(highest);
}

extern "C" __global__ void __launch_bounds__(LANES) decode_merge(
    Element* out,              // [B, Hq, D], the sequences out_stride apart
    float* lse,                // [B, Hq] in base 2, the sequences lse_stride apart; null if nobody wants it
    const float* partial_out,  // [partials, HEADS, D]
    const float* partial_lse,  // [partials, HEADS] in base 2
    const int* merge_rows,     // [items, 2] sequence and first query head
    const int* merge_starts,   // [items + 1] the first partial of each
    const float* sinks,        // [Hq] one more logit of each head, in base e; null if there are none
    int64 out_stride,
    int64 lse_stride,
    int group) {  // query heads that share a KV head
    const int first = merge_starts[blockIdx.x], end = merge_starts[blockIdx.x + 1];
    const int64 sequence = merge_rows[2 * blockIdx.x];
    const int head = blockIdx.y, query_head = merge_rows[2 * blockIdx.x + 1] + head;
    if (first == end) return;  // guard: a padded row of the plan
    if (query_head / group != merge_rows[2 * blockIdx.x + 1] / group) return;  // guard: the group has fewer heads

    const float sink = sinks ? sinks[query_head] * LOG2_E : MINUS_INFINITY;
    const float highest = highest_of(partial_lse, first, end, head, sink);
    const bool any = highest > MINUS_INFINITY;
    float total = weight_of(sink, highest);
    float sums[OWNED] = {};
    for (int p = first; p < end && any; p++) {
        const int64 row = (int64)p * HEADS + head;
        const float weight = weight_of(partial_lse[row], highest);
        total += weight;
        for (int j = 0; j < OWNED; j++) {
            const int d = threadIdx.x + j * LANES;
            if (d < HEAD_DIM) sums[j] += weight * partial_out[row * HEAD_DIM + d];  // guard: a head_dim below 32
        }
    }
    const float inverse = any ? 1 / total : 0;
    for (int j = 0; j < OWNED; j++) {
        const int d = threadIdx.x + j * LANES;
        if (d < HEAD_DIM) from_float(sums[j] * inverse, &out[sequence * out_stride + query_head * HEAD_DIM + d]);
    }
    if (lse && threadIdx.x == 0)
        lse[sequence * lse_stride + query_head] = any ? highest + ptx_log2(total) : MINUS_INFINITY;
}
