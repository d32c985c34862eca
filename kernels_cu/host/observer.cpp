#include "observer.h"

#include "block.h"

namespace pagewalk {
namespace {

constexpr int CACHE = 2;

unsigned warp_index(const Fiber* fiber) { return unsigned(fiber->warp - fiber->block->warp); }

// Check an access to shared memory by `lane` of the warp of `fiber`, the one that runs.
void check(Fiber* fiber, unsigned lane, const void* address, unsigned bytes, Access::Kind kind, const void* at) {
    Block& block = *fiber->block;
    const uintptr_t place = reinterpret_cast<uintptr_t>(address);
    unsigned offset;
    if (block.shared[0].contains(address)) {
        offset = unsigned(place - block.shared[0].begin);
    } else if (block.shared[1].contains(address)) {
        offset = unsigned(block.shared[0].bytes + place - block.shared[1].begin);
    } else {
        return;
    }
    if (!block.observer->races->access(warp_index(fiber) * WARP_LANES + lane, offset, bytes, kind, at))
        stop_block(fiber, Status::RACE, offset);
}

void check_rows(Fiber* last) {
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        RowAddress given;
        __builtin_memcpy(&given, last->warp->slot[lane], sizeof(given));
        if (lane < 8 * given.matrices) check(last, lane, given.row, 16, Access::READ, given.at);
    }
}

}  // namespace

void observe_access(Fiber* fiber, const void* address, unsigned bytes, bool write, const void* at) {
    Observer* observer = fiber->block->observer;
    if (!observer) return;
    if (observer->meter && fiber->block->watched[CACHE].contains(address)) {
        observer->meter->access(warp_index(fiber), fiber->lane, address, bytes, write, at);
    } else if (observer->races) {
        check(fiber, fiber->lane, address, bytes, write ? Access::WRITE : Access::READ, at);
    }
}

void observe_copy(Fiber* fiber, const void* to, const void* from, unsigned bytes, unsigned source_bytes,
                  const void* at) {
    Observer* observer = fiber->block->observer;
    if (observer->meter && source_bytes && fiber->block->watched[CACHE].contains(from))
        observer->meter->access(warp_index(fiber), fiber->lane, from, source_bytes, false, at);
    if (observer->races) check(fiber, fiber->lane, to, bytes, Access::COPYING, at);
}

void observe_landing(Fiber* fiber, const void* to, unsigned bytes, const void* at) {
    if (fiber->block->observer->races) check(fiber, fiber->lane, to, bytes, Access::LANDING, at);
}

void warp_meets(Fiber* last, unsigned lanes, Meeting meeting) {
    Observer* observer = last->block->observer;
    if (observer->races && meeting == Meeting::BARRIER) observer->races->join(warp_index(last), lanes);
    if (observer->races && (meeting == Meeting::LDMATRIX || meeting == Meeting::LDMATRIX_TRANS)) check_rows(last);
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
