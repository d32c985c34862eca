// Asynchronous copies of one thread (copies.cpp): what cp.async began and nobody has waited for.
#pragma once
#include "fiber.h"

namespace pagewalk {

struct AsyncCopy {
    unsigned char* to;
    const unsigned char* from;
    unsigned bytes, source_bytes;
    unsigned group;
    const void* at;  // in the kernel's code
};

// From `first` on, `count` copies wait, oldest first. `group` is the one that the next commit closes.
struct CopyQueue {
    AsyncCopy* copies;
    unsigned capacity, first, count, group;
};

void begin_copy(Fiber* fiber, void* to, const void* from, unsigned bytes, unsigned source_bytes, const void* at);
void commit_copies(Fiber* fiber);
void wait_for_copies(Fiber* fiber, unsigned pending);

}  // namespace pagewalk
