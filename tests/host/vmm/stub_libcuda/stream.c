/* Streams and events. Work is done at once; the first STUB_PENDING queries still say "not ready". */
#include "stub.h"

#include <stdlib.h>

#define FIRST_STREAM 0x57E400000010ull /* wider than 32 bits, so that a truncation shows */
#define FIRST_EVENT 0xE7E100000010ull

static int streams, events;
static long queries;

static CUresult ready(void) { return ++queries <= setting("STUB_PENDING", 0) ? NOT_READY : SUCCESS; }

CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned int flags) {
    begin("cuStreamCreate");
    ARG(flags);
    REFUSE(FROM_CONTEXT);
    *stream = (CUstream)(uintptr_t)(FIRST_STREAM + 16ull * (unsigned)streams++);
    OUT(*stream);
    return end(SUCCESS);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream) {
    begin("cuStreamDestroy");
    ARG(stream);
    REFUSE(FROM_INIT);
    return end(SUCCESS);
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
    begin("cuStreamSynchronize");
    ARG(stream);
    REFUSE(FROM_CONTEXT);
    return end(SUCCESS);
}

CUresult CUDAAPI cuStreamQuery(CUstream stream) {
    begin("cuStreamQuery");
    ARG(stream);
    REFUSE(FROM_CONTEXT);
    return end(ready());
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    begin("cuStreamWaitEvent");
    ARG(stream);
    ARG(event);
    ARG(flags);
    REFUSE(FROM_CONTEXT);
    return end(SUCCESS);
}

CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned int flags) {
    begin("cuEventCreate");
    ARG(flags);
    REFUSE(FROM_CONTEXT);
    *event = (CUevent)(uintptr_t)(FIRST_EVENT + 16ull * (unsigned)events++);
    OUT(*event);
    return end(SUCCESS);
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
    begin("cuEventRecord");
    ARG(event);
    ARG(stream);
    REFUSE(FROM_CONTEXT);
    return end(SUCCESS);
}

CUresult CUDAAPI cuCtxRecordEvent(CUcontext context, CUevent event) {
    begin("cuCtxRecordEvent");
    ARG(context);
    ARG(event);
    REFUSE(FROM_INIT);
    return end(SUCCESS);
}

CUresult CUDAAPI cuEventQuery(CUevent event) {
    begin("cuEventQuery");
    ARG(event);
    REFUSE(FROM_INIT);
    return end(ready());
}

CUresult CUDAAPI cuEventSynchronize(CUevent event) {
    begin("cuEventSynchronize");
    ARG(event);
    REFUSE(FROM_INIT);
    return end(SUCCESS);
}

CUresult CUDAAPI cuEventElapsedTime_v2(float *milliseconds, CUevent first, CUevent last) {
    begin("cuEventElapsedTime");
    ARG(first);
    ARG(last);
    REFUSE(FROM_INIT);
    *milliseconds = 0.5f;
    return end(SUCCESS);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent event) {
    begin("cuEventDestroy");
    ARG(event);
    REFUSE(FROM_INIT);
    return end(SUCCESS);
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    begin("cuLaunchHostFunc");
    ARG(stream);
    ARG(function);
    ARG(data);
    REFUSE(FROM_CONTEXT);
    end(SUCCESS);
    function(data);
    return SUCCESS;
}
