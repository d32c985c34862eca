// tlb_probe: loads that each wait for the one before, over a range of memory: what finding an address costs.
//
// Computes   at = chain[at], `steps` times from `start`; the last `at` is the result
// Threads    one; a second one would hide what is to be seen
// Constants  none
//
// The range holds a chain: every word visited is the offset of the next. The time of a launch divided by its steps is
// the time of one load from address to value. Spread the chain over more memory than the caches or the TLB reach, or
// walk it page by page, and the difference is what translation costs. Loads are 8 bytes; nothing is written but `out`.
typedef long long int64;

extern "C" __global__ void tlb_probe(
    int64* out,         // [1] the offset at which the walk ended
    const char* range,  // where offset 0 lies
    int64 start,        // the first offset, in bytes
    int64 steps) {
    int64 at = start;
    for (int64 i = 0; i < steps; i++) at = *(const volatile int64*)(range + at);
    *out = at;
}
