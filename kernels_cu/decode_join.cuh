// The end of a segment: four warps have walked over its tiles in turn, each with an output of its own. They leave these
// in shared memory, and the block's threads join them and write the segment's output or its partial result.
#pragma once
#include "decode_segment.cuh"

#define OUT_STRIDE (HEAD_DIM + 4)  // floats from one head to the next: other banks for other heads

// What the warps of a block leave for each other, one set of 8 heads at a time.
struct Joint {
    float out[WARPS][8][OUT_STRIDE];
    float highest[WARPS][8];
    float total[WARPS][8];
};

__device__ __forceinline__ void leave_state(Joint& joint, const State& state, int n, int warp, int lane) {
    const int g = lane / 4, head = lane % 4 * 2;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float total = state.total[n][e];
#pragma unroll
        for (int step = 4; step < LANES; step *= 2) total += __shfl_xor_sync(ALL_LANES, total, step);
        if (g == 0) {
            joint.highest[warp][head + e] = state.highest[n][e];
            joint.total[warp][head + e] = total;
        }
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int upper = 0; upper < 2; upper++)
                joint.out[warp][head + e][step * 16 + value_row_of(g, upper)] = state.out[n][step][2 * upper + e];
    }
}

// Join what the warps left of one head and element, and write it: to the output, or as a partial result.
__device__ __forceinline__ void write_joint(
    const Joint& joint, const Decode& decode, const Segment& segment, int n, int h, int d) {
    const int head = segment.head + n * 8 + h;
    const bool direct = segment.partial < 0;
    const float sink = SINKS && direct ? decode.sinks[head] * LOG2_E : MINUS_INFINITY;
    float highest = sink;
    for (int w = 0; w < WARPS; w++) highest = fmaxf(highest, joint.highest[w][h]);
    float total = weight_of(sink, highest), sum = 0;
    for (int w = 0; w < WARPS; w++) {
        const float weight = weight_of(joint.highest[w][h], highest);
        total += weight * joint.total[w][h];
        sum += weight * joint.out[w][h][d];
    }
    const float value_scale = NARROW ? decode.value_scale[segment.kv_head * decode.scale_stride] : 1;
    const float result = total > 0 ? sum / total * value_scale : total;  // no tokens: 0; NaN stays NaN
    const float lse = total > 0 ? highest + ptx_log2(total) : MINUS_INFINITY;
    if (direct) {
        from_float(result, &decode.out[segment.sequence * decode.out_stride + (int64)head * HEAD_DIM + d]);
        if (decode.lse && d == 0) decode.lse[segment.sequence * decode.lse_stride + head] = lse;
    } else {
        const int64 row = (int64)segment.partial * HEADS + n * 8 + h;
        decode.partial_out[row * HEAD_DIM + d] = result;
        if (d == 0) decode.partial_lse[row] = lse;
    }
}

__device__ __forceinline__ void finish(
    Joint& joint, const State& state, const Decode& decode, const Segment& segment, int warp, int lane) {
    const int heads = heads_of(decode, segment);
#pragma unroll
    for (int n = 0; n < SETS; n++) {
        leave_state(joint, state, n, warp, lane);
        __syncthreads();  // all warps have left theirs
        for (int i = warp * LANES + lane; i < 8 * HEAD_DIM; i += WARPS * LANES)
            if (n * 8 + i / HEAD_DIM < heads) write_joint(joint, decode, segment, n, i / HEAD_DIM, i % HEAD_DIM);
        __syncthreads();  // all have read: the next set or segment may come
    }
}
