#include "interrupt.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "faults.h"
#include "signals.h"

namespace pagewalk {
namespace {

// Only the main thread writes these, and reads the first.
Launch* volatile interruptible;
pthread_t main_thread;
struct sigaction previous;
__attribute__((tls_model("initial-exec"))) thread_local bool is_helper;

void stop_all(Launch& launch) {
    int running = int(Status::DONE);
    __atomic_compare_exchange_n(&launch.status, &running, int(Status::INTERRUPTED), false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
    for (unsigned i = 0; i < launch.helpers.count; i++) pthread_kill(launch.helpers.thread[i], SIGINT);
}

void handle(int signal, siginfo_t* info, void* context) {
    if (is_helper) return cut_block(context);
    if (!pthread_equal(pthread_self(), main_thread)) {  // the system may give it to any thread
        pthread_kill(main_thread, signal);
        return;
    }
    if (interruptible) stop_all(*interruptible);
    pass_on(previous, signal, info, context);
    cut_block(context);
}

bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

}  // namespace

Interruptible::Interruptible(Launch& launch) : installed_(launch.options.interruptible && is_main_thread()) {
    if (!installed_) return;
    main_thread = pthread_self();
    interruptible = &launch;
    install(SIGINT, &handle, &previous);
}

Interruptible::~Interruptible() {
    if (!installed_) return;
    restore(SIGINT, &handle, previous);
    interruptible = nullptr;
}

void hear_interrupts_as_helper(const Launch& launch) {
    if (!launch.options.interruptible) return;
    is_helper = true;
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
}

}  // namespace pagewalk
