#include "faults.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "switch.h"

namespace pagewalk {
namespace {

const int SIGNALS[] = {SIGSEGV, SIGBUS};
constexpr int SIGNAL_COUNT = 2;

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int watches;
struct sigaction previous[SIGNAL_COUNT];
__attribute__((tls_model("initial-exec"))) thread_local Watch* current;

#if defined(__x86_64__)
uintptr_t stack_pointer(const ucontext_t* context) {
    return static_cast<uintptr_t>(context->uc_mcontext.gregs[REG_RSP]);
}
bool was_write(const ucontext_t* context) { return context->uc_mcontext.gregs[REG_ERR] & 2; }  // of the page fault
void go_on_at(ucontext_t* context, void* stack) {
    context->uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(stack);
    context->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(&pagewalk_resume);
}
#else
uintptr_t stack_pointer(const ucontext_t* context) { return context->uc_mcontext.sp; }
// Records lie one after the other behind the registers; one of them has the syndrome register, whose bit 6 means write.
bool was_write(const ucontext_t* context) {
    constexpr uint32_t SYNDROME = 0x45535201;
    const unsigned char* record = reinterpret_cast<const unsigned char*>(&context->uc_mcontext.__reserved);
    for (;;) {
        uint32_t kind, size;
        memcpy(&kind, record, 4);
        memcpy(&size, record + 4, 4);
        if (kind == SYNDROME) {
            uint64_t syndrome;
            memcpy(&syndrome, record + 8, 8);
            return syndrome >> 6 & 1;
        }
        if (kind == 0 || size == 0) return false;
        record += size;
    }
}
void go_on_at(ucontext_t* context, void* stack) {
    context->uc_mcontext.sp = reinterpret_cast<uintptr_t>(stack);
    context->uc_mcontext.pc = reinterpret_cast<uintptr_t>(&pagewalk_resume);
}
#endif

// What would have happened without us: the process's own handler, or the end that the system has for this signal.
void pass_on(int signal, siginfo_t* info, void* context) {
    const struct sigaction& handler = previous[signal == SIGNALS[0] ? 0 : 1];
    if (handler.sa_flags & SA_SIGINFO) {
        handler.sa_sigaction(signal, info, context);
    } else if (handler.sa_handler != SIG_DFL && handler.sa_handler != SIG_IGN) {
        handler.sa_handler(signal);
    } else {
        sigaction(signal, &handler, nullptr);  // the instruction runs again, and ends the process
    }
}

void handle(int signal, siginfo_t* info, void* context) {
    if (!catch_fault(signal, info, context)) pass_on(signal, info, context);
}

bool installed(int signal) {
    struct sigaction now;
    sigaction(signal, nullptr, &now);
    return (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == &handle;
}

void install() {
    struct sigaction ours = {};
    ours.sa_sigaction = &handle;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    for (int i = 0; i < SIGNAL_COUNT; i++)
        if (!installed(SIGNALS[i])) sigaction(SIGNALS[i], &ours, &previous[i]);  // or we would pass on to ourselves
}

// Puts the previous handlers back, except where somebody has installed one on top of ours in between.
void restore() {
    for (int i = 0; i < SIGNAL_COUNT; i++)
        if (installed(SIGNALS[i])) sigaction(SIGNALS[i], &previous[i], nullptr);
}

}  // namespace

bool catch_fault(int, void* info_of_signal, void* context_of_signal) {
    Watch* watch = current;
    const siginfo_t* info = static_cast<siginfo_t*>(info_of_signal);
    ucontext_t* context = static_cast<ucontext_t*>(context_of_signal);
    if (!watch || !watch->block_ || info->si_code <= 0) return false;  // 0 and below: sent by a process
    const uintptr_t stack = stack_pointer(context);
    if (stack < watch->first_stack_ || stack >= watch->last_stack_) return false;
    const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
    const bool overflow = address >= watch->first_stack_ && address < watch->last_stack_;
    watch->fault_ = {true, overflow, was_write(context), address};
    go_on_at(context, watch->block_->host_stack_pointer);
    watch->block_ = nullptr;
    return true;
}

Watch::Watch(const Arena& arena)
    : first_stack_(reinterpret_cast<uintptr_t>(arena.stacks)), last_stack_(first_stack_ + arena.threads * STACK_BYTES) {
    static_assert(sizeof(previous_stack_) >= sizeof(stack_t), "a stack_t fits");
    stack_t ours = {};
    ours.ss_sp = arena.signal_stack + GUARD_BYTES;
    ours.ss_size = STACK_BYTES - GUARD_BYTES;
    sigaltstack(&ours, reinterpret_cast<stack_t*>(previous_stack_));
    pthread_mutex_lock(&lock);
    if (watches++ == 0) install();
    pthread_mutex_unlock(&lock);
    current = this;
}

Watch::~Watch() {
    current = nullptr;
    pthread_mutex_lock(&lock);
    if (--watches == 0) restore();
    pthread_mutex_unlock(&lock);
    sigaltstack(reinterpret_cast<stack_t*>(previous_stack_), nullptr);
}

void Watch::begin(Block* block) { block_ = block; }

}  // namespace pagewalk
