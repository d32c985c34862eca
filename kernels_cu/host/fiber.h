// The threads of a CUDA block on a CPU: each is a fiber, a stack of its own that runs until it has to wait.
//
// These are the records that a compiled kernel and the runtime share. The kernel reaches its own fiber from the stack
// pointer alone: every stack lies in a slot of STACK_BYTES, aligned to that size, with the Fiber at its upper end.
//
//     slot:  [guard | stack grows down <---- | Fiber | up to 8 KB of offset]
//
// The offset differs from slot to slot, so that the tops of 32 stacks do not fall into the same cache set.
#pragma once
#include <stdint.h>

namespace pagewalk {

constexpr unsigned WARP_LANES = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
#if defined(__aarch64__)
constexpr uintptr_t STACK_BYTES = 256 * 1024;
#else
constexpr uintptr_t STACK_BYTES = 64 * 1024;
#endif
constexpr uintptr_t STACK_OFFSETS = 64;
constexpr uintptr_t STACK_OFFSET_BYTES = 128;

struct Index3 {
    unsigned x, y, z;
};

struct Block;
struct Warp;

struct Fiber {
    void* stack_pointer;  // while it waits
    Block* block;
    Warp* warp;
    unsigned lane;
    unsigned exchanges;  // whole-warp exchanges so far; its last bit chooses the buffer
    Index3 thread;
};

// One bit a lane in every mask.
struct Warp {
    unsigned living;   // has not returned
    unsigned ready;    // may run
    unsigned at_warp;  // waits for the whole warp
    unsigned at_part;  // waits for the lanes of part_mask
    unsigned part_mask[WARP_LANES];
    // A whole-warp exchange has one barrier and two buffers in turn: a lane can be one exchange ahead, never two.
    uint64_t exchanged[2][WARP_LANES];
    uint64_t exchanged_in_part[WARP_LANES];
};

// What a kernel calls in the runtime, as pointers: a compiled kernel needs no symbol of it.
struct Runtime {
    void (*wait_for_lanes)(Fiber* fiber, unsigned mask);
    void (*wait_for_block)(Fiber* fiber);
};

enum class Schedule : int { ASCENDING = 0, DESCENDING = 1, INTERLEAVED = 2 };

struct Block {
    const Runtime* runtime;
    Index3 grid_size, block_size, index;
    void (*run)(const void* arguments);  // the kernel's body, once for each thread
    const void* arguments;
    Schedule schedule;
    unsigned threads, warps;
    Warp* warp;                // [warps]
    unsigned char* stacks;     // [threads] slots of STACK_BYTES
    unsigned living, waiting;  // threads that have not returned; of these, at __syncthreads
    unsigned current;          // index of the warp that runs
    void* host_stack_pointer;  // where to go on when no fiber can run
};

inline Fiber* fiber_in(uintptr_t slot) {
    const uintptr_t offset = slot / STACK_BYTES % STACK_OFFSETS * STACK_OFFSET_BYTES;
    return reinterpret_cast<Fiber*>(slot + STACK_BYTES - STACK_OFFSET_BYTES - offset);
}

inline Fiber* this_fiber() {
    return fiber_in(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) & ~(STACK_BYTES - 1));
}

static_assert(sizeof(Fiber) <= STACK_OFFSET_BYTES, "a Fiber fits above its stack");

}  // namespace pagewalk
