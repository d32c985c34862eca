// Runs one block: which fiber runs next, who waits for whom, and what it means when nobody can run.
#include "block.h"

#include <string.h>

#include "copies.h"
#include "switch.h"
#include "tensor_core.h"

namespace pagewalk {
namespace {

// The next lane of a warp that may run, going round from the one that ran last.
Fiber* next_lane(const Block& block, unsigned warp, unsigned last_lane) {
    const unsigned ready = block.warp[warp].ready;
    unsigned lane;
    if (block.schedule == Schedule::DESCENDING) {
        const unsigned below = ready & ((1u << last_lane) - 1);
        lane = 31 - unsigned(__builtin_clz(below ? below : ready));
    } else {
        const unsigned above = ready & ~((2u << last_lane) - 1);
        lane = unsigned(__builtin_ctz(above ? above : ready));
    }
    return fiber_of(block, warp * WARP_LANES + lane);
}

// The fiber that runs next, or null when none can. A warp runs as far as it gets before the next one has its turn,
// in ascending or descending order; interleaved, another warp has its turn at every switch.
Fiber* next_fiber(Block& block, unsigned last_lane) {
    unsigned warp = block.current;
    if (block.schedule == Schedule::INTERLEAVED) warp = warp + 1 < block.warps ? warp + 1 : 0;
    for (unsigned tried = 0; tried < block.warps; tried++) {
        if (block.warp[warp].ready) {
            block.current = warp;
            return next_lane(block, warp, last_lane);
        }
        if (block.schedule == Schedule::DESCENDING) {
            warp = warp > 0 ? warp - 1 : block.warps - 1;
        } else {
            warp = warp + 1 < block.warps ? warp + 1 : 0;
        }
    }
    return nullptr;
}

void run_another(Fiber* fiber) {
    Block& block = *fiber->block;
    Fiber* next = next_fiber(block, fiber->lane);
    if (next == fiber) return;
    pagewalk_switch(&fiber->stack_pointer, next ? next->stack_pointer : block.host_stack_pointer);
}

// Lanes that have returned are not waited for, here and below.
void release_warp(Warp& warp) {
    if (warp.at_warp != warp.living) return;
    warp.ready |= warp.at_warp;
    warp.at_warp = 0;
}

// Let go the lanes of `mask` if all of them wait, and all for just these lanes.
void release_part(Warp& warp, unsigned mask) {
    const unsigned lanes = mask & warp.living;
    if ((warp.at_part & lanes) != lanes) return;
    for (unsigned left = lanes; left; left &= left - 1)
        if (warp.part_mask[__builtin_ctz(left)] != mask) return;
    warp.ready |= lanes;
    warp.at_part &= ~lanes;
}

void wait_for_lanes(Fiber* fiber, unsigned mask, Meeting meeting) {
    Warp& warp = *fiber->warp;
    const unsigned bit = 1u << fiber->lane;
    warp.ready &= ~bit;
    if (mask == ALL_LANES) {
        if (!warp.at_warp) warp.meeting = meeting;
        if (warp.meeting != meeting) stop_block(fiber, Status::MIXED_WARP, 0);
        warp.at_warp |= bit;
        release_warp(warp);
    } else {
        warp.at_part |= bit;
        warp.part_mask[fiber->lane] = mask;
        release_part(warp, mask);
    }
    if (!(warp.ready & bit)) run_another(fiber);
}

// The last lane to arrive computes for all of them, from one slot a lane: nobody gives his next operands before he has
// his result, and nobody writes results before all have given their next operands.
void compute_together(Fiber* fiber, Meeting operation) {
    Warp& warp = *fiber->warp;
    const bool last = (warp.at_warp | 1u << fiber->lane) == warp.living;
    if (last && (warp.meeting == operation || !warp.at_warp)) compute(warp, operation);
    wait_for_lanes(fiber, ALL_LANES, operation);
}

void release_block(Block& block) {
    if (block.waiting != block.living) return;
    block.waiting = 0;
    for (unsigned w = 0; w < block.warps; w++) block.warp[w].ready = block.warp[w].living;
}

void wait_for_block(Fiber* fiber) {
    const unsigned bit = 1u << fiber->lane;
    fiber->warp->ready &= ~bit;
    fiber->block->waiting++;
    release_block(*fiber->block);
    if (!(fiber->warp->ready & bit)) run_another(fiber);
}

// A thread has returned: whoever waited for it waits no longer.
void leave(Fiber* fiber) {
    Warp& warp = *fiber->warp;
    const unsigned bit = 1u << fiber->lane;
    warp.living &= ~bit;
    warp.ready &= ~bit;
    fiber->block->living--;
    if (warp.at_warp) release_warp(warp);
    for (unsigned lane = 0; lane < WARP_LANES && warp.at_part; lane++)
        if (warp.at_part >> lane & 1) release_part(warp, warp.part_mask[lane]);
    if (fiber->block->waiting) release_block(*fiber->block);
    run_another(fiber);
}

const Runtime RUNTIME = {
    &wait_for_lanes, &wait_for_block, &compute_together, &begin_copy, &commit_copies, &wait_for_copies,
};

void prepare_warps(Block& block) {
    memset(block.warp, 0xFF, block.warps * sizeof(Warp));  // what a lane that is not there gives reads as NaN
    for (unsigned w = 0; w < block.warps; w++) {
        const unsigned lanes = block.threads - w * WARP_LANES;
        Warp& warp = block.warp[w];
        warp.living = warp.ready = lanes >= WARP_LANES ? ALL_LANES : (1u << lanes) - 1;
        warp.at_warp = warp.at_part = 0;
    }
}

void prepare_fibers(Block& block) {
    unsigned t = 0;
    for (unsigned z = 0; z < block.block_size.z; z++)
        for (unsigned y = 0; y < block.block_size.y; y++)
            for (unsigned x = 0; x < block.block_size.x; x++, t++) {
                Fiber* fiber = fiber_of(block, t);
                *fiber = {fresh_stack(fiber), &block, &block.warp[t / WARP_LANES], t % WARP_LANES, 0, {x, y, z}};
                block.copies[t].first = block.copies[t].count = block.copies[t].group = 0;
            }
}

}  // namespace

void stop_block(Fiber* fiber, Status status, uint64_t address) {
    fiber->block->status = status;
    fiber->block->address = address;
    pagewalk_switch(&fiber->stack_pointer, fiber->block->host_stack_pointer);
    __builtin_unreachable();
}

bool run_block(Block& block) {
    block.runtime = &RUNTIME;
    block.living = block.threads;
    block.waiting = 0;
    block.current = block.schedule == Schedule::DESCENDING ? block.warps - 1 : 0;
    prepare_warps(block);
    prepare_fibers(block);
    Fiber* first = next_fiber(block, block.schedule == Schedule::DESCENDING ? 0 : WARP_LANES - 1);
    pagewalk_switch(&block.host_stack_pointer, first->stack_pointer);
    return block.living == 0;
}

}  // namespace pagewalk

// The whole life of a fiber. It never returns: the block goes on with another, or ends.
extern "C" __attribute__((visibility("hidden"), used)) void pagewalk_run_fiber() {
    using namespace pagewalk;
    Fiber* fiber = this_fiber();
    fiber->block->run(fiber->block->arguments);
    leave(fiber);
    __builtin_trap();
}
