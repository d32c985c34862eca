// cp.async on a CPU. A copy may land at any moment between its start and the end of the wait for its group. Here it is
// one end of that or the other: eager copies show a buffer that is filled while it is still read, lazy ones (the
// default) data that is read before it is waited for.
#include "copies.h"

#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "observer.h"

namespace pagewalk {
namespace {

constexpr unsigned FIRST_CAPACITY = 64;

void land(const AsyncCopy& copy) {
    memcpy(copy.to, copy.from, copy.source_bytes);
    memset(copy.to + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

// Room for one more at the end. False if the system has no memory.
bool make_room(Fiber* fiber, CopyQueue& queue) {
    if (queue.first + queue.count < queue.capacity) return true;
    const Uncut uncut(fiber);
    if (queue.first >= queue.count && queue.first > 0) {
        memcpy(queue.copies, queue.copies + queue.first, queue.count * sizeof(AsyncCopy));
    } else {
        const unsigned capacity = queue.capacity ? 2 * queue.capacity : FIRST_CAPACITY;
        AsyncCopy* copies = static_cast<AsyncCopy*>(malloc(capacity * sizeof(AsyncCopy)));
        if (!copies) return false;
        if (queue.count) memcpy(copies, queue.copies + queue.first, queue.count * sizeof(AsyncCopy));
        free(queue.copies);
        queue.copies = copies;
        queue.capacity = capacity;
    }
    queue.first = 0;
    return true;
}

CopyQueue& queue_of(const Fiber* fiber) {
    const Block& block = *fiber->block;
    return block.copies[unsigned(fiber->warp - block.warp) * WARP_LANES + fiber->lane];
}

}  // namespace

void begin_copy(Fiber* fiber, void* to, const void* from, unsigned bytes, unsigned source_bytes, const void* at) {
    const uintptr_t both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    if (both % bytes) stop_block(fiber, Status::MISALIGNED, reinterpret_cast<uintptr_t>(from));
    if (!is_shared(*fiber->block, to)) stop_block(fiber, Status::NOT_SHARED, reinterpret_cast<uintptr_t>(to));
    if (source_bytes > bytes) source_bytes = bytes;
    CopyQueue& queue = queue_of(fiber);
    const AsyncCopy copy = {static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes,
                            source_bytes, queue.group, at};
    const bool eager = fiber->block->eager_copies, observed = fiber->block->observer;
    if (observed) observe_copy(fiber, to, from, bytes, source_bytes, at);
    const bool queued = (!eager || observed) && make_room(fiber, queue);
    if (queued) queue.copies[queue.first + queue.count++] = copy;
    if (eager || !queued) land(copy);
}

void commit_copies(Fiber* fiber) { queue_of(fiber).group++; }

void wait_for_copies(Fiber* fiber, unsigned pending) {
    CopyQueue& queue = queue_of(fiber);
    for (; queue.count && queue.copies[queue.first].group + pending < queue.group; queue.first++, queue.count--) {
        const AsyncCopy& copy = queue.copies[queue.first];
        if (!fiber->block->eager_copies) land(copy);
        if (fiber->block->observer) observe_landing(fiber, copy.to, copy.bytes, copy.at);
    }
}

}  // namespace pagewalk
