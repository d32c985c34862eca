#include "workplace.h"

#include <string.h>

#include "block.h"

namespace pagewalk {
namespace {

bool is_edge(const unsigned char* bytes, size_t size) {
    return bytes[0] == EDGE && memcmp(bytes, bytes + 1, size - 1) == 0;
}

}  // namespace

Workplace::Workplace(Launch& launch)
    : launch_(launch),
      threads_(launch.block.x * launch.block.y * launch.block.z),
      arena_(take_arena(threads_)),
      shared_(launch.kernel->shared_memory()) {
    if (arena_) dynamic_shared_ = shared_in(*arena_, launch.options.shared_bytes);
    if (dynamic_shared_) prepare();
}

Workplace::~Workplace() {
    RaceCheck::destroy(observer_.races);
    Meter::destroy(observer_.meter);
    if (arena_) give_arena(arena_);
}

void Workplace::prepare() {
    const Options& options = launch_.options;
    block_.grid_size = launch_.grid;
    block_.block_size = launch_.block;
    block_.run = launch_.kernel->run;
    block_.arguments = launch_.arguments;
    block_.schedule = Schedule(options.schedule);
    block_.eager_copies = options.eager_copies;
    block_.threads = threads_;
    block_.warps = (threads_ + WARP_LANES - 1) / WARP_LANES;
    block_.warp = arena_->warps;
    block_.stacks = arena_->stacks;
    block_.copies = arena_->copies;
    block_.dynamic_shared = dynamic_shared_;
    block_.shared[0] = {reinterpret_cast<uintptr_t>(dynamic_shared_), (options.shared_bytes + 3u) & ~3u};
    block_.shared[1] = {reinterpret_cast<uintptr_t>(shared_.begin), shared_.size};
    if (shared_.size) memset(shared_.before, EDGE, BEFORE_SHARED), memset(shared_.behind, EDGE, BEHIND_SHARED);
    complete_ = prepare_observer();
}

// Whether nobody wrote before the first of the kernel's shared arrays or behind the last.
bool Workplace::has_whole_edges() const {
    return !shared_.size || (is_edge(shared_.before, BEFORE_SHARED) && is_edge(shared_.behind, BEHIND_SHARED));
}

// False if the system has no memory for it.
bool Workplace::prepare_observer() {
    const Options& options = launch_.options;
    if (!options.race_check && !options.meter) return true;
    block_.observer = &observer_;
    for (int i = 0; i < 2; i++) block_.watched[i] = block_.shared[i];
    if (options.race_check) {
        const uintptr_t bytes = block_.shared[0].bytes + block_.shared[1].bytes;
        const void* code = reinterpret_cast<const void*>(launch_.kernel->run);
        observer_.races = RaceCheck::make(block_.warps * WARP_LANES, bytes, code);
        if (!observer_.races) return false;
    }
    if (options.meter) {
        block_.watched[2] = options.meter->cache;
        observer_.meter = Meter::make(block_.warps, options.meter);
        if (!observer_.meter) return false;
    }
    return true;
}

// 0xFF: nobody may count on zeros, and floats are NaN.
void Workplace::spoil_shared_memory() {
    if (shared_.size) memset(shared_.begin, 0xFF, shared_.size);
    if (launch_.options.shared_bytes) memset(dynamic_shared_, 0xFF, launch_.options.shared_bytes);
}

bool Workplace::run(uint64_t number, Watch& watch) {
    spoil_shared_memory();
    block_.index = launch_.order.index(number);
    block_.random = launch_.order.seed_of(number);
    block_.status = Status::DONE;
    watch.begin(&block_);  // from here on an interrupt finds the block; one before has set the launch's status
    if (__atomic_load_n(&launch_.status, __ATOMIC_ACQUIRE) != int(Status::DONE)) return false;
    const bool complete = run_block(block_);
    watch.begin(nullptr);
    if (complete && has_whole_edges()) return true;
    if (complete) block_.status = Status::SHARED_SPOILED;
    report(watch.fault());
    return false;
}

void Workplace::report(const Fault& fault) {
    Result result = {fault.write, fault.address, block_.index, {}, {}, 0};
    if (fault.status != Status::DONE) return report_fault(fault, result);
    result.address = block_.address;
    if (block_.status == Status::RACE) {
        result.before = place_of(observer_.races->race().before);
        result.now = place_of(observer_.races->race().now);
    }
    fail(launch_, block_.status == Status::DONE ? Status::DEADLOCK : block_.status, result);
}

void Workplace::report_fault(const Fault& fault, Result& result) {
    const uintptr_t end = reinterpret_cast<uintptr_t>(arena_->dynamic_shared) + arena_->dynamic_shared_bytes;
    Status status = fault.status;
    if (status == Status::FAULT && fault.address - end < GUARD_BYTES) {
        status = Status::SHARED_END;
        result.address = fault.address - reinterpret_cast<uintptr_t>(dynamic_shared_);
    }
    fail(launch_, status, result);
}

RacingAccess Workplace::place_of(const Access& access) const {
    const uintptr_t run = reinterpret_cast<uintptr_t>(launch_.kernel->run);
    return {uint64_t(int64_t(run - shared_.code) + access.at), access.thread, access.kind};
}

}  // namespace pagewalk
