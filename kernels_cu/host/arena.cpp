#include "arena.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "copies.h"

namespace pagewalk {
namespace {

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
Arena* unused;

// Memory for `slots` stacks, aligned to a slot. The guard at the start of each cannot be touched: a stack that grows too
// far is a fault there, and not a change of its neighbour.
unsigned char* map_stacks(size_t slots) {
    const size_t size = (slots + 1) * STACK_BYTES;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    const uintptr_t aligned = (reinterpret_cast<uintptr_t>(memory) + STACK_BYTES - 1) & ~(STACK_BYTES - 1);
    unsigned char* stacks = reinterpret_cast<unsigned char*>(aligned);
    for (size_t i = 0; i < slots; i++) {
        if (mprotect(stacks + i * STACK_BYTES, GUARD_BYTES, PROT_NONE) != 0) {
            munmap(memory, size);
            return nullptr;
        }
    }
    return stacks;
}

Arena* make_arena(unsigned threads) {
    const unsigned warps = (threads + WARP_LANES - 1) / WARP_LANES;
    unsigned char* stacks = map_stacks(threads + 1);
    Arena* arena = static_cast<Arena*>(malloc(sizeof(Arena)));
    Warp* warp = static_cast<Warp*>(malloc(warps * sizeof(Warp)));
    CopyQueue* copies = static_cast<CopyQueue*>(calloc(threads, sizeof(CopyQueue)));
    if (!stacks || !arena || !warp || !copies) {
        if (stacks) munmap(stacks, (threads + 1) * STACK_BYTES);
        free(arena);
        free(warp);
        free(copies);
        return nullptr;
    }
    *arena = {threads, stacks, warp, copies, nullptr, 0, stacks + threads * STACK_BYTES, nullptr};
    return arena;
}

// Memory whose end is followed by a page that cannot be touched. Null if there is none.
unsigned char* map_guarded(size_t bytes) {
    void* memory = mmap(nullptr, bytes + GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    unsigned char* begin = static_cast<unsigned char*>(memory);
    if (mprotect(begin + bytes, GUARD_BYTES, PROT_NONE) != 0) {
        munmap(memory, bytes + GUARD_BYTES);
        return nullptr;
    }
    return begin;
}

}  // namespace

Arena* take_arena(unsigned threads) {
    pthread_mutex_lock(&lock);
    for (Arena** link = &unused; *link; link = &(*link)->next) {
        Arena* arena = *link;
        if (arena->threads < threads) continue;
        *link = arena->next;
        pthread_mutex_unlock(&lock);
        return arena;
    }
    pthread_mutex_unlock(&lock);
    return make_arena((threads + WARP_LANES - 1) / WARP_LANES * WARP_LANES);
}

void give_arena(Arena* arena) {
    pthread_mutex_lock(&lock);
    arena->next = unused;
    unused = arena;
    pthread_mutex_unlock(&lock);
}

unsigned char* shared_in(Arena& arena, size_t bytes) {
    constexpr size_t ALIGNMENT = 128;
    const size_t whole_pages = (bytes + GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES;
    if (!arena.dynamic_shared || arena.dynamic_shared_bytes < whole_pages) {
        if (arena.dynamic_shared) munmap(arena.dynamic_shared, arena.dynamic_shared_bytes + GUARD_BYTES);
        arena.dynamic_shared = map_guarded(whole_pages);
        arena.dynamic_shared_bytes = whole_pages;
    }
    if (!arena.dynamic_shared) return nullptr;
    return arena.dynamic_shared + arena.dynamic_shared_bytes - (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

}  // namespace pagewalk
