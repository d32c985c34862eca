// Runs a grid: its blocks in the order asked for, on the calling thread and, when that takes long, on more.
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "arena.h"
#include "block.h"
#include "faults.h"
#include "kernel_table.h"

namespace pagewalk {
namespace {

enum class Order : int { FORWARD = 0, BACKWARD = 1, SHUFFLED = 2 };

struct Options {
    int schedule, order;
    unsigned host_threads;  // at most
    unsigned shared_bytes;  // of dynamic shared memory
    int eager_copies;
};

struct Result {
    int write;
    uint64_t address;
    Index3 block;
};

struct Launch {
    const Kernel* kernel;
    Index3 grid, block;
    const void* arguments;
    Options options;
    uint64_t blocks, step;  // block `i * step % blocks` runs as the i-th when shuffled
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

uint64_t greatest_common_divisor(uint64_t a, uint64_t b) { return b ? greatest_common_divisor(b, a % b) : a; }

// A step that has no divisor in common with the number of blocks visits each of them once, far from its neighbours.
uint64_t shuffling_step(uint64_t blocks) {
    uint64_t step = blocks * 5 / 8 | 1;
    while (greatest_common_divisor(step, blocks) != 1) step += 2;
    return step;
}

Index3 block_index(const Launch& launch, uint64_t i) {
    if (launch.options.order == int(Order::BACKWARD)) i = launch.blocks - 1 - i;
    if (launch.options.order == int(Order::SHUFFLED)) i = uint64_t((unsigned __int128)i * launch.step % launch.blocks);
    const uint64_t rows = i / launch.grid.x;
    return {unsigned(i % launch.grid.x), unsigned(rows % launch.grid.y), unsigned(rows / launch.grid.y)};
}

// The first failure of any host thread is the launch's.
void fail(Launch& launch, Status status, const Fault& fault, Index3 block) {
    pthread_mutex_lock(&launch.lock);
    if (launch.status == int(Status::DONE)) {
        launch.result = {fault.write, fault.address, block};
        __atomic_store_n(&launch.status, int(status), __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&launch.lock);
}

// 0xFF: nobody may count on zeros, and floats are NaN.
void spoil_shared_memory(const Launch& launch, Block& block, const SharedMemory& shared) {
    if (shared.size) memset(shared.begin, 0xFF, shared.size);
    if (launch.options.shared_bytes) memset(block.dynamic_shared, 0xFF, launch.options.shared_bytes);
}

bool run_one(Launch& launch, Block& block, Watch& watch, const SharedMemory& shared) {
    spoil_shared_memory(launch, block, shared);
    block.status = Status::DONE;
    watch.begin(&block);
    const bool complete = run_block(block);
    watch.begin(nullptr);
    const Fault& fault = watch.fault();
    if (fault.happened) {
        fail(launch, fault.stack_overflow ? Status::STACK_OVERFLOW : Status::FAULT, fault, block.index);
    } else if (block.status != Status::DONE) {
        fail(launch, block.status, Fault{true, false, false, block.address}, block.index);
    } else if (!complete) {
        fail(launch, Status::DEADLOCK, fault, block.index);
    }
    return complete;
}

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
    const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
    Arena* arena = take_arena(threads);
    unsigned char* dynamic_shared = arena ? shared_in(*arena, launch.options.shared_bytes) : nullptr;
    if (!dynamic_shared) {
        if (arena) give_arena(arena);
        if (helpers) fail(launch, Status::NO_MEMORY, Fault{}, Index3{});  // without a helper the launch goes on
        return;
    }
    {
        Watch watch(*arena);
        const SharedMemory shared = launch.kernel->shared_memory();
        Block block = {};
        block.grid_size = launch.grid;
        block.block_size = launch.block;
        block.run = launch.kernel->run;
        block.arguments = launch.arguments;
        block.schedule = Schedule(launch.options.schedule);
        block.threads = threads;
        block.warps = (threads + WARP_LANES - 1) / WARP_LANES;
        block.eager_copies = launch.options.eager_copies;
        block.dynamic_shared = dynamic_shared;
        block.copies = arena->copies;
        block.warp = arena->warps;
        block.stacks = arena->stacks;
        const long started = now_ns();
        while (__atomic_load_n(&launch.status, __ATOMIC_ACQUIRE) == int(Status::DONE)) {
            const uint64_t i = __atomic_fetch_add(&launch.next, 1, __ATOMIC_RELAXED);
            if (i >= launch.blocks) break;
            block.index = block_index(launch, i);
            if (!run_one(launch, block, watch, shared)) break;
            if (helpers && !helpers->count && launch.options.host_threads > 1 && now_ns() - started > HELP_AFTER_NS)
                call_helpers(launch, *helpers, launch.blocks - i - 1);
        }
    }
    give_arena(arena);
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
    Launch launch = {};
    launch.kernel = kernel;
    launch.grid = {grid[0], grid[1], grid[2]};
    launch.block = {block[0], block[1], block[2]};
    launch.arguments = arguments;
    launch.options = *options;
    launch.blocks = uint64_t(grid[0]) * grid[1] * grid[2];
    launch.step = shuffling_step(launch.blocks);
    pthread_mutex_init(&launch.lock, nullptr);
    Helpers helpers;
    run_blocks(launch, &helpers);
    for (unsigned i = 0; i < helpers.count; i++) pthread_join(helpers.thread[i], nullptr);
    pthread_mutex_destroy(&launch.lock);
    *result = launch.result;
    return launch.status;
}
