// Warp and block functions, whose results test_warps.py knows from their definition.

enum { SHUFFLE, UP, DOWN, XOR, HALVES, PART_ABSENT, SHARED, LATE_RETURN, BLOCK_SUM, DIVERGENT, STACK, STUCK, TICKET, COUNT };

__device__ int shuffles(int kind, int lane, int n, int width) {
    const unsigned all = 0xffffffffu;
    if (kind == SHUFFLE) return __shfl_sync(all, lane, n, width);
    if (kind == UP) return __shfl_up_sync(all, lane, (unsigned)n, width);
    if (kind == DOWN) return __shfl_down_sync(all, lane, (unsigned)n, width);
    return __shfl_xor_sync(all, lane, n, width);
}

// The lower half exchanges five times, the upper half twice, then all of them: three groups that must not mix.
__device__ int halves(int lane) {
    const unsigned lower = 0x0000ffffu;
    int x = lane;
    if (lane < 16) {
        for (int i = 0; i < 5; i++) x += __shfl_xor_sync(lower, x, 1);
    } else {
        for (int i = 0; i < 2; i++) x += __shfl_xor_sync(~lower, x, 2);
    }
    return __shfl_xor_sync(0xffffffffu, x, 16);
}

// Each warp in turn adds its number to a sum that all of them see after the barrier.
__device__ int block_sum(int thread) {
    __shared__ int sum;
    if (thread == 0) sum = 0;
    for (int turn = 0; turn < (int)blockDim.x; turn += 32) {
        __syncthreads();
        if (thread == turn) sum += turn / 32 + 1;
    }
    __syncthreads();
    return sum;
}

// Who comes first: each thread takes a number, and then waits for its warp. Untouched shared memory holds -1.
__device__ int ticket() {
    __shared__ int next;
    const int mine = atomicAdd(&next, 1) + 1;
    __syncwarp();
    return mine;
}

// Each call needs more than the guard of a stack has, and touches little of it.
__device__ int deep(int n) {
    volatile int room[2048];
    room[n & 7] = n;
    return n == 0 ? room[0] : deep(n - 1) + room[n & 7];
}

extern "C" __global__ void warps(long long* out, int kind, int n, int width) {  // out: [gridDim.x, blockDim.x]
    const int thread = threadIdx.x, lane = thread % 32;
    long long result = -1;
    if (kind <= XOR) result = shuffles(kind, lane, n, width);
    if (kind == HALVES) result = halves(lane);
    if (kind == PART_ABSENT && lane < 8) result = __shfl_sync(0xffu, (long long)lane, n);
    if (kind == SHARED) {
        __shared__ unsigned untouched[64];
        result = untouched[thread % 64];
        untouched[thread % 64] = 0;
    }
    if (kind == LATE_RETURN) {
        if (lane % 3 == 0) return;
        __syncwarp();
        if (lane % 3 == 1) return;
        __syncthreads();
        result = thread;
    }
    if (kind == BLOCK_SUM) result = block_sum(thread);
    if (kind == DIVERGENT) {  // two groups, each waits for a lane of the other
        if (lane < 16) __syncwarp(0x0001ffffu);
        else __syncwarp(0xffff8000u);
    }
    if (kind == STACK) result = deep(n);
    if (kind == COUNT) {
        atomicAdd((unsigned long long*)&out[blockIdx.x * blockDim.x + thread], 1ULL);
        return;
    }
    if (kind == TICKET) result = ticket();
    if (kind == STUCK && thread == 1) __syncwarp();
    if (kind == STUCK && thread != 1) __syncthreads();
    out[blockIdx.x * blockDim.x + thread] = result;
}
