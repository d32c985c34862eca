// CUDA's functions on the bits of numbers, and its loads and stores with a hint, of which a CPU takes none.
#pragma once
#include "ptx_host.h"
#include "same_bits.h"

#define PAGEWALK_BITS(name, From, To) \
    inline To name(From x) { return pagewalk::same_bits<To>(x); }
PAGEWALK_BITS(__int_as_float, int, float)
PAGEWALK_BITS(__uint_as_float, unsigned, float)
PAGEWALK_BITS(__float_as_int, float, int)
PAGEWALK_BITS(__float_as_uint, float, unsigned)
PAGEWALK_BITS(__longlong_as_double, long long, double)
PAGEWALK_BITS(__double_as_longlong, double, long long)

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }  // from 1; 0 where there is none
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}

inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    return ptx_permute_bytes(a, b, selector & 0x7777);
}
// The upper word of (high, low) after a shift to the left, and the lower one after a shift to the right.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}

// A float too large for an int gives the nearest int, and a NaN 0, where a cast in C++ is undefined.
inline int pagewalk_int_from(float x) {
    if (x != x) return 0;
    return x >= 2147483648.0f ? 0x7fffffff : x < -2147483648.0f ? -0x7fffffff - 1 : int(x);
}
inline int __float2int_rz(float x) { return pagewalk_int_from(x); }
inline int __float2int_rn(float x) { return pagewalk_int_from(__builtin_rintf(x)); }
inline int __float2int_rd(float x) { return pagewalk_int_from(__builtin_floorf(x)); }
inline int __float2int_ru(float x) { return pagewalk_int_from(__builtin_ceilf(x)); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }

template <typename T> inline T __ldg(const T* address) { return *address; }
template <typename T> inline T __ldca(const T* address) { return *address; }
template <typename T> inline T __ldcg(const T* address) { return *address; }
template <typename T> inline T __ldcs(const T* address) { return *address; }
template <typename T> inline void __stcg(T* address, T value) { *address = value; }
template <typename T> inline void __stcs(T* address, T value) { *address = value; }
