// One thread of one block reads or writes one int.

extern "C" __global__ void touch(int* at, int* found, int write, int only_block) {
    if (blockIdx.x != (unsigned)only_block || threadIdx.x != 33) return;  // guard
    __syncwarp();
    volatile int* place = at;
    if (write) {
        *place = 1;
    } else {
        *found = *place;
    }
}
