// One block of a grid (block.cpp).
#pragma once
#include "fiber.h"

namespace pagewalk {

inline Fiber* fiber_of(const Block& block, unsigned thread) {
    return fiber_in(reinterpret_cast<uintptr_t>(block.stacks) + thread * STACK_BYTES);
}

// Run the block whose sizes, index, arguments, memory and schedule are set. False when it was stopped, or when threads
// that have not returned all wait, each for one that will never come: a barrier that a part of them does not reach.
bool run_block(Block& block);

// End the block of a running fiber. It never runs again.
[[noreturn]] void stop_block(Fiber* fiber, Status status, uint64_t address);

}  // namespace pagewalk
