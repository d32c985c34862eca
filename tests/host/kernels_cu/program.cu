// A machine that runs a program of its own for each thread: accesses to bytes of shared memory, and barriers.
//
// A step is two words, operation and operand; test_race_oracle.py writes the programs and knows which of them race.

enum { END, READ_1, READ_2, READ_4, WRITE_1, WRITE_2, WRITE_4, WARP_BARRIER, BLOCK_BARRIER };

extern "C" __global__ void program(unsigned int* out, const unsigned int* steps, int most) {  // steps: [threads, most, 2]
    DYNAMIC_SHARED(shared);
    const unsigned int* step = steps + 2 * most * threadIdx.x;
    unsigned int sum = 0;
    for (; step[0] != END; step += 2) {
        volatile unsigned char* place = shared + step[1];
        if (step[0] == READ_1) sum += *place;
        if (step[0] == READ_2) sum += *(volatile unsigned short*)place;
        if (step[0] == READ_4) sum += *(volatile unsigned int*)place;
        if (step[0] == WRITE_1) *place = 1;
        if (step[0] == WRITE_2) *(volatile unsigned short*)place = 1;
        if (step[0] == WRITE_4) *(volatile unsigned int*)place = 1;
        if (step[0] == WARP_BARRIER) __syncwarp(step[1]);
        if (step[0] == BLOCK_BARRIER) __syncthreads();
    }
    out[threadIdx.x] = sum;
}
