// The functions of ptx.cuh for the CPU: the same names, the same results up to the last place of the approximations.
#pragma once
#include "fiber.h"
#include "same_bits.h"
#include "vector_types.h"

#ifndef E4M3_BY_SHIFTS
#define PTX_HAS_E4M3 1
#endif
#define DYNAMIC_SHARED(name) unsigned char* const name = pagewalk::this_fiber()->block->dynamic_shared

// ---- One thread: powers of two and conversions ----

inline float ptx_float_from_bits(unsigned int bits) { return pagewalk::same_bits<float>(bits); }
inline unsigned int ptx_bits_from_float(float x) { return pagewalk::same_bits<unsigned int>(x); }

inline float ptx_exp2(float x) { return __builtin_exp2f(x); }
inline float ptx_log2(float x) { return __builtin_log2f(x); }
inline float ptx_reciprocal(float x) { return 1 / x; }

inline float ptx_float_from_half(unsigned short bits) { return pagewalk::same_bits<_Float16>(bits); }

inline unsigned short ptx_half_from_float(float x) {
    if (x != x) return 0x7fff;  // the NaN that the instruction gives, here and below
    return pagewalk::same_bits<unsigned short>(static_cast<_Float16>(x));
}

// To the nearest, ties to even: add just under half a step, and a little more where the kept part is odd.
inline unsigned short ptx_bfloat16_from_float(float x) {
    if (x != x) return 0x7fff;  // rounding the bits of a NaN could make an infinity of it
    const unsigned int bits = ptx_bits_from_float(x);
    return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline unsigned int ptx_half2_from_floats(float low, float high) {
    return ptx_half_from_float(low) | unsigned(ptx_half_from_float(high)) << 16;
}

inline unsigned int ptx_bfloat162_from_floats(float low, float high) {
    return ptx_bfloat16_from_float(low) | unsigned(ptx_bfloat16_from_float(high)) << 16;
}

// Product and difference of two float16 are exact in float32 but for the last place, which a float64 has.
inline unsigned short ptx_half_from_double(double x) {
    return pagewalk::same_bits<unsigned short>(static_cast<_Float16>(x));
}

inline unsigned int ptx_half2_multiply(unsigned int a, unsigned int b) {
    const double low = double(ptx_float_from_half(a & 0xffff)) * ptx_float_from_half(b & 0xffff);
    const double high = double(ptx_float_from_half(a >> 16)) * ptx_float_from_half(b >> 16);
    return ptx_half_from_double(low) | unsigned(ptx_half_from_double(high)) << 16;
}

inline unsigned int ptx_half2_subtract(unsigned int a, unsigned int b) {
    const double low = double(ptx_float_from_half(a & 0xffff)) - ptx_float_from_half(b & 0xffff);
    const double high = double(ptx_float_from_half(a >> 16)) - ptx_float_from_half(b >> 16);
    return ptx_half_from_double(low) | unsigned(ptx_half_from_double(high)) << 16;
}

inline unsigned int ptx_permute_bytes(unsigned int a, unsigned int b, unsigned int selector) {
    const uint64_t bytes = a | uint64_t(b) << 32;
    unsigned int result = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned digit = selector >> 4 * i & 15;
        unsigned byte = unsigned(bytes >> 8 * (digit & 7)) & 0xff;
        if (digit & 8) byte = byte & 0x80 ? 0xff : 0;  // its sign, eight times
        result |= byte << 8 * i;
    }
    return result;
}

inline int ptx_int8_from_float(float x) {
    if (x != x) return 0;
    return int(__builtin_rintf(x < -128 ? -128 : x > 127 ? 127 : x));
}

#if PTX_HAS_E4M3
// 8 values without a leading 1, in steps of 2^-9; then 8 in each power of two from 2^-6 on.
inline unsigned short ptx_half_from_e4m3(unsigned byte) {
    const unsigned exponent = byte >> 3 & 15, fraction = byte & 7;
    if ((byte & 0x7f) == 0x7f) return 0x7fff;
    const float size = exponent ? __builtin_ldexpf(8 + fraction, int(exponent) - 10) : __builtin_ldexpf(fraction, -9);
    return ptx_half_from_float(byte & 0x80 ? -size : size);
}

inline unsigned int ptx_half2_from_e4m3x2(unsigned short bytes) {
    return ptx_half_from_e4m3(bytes & 0xff) | unsigned(ptx_half_from_e4m3(bytes >> 8)) << 16;
}

inline unsigned ptx_e4m3_from_float(float x) {
    if (x != x) return 0x7f;
    const unsigned sign = __builtin_signbit(x) ? 0x80 : 0;
    const float size = __builtin_fabsf(x);
    if (size >= 448) return sign | 0x7e;
    int exponent = -6;  // of the power of two that the value lies in, or of the smallest that has a leading 1
    while (exponent < 8 && size >= __builtin_ldexpf(1, exponent + 1)) exponent++;
    // Steps of an eighth of that power. 16 of them are the next power, whose bits follow those of 15.
    const unsigned steps = unsigned(__builtin_rintf(__builtin_ldexpf(size, 3 - exponent)));
    return sign | (unsigned(exponent + 6) * 8 + steps);
}

inline unsigned short ptx_e4m3x2_from_floats(float low, float high) {
    return static_cast<unsigned short>(ptx_e4m3_from_float(low) | ptx_e4m3_from_float(high) << 8);
}
#endif

// ---- One thread: loads and stores with a hint, of which a CPU takes none ----

namespace pagewalk {

inline void observe([[maybe_unused]] const void* address, [[maybe_unused]] bool write, [[maybe_unused]] const void* at) {
#if PAGEWALK_OBSERVED
    Fiber* fiber = this_fiber();
    fiber->block->runtime->observe(fiber, address, 16, write, at);
#endif
}

}  // namespace pagewalk

PAGEWALK_OUTSIDE uint4 ptx_load_once(const void* global) {
    pagewalk::observe(global, false, __builtin_return_address(0));
    return *static_cast<const uint4*>(global);
}

PAGEWALK_OUTSIDE void ptx_store_once(void* global, uint4 x) {
    pagewalk::observe(global, true, __builtin_return_address(0));
    *static_cast<uint4*>(global) = x;
}

inline void ptx_prefetch_l2(const void*) {}

// ---- Asynchronous copies ----

#define PTX_CP_ASYNC(name, bytes)                                                                                \
    PAGEWALK_OUTSIDE void name(void* shared, const void* global, int source_bytes) {                                 \
        pagewalk::Fiber* fiber = pagewalk::this_fiber();                                                         \
        const void* at = __builtin_return_address(0);                                                            \
        fiber->block->runtime->begin_copy(fiber, shared, global, bytes, unsigned(source_bytes), at);             \
    }
PTX_CP_ASYNC(ptx_cp_async_16, 16)
PTX_CP_ASYNC(ptx_cp_async_8, 8)
PTX_CP_ASYNC(ptx_cp_async_4, 4)

PAGEWALK_OUTSIDE void ptx_cp_async_commit_group() {
    pagewalk::Fiber* fiber = pagewalk::this_fiber();
    fiber->block->runtime->commit_copies(fiber);
}

template <int PENDING>
PAGEWALK_OUTSIDE void ptx_cp_async_wait_group() {
    pagewalk::Fiber* fiber = pagewalk::this_fiber();
    fiber->block->runtime->wait_for_copies(fiber, PENDING);
}

// ---- A whole warp: matrices, which the lane that comes last computes for all (tensor_core.cpp) ----

namespace pagewalk {

// Give a lane's operands, and take its result, which fills `result`.
template <typename Given, typename Result>
inline void meet(Meeting operation, const Given& given, Result* result, unsigned bytes) {
    Fiber* fiber = this_fiber();
    unsigned char* slot = fiber->warp->slot[fiber->lane];
    static_assert(sizeof(Given) <= SLOT_BYTES, "a slot holds the operands");
    __builtin_memcpy(slot, &given, sizeof(Given));
    fiber->block->runtime->wait_for_lanes(fiber, ALL_LANES, operation);
    __builtin_memcpy(result, slot, bytes);
}

template <unsigned A, unsigned B>
inline void mma(Meeting operation, float* d, const unsigned* a, const unsigned* b) {
    Fragments given = {{d[0], d[1], d[2], d[3]}, {}, {}};
    for (unsigned i = 0; i < A; i++) given.a[i] = a[i];
    for (unsigned i = 0; i < B; i++) given.b[i] = b[i];
    meet(operation, given, d, sizeof(given.d));
}

}  // namespace pagewalk

#define PTX_LDMATRIX(name, matrices, operation)                                                                  \
    PAGEWALK_OUTSIDE void name(unsigned* r, const void* row) {                                                       \
        const pagewalk::RowAddress given = {row, matrices, __builtin_return_address(0)};                         \
        pagewalk::meet(pagewalk::Meeting::operation, given, r, matrices * 4);                                    \
    }
PTX_LDMATRIX(ptx_ldmatrix_x4, 4, LDMATRIX)
PTX_LDMATRIX(ptx_ldmatrix_x4_trans, 4, LDMATRIX_TRANS)
PTX_LDMATRIX(ptx_ldmatrix_x2, 2, LDMATRIX)
PTX_LDMATRIX(ptx_ldmatrix_x2_trans, 2, LDMATRIX_TRANS)
PTX_LDMATRIX(ptx_ldmatrix_x1, 1, LDMATRIX)
PTX_LDMATRIX(ptx_ldmatrix_x1_trans, 1, LDMATRIX_TRANS)

PAGEWALK_OUTSIDE unsigned ptx_movmatrix_trans(unsigned matrix) {
    pagewalk::meet(pagewalk::Meeting::MOVMATRIX_TRANS, matrix, &matrix, 4);
    return matrix;
}

#define PTX_MMA(name, a_registers, b_registers, operation)                             \
    PAGEWALK_OUTSIDE void name(float* d, const unsigned* a, const unsigned* b) {       \
        pagewalk::mma<a_registers, b_registers>(pagewalk::Meeting::operation, d, a, b); \
    }
PTX_MMA(ptx_mma_m16n8k16_f16, 4, 2, MMA_K16_F16)
PTX_MMA(ptx_mma_m16n8k16_bf16, 4, 2, MMA_K16_BF16)
PTX_MMA(ptx_mma_m16n8k8_f16, 2, 1, MMA_K8_F16)
PTX_MMA(ptx_mma_m16n8k8_bf16, 2, 1, MMA_K8_BF16)
