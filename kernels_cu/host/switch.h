// Stacks: make a fresh one, and switch from one to another (switch.cpp).
#pragma once
#include <stdint.h>

extern "C" {
void pagewalk_switch(void** from, void* to);
void pagewalk_resume();
void pagewalk_begin();
}

namespace pagewalk {

#if defined(__x86_64__)
constexpr int SAVED_WORDS = 6;  // popped before the return address
constexpr int RETURN_WORD = 6;
constexpr int FRAME_WORDS = 7;  // all popped where pagewalk_begin starts, with the stack at `top`
#else
constexpr int SAVED_WORDS = 20;
constexpr int RETURN_WORD = 11;  // x30
constexpr int FRAME_WORDS = 20;
#endif

// The stack pointer of a stack that ends below `top`, a multiple of 16, and that begins with pagewalk_begin.
inline void* fresh_stack(void* top) {
    uint64_t* frame = static_cast<uint64_t*>(top) - FRAME_WORDS;
    for (int i = 0; i < SAVED_WORDS; i++) frame[i] = 0;
    frame[RETURN_WORD] = reinterpret_cast<uint64_t>(&pagewalk_begin);
    return frame;
}

}  // namespace pagewalk
