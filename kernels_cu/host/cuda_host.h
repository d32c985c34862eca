// CUDA's words for a kernel source that a C++ compiler builds for the CPU.
//
// Threads of a block are fibers (fiber.h), so a kernel runs one thread at a time and a barrier is a switch to another.
// Warp functions are exact: each lane gives its value, waits for the lanes of the mask, and reads the lane it asked for.
#pragma once
#define PAGEWALK_HOST 1
#include "atomics.h"
#include "bits.h"
#include "fiber.h"
#include "host_math.h"
#include "ptx_host.h"
#include "stops.h"

#define __global__
#define __device__
#define __host__
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
// Filled where it is declared: a launch has no way to fill it later.
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __restrict__
// Every host thread runs one block at a time, and so has one copy of each shared array.
#define __shared__ static thread_local

#define threadIdx (pagewalk::this_fiber()->thread)
#define blockIdx (pagewalk::this_fiber()->block->index)
#define blockDim (pagewalk::this_fiber()->block->block_size)
#define gridDim (pagewalk::this_fiber()->block->grid_size)
constexpr int warpSize = int(pagewalk::WARP_LANES);

// What `extern __shared__` names (source.py).
inline unsigned char* pagewalk_dynamic_shared() { return pagewalk::this_fiber()->block->dynamic_shared; }

PAGEWALK_OUTSIDE void __syncthreads() {
    pagewalk::Fiber* fiber = pagewalk::this_fiber();
    fiber->block->runtime->wait_for_block(fiber);
}

PAGEWALK_OUTSIDE void __syncwarp(unsigned mask = pagewalk::ALL_LANES) {
    pagewalk::Fiber* fiber = pagewalk::this_fiber();
    fiber->block->runtime->wait_for_lanes(fiber, mask, pagewalk::Meeting::BARRIER);
}

namespace pagewalk {

template <typename T>
uint64_t bits_of(T value) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}

// Give `value`, wait for the lanes of `mask`, return what lane `source` gave: all bits set if it is not in the mask.
template <typename T>
PAGEWALK_OUTSIDE T exchange(unsigned mask, T value, unsigned source) {
    Fiber* fiber = this_fiber();
    Warp* warp = fiber->warp;
    const bool whole = mask == ALL_LANES;
    uint64_t* given = whole ? warp->exchanged[fiber->exchanges++ & 1] : warp->exchanged_in_part;
    given[fiber->lane] = bits_of(value);
    fiber->block->runtime->wait_for_lanes(fiber, mask, Meeting::EXCHANGE);
    const uint64_t bits = mask >> source & 1 ? given[source] : ~uint64_t(0);
    // In part, there is one buffer only: all have read it.
    if (!whole) fiber->block->runtime->wait_for_lanes(fiber, mask, Meeting::EXCHANGE);
    T result;
    __builtin_memcpy(&result, &bits, sizeof(T));
    return result;
}

// A shuffle of width w works in each segment of w lanes by itself; what lies outside it gives the lane its own value.
struct Segment {
    int lane, first, last;
    explicit Segment(int width)
        : lane(int(this_fiber()->lane)), first(lane & ~(width - 1)), last(first + width - 1) {}
    unsigned source(int wanted) const { return unsigned(wanted < first || wanted > last ? lane : wanted); }
};

}  // namespace pagewalk

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    const pagewalk::Segment segment(width);
    return pagewalk::exchange(mask, value, segment.source(segment.first + (source & (width - 1))));
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const pagewalk::Segment segment(width);
    return pagewalk::exchange(mask, value, segment.source(segment.lane - int(delta)));
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const pagewalk::Segment segment(width);
    return pagewalk::exchange(mask, value, segment.source(segment.lane + int(delta)));
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
    const pagewalk::Segment segment(width);
    return pagewalk::exchange(mask, value, segment.source(segment.lane ^ lane_mask));
}

namespace pagewalk {

// What the lanes of `mask` give, put together by `join`; each of them has the result. Lanes that have returned give none.
template <typename T, typename Join>
T reduce(unsigned mask, T value, Join join) {
    Fiber* fiber = this_fiber();
    Warp* warp = fiber->warp;
    warp->exchanged_in_part[fiber->lane] = bits_of(value);
    fiber->block->runtime->wait_for_lanes(fiber, mask, Meeting::EXCHANGE);
    T result = value;
    for (unsigned left = mask & warp->living & ~(1u << fiber->lane); left; left &= left - 1)
        result = join(result, T(warp->exchanged_in_part[__builtin_ctz(left)]));
    fiber->block->runtime->wait_for_lanes(fiber, mask, Meeting::EXCHANGE);  // nobody gives again before all have read
    return result;
}

}  // namespace pagewalk

#define PAGEWALK_REDUCE(name, T, joined)                                                    \
    inline T name(unsigned mask, T value) {                                                 \
        return pagewalk::reduce(mask, value, [](T a, T b) -> T { return joined; });         \
    }
PAGEWALK_REDUCE(__reduce_add_sync, unsigned, a + b)
PAGEWALK_REDUCE(__reduce_add_sync, int, int(unsigned(a) + unsigned(b)))
PAGEWALK_REDUCE(__reduce_min_sync, unsigned, min(a, b))
PAGEWALK_REDUCE(__reduce_min_sync, int, min(a, b))
PAGEWALK_REDUCE(__reduce_max_sync, unsigned, max(a, b))
PAGEWALK_REDUCE(__reduce_max_sync, int, max(a, b))
PAGEWALK_REDUCE(__reduce_and_sync, unsigned, a & b)
PAGEWALK_REDUCE(__reduce_or_sync, unsigned, a | b)
PAGEWALK_REDUCE(__reduce_xor_sync, unsigned, a ^ b)

// One bit for each lane of the mask whose value is not 0.
inline unsigned __ballot_sync(unsigned mask, int value) {
    const unsigned bit = 1u << pagewalk::this_fiber()->lane;
    return mask & __reduce_or_sync(mask, value ? bit : 0);
}

inline int __any_sync(unsigned mask, int value) { return __ballot_sync(mask, value) != 0; }
// Nobody against: lanes that have returned have no vote.
inline int __all_sync(unsigned mask, int value) { return __ballot_sync(mask, !value) == 0; }
