// The functions of ptx.cuh for the CPU: the same names, the same results up to the last place of ex2.approx.
#pragma once

inline float ptx_float_from_bits(unsigned int bits) {
    float result;
    __builtin_memcpy(&result, &bits, 4);
    return result;
}

inline unsigned int ptx_bits_from_float(float x) {
    unsigned int bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}

inline float ptx_exp2(float x) { return __builtin_exp2f(x); }

inline float ptx_float_from_half(unsigned short bits) {
    _Float16 half;
    __builtin_memcpy(&half, &bits, 2);
    return half;
}

inline unsigned short ptx_half_from_float(float x) {
    const _Float16 half = static_cast<_Float16>(x);
    unsigned short bits;
    __builtin_memcpy(&bits, &half, 2);
    return bits;
}

// To the nearest, ties to even: add just under half a step, and a little more where the kept part is odd.
inline unsigned short ptx_bfloat16_from_float(float x) {
    if (x != x) return 0x7fff;  // the NaN that the instruction gives; rounding its bits could make an infinity of it
    const unsigned int bits = ptx_bits_from_float(x);
    return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
