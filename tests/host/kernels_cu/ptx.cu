// Every function of ptx.cuh and e4m3.cuh, whose results test_ptx.py knows from the definition of the instruction.
//
// Each thread reads its own words of `in`, runs one instruction, and writes its own words of `out`.
#include "e4m3.cuh"

enum {
    EXP2, LOG2, RECIPROCAL, HALF_TO_FLOAT, TO_HALF, TO_BFLOAT16, HALF2, BFLOAT162, MULTIPLY, SUBTRACT, PERMUTE, TO_INT8,
    FROM_E4M3, TO_E4M3, COPY, LDMATRIX_X4, LDMATRIX_X4_TRANS, LDMATRIX_X2, LDMATRIX_X2_TRANS, LDMATRIX_X1,
    LDMATRIX_X1_TRANS, MOVMATRIX, MMA_K16_F16, MMA_K16_BF16, MMA_K8_F16, MMA_K8_BF16, VOTES, LATE_VOTES, RING, LATE_WAIT, MIXED,
    MISALIGNED, PAST_THE_END, COPY_ELSEWHERE, ROW_ELSEWHERE, ROW_MISALIGNED, LOAD_ONCE
};

__device__ inline unsigned int of_one_thread(int kind, const unsigned int* in) {
    const float x = ptx_float_from_bits(in[0]), y = ptx_float_from_bits(in[1]);
    if (kind == EXP2) return ptx_bits_from_float(ptx_exp2(x));
    if (kind == LOG2) return ptx_bits_from_float(ptx_log2(x));
    if (kind == RECIPROCAL) return ptx_bits_from_float(ptx_reciprocal(x));
    if (kind == HALF_TO_FLOAT) return ptx_bits_from_float(ptx_float_from_half((unsigned short)in[0]));
    if (kind == TO_HALF) return ptx_half_from_float(x);
    if (kind == TO_BFLOAT16) return ptx_bfloat16_from_float(x);
    if (kind == HALF2) return ptx_half2_from_floats(x, y);
    if (kind == BFLOAT162) return ptx_bfloat162_from_floats(x, y);
    if (kind == MULTIPLY) return ptx_half2_multiply(in[0], in[1]);
    if (kind == SUBTRACT) return ptx_half2_subtract(in[0], in[1]);
    if (kind == PERMUTE) return ptx_permute_bytes(in[0], in[1], in[2]);
    if (kind == TO_INT8) return (unsigned int)ptx_int8_from_float(x);
    if (kind == FROM_E4M3) return half2_from_e4m3x2((unsigned short)in[0]);
    return e4m3_from_float(x);
}

// in: [0..3] of each thread is where 16 bytes go that the other lanes read after the barrier; then one instruction.
__device__ inline void of_a_warp(int kind, const unsigned int* in, unsigned int* out, unsigned char* shared) {
    unsigned int a[4] = {in[0], in[1], in[2], in[3]};
    unsigned int b[2] = {in[4], in[5]};
    float d[4];
    for (int i = 0; i < 4; i++) d[i] = ptx_float_from_bits(in[6 + i]);
    const int row = (int)in[10];  // which row this lane names
    *(uint4*)(shared + 16 * (threadIdx.x % 32)) = make_uint4(a[0], a[1], a[2], a[3]);
    __syncwarp();
    unsigned int r[4] = {0, 0, 0, 0};
    const void* address = shared + 16 * row;
    if (kind == LDMATRIX_X4) ptx_ldmatrix_x4(r, address);
    if (kind == LDMATRIX_X4_TRANS) ptx_ldmatrix_x4_trans(r, address);
    if (kind == LDMATRIX_X2) ptx_ldmatrix_x2(r, address);
    if (kind == LDMATRIX_X2_TRANS) ptx_ldmatrix_x2_trans(r, address);
    if (kind == LDMATRIX_X1) ptx_ldmatrix_x1(r, address);
    if (kind == LDMATRIX_X1_TRANS) ptx_ldmatrix_x1_trans(r, address);
    if (kind == MOVMATRIX) r[0] = ptx_movmatrix_trans(a[0]);
    if (kind == MMA_K16_F16) ptx_mma_m16n8k16_f16(d, a, b);
    if (kind == MMA_K16_BF16) ptx_mma_m16n8k16_bf16(d, a, b);
    if (kind == MMA_K8_F16) ptx_mma_m16n8k8_f16(d, a, b);
    if (kind == MMA_K8_BF16) ptx_mma_m16n8k8_bf16(d, a, b);
    for (int i = 0; i < 4; i++) out[i] = kind >= MMA_K16_F16 ? ptx_bits_from_float(d[i]) : r[i];
}

// Copy 16, 8 and 4 bytes side by side, as many of them as in[28..30] says, and the zeros behind.
__device__ inline void copies(const unsigned int* in, unsigned int* out, unsigned char* shared) {
    unsigned char* mine = shared + 32 * threadIdx.x;
    ptx_cp_async_16(mine, in, (int)in[28]);
    ptx_cp_async_8(mine + 16, in + 4, (int)in[29]);
    ptx_cp_async_4(mine + 24, in + 6, (int)in[30]);
    ptx_cp_async_commit_group();
    ptx_cp_async_wait_group<0>();
    for (int i = 0; i < 7; i++) out[i] = ((unsigned int*)mine)[i];
}

// A ring of three stages walks over in[0..31], four words a stage. `late` waits for one group too few.
template <int PENDING>
__device__ inline void ring(const unsigned int* in, unsigned int* out, unsigned char* shared) {
    unsigned char* mine = shared + 48 * threadIdx.x;
    for (int stage = 0; stage < 2; stage++) {
        ptx_cp_async_16(mine + 16 * stage, in + 4 * stage, 16);
        ptx_cp_async_commit_group();
    }
    for (int step = 0; step < 8; step++) {
        ptx_cp_async_wait_group<PENDING>();
        for (int i = 0; i < 4; i++) out[4 * step + i] = ((unsigned int*)mine)[4 * (step % 3) + i];
        if (step + 2 < 8) ptx_cp_async_16(mine + 16 * ((step + 2) % 3), in + 4 * (step + 2), 16);
        ptx_cp_async_commit_group();
    }
}

extern "C" __global__ void ptx(unsigned int* all_out, const unsigned int* all_in, int kind) {  // [threads, 32] each
    DYNAMIC_SHARED(shared);
    unsigned int* out = all_out + 32 * threadIdx.x;
    const unsigned int* in = all_in + 32 * threadIdx.x;
    const int lane = threadIdx.x % 32;
    if (kind < COPY) out[0] = of_one_thread(kind, in);
    if (kind == COPY) copies(in, out, shared);
    if (kind >= LDMATRIX_X4 && kind <= MMA_K8_BF16) of_a_warp(kind, in, out, shared + 512 * (threadIdx.x / 32));
    if (kind == VOTES) {
        out[0] = __ballot_sync(0xffffffffu, (int)in[0]);
        out[1] = (unsigned int)__any_sync(0xffffffffu, (int)in[0]);
        out[2] = (unsigned int)__all_sync(0xffffffffu, (int)in[0]);
        if (lane >= 16) out[3] = __ballot_sync(0xffff0000u, (int)in[0]);
    }
    if (kind == LATE_VOTES) {
        if (lane >= 20) return;
        out[0] = __ballot_sync(0xffffffffu, (int)in[0]);
        out[1] = (unsigned int)__any_sync(0xffffffffu, (int)in[0]);
        out[2] = (unsigned int)__all_sync(0xffffffffu, (int)in[0]);
    }
    if (kind == RING) ring<1>(in, out, shared);
    if (kind == LATE_WAIT) ring<2>(in, out, shared);
    if (kind == MIXED && lane != 5) __syncwarp();
    if (kind == MIXED && lane == 5) out[0] = ptx_movmatrix_trans(in[0]);
    if (kind == MISALIGNED) ptx_cp_async_16(shared, in + 1, 16);
    if (kind == PAST_THE_END) shared[in[0]] = 1;
    if (kind == COPY_ELSEWHERE) ptx_cp_async_16(all_out, in, 16);
    if (kind == ROW_ELSEWHERE) ptx_ldmatrix_x1(out, lane == 7 ? (const void*)in : shared + 16 * lane);
    if (kind == ROW_MISALIGNED) ptx_ldmatrix_x4(out, shared + 16 * lane + (lane == 20 ? 4 : 0));
    if (kind == LOAD_ONCE) {
        ptx_prefetch_l2(in);
        ptx_store_once(out, ptx_load_once(in));
    }
}
