// Who watches an instrumented kernel: the race check of shared memory (race.cpp) and the memory meter (meter.cpp).
// One observer serves one host thread, which runs one block at a time.
#pragma once
#include "meter.h"
#include "race.h"

namespace pagewalk {

struct Observer {
    RaceCheck* races;  // either may be null
    Meter* meter;
};

// Every load and store of the kernel that touches a watched span.
void observe_access(Fiber* fiber, const void* address, unsigned bytes, bool write, const void* at);
// An asynchronous copy: its read of the cache, and the place in shared memory that nobody may touch until it has landed.
void observe_copy(Fiber* fiber, const void* to, const void* from, unsigned bytes, unsigned source_bytes, const void* at);
void observe_landing(Fiber* fiber, const void* to, unsigned bytes, const void* at);
// `lanes` of the warp of `last` are about to go on together. Operands of a matrix operation still lie in their slots.
void warp_meets(Fiber* last, unsigned lanes, Meeting meeting);
void block_meets(Block& block);
// Before the first thread of a block runs, and after its last.
void observe_begin(Block& block);
void observe_end(Block& block);

}  // namespace pagewalk
