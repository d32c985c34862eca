// e4m3, the 8-bit floating point of a quantised cache, to float16 and back, on every device.
//
//   e4m3   sign, 4 bits of exponent (bias 7), 3 of fraction: 448 is the largest, 2^-9 the smallest, 0x7f and 0xff are NaN
//
// Where the device has no instruction for it, integers do the same, with one difference: a NaN of the cache becomes
// 480 or -480. So whoever masks a slot must not count on its NaN, nor on its absence.
#pragma once
#include "ptx.cuh"

// The lower byte's value in the lower half of the result. Shifted by 7, the bits of an e4m3 are those of a float16 whose
// exponent is too small by 8 (bias 7 against 15), also where both have no leading 1: so 2^8 times it is the value.
__device__ inline unsigned int half2_from_e4m3x2(unsigned short bytes) {
#if PTX_HAS_E4M3
    return ptx_half2_from_e4m3x2(bytes);
#else
    const unsigned int spread = ptx_permute_bytes(bytes, 0, 0x1404);  // byte 0 to the top of the lower half, 1 the upper
    const unsigned int shifted = (spread & 0x80008000u) | (spread & 0x7f007f00u) >> 1;
    return ptx_half2_multiply(shifted, 0x5c005c00u);  // 256 in both halves
#endif
}

// To the nearest, ties to even; what is larger than 448 becomes 448.
__device__ inline unsigned int e4m3_from_float(float x) {
#if PTX_HAS_E4M3
    return ptx_e4m3x2_from_floats(x, 0) & 0xff;
#else
    const unsigned int bits = ptx_bits_from_float(x), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7f;                // NaN
    if (size >= 0x43e00000) return sign | 0x7e;        // 448 and above
    if (size >= 0x3c800000) {                          // 2^-6 and above: a leading 1, the bias goes from 127 to 7
        const unsigned int rounded = size + 0x7ffff + (size >> 20 & 1);
        return sign | (rounded - (120u << 23)) >> 20;
    }
    // In units of 2^-9, which is the last place of a float32 between 2^14 and 2^15: an addition rounds to it.
    return sign | (ptx_bits_from_float(ptx_float_from_bits(size) + 16384.0f) - 0x46800000);
#endif
}
