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

// While it lives, no interrupt ends the block of a running fiber; it does at the end.
class Uncut {
  public:
    explicit Uncut(Fiber* fiber) : fiber_(fiber) {
        fiber->block->uncut = 1;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
    ~Uncut() {
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        fiber_->block->uncut = 0;
        if (fiber_->block->status == Status::INTERRUPTED) stop_block(fiber_, Status::INTERRUPTED, 0);
    }
    Uncut(const Uncut&) = delete;
    Uncut& operator=(const Uncut&) = delete;

  private:
    Fiber* fiber_;
};

}  // namespace pagewalk
