// CUDA's mathematical functions in single precision. The C library's header would declare them a second way.
#pragma once

// The larger and the smaller of two; a NaN loses against a number.
inline float fmaxf(float a, float b) { return a > b || b != b ? a : b; }
inline float fminf(float a, float b) { return a < b || b != b ? a : b; }

inline float fabsf(float x) { return __builtin_fabsf(x); }
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float sqrtf(float x) { return __builtin_sqrtf(x); }
inline float rsqrtf(float x) { return 1 / __builtin_sqrtf(x); }
inline float exp2f(float x) { return __builtin_exp2f(x); }
inline float log2f(float x) { return __builtin_log2f(x); }
inline float tanhf(float x) { return __builtin_tanhf(x); }
inline float powf(float x, float y) { return __builtin_powf(x, y); }
inline float sinf(float x) { return __builtin_sinf(x); }
inline float cosf(float x) { return __builtin_cosf(x); }
inline void sincosf(float x, float* sine, float* cosine) { *sine = sinf(x), *cosine = cosf(x); }
inline float rintf(float x) { return __builtin_rintf(x); }

template <typename T> inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> inline T max(T a, T b) { return a < b ? b : a; }
