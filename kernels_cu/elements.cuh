// The element types of the KV cache, and integers of a known width.
//
// A kernel is compiled for one type: the constant ELEMENT names it, and `Element` is that type below.
// float16 and bfloat16 are stored as bits and computed with as float, so no CUDA header is needed.
//
//   float32    sign, 8 bits of exponent, 23 of fraction
//   float16    sign, 5 bits of exponent, 10 of fraction: fine steps, largest value 65504
//   bfloat16   sign, 8 bits of exponent,  7 of fraction: coarse steps, the range of float32
//   e4m3       sign, 4 bits of exponent,  3 of fraction: largest value 448; stored divided by a scale
//   int8       -128 to 127; stored divided by a scale
#pragma once
#include "e4m3.cuh"
#include "ptx.cuh"

typedef unsigned short uint16;
typedef unsigned int uint32;
typedef long long int64;  // every offset into the pool: 32 bits end at 2^31 elements, which is less than many pools

typedef float float32;
struct float16 { uint16 bits; };
struct bfloat16 { uint16 bits; };
struct e4m3 { unsigned char bits; };
struct int8 { signed char number; };

#ifdef ELEMENT
typedef ELEMENT Element;
#endif

__device__ inline float to_float(float32 x) { return x; }
__device__ inline float to_float(float16 x) { return ptx_float_from_half(x.bits); }
// A bfloat16 is the upper half of a float32.
__device__ inline float to_float(bfloat16 x) { return ptx_float_from_bits((uint32)x.bits << 16); }
__device__ inline float to_float(e4m3 x) { return ptx_float_from_half((uint16)half2_from_e4m3x2(x.bits)); }
__device__ inline float to_float(int8 x) { return x.number; }

__device__ inline void from_float(float x, float32* to) { *to = x; }
__device__ inline void from_float(float x, float16* to) { to->bits = ptx_half_from_float(x); }
__device__ inline void from_float(float x, bfloat16* to) { to->bits = ptx_bfloat16_from_float(x); }
__device__ inline void from_float(float x, e4m3* to) { to->bits = (unsigned char)e4m3_from_float(x); }
__device__ inline void from_float(float x, int8* to) { to->number = (signed char)ptx_int8_from_float(x); }

// The widest load or store of one thread is 16 bytes: that many elements of type T, neighbours in memory.
template <typename T>
struct alignas(16) Vector {
    enum { SIZE = 16 / sizeof(T) };
    T element[SIZE];
};

// 8 neighbours of any type, loaded or stored in as few instructions as the alignment of their address allows.
#define CHUNK 8
template <typename T, int ALIGNMENT = sizeof(T) == 1 ? 8 : 16>
struct alignas(ALIGNMENT) Chunk {
    T element[CHUNK];
};
