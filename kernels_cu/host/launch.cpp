// Runs a grid: its blocks in the order asked for, on the calling thread and, when that takes long, on more.
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "arena.h"
#include "block.h"
#include "block_order.h"
#include "faults.h"
#include "kernel_table.h"
#include "observer.h"

namespace pagewalk {
namespace {

struct Options {
    int schedule, order;
    uint64_t seed;
    unsigned host_threads;  // at most
    unsigned shared_bytes;  // of dynamic shared memory
    int eager_copies;
    int race_check;
    MeterRecord* meter;  // or null
};

// An access of a race: where in the compiled kernel, and what it was.
struct RacingAccess {
    uint64_t at;
    unsigned thread, kind;
};

struct Result {
    int write;
    uint64_t address;
    Index3 block;
    RacingAccess before, now;
    uint64_t code;  // where the kernel is loaded, from which places in it are counted
};

struct Launch {
    const Kernel* kernel;
    Index3 grid, block;
    const void* arguments;
    Options options;
    BlockOrder order;
    uint64_t next;
    int status;  // a Status; the other host threads look at it
    Result result;
    pthread_mutex_t lock;
};

constexpr unsigned MOST_HOST_THREADS = 64;
constexpr long HELP_AFTER_NS = 200000;  // making a thread costs some 20 microseconds: short grids do without

long now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

// The first failure of any host thread is the launch's.
void fail(Launch& launch, Status status, const Result& result) {
    pthread_mutex_lock(&launch.lock);
    if (launch.status == int(Status::DONE)) {
        launch.result = result;
        __atomic_store_n(&launch.status, int(status), __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&launch.lock);
}

RacingAccess place_of(const Access& access, const Kernel& kernel, const SharedMemory& shared) {
    const uintptr_t run = reinterpret_cast<uintptr_t>(kernel.run);
    return {uint64_t(int64_t(run - shared.code) + access.at), access.thread, access.kind};
}

// Memory and check of the blocks that run on one host thread.
class Workplace {
  public:
    explicit Workplace(Launch& launch)
        : launch_(launch), threads_(launch.block.x * launch.block.y * launch.block.z), arena_(take_arena(threads_)) {
        if (arena_) dynamic_shared_ = shared_in(*arena_, launch.options.shared_bytes);
        const SharedMemory shared = launch.kernel->shared_memory();
        if (dynamic_shared_) prepare(shared);
    }

    ~Workplace() {
        RaceCheck::destroy(observer_.races);
        Meter::destroy(observer_.meter);
        if (arena_) give_arena(arena_);
    }

    bool has_memory() const { return complete_; }
    const Arena& arena() const { return *arena_; }

    // False if the launch ends with this block.
    bool run(uint64_t number, Watch& watch) {
        spoil_shared_memory();
        block_.index = launch_.order.index(number);
        block_.random = launch_.order.seed_of(number);
        block_.status = Status::DONE;
        watch.begin(&block_);
        const bool complete = run_block(block_);
        watch.begin(nullptr);
        if (!complete) report(watch.fault());
        return complete;
    }

  private:
    void prepare(const SharedMemory& shared) {
        const Options& options = launch_.options;
        shared_ = shared;
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
        complete_ = prepare_observer();
    }

    bool prepare_observer() {
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
    void spoil_shared_memory() {
        if (shared_.size) memset(shared_.begin, 0xFF, shared_.size);
        if (launch_.options.shared_bytes) memset(dynamic_shared_, 0xFF, launch_.options.shared_bytes);
    }

    void report(const Fault& fault) {
        Result result = {fault.write, fault.address, block_.index, {}, {}, 0};
        if (fault.happened) return report_fault(fault, result);
        result.address = block_.address;
        if (block_.status == Status::RACE) {
            result.before = place_of(observer_.races->race().before, *launch_.kernel, shared_);
            result.now = place_of(observer_.races->race().now, *launch_.kernel, shared_);
        }
        fail(launch_, block_.status == Status::DONE ? Status::DEADLOCK : block_.status, result);
    }

    void report_fault(const Fault& fault, Result& result) {
        const uintptr_t end = reinterpret_cast<uintptr_t>(arena_->dynamic_shared) + arena_->dynamic_shared_bytes;
        Status status = fault.stack_overflow ? Status::STACK_OVERFLOW : Status::FAULT;
        if (fault.address - end < GUARD_BYTES) {
            status = Status::SHARED_END;
            result.address = fault.address - reinterpret_cast<uintptr_t>(dynamic_shared_);
        }
        fail(launch_, status, result);
    }

    Launch& launch_;
    unsigned threads_;
    Arena* arena_;
    unsigned char* dynamic_shared_ = nullptr;
    SharedMemory shared_ = {};
    Observer observer_ = {};
    Block block_ = {};
    bool complete_ = false;
};

struct Helpers {
    pthread_t thread[MOST_HOST_THREADS];
    unsigned count = 0;
};

void* run_blocks_as_helper(void* launch);

// Helpers take no signals of the process: their stacks are not what a handler expects.
void call_helpers(Launch& launch, Helpers& helpers, uint64_t blocks_left) {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    unsigned wanted = launch.options.host_threads - 1;
    if (wanted > MOST_HOST_THREADS) wanted = MOST_HOST_THREADS;
    if (wanted > blocks_left) wanted = unsigned(blocks_left);
    while (helpers.count < wanted) {
        if (pthread_create(&helpers.thread[helpers.count], nullptr, &run_blocks_as_helper, &launch) != 0) break;
        helpers.count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void run_blocks(Launch& launch, Helpers* helpers) {
    Workplace workplace(launch);
    if (!workplace.has_memory()) {
        if (helpers) fail(launch, Status::NO_MEMORY, Result{});  // without a helper the launch goes on
        return;
    }
    Watch watch(workplace.arena());
    const long started = now_ns();
    while (__atomic_load_n(&launch.status, __ATOMIC_ACQUIRE) == int(Status::DONE)) {
        const uint64_t i = __atomic_fetch_add(&launch.next, 1, __ATOMIC_RELAXED);
        if (i >= launch.order.blocks || !workplace.run(launch.order.number(i), watch)) break;
        if (helpers && !helpers->count && launch.options.host_threads > 1 && now_ns() - started > HELP_AFTER_NS)
            call_helpers(launch, *helpers, launch.order.blocks - i - 1);
    }
}

void* run_blocks_as_helper(void* launch) {
    run_blocks(*static_cast<Launch*>(launch), nullptr);
    return nullptr;
}

}  // namespace
}  // namespace pagewalk

// Run `kernel` over grid[3] blocks of block[3] threads, all above 0. Returns a Status; the result says more of a failure.
PAGEWALK_VISIBLE int pagewalk_launch(const pagewalk::Kernel* kernel, const unsigned* grid, const unsigned* block,
                                     const void* arguments, const pagewalk::Options* options,
                                     pagewalk::Result* result) {
    using namespace pagewalk;
    const Index3 blocks = {grid[0], grid[1], grid[2]}, threads = {block[0], block[1], block[2]};
    Launch launch = {kernel, blocks, threads, arguments, *options, {blocks, Order(options->order), options->seed},
                     0, int(Status::DONE), {}, PTHREAD_MUTEX_INITIALIZER};
    if (options->meter) launch.options.host_threads = 1;  // one record for all blocks
    Helpers helpers;
    run_blocks(launch, &helpers);
    for (unsigned i = 0; i < helpers.count; i++) pthread_join(helpers.thread[i], nullptr);
    pthread_mutex_destroy(&launch.lock);
    *result = launch.result;
    result->code = kernel->shared_memory().code;
    return launch.status;
}
