// Runs one block: which fiber runs next, who waits for whom, and what it means when nobody can run.
#include "block.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "copies.h"
#include "observer.h"
#include "switch.h"
#include "tensor_core.h"

namespace pagewalk {
namespace {

// Marsaglia's xorshift: the same seed gives the same schedule.
unsigned random_below(Block& block, unsigned limit) {
    block.random ^= block.random << 13;
    block.random ^= block.random >> 7;
    block.random ^= block.random << 17;
    return unsigned(block.random >> 32) % limit;
}

// The next lane of a warp that may run, going round from the one that ran last, or from any.
Fiber* next_lane(Block& block, unsigned warp, unsigned last_lane) {
    const unsigned ready = block.warp[warp].ready;
    unsigned lane;
    if (block.schedule == Schedule::SHUFFLED) last_lane = random_below(block, WARP_LANES);
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
// in ascending or descending order; interleaved, another warp has its turn at every switch, and shuffled, any warp.
Fiber* next_fiber(Block& block, unsigned last_lane) {
    unsigned warp = block.current;
    if (block.schedule == Schedule::SHUFFLED) warp = random_below(block, block.warps);
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

// The last lane to arrive computes for all of them, from one slot a lane: nobody gives his next operands before he has
// his result. Only here all 32 lanes must be there.
void compute_together(Fiber* last) {
    Warp& warp = *last->warp;
    if (warp.living != ALL_LANES) stop_block(last, Status::MIXED_WARP, 0);
    if (warp.meeting == Meeting::LDMATRIX || warp.meeting == Meeting::LDMATRIX_TRANS) {
        const void* row = nullptr;
        const Status status = check_rows(*last->block, warp, &row);
        if (status != Status::DONE) stop_block(last, status, reinterpret_cast<uintptr_t>(row));
    }
    compute(warp, warp.meeting);
}

// Lanes that have returned are not waited for, here and below.
void release_warp(Fiber* last) {
    Warp& warp = *last->warp;
    if (warp.at_warp != warp.living) return;
    if (last->block->observer) warp_meets(last, warp.at_warp, warp.meeting);
    if (warp.meeting > Meeting::EXCHANGE) compute_together(last);
    warp.ready |= warp.at_warp;
    warp.at_warp = 0;
}

// Let go the lanes of `mask` if all of them wait, and all for just these lanes.
void release_part(Fiber* last, unsigned mask, Meeting meeting) {
    Warp& warp = *last->warp;
    const unsigned lanes = mask & warp.living;
    if ((warp.at_part & lanes) != lanes) return;
    for (unsigned left = lanes; left; left &= left - 1)
        if (warp.part_mask[__builtin_ctz(left)] != mask) return;
    if (last->block->observer) warp_meets(last, lanes, meeting);
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
        release_warp(fiber);
    } else {
        warp.at_part |= bit;
        warp.part_mask[fiber->lane] = mask;
        release_part(fiber, mask, meeting);
    }
    if (!(warp.ready & bit)) run_another(fiber);
}

void release_block(Block& block) {
    if (block.waiting != block.living) return;
    block.waiting = 0;
    if (block.observer) block_meets(block);
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
    if (warp.at_warp) release_warp(fiber);
    // As a barrier, whatever they wait in: who is ordered too much is blamed for nothing.
    for (unsigned lane = 0; lane < WARP_LANES && warp.at_part; lane++)
        if (warp.at_part >> lane & 1) release_part(fiber, warp.part_mask[lane], Meeting::BARRIER);
    if (fiber->block->waiting) release_block(*fiber->block);
    run_another(fiber);
}

// At once, and past the C library's buffer, whose lock a fault in a kernel would never give back.
void print(const char* format, va_list values) {
    constexpr int LONGEST = 1024;
    char text[LONGEST];
    int left = vsnprintf(text, LONGEST, format, values);
    if (left >= LONGEST) left = LONGEST - 1;
    for (const char* from = text; left > 0;) {
        const ssize_t written = write(STDOUT_FILENO, from, size_t(left));
        if (written <= 0) return;
        from += written;
        left -= int(written);
    }
}

const Runtime RUNTIME = {
    &wait_for_lanes, &wait_for_block, &begin_copy, &commit_copies, &wait_for_copies, &observe_access, &stop_block,
    &print,
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
    block.uncut = 0;
    block.current = block.schedule == Schedule::DESCENDING ? block.warps - 1 : 0;
    prepare_warps(block);
    prepare_fibers(block);
    if (block.observer) observe_begin(block);
    Fiber* first = next_fiber(block, block.schedule == Schedule::DESCENDING ? 0 : WARP_LANES - 1);
    pagewalk_switch(&block.host_stack_pointer, first->stack_pointer);
    if (block.observer) observe_end(block);
    return block.living == 0;
}

}  // namespace pagewalk

// The whole life of a fiber. It never returns: the block goes on with another, or ends.
extern "C" __attribute__((visibility("hidden"), used)) void pagewalk_run_fiber() {
    using namespace pagewalk;
    Fiber* fiber = this_fiber();
    if (fiber->block->status != Status::DONE)
        stop_block(fiber, fiber->block->status, 0);  // an interrupt came before there was a fiber to stop
    fiber->block->run(fiber->block->arguments);
    leave(fiber);
    __builtin_trap();
}
