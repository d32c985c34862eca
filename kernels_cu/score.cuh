// From a product q . k to a score in base 2: scaled, and capped where SOFT_CAP is 1.
#pragma once
#include "softmax.cuh"

struct Scale {
    float factor;  // scale * log2 e, with the scale of K where the cache has one
    float cap, cap_factor;

    __device__ __forceinline__ Scale(float scale_log2, float soft_cap)
        : factor(scale_log2), cap(soft_cap * LOG2_E), cap_factor(SOFT_CAP ? 2 * scale_log2 / soft_cap : 0) {}

    // cap * tanh(x / cap), as tanh y = 1 - 2 / (e^2y + 1): exact to some 1e-7 of the cap, which tanh.approx is not.
    __device__ __forceinline__ float operator()(float product) const {
        if (!SOFT_CAP) return product * factor;
        return cap - 2 * cap * ptx_reciprocal(ptx_exp2(product * cap_factor) + 1);
    }
};
