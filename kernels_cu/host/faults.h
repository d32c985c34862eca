// A kernel that touches memory which is not there, or not writable, that divides by 0 or that an interrupt stops, ends
// with an error and not with the process.
#pragma once
#include <signal.h>
#include <stdint.h>

#include "arena.h"

namespace pagewalk {

// The signals by which the system tells of one.
constexpr int FAULT_SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int FAULT_SIGNAL_COUNT = 4;

struct Fault {
    Status status;  // DONE if there was none
    bool write;
    uint64_t address;
};

// Turns a signal into the end of the running block. False if it did not come from a kernel's thread.
bool catch_fault(int signal, void* info, void* context);
// Ends the block that the calling host thread runs, where the signal handler of `context` found it.
void cut_block(void* context);

// Catches what a kernel's threads on this host thread do wrong, for as long as it lives. The process's own handlers are
// back when the last watch of all threads has ended; until then they get every signal that is not ours.
class Watch {
  public:
    explicit Watch(const Arena& arena);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // A fault from here on ends the block: control goes on where `block` was started.
    void begin(Block* block);
    const Fault& fault() const { return fault_; }

  private:
    friend bool catch_fault(int, void*, void*);
    friend void cut_block(void*);
    bool on_fiber(uintptr_t address) const { return address >= first_stack_ && address < last_stack_; }
    void leave_block(void* context);

    uintptr_t first_stack_, last_stack_;
    Block* volatile block_ = nullptr;
    Fault fault_ = {};
    unsigned char previous_stack_[32];  // a stack_t
};

}  // namespace pagewalk
