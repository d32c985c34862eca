/* The two functions that PyTorch calls for memory: torch.cuda.memory.CUDAPluggableAllocator takes them by name.
 *
 * PyTorch frees under a lock of its own, which a thread that holds Python's lock may be waiting for. So a free takes
 * no lock and calls no Python: it leaves a note, and Python is asked to read the notes when it next can.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

struct note { /* of one free; Python reads it as its struct Note */
    struct note *next;
    uint64_t address;
    void *stream;
};

typedef uint64_t (*allocate_function)(size_t size, int device, void *stream);

int Py_AddPendingCall(int (*call)(void *), void *argument) __attribute__((weak)); /* needs no lock of Python's */

static _Atomic(struct note *) notes;
static allocate_function python_allocate;
static int (*python_read_notes)(void *);
static pid_t owner; /* a forked child has no CUDA */

void pagewalk_connect(allocate_function allocate, int (*read_notes)(void *)) {
    python_allocate = allocate;
    python_read_notes = read_notes;
    owner = getpid();
}

void pagewalk_disconnect(void) { owner = 0; } /* for good: there is no more Python */

void *pagewalk_allocate(size_t size, int device, void *stream) {
    if (owner != getpid()) return NULL; /* to PyTorch: out of memory */
    return (void *)(uintptr_t)python_allocate(size, device, stream);
}

void pagewalk_free(void *address, size_t size, int device, void *stream) {
    (void)size;
    (void)device;
    struct note *made = owner == getpid() ? malloc(sizeof *made) : NULL;
    if (!made) return;
    made->address = (uintptr_t)address;
    made->stream = stream;
    made->next = atomic_load(&notes);
    while (!atomic_compare_exchange_weak(&notes, &made->next, made)) {
    }
    if (!made->next && Py_AddPendingCall) Py_AddPendingCall(python_read_notes, NULL); /* else the next allocation reads */
}

/* All notes, the newest first; the caller frees each. */
struct note *pagewalk_take_notes(void) { return atomic_exchange(&notes, NULL); }

void pagewalk_drop_note(struct note *read) { free(read); }
