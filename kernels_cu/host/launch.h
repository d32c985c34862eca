// One launch: what the caller asks for, what comes of it, and what the host threads that run its blocks share.
#pragma once
#include <pthread.h>

#include "block_order.h"
#include "kernel_table.h"
#include "meter.h"

namespace pagewalk {

struct Options {
    int schedule, order;
    uint64_t seed;
    unsigned host_threads;  // at most
    unsigned shared_bytes;  // of dynamic shared memory
    int eager_copies;
    int race_check;
    MeterRecord* meter;  // or null
    int interruptible;   // SIGINT may end it, where the main thread launches
};

constexpr unsigned MOST_HOST_THREADS = 64;

// The host threads that run blocks beside the one that launches.
struct Helpers {
    pthread_t thread[MOST_HOST_THREADS];
    unsigned count;    // of those that were made
    unsigned running;  // of those, how many have not ended their work
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
    pthread_cond_t ended;  // a helper has
    Helpers helpers;
};

// The first failure of any host thread is the launch's.
void fail(Launch& launch, Status status, const Result& result);

}  // namespace pagewalk
