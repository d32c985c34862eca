// Requests to a watched memory, and to shared memory, whose addresses test_meter.py chooses: each thread walks over its
// `count` offsets.
#include "ptx.cuh"

enum { READ_4, READ_16, WRITE_4, COPY_16, LOAD_ONCE, STORE_ONCE, READ_SOME, SHARED_2, SHARED_4, SHARED_8, SHARED_16, ROWS };

extern "C" __global__ void requests(
    char* memory, const int* all_offsets, unsigned int* out, int count, int kind) {  // offsets: [threads of all blocks, count]
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int* offsets = all_offsets + thread * count;
    DYNAMIC_SHARED(shared);
    unsigned int sum = 0;
    for (int i = 0; i < count; i++) {
        char* at = memory + offsets[i];
        unsigned char* place = shared + offsets[i];
        if (kind == SHARED_2) sum += *(volatile unsigned short*)place;
        if (kind == SHARED_4) sum += *(volatile unsigned int*)place;
        if (kind == SHARED_8) *(volatile unsigned long long*)place = sum;
        if (kind == SHARED_16) {
            const uint4 x = *(const uint4*)place;
            sum += x.x ^ x.y ^ x.z ^ x.w;
        }
        if (kind == ROWS) {
            unsigned int r[4];
            ptx_ldmatrix_x4(r, place);
            sum += r[0];
        }
        if (kind == READ_4) sum += *(const unsigned int*)at;
        if (kind == READ_16) {
            const uint4 x = *(const uint4*)at;
            sum += x.x ^ x.y ^ x.z ^ x.w;
        }
        if (kind == WRITE_4) *(unsigned int*)at = sum;
        if (kind == COPY_16) ptx_cp_async_16(shared + 16 * threadIdx.x, at, 16);
        if (kind == LOAD_ONCE) sum += ptx_load_once(at).x;
        if (kind == STORE_ONCE) ptx_store_once(at, make_uint4(1, 2, 3, 4));
        if (kind == READ_SOME) {  // lanes without an offset take no part, and the barrier tells the requests apart
            if (offsets[i] >= 0) sum += *(const unsigned int*)at;
            __syncwarp();
        }
    }
    out[thread] = sum;
}
