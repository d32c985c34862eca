// What a kernel says of itself: prints, a failed assert, a trap; and the clock.
#pragma once
#include "fiber.h"

namespace pagewalk {

inline void print(const char* format, ...) {
    __builtin_va_list values;
    __builtin_va_start(values, format);
    this_fiber()->block->runtime->print(format, values);
    __builtin_va_end(values);
}

[[noreturn]] inline void stop(Status status, uint64_t about) {
    Fiber* fiber = this_fiber();
    fiber->block->runtime->stop(fiber, status, about);
    __builtin_unreachable();
}

}  // namespace pagewalk

// At once; a GPU prints when somebody waits for it. At most 1023 bytes of text a call.
template <typename... Values>
inline int printf(const char* format, Values... values) {
    pagewalk::print(format, values...);
    return int(sizeof...(values));
}

[[noreturn]] inline void __trap() { pagewalk::stop(pagewalk::Status::TRAPPED, 0); }

#define assert(condition) ((condition) ? void(0) : pagewalk::stop(pagewalk::Status::ASSERTED, __LINE__))

// Ticks of a counter that runs at a rate of its own.
inline long long clock64() {
#if defined(__x86_64__)
    return (long long)__builtin_ia32_rdtsc();
#else
    long long ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}
inline int clock() { return int(clock64()); }
