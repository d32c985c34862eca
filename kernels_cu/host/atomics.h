// CUDA's atomic functions and fences: blocks on several host threads meet in memory as blocks of a GPU do.
//
// For the types that CUDA has them for, and no others: what compiles here compiles there.
#pragma once
#include "same_bits.h"

namespace pagewalk {

// What a type is to the atomic instructions of a CPU: a word of its size.
template <unsigned BYTES> struct Word;
template <> struct Word<4> { using type = unsigned; };
template <> struct Word<8> { using type = unsigned long long; };

// Replace what lies at `address` by change(it), in one step: try until nobody came between. Returns what was there.
template <typename T, typename Change>
inline T replace(T* address, Change change) {
    using W = typename Word<sizeof(T)>::type;
    W* const word = reinterpret_cast<W*>(address);
    W before = __atomic_load_n(word, __ATOMIC_RELAXED), after;
    do after = same_bits<W>(change(same_bits<T>(before)));
    while (!__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return same_bits<T>(before);
}

}  // namespace pagewalk

#define PAGEWALK_ADD(T) \
    inline T atomicAdd(T* address, T value) { return __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }
PAGEWALK_ADD(int)
PAGEWALK_ADD(unsigned)
PAGEWALK_ADD(unsigned long long)

#define PAGEWALK_ATOMIC(name, T, result)                              \
    inline T name(T* address, T value) {                              \
        return pagewalk::replace(address, [=](T old) -> T { return result; }); \
    }
PAGEWALK_ATOMIC(atomicAdd, float, old + value)
PAGEWALK_ATOMIC(atomicAdd, double, old + value)
PAGEWALK_ATOMIC(atomicSub, int, int(unsigned(old) - unsigned(value)))
PAGEWALK_ATOMIC(atomicSub, unsigned, old - value)
PAGEWALK_ATOMIC(atomicExch, float, (void(old), value))
PAGEWALK_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
PAGEWALK_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)

#define PAGEWALK_ATOMICS(T)                                                                                       \
    PAGEWALK_ATOMIC(atomicMin, T, value < old ? value : old)                                                      \
    PAGEWALK_ATOMIC(atomicMax, T, old < value ? value : old)                                                      \
    PAGEWALK_ATOMIC(atomicAnd, T, old & value)                                                                    \
    PAGEWALK_ATOMIC(atomicOr, T, old | value)                                                                     \
    PAGEWALK_ATOMIC(atomicXor, T, old ^ value)
PAGEWALK_ATOMICS(int)
PAGEWALK_ATOMICS(unsigned)
PAGEWALK_ATOMICS(long long)
PAGEWALK_ATOMICS(unsigned long long)

#define PAGEWALK_EXCHANGE(T)                                                                                      \
    inline T atomicExch(T* address, T value) { return __atomic_exchange_n(address, value, __ATOMIC_RELAXED); }    \
    inline T atomicCAS(T* address, T expected, T desired) {                                                       \
        __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);      \
        return expected;                                                                                          \
    }
PAGEWALK_EXCHANGE(int)
PAGEWALK_EXCHANGE(unsigned)
PAGEWALK_EXCHANGE(unsigned long long)

// What a thread wrote before is seen by all threads of the device before what it writes after.
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
