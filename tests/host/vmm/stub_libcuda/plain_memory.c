/* Plain device memory, pinned host memory, and how much is free. */
#include "stub.h"

#include <string.h>

static CUresult allocate(uint64_t *address, size_t size, enum kind kind) {
    void *memory = new_memory(size, 4096);
    if (!memory) return end(OUT_OF_MEMORY);
    *address = (uintptr_t)memory;
    add_span(kind, *address, size, 0, current_device());
    if (kind == DEVICE_MEMORY) memory_in_use[current_device()] += size;
    OUT(*address);
    return end(SUCCESS);
}

static CUresult give_back(uint64_t address, enum kind kind) {
    const struct span *found = find_span(kind, address);
    if (!found || found->base != address) return end(INVALID_VALUE);
    if (kind == DEVICE_MEMORY) memory_in_use[found->device] -= found->size;
    remove_spans(kind, address, found->size);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free, size_t *total) {
    begin("cuMemGetInfo");
    REFUSE(FROM_CONTEXT);
    *free = MEMORY_TOTAL - memory_in_use[current_device()];
    *total = MEMORY_TOTAL;
    OUT(*free);
    OUT(*total);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *pointer, size_t size) {
    begin("cuMemAlloc");
    ARG(size);
    REFUSE(FROM_CONTEXT);
    uint64_t address = 0;
    CUresult code = allocate(&address, size, DEVICE_MEMORY);
    *pointer = address;
    return code;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr pointer) {
    begin("cuMemFree");
    ARG(pointer);
    REFUSE(FROM_CONTEXT);
    return give_back(pointer, DEVICE_MEMORY);
}

CUresult CUDAAPI cuMemHostAlloc(void **pointer, size_t size, unsigned int flags) {
    begin("cuMemHostAlloc");
    ARG(size);
    ARG(flags);
    REFUSE(FROM_CONTEXT);
    uint64_t address = 0;
    CUresult code = allocate(&address, size, PINNED);
    *pointer = (void *)(uintptr_t)address;
    return code;
}

CUresult CUDAAPI cuMemAllocHost_v2(void **pointer, size_t size) {
    begin("cuMemAllocHost");
    ARG(size);
    REFUSE(FROM_CONTEXT);
    uint64_t address = 0;
    CUresult code = allocate(&address, size, PINNED);
    *pointer = (void *)(uintptr_t)address;
    return code;
}

CUresult CUDAAPI cuMemFreeHost(void *pointer) {
    begin("cuMemFreeHost");
    ARG(pointer);
    REFUSE(FROM_CONTEXT);
    return give_back((uintptr_t)pointer, PINNED);
}

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer) {
    begin("cuIpcGetMemHandle");
    ARG(pointer);
    REFUSE(FROM_INIT);
    if (!find_span(DEVICE_MEMORY, pointer)) return end(INVALID_VALUE);
    memset(handle, 0x5A, sizeof *handle);
    return end(SUCCESS);
}
