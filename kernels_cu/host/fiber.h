// The threads of a CUDA block on a CPU: each is a fiber, a stack of its own that runs until it has to wait.
//
// These are the records that a compiled kernel and the runtime share. The kernel reaches its own fiber from the stack
// pointer alone: every stack lies in a slot of STACK_BYTES, aligned to that size, with the Fiber at its upper end.
//
//     slot:  [guard | stack grows down <---- | Fiber | up to 8 KB of offset]
//
// The offset differs from slot to slot, so that the tops of 32 stacks do not fall into the same cache set.
#pragma once
#include <stdint.h>

// An instrumented build names the line of the kernel that an access comes from. So what these headers do stays outside
// the kernel's own code, which they see by their return address.
#if PAGEWALK_OBSERVED
#define PAGEWALK_OUTSIDE __attribute__((noinline, no_sanitize("thread"))) inline
#else
#define PAGEWALK_OUTSIDE inline
#endif

namespace pagewalk {

constexpr unsigned WARP_LANES = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
#if defined(__aarch64__)
constexpr uintptr_t STACK_BYTES = 256 * 1024;
#else
constexpr uintptr_t STACK_BYTES = 64 * 1024;
#endif
constexpr unsigned SLOT_BYTES = 64;
constexpr uintptr_t STACK_OFFSETS = 64;
constexpr uintptr_t STACK_OFFSET_BYTES = 128;

struct Index3 {
    unsigned x, y, z;
};

struct Block;
struct CopyQueue;
struct Observer;
struct Warp;

struct Fiber {
    void* stack_pointer;  // while it waits
    Block* block;
    Warp* warp;
    unsigned lane;
    unsigned exchanges;  // whole-warp exchanges so far; its last bit chooses the buffer
    Index3 thread;
};

// Where the lanes of a warp meet. From MMA_K16_F16 on, the lane that comes last does the work of all (tensor_core.cpp).
enum class Meeting : int {
    BARRIER,
    EXCHANGE,
    MMA_K16_F16,
    MMA_K16_BF16,
    MMA_K8_F16,
    MMA_K8_BF16,
    LDMATRIX,
    LDMATRIX_TRANS,
    MOVMATRIX_TRANS,
};

// What a lane gives to ldmatrix, and to mma (fragments as ptx.cuh draws them).
struct RowAddress {
    const void* row;
    uint64_t matrices;
    const void* at;  // in the kernel's code
};
struct Fragments {
    float d[4];
    unsigned a[4], b[2];
};

// One bit a lane in every mask.
struct Warp {
    unsigned living;   // has not returned
    unsigned ready;    // may run
    unsigned at_warp;  // waits for the whole warp
    unsigned at_part;  // waits for the lanes of part_mask
    Meeting meeting;   // what those at_warp do
    unsigned part_mask[WARP_LANES];
    // A whole-warp exchange has one barrier and two buffers in turn: a lane can be one exchange ahead, never two.
    uint64_t exchanged[2][WARP_LANES];
    uint64_t exchanged_in_part[WARP_LANES];
    // What each lane gives to a matrix operation, and finds there when all have arrived.
    unsigned char slot[WARP_LANES][SLOT_BYTES];
};

enum class Status : int {
    DONE = 0,
    FAULT = 1,
    STACK_OVERFLOW = 2,
    DEADLOCK = 3,
    NO_MEMORY = 4,
    MIXED_WARP = 5,  // lanes of one warp meet in different operations
    MISALIGNED = 6,  // an address of an asynchronous copy or of a matrix row is not a multiple of its size
    RACE = 7,        // two threads touch a byte of shared memory without a barrier between
    SHARED_END = 8,  // a byte behind the dynamic shared memory that the launch gave
    NOT_SHARED = 9,  // an asynchronous copy goes to, or a row of a matrix lies in, other memory
    DIVISION = 10,
    UNDEFINED = 11,          // the compiler ended the code where C++ gives it no meaning
    MISALIGNED_ACCESS = 12,  // a load or store at an address that is not a multiple of its size
    INTERRUPTED = 13,
    SHARED_SPOILED = 14,  // somebody wrote beside the kernel's shared arrays
    TRAPPED = 15,
    ASSERTED = 16,  // an assert failed, in the line of the source that is given as the address
};

// What a kernel calls in the runtime, as pointers: a compiled kernel needs no symbol of it.
struct Runtime {
    // For a matrix operation the lane's slot has its operands before, and its result after.
    void (*wait_for_lanes)(Fiber* fiber, unsigned mask, Meeting meeting);
    void (*wait_for_block)(Fiber* fiber);
    // Copy `source_bytes` of `bytes`, and zeros behind them: at once, or when the thread waits for the copy's group.
    void (*begin_copy)(Fiber* fiber, void* to, const void* from, unsigned bytes, unsigned source_bytes, const void* at);
    void (*commit_copies)(Fiber* fiber);
    void (*wait_for_copies)(Fiber* fiber, unsigned pending);  // until at most so many groups are under way
    // A thread reads or writes memory that is watched; `at` lies behind the call in the kernel's code that does it.
    void (*observe)(Fiber* fiber, const void* address, unsigned bytes, bool write, const void* at);
    void (*stop)(Fiber* fiber, Status status, uint64_t address);  // end the block
    void (*print)(const char* format, __builtin_va_list values);
};

enum class Schedule : int { ASCENDING = 0, DESCENDING = 1, INTERLEAVED = 2, SHUFFLED = 3 };

struct Span {
    uintptr_t begin, bytes;
    bool contains(const void* address) const { return reinterpret_cast<uintptr_t>(address) - begin < bytes; }
};

struct Block {
    volatile Status status;  // a signal handler sets it too
    uint64_t address;  // that the status speaks of
    const Runtime* runtime;
    Index3 grid_size, block_size, index;
    void (*run)(const void* arguments);  // the kernel's body, once for each thread
    const void* arguments;
    Schedule schedule;
    bool eager_copies;  // a copy lands at once; otherwise when it is waited for
    unsigned char* dynamic_shared;
    CopyQueue* copies;  // [threads]
    unsigned threads, warps;
    Warp* warp;                // [warps]
    unsigned char* stacks;     // [threads] slots of STACK_BYTES
    unsigned living, waiting;  // threads that have not returned; of these, at __syncthreads
    unsigned current;          // index of the warp that runs
    uint64_t random;           // state of the shuffled schedule, never 0
    Span shared[2];            // shared memory, dynamic and static
    Observer* observer;        // who sees every access of an instrumented kernel, or null
    Span watched[3];           // what it watches: shared memory as above, and the cache
    void* host_stack_pointer;  // where to go on when no fiber can run
    volatile unsigned uncut;   // an interrupt waits: the runtime is in the middle of something
};

inline bool is_shared(const Block& block, const void* address) {
    return block.shared[0].contains(address) || block.shared[1].contains(address);
}

inline Fiber* fiber_in(uintptr_t slot) {
    const uintptr_t offset = slot / STACK_BYTES % STACK_OFFSETS * STACK_OFFSET_BYTES;
    return reinterpret_cast<Fiber*>(slot + STACK_BYTES - STACK_OFFSET_BYTES - offset);
}

inline Fiber* this_fiber() {
    return fiber_in(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) & ~(STACK_BYTES - 1));
}

static_assert(sizeof(Fiber) <= STACK_OFFSET_BYTES, "a Fiber fits above its stack");

}  // namespace pagewalk
