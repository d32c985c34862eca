// Writes its parameters, of every kind and with gaps between them, so that a test sees whether each one arrives.

extern "C" __global__ void mixed(
    double* out,  // [6]
    int i,
    long long l,
    float f,
    double d,
    unsigned u,
    unsigned long long ul) {
    if (threadIdx.x != 0) return;  // guard
    out[0] = i;
    out[1] = (double)l;
    out[2] = f;
    out[3] = d;
    out[4] = u;
    out[5] = (double)ul;
}
