// The memory that one host thread runs blocks in: stacks, warps, and a stack for signals.
#pragma once
#include <stddef.h>

#include "fiber.h"

namespace pagewalk {

// As much as the compiler takes for granted when it probes a large frame (-fstack-clash-protection), so that none reaches
// over it. On aarch64 that is also the largest page.
#if defined(__aarch64__)
constexpr uintptr_t GUARD_BYTES = 64 * 1024;
#else
constexpr uintptr_t GUARD_BYTES = 4 * 1024;
#endif

struct Arena {
    unsigned threads;  // how many stacks it has
    unsigned char* stacks;
    Warp* warps;
    CopyQueue* copies;  // [threads]
    unsigned char* dynamic_shared;  // its last byte lies before a page that cannot be touched
    size_t dynamic_shared_bytes;    // how much of it there is
    unsigned char* signal_stack;  // STACK_BYTES
    Arena* next;                  // of those that wait for their next use
};

// An arena for blocks of `threads` threads, or null if the system has no memory for one. Give it back after use: it is
// kept for the next launch, so that there are as many as launches ever ran at once.
Arena* take_arena(unsigned threads);
void give_arena(Arena* arena);

// Dynamic shared memory of `bytes` for the blocks that run in the arena. A multiple of 128 bytes ends exactly where the
// guard begins, so that one byte too far is a fault. Null if the system has no memory for it.
unsigned char* shared_in(Arena& arena, size_t bytes);

}  // namespace pagewalk
