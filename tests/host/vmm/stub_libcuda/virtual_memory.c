/* The virtual memory calls. Bytes belong to addresses here, not to handles: enough for a record. */
#include "stub.h"

#include <stdlib.h>

#define GRANULARITY (2ull << 20)
#define FIRST_HANDLE 0xA110C0000010ull /* wider than 32 bits, so that a truncation shows */

struct allocation {
    size_t size;
    CUmemAllocationProp property;
};
static struct allocation allocations[4096];
static int allocation_count;

static CUmemGenericAllocationHandle handle_of(int index) { return FIRST_HANDLE + 16ull * (unsigned)index; }

static struct allocation *allocation_of(CUmemGenericAllocationHandle handle) {
    return &allocations[(handle - FIRST_HANDLE) / 16];
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *property,
                                               CUmemAllocationGranularity_flags option) {
    begin("cuMemGetAllocationGranularity");
    record(property, sizeof *property);
    ARG(option);
    REFUSE(FROM_INIT);
    *granularity = GRANULARITY << option;
    OUT(*granularity);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr address,
                                     unsigned long long flags) {
    begin("cuMemAddressReserve");
    ARG(size);
    ARG(alignment);
    ARG(address);
    ARG(flags);
    REFUSE(FROM_INIT);
    void *memory = new_memory(size, alignment > GRANULARITY ? alignment : GRANULARITY);
    if (!memory) return end(OUT_OF_MEMORY);
    *pointer = (uintptr_t)memory;
    add_span(RESERVED, *pointer, size, 0, -1);
    OUT(*pointer);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr pointer, size_t size) {
    begin("cuMemAddressFree");
    ARG(pointer);
    ARG(size);
    REFUSE(FROM_INIT);
    remove_spans(RESERVED, pointer, size);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *property,
                             unsigned long long flags) {
    begin("cuMemCreate");
    ARG(size);
    record(property, sizeof *property);
    ARG(flags);
    REFUSE(FROM_INIT);
    *handle = handle_of(allocation_count);
    allocations[allocation_count++] = (struct allocation){size, *property};
    memory_in_use[property->location.id & 7] += size;
    OUT(*handle);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    begin("cuMemRelease");
    ARG(handle);
    REFUSE(FROM_INIT);
    struct allocation *found = allocation_of(handle);
    memory_in_use[found->property.location.id & 7] -= found->size;
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
    begin("cuMemMap");
    ARG(pointer);
    ARG(size);
    ARG(offset);
    ARG(handle);
    ARG(flags);
    REFUSE(FROM_INIT);
    add_span(MAPPED, pointer, size, handle, allocation_of(handle)->property.location.id);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr pointer, size_t size) {
    begin("cuMemUnmap");
    ARG(pointer);
    ARG(size);
    REFUSE(FROM_INIT);
    remove_spans(MAPPED, pointer, size);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc *descriptors, size_t count) {
    begin("cuMemSetAccess");
    ARG(pointer);
    ARG(size);
    record(descriptors, count * sizeof *descriptors);
    ARG(count);
    REFUSE(FROM_INIT);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer) {
    begin("cuMemGetAccess");
    record(location, sizeof *location);
    ARG(pointer);
    REFUSE(FROM_INIT);
    *flags = find_span(MAPPED, pointer) ? 3 : 0;
    OUT(*flags);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    begin("cuMemRetainAllocationHandle");
    ARG(address);
    REFUSE(FROM_INIT);
    const struct span *found = find_span(MAPPED, (uintptr_t)address);
    if (!found) return end(INVALID_VALUE);
    *handle = found->handle;
    memory_in_use[found->device & 7] += allocation_of(*handle)->size; /* each release takes the size off again */
    OUT(*handle);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *property,
                                                        CUmemGenericAllocationHandle handle) {
    begin("cuMemGetAllocationPropertiesFromHandle");
    ARG(handle);
    REFUSE(FROM_INIT);
    *property = allocation_of(handle)->property;
    OUT(*property);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags) {
    begin("cuMemExportToShareableHandle");
    ARG(handle);
    ARG(type);
    ARG(flags);
    REFUSE(FROM_INIT);
    *(int *)shareable = 1000 + (int)((handle - FIRST_HANDLE) / 16); /* stands for a descriptor; nothing opens it */
    OUT(*(int *)shareable);
    return end(SUCCESS);
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                                CUmemAllocationHandleType type) {
    begin("cuMemImportFromShareableHandle");
    ARG(shareable);
    ARG(type);
    REFUSE(FROM_INIT);
    *handle = handle_of((int)(uintptr_t)shareable - 1000);
    memory_in_use[allocation_of(*handle)->property.location.id & 7] += allocation_of(*handle)->size;
    OUT(*handle);
    return end(SUCCESS);
}
