// Runs a grid: its blocks in the order asked for, on the calling thread and, when that takes long, on more.
#include "launch.h"

#include <signal.h>
#include <time.h>

#include "interrupt.h"
#include "workplace.h"

namespace pagewalk {
namespace {

constexpr long HELP_AFTER_NS = 200000;  // making a thread costs some 20 microseconds: short grids do without

long now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

void* run_blocks_as_helper(void* launch);

// Helpers take no signals of the process: their stacks are not what a handler expects.
void call_helpers(Launch& launch, uint64_t blocks_left) {
    sigset_t all, before;
    sigfillset(&all);
    for (int signal : FAULT_SIGNALS) sigdelset(&all, signal);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    unsigned wanted = launch.options.host_threads - 1;
    if (wanted > MOST_HOST_THREADS) wanted = MOST_HOST_THREADS;
    if (wanted > blocks_left) wanted = unsigned(blocks_left);
    Helpers& helpers = launch.helpers;
    pthread_mutex_lock(&launch.lock);
    while (helpers.count < wanted) {
        if (pthread_create(&helpers.thread[helpers.count], nullptr, &run_blocks_as_helper, &launch) != 0) break;
        helpers.count++;
    }
    helpers.running = helpers.count;
    pthread_mutex_unlock(&launch.lock);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void run_blocks(Launch& launch, bool may_call) {
    Workplace workplace(launch);
    if (!workplace.has_memory()) {
        if (may_call) fail(launch, Status::NO_MEMORY, Result{});  // without a helper the launch goes on
        return;
    }
    Watch watch(workplace.arena());
    const long started = now_ns();
    while (__atomic_load_n(&launch.status, __ATOMIC_ACQUIRE) == int(Status::DONE)) {
        const uint64_t i = __atomic_fetch_add(&launch.next, 1, __ATOMIC_RELAXED);
        if (i >= launch.order.blocks || !workplace.run(launch.order.number(i), watch)) break;
        if (may_call && !launch.helpers.count && launch.options.host_threads > 1 && now_ns() - started > HELP_AFTER_NS)
            call_helpers(launch, launch.order.blocks - i - 1);
    }
}

void* run_blocks_as_helper(void* argument) {
    Launch& launch = *static_cast<Launch*>(argument);
    hear_interrupts_as_helper(launch);
    run_blocks(launch, false);
    pthread_mutex_lock(&launch.lock);
    launch.helpers.running--;
    pthread_cond_signal(&launch.ended);
    pthread_mutex_unlock(&launch.lock);
    return nullptr;
}

// Not by joining them: an interrupt still has to reach those that run.
void wait_for_helpers(Launch& launch) {
    pthread_mutex_lock(&launch.lock);
    while (launch.helpers.running) pthread_cond_wait(&launch.ended, &launch.lock);
    pthread_mutex_unlock(&launch.lock);
}

}  // namespace

void fail(Launch& launch, Status status, const Result& result) {
    pthread_mutex_lock(&launch.lock);
    if (launch.status == int(Status::DONE)) {
        launch.result = result;
        __atomic_store_n(&launch.status, int(status), __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&launch.lock);
}

}  // namespace pagewalk

// Run `kernel` over grid[3] blocks of block[3] threads, all above 0. Returns a Status; the result says more of a failure.
PAGEWALK_VISIBLE int pagewalk_launch(const pagewalk::Kernel* kernel, const unsigned* grid, const unsigned* block,
                                     const void* arguments, const pagewalk::Options* options,
                                     pagewalk::Result* result) {
    using namespace pagewalk;
    const Index3 blocks = {grid[0], grid[1], grid[2]}, threads = {block[0], block[1], block[2]};
    Launch launch = {kernel, blocks, threads, arguments, *options, {blocks, Order(options->order), options->seed},
                     0, int(Status::DONE), {}, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {}};
    if (options->meter) launch.options.host_threads = 1;  // one record for all blocks
    {
        const Interruptible interruptible(launch);
        run_blocks(launch, true);
        if (launch.helpers.count) wait_for_helpers(launch);
    }
    for (unsigned i = 0; i < launch.helpers.count; i++) pthread_join(launch.helpers.thread[i], nullptr);
    pthread_cond_destroy(&launch.ended);
    pthread_mutex_destroy(&launch.lock);
    *result = launch.result;
    result->code = kernel->shared_memory().code;
    return launch.status;
}
