// Races in shared memory (race.cpp): two accesses to a byte, one of them a write, with no barrier that orders them.
#pragma once
#include <stddef.h>

#include "fiber.h"

namespace pagewalk {

struct Access {
    enum Kind : uint8_t {
        NONE,
        READ,
        WRITE,
        COPYING,  // an asynchronous copy is under way: nobody, not even its own thread, may touch the place
        LANDING,  // the thread has waited for it: now it is a write of this moment
    };
    int32_t at;      // where in the kernel's code, counted from a place that the check is given
    uint32_t epoch;  // block barriers before it
    uint32_t clock;  // of the thread
    uint16_t thread;
    uint8_t bytes;  // one bit for each byte of the word
    Kind kind;
};

// What the check has to say: this access, and the one before that it must not meet.
struct Race {
    Access before, now;
    uint32_t offset;  // of the word in shared memory, the dynamic first
};

class RaceCheck {
  public:
    // For blocks of `threads` threads with `bytes` of shared memory. `code` is a place in the kernel's code.
    static RaceCheck* make(unsigned threads, size_t bytes, const void* code);
    static void destroy(RaceCheck* check);

    void begin_block();
    // False if it is a race, which race() then describes.
    bool access(unsigned thread, unsigned offset, unsigned bytes, Access::Kind kind, const void* at);
    void join(unsigned warp, unsigned lanes);  // a barrier of these lanes
    void join_all() { epoch_++; }              // a barrier of the block
    const Race& race() const { return race_; }

  private:
    // As many accesses to a word are remembered as ThreadSanitizer does.
    static constexpr unsigned REMEMBERED = 4;
    struct Word {
        Access access[REMEMBERED];
    };

    bool ordered(const Access& before, const Access& now) const;
    bool conflict(const Access& before, const Access& now) const;
    bool look_at(Word& word, unsigned offset, const Access& now);
    void remember(Word& word, const Access& now);
    static void land(Word& word, const Access& now);

    Word* words_;
    uint32_t (*clocks_)[WARP_LANES];  // [threads][lane]: how far of each lane of its warp a thread has heard
    const char* code_;
    uint32_t epoch_, first_epoch_;
    unsigned threads_, evicted_;
    Race race_;
};

}  // namespace pagewalk
