/* Whose memory an address is. The attributes that a test may ask for, each with the width that cuda.h gives it. */
#include "stub.h"

#include <string.h>

enum {
    CONTEXT = 1,
    MEMORY_TYPE = 2,
    DEVICE_ORDINAL = 9,
    RANGE_START_ADDR = 11,
    RANGE_SIZE = 12,
    IS_MAPPED = 13,
    ACCESS_FLAGS = 16,
    MEMPOOL_HANDLE = 17,
    MAPPING_SIZE = 18,
    MAPPING_BASE_ADDR = 19,
};

struct place {
    const struct span *outer, *mapping; /* what owns the address, and the mapping there, if one is */
};

static struct place place_of(uint64_t address) {
    static const enum kind kinds[] = {RESERVED, DEVICE_MEMORY, PINNED};
    struct place found = {NULL, find_span(MAPPED, address)};
    for (int i = 0; i < 3 && !found.outer; i++) found.outer = find_span(kinds[i], address);
    if (found.outer && found.outer->kind != RESERVED) found.mapping = found.outer;
    return found;
}

static uint64_t value_of(int attribute, struct place at) {
    int plain = at.outer && at.outer->kind != RESERVED;
    switch (attribute) {
        case CONTEXT: return plain ? 0xC0DE00000100ull + (unsigned)at.outer->device : 0;
        case MEMORY_TYPE: return at.outer ? (at.outer->kind == PINNED ? 1 : 2) : 0;
        case DEVICE_ORDINAL: return (uint64_t)(int64_t)(at.mapping ? at.mapping->device : -2);
        case RANGE_START_ADDR: return at.outer ? at.outer->base : 0;
        case RANGE_SIZE: return at.outer ? at.outer->size : 0;
        case IS_MAPPED: return at.mapping != NULL;
        case ACCESS_FLAGS: return at.mapping ? 3 : 0;
        case MAPPING_BASE_ADDR: return at.mapping ? at.mapping->base : 0;
        case MAPPING_SIZE: return at.mapping ? at.mapping->size : 0;
        default: return 0;
    }
}

static size_t width_of(int attribute) {
    switch (attribute) {
        case IS_MAPPED: return 1;
        case MEMORY_TYPE:
        case DEVICE_ORDINAL:
        case ACCESS_FLAGS: return 4;
        default: return 8;
    }
}

static void answer(void *data, int attribute, CUdeviceptr pointer) {
    uint64_t value = value_of(attribute, place_of(pointer));
    memcpy(data, &value, width_of(attribute)); /* little-endian, as every machine with a GPU */
    output(&value, width_of(attribute));
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) {
    begin("cuPointerGetAttribute");
    ARG(attribute);
    ARG(pointer);
    REFUSE(FROM_INIT);
    if (!place_of(pointer).outer) return end(INVALID_VALUE);
    answer(data, (int)attribute, pointer);
    return end(SUCCESS);
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                        CUdeviceptr pointer) {
    begin("cuPointerGetAttributes");
    ARG(count);
    record(attributes, count * sizeof *attributes);
    ARG(pointer);
    REFUSE(FROM_INIT);
    for (unsigned int i = 0; i < count; i++) answer(data[i], (int)attributes[i], pointer);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer) {
    begin("cuMemGetAddressRange");
    ARG(pointer);
    REFUSE(FROM_INIT);
    struct place at = place_of(pointer);
    if (!at.outer) return end(NOT_FOUND);
    *base = at.outer->base;
    *size = at.outer->size;
    OUT(*base);
    OUT(*size);
    return end(SUCCESS);
}
