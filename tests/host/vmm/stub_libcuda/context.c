/* Contexts: one primary context a device, counted, and a stack of current ones for each thread. */
#include "stub.h"

#define FIRST_CONTEXT 0xC0DE00000100ull /* wider than 32 bits, so that a truncation shows */

int initialised;
static int retained[8];
static _Thread_local CUcontext stack[64];
static _Thread_local int depth;

static CUcontext context_of(int device) { return (CUcontext)(uintptr_t)(FIRST_CONTEXT + (unsigned)device); }

static CUcontext top(void) { return depth ? stack[depth - 1] : NULL; }

int has_current_context(void) { return top() != NULL; }

int current_device(void) { return top() ? (int)((uintptr_t)top() - FIRST_CONTEXT) : 0; }

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    begin("cuDevicePrimaryCtxRetain");
    ARG(device);
    REFUSE(FROM_INIT);
    retained[device]++;
    *context = context_of(device);
    OUT(*context);
    return end(SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    begin("cuDevicePrimaryCtxRelease");
    ARG(device);
    REFUSE(FROM_INIT);
    if (!retained[device]) return end(INVALID_CONTEXT);
    retained[device]--;
    return end(SUCCESS);
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context) {
    begin("cuCtxPushCurrent");
    ARG(context);
    REFUSE(FROM_INIT);
    stack[depth++] = context;
    return end(SUCCESS);
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *context) {
    begin("cuCtxPopCurrent");
    REFUSE(FROM_INIT);
    if (!depth) return end(INVALID_CONTEXT);
    CUcontext popped = stack[--depth];
    if (context) *context = popped;
    OUT(popped);
    return end(SUCCESS);
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context) {
    begin("cuCtxGetCurrent");
    REFUSE(FROM_INIT);
    *context = top();
    OUT(*context);
    return end(SUCCESS);
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
    begin("cuCtxSetCurrent");
    ARG(context);
    REFUSE(FROM_INIT);
    if (depth) depth--;
    if (context) stack[depth++] = context;
    return end(SUCCESS);
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device) {
    begin("cuCtxGetDevice");
    REFUSE(FROM_CONTEXT);
    *device = current_device();
    OUT(*device);
    return end(SUCCESS);
}

CUresult CUDAAPI cuCtxSynchronize(void) {
    begin("cuCtxSynchronize");
    REFUSE(FROM_CONTEXT);
    return end(SUCCESS);
}
