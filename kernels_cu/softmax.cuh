// What kernels with a softmax share: numbers of base 2, and the reductions of a warp.
//
// Scores are in base 2, since the hardware has exp2 and log2: softmax(x) = 2^(x log2 e) / sum. A masked score is minus
// infinity, whose weight is 0. The LSE of some tokens is log2 of the sum of 2^score over them, minus infinity for none.
#pragma once
#include "ptx.cuh"

#define LANES 32
#define ALL_LANES 0xffffffffu
#define LOG2_E 1.4426950408889634f
#define MINUS_INFINITY ptx_float_from_bits(0xff800000u)
#define NOT_A_NUMBER ptx_float_from_bits(0x7fffffffu)

// The largest value of all lanes, given to all: in step 16 each lane learns of the lane 16 away, then 8, 4, 2, 1.
__device__ inline float largest_of_warp(float x) {
    for (int step = LANES / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}

__device__ inline float sum_of_warp(float x) {
    for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

// 2^(x - highest), and 0 where x is minus infinity, also when nothing is higher: infinity less infinity is not 0.
__device__ inline float weight_of(float x, float highest) {
    return x > MINUS_INFINITY ? ptx_exp2(x - highest) : 0;
}
