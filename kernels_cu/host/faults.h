// A kernel that touches memory which is not there, or not writable, ends with an error and not with the process.
#pragma once
#include <stdint.h>

#include "arena.h"

namespace pagewalk {

struct Fault {
    bool happened;
    bool stack_overflow;
    bool write;
    uint64_t address;  // 0 for an address that is none of the machine's (not canonical): the CPU does not give it
};

// Turns a signal into the end of the running block. False if it did not come from a kernel's thread.
bool catch_fault(int signal, void* info, void* context);

// Catches SIGSEGV and SIGBUS of the kernel threads on this host thread for as long as it lives. The process's own
// handlers are back when the last watch of all threads has ended; until then they get every signal that is not ours.
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
    uintptr_t first_stack_, last_stack_;
    Block* block_ = nullptr;
    Fault fault_ = {};
    unsigned char previous_stack_[32];  // a stack_t
};

}  // namespace pagewalk
