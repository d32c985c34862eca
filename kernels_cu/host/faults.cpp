#include "faults.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "operand.h"
#include "signals.h"
#include "switch.h"

namespace pagewalk {
namespace {

constexpr unsigned VECTOR_BYTES = 16;

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int watches;
struct sigaction previous[FAULT_SIGNAL_COUNT];
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

void handle(int signal, siginfo_t* info, void* context) {
    if (catch_fault(signal, info, context)) return;
    for (int i = 0; i < FAULT_SIGNAL_COUNT; i++)
        if (FAULT_SIGNALS[i] == signal) pass_on(previous[i], signal, info, context);
}

// Of addresses with 48 bits, and with 57.
bool is_canonical(uintptr_t address) {
    const intptr_t upper = intptr_t(address) >> 47;
    return upper == 0 || upper == -1;
}

// What a signal means that a kernel's thread caused.
Fault fault_of(int signal, const siginfo_t* info, const ucontext_t* context) {
    if (signal == SIGFPE) return {Status::DIVISION, false, 0};
    if (signal == SIGILL) return {Status::UNDEFINED, false, 0};
    uint64_t address = reinterpret_cast<uintptr_t>(info->si_addr);
    if (signal == SIGBUS && info->si_code == BUS_ADRALN) return {Status::MISALIGNED_ACCESS, false, address};
    if (signal == SIGSEGV && info->si_code == SI_KERNEL) {
        address = operand_address(context);
        if (is_canonical(address) && address % VECTOR_BYTES) return {Status::MISALIGNED_ACCESS, false, address};
    }
    return {Status::FAULT, was_write(context), address};
}

}  // namespace

bool catch_fault(int signal, void* info_of_signal, void* context_of_signal) {
    Watch* watch = current;
    const siginfo_t* info = static_cast<siginfo_t*>(info_of_signal);
    ucontext_t* context = static_cast<ucontext_t*>(context_of_signal);
    if (!watch || !watch->block_ || info->si_code <= 0) return false;  // 0 and below: sent by a process
    if (!watch->on_fiber(stack_pointer(context))) return false;
    watch->fault_ = fault_of(signal, info, context);
    if (watch->fault_.status == Status::FAULT && watch->on_fiber(watch->fault_.address))
        watch->fault_.status = Status::STACK_OVERFLOW;
    watch->leave_block(context);
    return true;
}

void cut_block(void* context) {
    Watch* watch = current;
    if (!watch || !watch->block_) return;
    Block& block = *watch->block_;
    block.status = Status::INTERRUPTED;
    if (watch->on_fiber(stack_pointer(static_cast<ucontext_t*>(context))) && !block.uncut) watch->leave_block(context);
}

void Watch::leave_block(void* context) {
    go_on_at(static_cast<ucontext_t*>(context), block_->host_stack_pointer);
    block_ = nullptr;
}

Watch::Watch(const Arena& arena)
    : first_stack_(reinterpret_cast<uintptr_t>(arena.stacks)), last_stack_(first_stack_ + arena.threads * STACK_BYTES) {
    static_assert(sizeof(previous_stack_) >= sizeof(stack_t), "a stack_t fits");
    stack_t ours = {};
    ours.ss_sp = arena.signal_stack + GUARD_BYTES;
    ours.ss_size = STACK_BYTES - GUARD_BYTES;
    sigaltstack(&ours, reinterpret_cast<stack_t*>(previous_stack_));
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FAULT_SIGNAL_COUNT && watches == 0; i++) install(FAULT_SIGNALS[i], &handle, &previous[i]);
    watches++;
    pthread_mutex_unlock(&lock);
    current = this;
}

Watch::~Watch() {
    current = nullptr;
    pthread_mutex_lock(&lock);
    watches--;
    for (int i = 0; i < FAULT_SIGNAL_COUNT && watches == 0; i++) restore(FAULT_SIGNALS[i], &handle, previous[i]);
    pthread_mutex_unlock(&lock);
    sigaltstack(reinterpret_cast<stack_t*>(previous_stack_), nullptr);
}

void Watch::begin(Block* block) { block_ = block; }

}  // namespace pagewalk
