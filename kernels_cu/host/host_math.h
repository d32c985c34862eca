// CUDA's mathematical functions: with an f at the end in single precision, without it in the precision of the argument.
// The C library's header would declare them a second way.
#pragma once

// The larger and the smaller of two; a NaN loses against a number.
inline float fmaxf(float a, float b) { return a > b || b != b ? a : b; }
inline float fminf(float a, float b) { return a < b || b != b ? a : b; }
inline double fmax(double a, double b) { return a > b || b != b ? a : b; }
inline double fmin(double a, double b) { return a < b || b != b ? a : b; }
inline float fmax(float a, float b) { return fmaxf(a, b); }
inline float fmin(float a, float b) { return fminf(a, b); }

#define PAGEWALK_MATH_1(name)                                          \
    inline float name##f(float x) { return __builtin_##name##f(x); }   \
    inline float name(float x) { return __builtin_##name##f(x); }      \
    inline double name(double x) { return __builtin_##name(x); }
PAGEWALK_MATH_1(fabs)
PAGEWALK_MATH_1(sqrt)
PAGEWALK_MATH_1(cbrt)
PAGEWALK_MATH_1(exp)
PAGEWALK_MATH_1(exp2)
PAGEWALK_MATH_1(exp10)
PAGEWALK_MATH_1(expm1)
PAGEWALK_MATH_1(log)
PAGEWALK_MATH_1(log2)
PAGEWALK_MATH_1(log10)
PAGEWALK_MATH_1(log1p)
PAGEWALK_MATH_1(sin)
PAGEWALK_MATH_1(cos)
PAGEWALK_MATH_1(tan)
PAGEWALK_MATH_1(asin)
PAGEWALK_MATH_1(acos)
PAGEWALK_MATH_1(atan)
PAGEWALK_MATH_1(sinh)
PAGEWALK_MATH_1(cosh)
PAGEWALK_MATH_1(tanh)
PAGEWALK_MATH_1(erf)
PAGEWALK_MATH_1(erfc)
PAGEWALK_MATH_1(floor)
PAGEWALK_MATH_1(ceil)
PAGEWALK_MATH_1(trunc)
PAGEWALK_MATH_1(round)
PAGEWALK_MATH_1(rint)

#define PAGEWALK_MATH_2(name)                                                         \
    inline float name##f(float x, float y) { return __builtin_##name##f(x, y); }      \
    inline float name(float x, float y) { return __builtin_##name##f(x, y); }         \
    inline double name(double x, double y) { return __builtin_##name(x, y); }
PAGEWALK_MATH_2(pow)
PAGEWALK_MATH_2(fmod)
PAGEWALK_MATH_2(atan2)
PAGEWALK_MATH_2(hypot)
PAGEWALK_MATH_2(copysign)

inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float rsqrtf(float x) { return 1 / __builtin_sqrtf(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
inline void sincosf(float x, float* sine, float* cosine) { *sine = sinf(x), *cosine = cosf(x); }

// Those that a GPU computes roughly and fast: here as exact as the others.
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }  // 0 for a NaN

#define PAGEWALK_CLASSIFY(T)                                              \
    inline bool isnan(T x) { return __builtin_isnan(x); }                 \
    inline bool isinf(T x) { return __builtin_isinf_sign(x) != 0; }       \
    inline bool isfinite(T x) { return __builtin_isfinite(x); }           \
    inline bool signbit(T x) { return __builtin_signbit(x) != 0; }
PAGEWALK_CLASSIFY(float)
PAGEWALK_CLASSIFY(double)

inline int abs(int x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline long long llabs(long long x) { return abs(x); }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }

template <typename T> inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> inline T max(T a, T b) { return a < b ? b : a; }
inline unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
inline unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }
