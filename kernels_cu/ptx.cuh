// Every PTX instruction that the kernels use, once, each as a function with its name.
//
// A CPU has none of them: its build takes the same functions from host/ptx_host.h, so that a kernel is one source.
//
// Three kinds of instruction are here:
//   of one thread        conversions, powers of two, loads with a hint
//   asynchronous copies  memory to shared memory past the registers; a thread goes on and waits for them later
//   of a whole warp      the tensor core's matrices: each of the 32 lanes holds a few elements, a fragment. All lanes
//                        of the warp must execute such an instruction together
#pragma once

#ifndef PAGEWALK_HOST

// Shared memory whose size the launch gives, which may pass the 48 KiB that an array declared in the source may have.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

// ---- One thread: powers of two and conversions ----

// 2^x, to 2 units in the last place. ex2 of minus infinity is 0, which is how a masked score vanishes.
__device__ inline float ptx_exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// log2(x); lg2 of 0 is minus infinity.
__device__ inline float ptx_log2(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// 1 / x, to 1 unit in the last place; a division in full precision takes some ten instructions.
__device__ inline float ptx_reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ inline float ptx_float_from_bits(unsigned int bits) {
    float result;
    asm("mov.b32 %0, %1;" : "=f"(result) : "r"(bits));
    return result;
}

__device__ inline unsigned int ptx_bits_from_float(float x) {
    unsigned int bits;
    asm("mov.b32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
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

// Two values in one register, the first in the lower half, as fragments hold them. PTX names the upper half first.
__device__ inline unsigned int ptx_half2_from_floats(float low, float high) {
    unsigned int pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ inline unsigned int ptx_bfloat162_from_floats(float low, float high) {
    unsigned int pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ inline unsigned int ptx_half2_multiply(unsigned int a, unsigned int b) {
    unsigned int pair;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

__device__ inline unsigned int ptx_half2_subtract(unsigned int a, unsigned int b) {
    unsigned int pair;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// Byte i of the result is that byte of b:a (a is bytes 0 to 3, b 4 to 7) which the i-th hex digit of `selector` names.
__device__ inline unsigned int ptx_permute_bytes(unsigned int a, unsigned int b, unsigned int selector) {
    unsigned int result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selector));
    return result;
}

// To the nearest integer, ties to even, held between -128 and 127; NaN gives 0.
__device__ inline int ptx_int8_from_float(float x) {
    int result;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(result) : "f"(x));
    return result;
}

// e4m3: sign, 4 bits of exponent, 3 of fraction; the largest value is 448, a NaN has all bits but the sign set.
// The instructions that convert pairs of it came with sm_89; e4m3.cuh does without on older devices.
#if __CUDA_ARCH__ >= 890
#define PTX_HAS_E4M3 1
__device__ inline unsigned int ptx_half2_from_e4m3x2(unsigned short bytes) {  // exact: each e4m3 is a float16
    unsigned int pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(bytes));
    return pair;
}

// satfinite: what is too large for e4m3, infinities too, becomes 448.
__device__ inline unsigned short ptx_e4m3x2_from_floats(float low, float high) {
    unsigned short bytes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bytes) : "f"(high), "f"(low));
    return bytes;
}
#endif

// ---- One thread: loads and stores with a hint ----

// 16 bytes that nobody reads again: they take no place in the L1 cache. Not for memory that this kernel writes.
__device__ inline uint4 ptx_load_once(const void* global) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(global));
    return x;
}

__device__ inline void ptx_store_once(void* global, uint4 x) {
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(global), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

// Ask for the 128 bytes around an address, which must be mapped, to come into the L2 cache.
__device__ inline void ptx_prefetch_l2(const void* global) { asm volatile("prefetch.global.L2 [%0];" :: "l"(global)); }

// ---- Asynchronous copies ----

// Shared memory has addresses of 32 bits of its own.
__device__ inline unsigned int ptx_shared_address(const void* shared) {
    return (unsigned int)__cvta_generic_to_shared(shared);
}

// Begin to copy `source_bytes` bytes, 0 to 16, and zeros behind them up to 16: a row that does not exist is 16 zeros
// and nothing of it is read, though its address must be one of mapped memory. Both addresses are multiples of 16.
// cg: past the L1 cache; L2::128B: the L2 cache may fetch the whole line of 128 bytes.
__device__ inline void ptx_cp_async_16(void* shared, const void* global, int source_bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(ptx_shared_address(shared)), "l"(global), "r"(source_bytes) : "memory");
}

// The same for 8 and 4 bytes, which pass through the L1 cache (ca).
__device__ inline void ptx_cp_async_8(void* shared, const void* global, int source_bytes) {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8, %2;"
                 :: "r"(ptx_shared_address(shared)), "l"(global), "r"(source_bytes) : "memory");
}

__device__ inline void ptx_cp_async_4(void* shared, const void* global, int source_bytes) {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;"
                 :: "r"(ptx_shared_address(shared)), "l"(global), "r"(source_bytes) : "memory");
}

// The copies that this thread began since its last group are its next group, which may be empty.
__device__ inline void ptx_cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until at most the last PENDING groups of this thread are under way. The bytes are there for this thread only:
// others see them after a barrier that comes behind this wait.
template <int PENDING>
__device__ inline void ptx_cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}

// ---- A whole warp: matrices ----
//
// An 8 x 8 matrix of 16-bit elements in registers: lane l holds row l / 4, columns 2 (l % 4) and 2 (l % 4) + 1, the
// lower column in the lower half of its register. Transposed (.trans), it holds that part of the transposed matrix.

// Load 4 matrices from shared memory: lane l gives the address of row l % 8 of matrix l / 8, 16 bytes, a multiple of
// 16; register m gets matrix m. Eight rows are read without conflicts when they lie in 8 different 16-byte columns of
// the 128 bytes that all banks hold. x2 and x1 take the addresses of lanes 0 to 15 or 0 to 7 alone.
#define PTX_LDMATRIX(name, shape, registers, address, ...)                                                       \
    __device__ inline void name(unsigned int* r, const void* row) {                                              \
        asm volatile("ldmatrix.sync.aligned.m8n8." shape ".shared.b16 " registers ", [" address "];"             \
                     : __VA_ARGS__ : "r"(ptx_shared_address(row)) : "memory");                                   \
    }
#define PTX_FOUR "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
PTX_LDMATRIX(ptx_ldmatrix_x4, "x4", "{%0, %1, %2, %3}", "%4", PTX_FOUR)
PTX_LDMATRIX(ptx_ldmatrix_x4_trans, "x4.trans", "{%0, %1, %2, %3}", "%4", PTX_FOUR)
PTX_LDMATRIX(ptx_ldmatrix_x2, "x2", "{%0, %1}", "%2", "=r"(r[0]), "=r"(r[1]))
PTX_LDMATRIX(ptx_ldmatrix_x2_trans, "x2.trans", "{%0, %1}", "%2", "=r"(r[0]), "=r"(r[1]))
PTX_LDMATRIX(ptx_ldmatrix_x1, "x1", "{%0}", "%1", "=r"(r[0]))
PTX_LDMATRIX(ptx_ldmatrix_x1_trans, "x1.trans", "{%0}", "%1", "=r"(r[0]))

// The transposed matrix, from registers to registers.
__device__ inline unsigned int ptx_movmatrix_trans(unsigned int matrix) {
    unsigned int result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(matrix));
    return result;
}

// D = A B + D on a tensor core. A is 16 x k, B k x 8, D 16 x 8 of float. With g = l / 4 and c = 2 (l % 4), lane l has
//
//     a[0]  A[g][c], A[g][c+1]          a[2]  A[g][c+8], A[g][c+9]           (k = 16 only)
//     a[1]  A[g+8][c], A[g+8][c+1]      a[3]  A[g+8][c+8], A[g+8][c+9]       (k = 16 only)
//     b[0]  B[c][g], B[c+1][g]          b[1]  B[c+8][g], B[c+9][g]           (k = 16 only)
//     d[0]  D[g][c]     d[1]  D[g][c+1]     d[2]  D[g+8][c]     d[3]  D[g+8][c+1]
//
// so a holds the matrices of ldmatrix_x4 for the four quarters of A in the order upper left, lower left, upper right,
// lower right, and D of one product, packed and transposed by movmatrix, is B of the next.
#define PTX_MMA_K16(name, type)                                                                                  \
    __device__ inline void name(float* d, const unsigned int* a, const unsigned int* b) {                        \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                              \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                           \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                            \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                        \
    }
#define PTX_MMA_K8(name, type)                                                                                   \
    __device__ inline void name(float* d, const unsigned int* a, const unsigned int* b) {                        \
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." type "." type ".f32 "                               \
                     "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                                       \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));        \
    }
PTX_MMA_K16(ptx_mma_m16n8k16_f16, "f16")
PTX_MMA_K16(ptx_mma_m16n8k16_bf16, "bf16")
PTX_MMA_K8(ptx_mma_m16n8k8_f16, "f16")
PTX_MMA_K8(ptx_mma_m16n8k8_bf16, "bf16")

#endif
