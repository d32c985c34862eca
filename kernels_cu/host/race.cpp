// The order of accesses is that of vector clocks. A thread's clock counts its warp barriers, and at each it learns the
// clocks of those it meets; a block barrier orders everything before it. An access is ordered before another if the
// thread of the second has heard of the clock of the first. Shuffles and matrix operations order nothing: CUDA promises
// that only of barriers.
#include "race.h"

#include <stdlib.h>
#include <string.h>

namespace pagewalk {

RaceCheck* RaceCheck::make(unsigned threads, size_t bytes, const void* code) {
    RaceCheck* check = static_cast<RaceCheck*>(calloc(1, sizeof(RaceCheck)));
    if (!check) return nullptr;
    check->words_ = static_cast<Word*>(calloc(bytes / 4 + 2, sizeof(Word)));
    check->clocks_ = static_cast<uint32_t(*)[WARP_LANES]>(calloc(threads + WARP_LANES, sizeof(*check->clocks_)));
    check->code_ = static_cast<const char*>(code);
    check->threads_ = threads;
    if (check->words_ && check->clocks_) return check;
    destroy(check);
    return nullptr;
}

void RaceCheck::destroy(RaceCheck* check) {
    if (!check) return;
    free(check->words_);
    free(check->clocks_);
    free(check);
}

// What earlier blocks did lies in earlier epochs, and so before everything.
void RaceCheck::begin_block() {
    first_epoch_ = ++epoch_;
    memset(clocks_, 0, threads_ * sizeof(*clocks_));
    for (unsigned t = 0; t < threads_; t++) clocks_[t][t % WARP_LANES] = 1;
}

void RaceCheck::join(unsigned warp, unsigned lanes) {
    uint32_t(*mine)[WARP_LANES] = clocks_ + warp * WARP_LANES;
    uint32_t newest[WARP_LANES] = {};
    for (unsigned left = lanes; left; left &= left - 1) {
        const uint32_t* known = mine[__builtin_ctz(left)];
        for (unsigned i = 0; i < WARP_LANES; i++) newest[i] = known[i] > newest[i] ? known[i] : newest[i];
    }
    for (unsigned left = lanes; left; left &= left - 1) {
        const unsigned lane = unsigned(__builtin_ctz(left));
        memcpy(mine[lane], newest, sizeof(newest));
        mine[lane][lane]++;
    }
}

bool RaceCheck::ordered(const Access& before, const Access& now) const {
    if (before.epoch < first_epoch_) return true;
    if (before.kind == Access::COPYING) return false;
    if (before.epoch < epoch_ || before.thread == now.thread) return true;
    if (before.thread / WARP_LANES != now.thread / WARP_LANES) return false;
    return clocks_[now.thread][before.thread % WARP_LANES] >= before.clock;
}

bool RaceCheck::conflict(const Access& before, const Access& now) const {
    if (!(before.bytes & now.bytes)) return false;
    if (before.kind == Access::NONE || (before.kind == Access::READ && now.kind == Access::READ)) return false;
    return !ordered(before, now);
}

// An access makes another one forgettable that is ordered before it: who races with that one races with this one too.
void RaceCheck::remember(Word& word, const Access& now) {
    Access* free_place = nullptr;
    for (Access& before : word.access) {
        const bool covered = !(before.bytes & ~now.bytes) && (now.kind != Access::READ || before.kind == Access::READ);
        if (before.kind == Access::NONE || (covered && ordered(before, now))) {
            before.kind = Access::NONE;
            free_place = &before;
        }
    }
    for (unsigned tried = 0; !free_place && tried < REMEMBERED; tried++) {
        Access& next = word.access[++evicted_ % REMEMBERED];
        if (next.kind != Access::COPYING) free_place = &next;
    }
    if (free_place) *free_place = now;
}

void RaceCheck::land(Word& word, const Access& now) {
    for (Access& before : word.access)
        if (before.kind == Access::COPYING && before.thread == now.thread && before.bytes == now.bytes) {
            before = now;
            before.kind = Access::WRITE;
            return;
        }
}

bool RaceCheck::look_at(Word& word, unsigned offset, const Access& now) {
    if (now.kind == Access::LANDING) {
        land(word, now);
        return true;
    }
    for (const Access& before : word.access) {
        if (!conflict(before, now)) continue;
        race_ = {before, now, offset};
        return false;
    }
    remember(word, now);
    return true;
}

bool RaceCheck::access(unsigned thread, unsigned offset, unsigned bytes, Access::Kind kind, const void* at) {
    const int32_t place = int32_t(static_cast<const char*>(at) - code_);
    Access now = {place, epoch_, clocks_[thread][thread % WARP_LANES], uint16_t(thread), 0, kind};
    const unsigned end = offset + bytes;
    for (unsigned first = offset & ~3u; first < end; first += 4) {
        const unsigned below = offset > first ? offset - first : 0, above = end < first + 4 ? first + 4 - end : 0;
        now.bytes = uint8_t((0xf << below) & (0xf >> above) & 0xf);
        if (!look_at(words_[first / 4], first, now)) return false;
    }
    return true;
}

}  // namespace pagewalk
