// CUDA's atomic functions and fences: blocks on several host threads meet in memory as blocks of a GPU do.
#pragma once

template <typename T>
inline T atomicAdd(T* address, T value) { return __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }

// A CPU adds no floats in one step: try until nobody came between.
inline float atomicAdd(float* address, float value) {
    unsigned* const word = reinterpret_cast<unsigned*>(address);
    unsigned before = __atomic_load_n(word, __ATOMIC_RELAXED), after;
    float old;
    do {
        __builtin_memcpy(&old, &before, 4);
        const float sum = old + value;
        __builtin_memcpy(&after, &sum, 4);
    } while (!__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

template <typename T>
inline T atomicExch(T* address, T value) { return __atomic_exchange_n(address, value, __ATOMIC_RELAXED); }

template <typename T>
inline T atomicCAS(T* address, T expected, T desired) {
    __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

// What a thread wrote before is seen by all threads of the device before what it writes after.
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
