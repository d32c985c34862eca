// What a kernel that is compiled with -fsanitize=thread calls at every load and store. The compiler writes the calls; in
// place of ThreadSanitizer's own library they end here, and go on to the observer when the memory is watched. This file
// is linked into each such kernel, and is compiled without that option itself.
#include <stddef.h>

#include "fiber.h"

namespace {

inline __attribute__((always_inline)) void see(const void* address, unsigned bytes, bool write, const void* at) {
    pagewalk::Fiber* fiber = pagewalk::this_fiber();
    const pagewalk::Block& block = *fiber->block;
    for (const pagewalk::Span& span : block.watched)
        if (span.contains(address)) return block.runtime->observe(fiber, address, bytes, write, at);
}

// The compiler takes the type's alignment for granted, as a GPU does.
inline __attribute__((always_inline)) void see_aligned(const void* address, unsigned bytes, bool write, const void* at) {
    const uintptr_t place = reinterpret_cast<uintptr_t>(address);
    if (place % bytes == 0) return see(address, bytes, write, at);
    pagewalk::Fiber* fiber = pagewalk::this_fiber();
    fiber->block->runtime->stop(fiber, pagewalk::Status::MISALIGNED_ACCESS, place);
}

}  // namespace

#define SEEN(name, bytes, write) \
    extern "C" void name(void* address) { see(address, bytes, write, __builtin_return_address(0)); }
#define SEEN_ALIGNED(name, bytes, write) \
    extern "C" void name(void* address) { see_aligned(address, bytes, write, __builtin_return_address(0)); }
#define SEEN_OF(bytes)                             \
    SEEN_ALIGNED(__tsan_read##bytes, bytes, false) \
    SEEN_ALIGNED(__tsan_write##bytes, bytes, true) \
    SEEN(__tsan_unaligned_read##bytes, bytes, false) \
    SEEN(__tsan_unaligned_write##bytes, bytes, true)
SEEN_OF(1)
SEEN_OF(2)
SEEN_OF(4)
SEEN_OF(8)
SEEN_OF(16)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __tsan_read_range(void* address, size_t bytes) {
    see(address, unsigned(bytes), false, __builtin_return_address(0));
}
void __tsan_write_range(void* address, size_t bytes) {
    see(address, unsigned(bytes), true, __builtin_return_address(0));
}

// clang asks for these three in place of the C library's.
void* __tsan_memset(void* to, int value, size_t bytes) {
    see(to, unsigned(bytes), true, __builtin_return_address(0));
    return __builtin_memset(to, value, bytes);
}
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
    see(from, unsigned(bytes), false, __builtin_return_address(0));
    see(to, unsigned(bytes), true, __builtin_return_address(0));
    return __builtin_memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
    see(from, unsigned(bytes), false, __builtin_return_address(0));
    see(to, unsigned(bytes), true, __builtin_return_address(0));
    return __builtin_memmove(to, from, bytes);
}

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
}

// Atomic operations race with nobody: they are only done.
#define ATOMIC_OF(bits, T)                                                                                    \
    extern "C" T __tsan_atomic##bits##_load(const volatile T* p, int) {                                       \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                          \
    }                                                                                                         \
    extern "C" void __tsan_atomic##bits##_store(volatile T* p, T x, int) {                                    \
        __atomic_store_n(p, x, __ATOMIC_SEQ_CST);                                                             \
    }                                                                                                         \
    extern "C" T __tsan_atomic##bits##_exchange(volatile T* p, T x, int) {                                    \
        return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST);                                                   \
    }                                                                                                         \
    extern "C" T __tsan_atomic##bits##_fetch_add(volatile T* p, T x, int) {                                   \
        return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST);                                                    \
    }                                                                                                         \
    extern "C" int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T x, int, int) { \
        return __atomic_compare_exchange_n(p, expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
    }                                                                                                         \
    extern "C" T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T x, int, int) {       \
        __atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
        return expected;                                                                                      \
    }
ATOMIC_OF(32, unsigned)
ATOMIC_OF(64, unsigned long long)
