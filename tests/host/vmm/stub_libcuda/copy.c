/* Copies and fills: they happen at once, whatever the stream. */
#include "stub.h"

#include <string.h>

static CUresult copied(void *target, const void *source, size_t size) {
    memmove(target, source, size);
    return end(SUCCESS);
}

#define AT(address) ((void *)(uintptr_t)(address))

/* A copy in eager and in stream order. The arguments are recorded in the order in which they came. */
#define COPY(name, version, target_type, source_type)                                                                \
    CUresult CUDAAPI name##version(target_type target, source_type source, size_t size) {                            \
        begin(#name);                                                                                                \
        ARG(target);                                                                                                 \
        ARG(source);                                                                                                 \
        ARG(size);                                                                                                   \
        REFUSE(FROM_CONTEXT);                                                                                        \
        return copied(AT(target), AT(source), size);                                                                 \
    }                                                                                                                \
    CUresult CUDAAPI name##Async##version(target_type target, source_type source, size_t size, CUstream stream) {    \
        begin(#name "Async");                                                                                        \
        ARG(target);                                                                                                 \
        ARG(source);                                                                                                 \
        ARG(size);                                                                                                   \
        ARG(stream);                                                                                                 \
        REFUSE(FROM_CONTEXT);                                                                                        \
        return copied(AT(target), AT(source), size);                                                                 \
    }

COPY(cuMemcpy, , CUdeviceptr, CUdeviceptr)
COPY(cuMemcpyHtoD, _v2, CUdeviceptr, const void *)
COPY(cuMemcpyDtoH, _v2, void *, CUdeviceptr)
COPY(cuMemcpyDtoD, _v2, CUdeviceptr, CUdeviceptr)

#define FILL(name, element)                                                                                          \
    static CUresult filled_##name(CUdeviceptr target, element value, size_t count) {                                 \
        for (size_t i = 0; i < count; i++) ((element *)AT(target))[i] = value;                                       \
        return end(SUCCESS);                                                                                         \
    }                                                                                                                \
    CUresult CUDAAPI name##_v2(CUdeviceptr target, element value, size_t count) {                                    \
        begin(#name);                                                                                                \
        ARG(target);                                                                                                 \
        ARG(value);                                                                                                  \
        ARG(count);                                                                                                  \
        REFUSE(FROM_CONTEXT);                                                                                        \
        return filled_##name(target, value, count);                                                                  \
    }                                                                                                                \
    CUresult CUDAAPI name##Async(CUdeviceptr target, element value, size_t count, CUstream stream) {                 \
        begin(#name "Async");                                                                                        \
        ARG(target);                                                                                                 \
        ARG(value);                                                                                                  \
        ARG(count);                                                                                                  \
        ARG(stream);                                                                                                 \
        REFUSE(FROM_CONTEXT);                                                                                        \
        return filled_##name(target, value, count);                                                                  \
    }

FILL(cuMemsetD8, unsigned char)
FILL(cuMemsetD16, unsigned short)
FILL(cuMemsetD32, unsigned int)
