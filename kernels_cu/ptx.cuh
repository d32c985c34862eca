// Every PTX instruction that the kernels use, once, each as a function with its name.
//
// A CPU has none of them: its build takes the same functions from host/ptx_host.h, so that a kernel is one source.
#pragma once

#ifndef PAGEWALK_HOST

// 2^x, to 2 units in the last place. ex2 of minus infinity is 0, which is how a masked score vanishes.
__device__ inline float ptx_exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ inline float ptx_float_from_half(unsigned short bits) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(bits));
    return result;
}

// rn: round to the nearest, ties to even.
__device__ inline unsigned short ptx_half_from_float(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

__device__ inline unsigned short ptx_bfloat16_from_float(float x) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

__device__ inline float ptx_float_from_bits(unsigned int bits) {
    float result;
    asm("mov.b32 %0, %1;" : "=f"(result) : "r"(bits));
    return result;
}

#endif
