// Loops whose machine code test_static.py knows: what a main loop is made of, and what it should not have.
#include "ptx.cuh"

#ifndef TURNS
#define TURNS turns
#endif

extern "C" __global__ void loops(float* out, const unsigned char* in, int turns) {
    DYNAMIC_SHARED(shared);
    float d[4] = {0, 0, 0, 0};
    unsigned int a[4], b[2] = {1, 2};
    for (int i = 0; i < turns; i++) out[i] = 0;  // a loop that moves nothing asynchronously
#pragma unroll 1
    for (int i = 0; i < TURNS; i++) {
        ptx_cp_async_16(shared + 16 * threadIdx.x, in + 4096 * i + 16 * threadIdx.x, 16);
#if NARROW_COPY
        ptx_cp_async_8(shared + 8192 + 8 * threadIdx.x, in + 8 * threadIdx.x, 8);
#endif
        ptx_cp_async_commit_group();
        ptx_cp_async_wait_group<0>();
#if BARRIER
        __syncthreads();
#else
        __syncwarp();
#endif
        ptx_ldmatrix_x4(a, shared + 16 * (threadIdx.x % 32));
        ptx_mma_m16n8k16_f16(d, a, b);
        b[0] = ptx_movmatrix_trans(a[0]);
        __syncwarp();
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
