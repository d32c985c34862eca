// decode_merge: join the partial results of the items that a plan has cut.
//
// Computes   for each item and query head: out = sum over its partials of 2^(partial_lse - lse) * partial_out
//            with lse = log2 of the sum of 2^partial_lse, and of 2^sink where there is one
// Threads    grid (items, HEADS): 4 warps an item and head; each takes every fourth partial, a lane 4 neighbours in d
// Constants  ELEMENT (the output's type), HEAD_DIM (D), HEADS (query heads of an item)
//
// Why it is fast enough: partials of an item lie side by side, all warps and four partials of each are under way at
// once, and there are at most two partials more than shares: some 132 KB where the KV cache of the step has hundreds of
// MB. What counts is latency, a few loads one after the other.
#include "elements.cuh"
#include "softmax.cuh"

#define WARPS 4
#define QUARTETS (HEAD_DIM / 4)
#define OWNED ((QUARTETS + LANES - 1) / LANES)

// A warp's look at all partials of a head: the largest LSE, and the sum of their weights relative to it.
struct Weights {
    float highest, total;

    __device__ inline Weights(const float* partial_lse, int first, int end, int head, float sink) {
        const int lane = threadIdx.x % LANES;
        highest = sink;
        for (int p = first + lane; p < end; p += LANES) highest = fmaxf(highest, partial_lse[(int64)p * HEADS + head]);
        highest = largest_of_warp(highest);
        total = 0;
        for (int p = first + lane; p < end; p += LANES)
            total += weight_of(partial_lse[(int64)p * HEADS + head], highest);
        total = sum_of_warp(total) + weight_of(sink, highest);
    }
};

extern "C" __global__ void __launch_bounds__(WARPS * LANES) decode_merge(
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
    __shared__ float4 joint[WARPS][QUARTETS];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int first = merge_starts[blockIdx.x], end = merge_starts[blockIdx.x + 1];
    const int first_head = merge_rows[2 * blockIdx.x + 1], head = blockIdx.y, query_head = first_head + head;
    const int64 sequence = merge_rows[2 * blockIdx.x];
    if (first == end) return;                               // guard: a padded row of the plan
    if (query_head / group != first_head / group) return;  // guard: the group has fewer heads

    const Weights weights(partial_lse, first, end, head, sinks ? sinks[query_head] * LOG2_E : MINUS_INFINITY);
    float4 sums[OWNED] = {};
#pragma unroll 4
    for (int p = first + warp; p < end; p += WARPS) {
        const int64 row = (int64)p * HEADS + head;
        const float weight = weight_of(partial_lse[row], weights.highest);
#pragma unroll
        for (int j = 0; j < OWNED; j++) {
            const int i = lane + j * LANES;
            if (i >= QUARTETS) break;  // guard: a head_dim below 128
            const float4 x = ((const float4*)(partial_out + row * HEAD_DIM))[i];
            sums[j].x += weight * x.x;
            sums[j].y += weight * x.y;
            sums[j].z += weight * x.z;
            sums[j].w += weight * x.w;
        }
    }
    for (int j = 0; j < OWNED; j++)
        if (lane + j * LANES < QUARTETS) joint[warp][lane + j * LANES] = sums[j];
    __syncthreads();  // each warp has left its part

    const float inverse = weights.total > 0 ? 1 / weights.total : weights.total;  // nothing at all: 0; NaN stays NaN
    const float* part = (const float*)joint;
    for (int d = threadIdx.x; d < HEAD_DIM; d += WARPS * LANES) {
        float sum = 0;
        for (int w = 0; w < WARPS; w++) sum += part[w * HEAD_DIM + d];
        from_float(sum * inverse, &out[sequence * out_stride + (int64)query_head * HEAD_DIM + d]);
    }
    if (lse && threadIdx.x == 0)
        lse[sequence * lse_stride + query_head] =
            weights.total > 0 ? weights.highest + ptx_log2(weights.total) : MINUS_INFINITY;
}
