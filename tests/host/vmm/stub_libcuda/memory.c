/* What lies where: addresses with bytes behind them, and the spans that pointer queries look up. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "stub.h"

#include <string.h>
#include <sys/mman.h>

uint64_t memory_in_use[8];
static struct span spans[4096];
static int span_count;

/* Zeroed memory at an address that is a multiple of `alignment`; untouched bytes cost nothing, and none is given back. */
void *new_memory(uint64_t size, uint64_t alignment) {
    char *at = mmap(NULL, size + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    return (void *)(((uintptr_t)at + alignment - 1) / alignment * alignment);
}

void add_span(enum kind kind, uint64_t base, uint64_t size, uint64_t handle, int device) {
    spans[span_count++] = (struct span){kind, base, size, handle, device};
}

void remove_spans(enum kind kind, uint64_t base, uint64_t size) {
    for (int i = span_count - 1; i >= 0; i--)
        if (spans[i].kind == kind && base <= spans[i].base && spans[i].base + spans[i].size <= base + size)
            spans[i] = spans[--span_count];
}

const struct span *find_span(enum kind kind, uint64_t address) {
    for (int i = 0; i < span_count; i++)
        if (spans[i].kind == kind && spans[i].base <= address && address < spans[i].base + spans[i].size)
            return &spans[i];
    return NULL;
}
