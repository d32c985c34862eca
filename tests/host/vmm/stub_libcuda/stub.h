/* A software libcuda that answers plausibly and records the raw bytes of every argument.
 *
 * It knows no rules: what a call may be given is for the tests to say, from the record. What it needs of cuda.h is
 * repeated here so that it builds where cuda.h is not; with -DWITH_CUDA_H the compiler proves each signature right.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef WITH_CUDA_H
#define __CUDA_API_VERSION_INTERNAL /* the names as they are exported, not what an application's source calls them */
#include <cuda.h>
#else
#define CUDAAPI
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef void (*CUhostFn)(void *);
typedef uint64_t cuuint64_t;
typedef int CUdevice_attribute, CUpointer_attribute, CUmemAllocationHandleType, CUmemAllocationGranularity_flags,
    CUdriverProcAddressQueryResult;
typedef struct {
    int type, id;
} CUmemLocation;
typedef struct {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;
typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;
typedef struct {
    char reserved[64];
} CUipcMemHandle;
typedef struct {
    char bytes[16];
} CUuuid;
#endif

_Static_assert(sizeof(CUmemAllocationProp) == 32, "the struct that the driver reads");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "the struct that the driver reads");

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    NOT_READY = 600,
};

/* record.c: one line a call, "name argument ... = code output ...", each value as its bytes in memory. A call is
 *     begin("cuMemFree"); ARG(pointer); REFUSE(FROM_CONTEXT); ...effects...; return end(SUCCESS);
 * REFUSE returns early: with the code that the environment asks for, or where cuInit or a context is missing. */
void begin(const char *call);
void record(const void *bytes, size_t size);
void output(const void *bytes, size_t size);
CUresult end(CUresult code);
enum { ANYTIME, FROM_INIT, FROM_CONTEXT };
CUresult refusal(int needs);
#define ARG(value) record(&(value), sizeof(value))
#define OUT(value) output(&(value), sizeof(value))
#define REFUSE(needs)                                                                                                \
    do {                                                                                                             \
        CUresult refused = refusal(needs);                                                                           \
        if (refused) return end(refused);                                                                            \
    } while (0)

/* Settings of the test, read from the environment at each use. */
long setting(const char *name, long otherwise);
int setting_lists(const char *name, const char *word);

/* context.c */
extern int initialised;
int has_current_context(void);
int current_device(void);

/* memory.c: what lies where. A span is one reservation, mapping or plain allocation. */
enum kind { RESERVED, MAPPED, DEVICE_MEMORY, PINNED };
struct span {
    enum kind kind;
    uint64_t base, size, handle;
    int device;
};
void *new_memory(uint64_t size, uint64_t alignment);
void add_span(enum kind kind, uint64_t base, uint64_t size, uint64_t handle, int device);
void remove_spans(enum kind kind, uint64_t base, uint64_t size);
const struct span *find_span(enum kind kind, uint64_t address);
extern uint64_t memory_in_use[8];
#define MEMORY_TOTAL (8ull << 30)
