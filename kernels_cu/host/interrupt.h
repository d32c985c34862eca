// Ctrl-C ends a launch of the main thread at once: a kernel that never returns would keep Python from ever hearing of it.
#pragma once
#include "launch.h"

namespace pagewalk {

// While it lives, SIGINT ends `launch`, and goes on to the handler that the process had.
class Interruptible {
  public:
    explicit Interruptible(Launch& launch);  // of the main thread; of another it does nothing
    ~Interruptible();
    Interruptible(const Interruptible&) = delete;
    Interruptible& operator=(const Interruptible&) = delete;

  private:
    bool installed_;
};

// A host thread that helps a launch hears from the main thread, by the same signal.
void hear_interrupts_as_helper(const Launch& launch);

}  // namespace pagewalk
