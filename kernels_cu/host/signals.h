// The process's own handlers of signals, behind ours.
#pragma once
#include <signal.h>

namespace pagewalk {

// What would have happened without us: the process's own handler, or the end that the system has for this signal.
inline void pass_on(const struct sigaction& previous, int signal, siginfo_t* info, void* context) {
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal);
    } else {
        sigaction(signal, &previous, nullptr);  // the instruction runs again, and ends the process
    }
}

inline bool is_handler(const struct sigaction& action, void (*handler)(int, siginfo_t*, void*)) {
    return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == handler;
}

// Puts `handler` first. What was there goes to `previous`, unless it is the same: we would pass on to ourselves.
inline void install(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction* previous) {
    struct sigaction ours = {}, before;
    ours.sa_sigaction = handler;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(signal, &ours, &before);
    if (!is_handler(before, handler)) *previous = before;
}

// Puts the previous handler back, except where somebody has installed one on top of ours in between.
inline void restore(int signal, void (*handler)(int, siginfo_t*, void*), const struct sigaction& previous) {
    struct sigaction now;
    sigaction(signal, &previous, &now);
    if (!is_handler(now, handler)) sigaction(signal, &now, nullptr);
}

}  // namespace pagewalk
