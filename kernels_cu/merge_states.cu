// merge_states: join attention over two sets of tokens into attention over both, a shared prefix and a suffix say.
//
// Computes   lse[n, h] = log2(2^a_lse + 2^b_lse),  out[n, h] = (2^a_lse a[n, h] + 2^b_lse b[n, h]) / 2^lse
// Threads    one warp for each head of each row, 4 warps a block; lanes walk over d, 2 elements a lane
// Constants  ELEMENT, HEAD_DIM (D)
//
// An attention output with the log2 of its softmax's denominator (LSE) is all that has to be known of the tokens behind
// it. A side without tokens has an LSE of minus infinity, and weighs nothing whatever its output holds.
// In place: out may be a or b, and lse theirs, since each lane reads its elements before it writes them.
#include "elements.cuh"
#include "softmax.cuh"

#define WARPS 4

extern "C" __global__ void __launch_bounds__(LANES * WARPS) merge_states(
    Element* out,    // [N, H, D] packed, as are all of them
    float* lse,      // [N, H] in base 2
    const Element* a,
    const float* a_lse,
    const Element* b,
    const float* b_lse,
    int64 states) {  // N * H
    const int64 state = (int64)blockIdx.x * WARPS + threadIdx.x / LANES;
    if (state >= states) return;  // guard: the last block has more warps than states are left
    const float x = a_lse[state], y = b_lse[state];
    const float highest = fmaxf(x, y);
    const bool any = highest > MINUS_INFINITY;
    const float x_weight = weight_of(x, highest);
    const float y_weight = weight_of(y, highest);
    const float inverse = any ? 1 / (x_weight + y_weight) : 0;
    for (int d = threadIdx.x % LANES; d < HEAD_DIM; d += LANES) {
        const int64 at = state * HEAD_DIM + d;
        float sum = 0;
        if (x_weight > 0) sum += x_weight * to_float(a[at]);  // 0 times NaN would be NaN
        if (y_weight > 0) sum += y_weight * to_float(b[at]);
        from_float(sum * inverse, &out[at]);
    }
    __syncwarp();  // all lanes have read both LSE
    if (threadIdx.x % LANES == 0) lse[state] = any ? highest + ptx_log2(x_weight + y_weight) : MINUS_INFINITY;
}
