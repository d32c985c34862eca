#include "observer.h"

#include "block.h"

namespace pagewalk {
namespace {

constexpr int CACHE = 2;

unsigned warp_index(const Fiber* fiber) { return unsigned(fiber->warp - fiber->block->warp); }

// Where an address lies in shared memory, the dynamic first. False if it is elsewhere.
bool offset_in_shared(const Block& block, const void* address, unsigned* offset) {
    const uintptr_t place = reinterpret_cast<uintptr_t>(address);
    if (block.shared[0].contains(address)) {
        *offset = unsigned(place - block.shared[0].begin);
    } else if (block.shared[1].contains(address)) {
        *offset = unsigned(block.shared[0].bytes + place - block.shared[1].begin);
    } else {
        return false;
    }
    return true;
}

// Check, and count, an access to shared memory by `lane` of the warp of `fiber`, the one that runs.
void see_shared(Fiber* fiber, unsigned lane, const void* address, unsigned bytes, Access::Kind kind, const void* at) {
    const Observer& observer = *fiber->block->observer;
    unsigned offset;
    if (!offset_in_shared(*fiber->block, address, &offset)) return;
    const unsigned warp = warp_index(fiber);
    if (observer.races && !observer.races->access(warp * WARP_LANES + lane, offset, bytes, kind, at))
        stop_block(fiber, Status::RACE, offset);
    if (!observer.meter || kind == Access::LANDING) return;
    const Uncut uncut(fiber);  // the meter's lists grow
    observer.meter->access(warp, lane, offset, bytes, {at, kind != Access::READ, true});
}

// False if it is not the cache, or nobody counts.
bool see_cache(Fiber* fiber, const void* address, unsigned bytes, bool write, const void* at) {
    Meter* meter = fiber->block->observer->meter;
    if (!meter || !fiber->block->watched[CACHE].contains(address)) return false;
    const Uncut uncut(fiber);
    meter->access(warp_index(fiber), fiber->lane, reinterpret_cast<uintptr_t>(address), bytes, {at, write, false});
    return true;
}

void see_rows(Fiber* last) {
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        RowAddress given;
        __builtin_memcpy(&given, last->warp->slot[lane], sizeof(given));
        if (lane < 8 * given.matrices) see_shared(last, lane, given.row, 16, Access::READ, given.at);
    }
}

}  // namespace

void observe_access(Fiber* fiber, const void* address, unsigned bytes, bool write, const void* at) {
    if (!fiber->block->observer || see_cache(fiber, address, bytes, write, at)) return;
    see_shared(fiber, fiber->lane, address, bytes, write ? Access::WRITE : Access::READ, at);
}

void observe_copy(Fiber* fiber, const void* to, const void* from, unsigned bytes, unsigned source_bytes,
                  const void* at) {
    if (source_bytes) see_cache(fiber, from, source_bytes, false, at);
    see_shared(fiber, fiber->lane, to, bytes, Access::COPYING, at);
}

void observe_landing(Fiber* fiber, const void* to, unsigned bytes, const void* at) {
    see_shared(fiber, fiber->lane, to, bytes, Access::LANDING, at);
}

void warp_meets(Fiber* last, unsigned lanes, Meeting meeting) {
    Observer* observer = last->block->observer;
    if (observer->races && meeting == Meeting::BARRIER) observer->races->join(warp_index(last), lanes);
    if (meeting == Meeting::LDMATRIX || meeting == Meeting::LDMATRIX_TRANS) see_rows(last);
    if (observer->meter && lanes == last->warp->living) observer->meter->close_requests(warp_index(last));
}

void block_meets(Block& block) {
    if (block.observer->races) block.observer->races->join_all();
    observe_end(block);
}

void observe_begin(Block& block) {
    if (block.observer->races) block.observer->races->begin_block();
}

void observe_end(Block& block) {
    for (unsigned warp = 0; warp < block.warps && block.observer->meter; warp++)
        block.observer->meter->close_requests(warp);
}

}  // namespace pagewalk
