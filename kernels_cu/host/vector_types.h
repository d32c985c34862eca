// CUDA's vector types, with its alignment: one load or store of a thread moves a whole one.
#pragma once
#include "fiber.h"

#define PAGEWALK_VECTORS(T, name)                                                                          \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                                     \
    struct name##3 { T x, y, z; };                                                                         \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                             \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }
// Of four, as long as they are aligned to their size: that of 32 bytes has had two alignments in CUDA.
#define PAGEWALK_QUARTETS(T, name)                                                                         \
    PAGEWALK_VECTORS(T, name)                                                                              \
    struct alignas(4 * sizeof(T)) name##4 { T x, y, z, w; };                                               \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
PAGEWALK_QUARTETS(signed char, char)
PAGEWALK_QUARTETS(unsigned char, uchar)
PAGEWALK_QUARTETS(short, short)
PAGEWALK_QUARTETS(unsigned short, ushort)
PAGEWALK_QUARTETS(int, int)
PAGEWALK_QUARTETS(unsigned, uint)
PAGEWALK_QUARTETS(float, float)
PAGEWALK_VECTORS(long long, longlong)
PAGEWALK_VECTORS(unsigned long long, ulonglong)
PAGEWALK_VECTORS(double, double)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(pagewalk::Index3 i) : x(i.x), y(i.y), z(i.z) {}
};
