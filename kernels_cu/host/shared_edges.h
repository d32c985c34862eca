// What lies on both sides of a kernel's shared arrays: bytes that nobody may change. Somebody who does wrote past an end.
#pragma once
#include <stddef.h>

namespace pagewalk {

constexpr size_t BEFORE_SHARED = 4096, BEHIND_SHARED = 8192;
constexpr unsigned char EDGE = 0xFB;  // as a number of any type far from what a kernel computes with

}  // namespace pagewalk

extern __attribute__((visibility("hidden"), aligned(128))) __thread unsigned char
    pagewalk_before_shared[pagewalk::BEFORE_SHARED];
// No wider: what lies between the last array and here is not looked at.
extern __attribute__((visibility("hidden"), aligned(4))) __thread unsigned char
    pagewalk_behind_shared[pagewalk::BEHIND_SHARED];
