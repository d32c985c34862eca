// CUDA's everyday functions, one kind a launch: of a float each, of a word each, of atomics, of a warp.
enum Kind { FLOATS, DOUBLES, WORDS, CONVERSIONS, ATOMICS, WARPS };

__constant__ float powers[4] = {1, 2, 4, 8};

__device__ void floats(float* out, float x) {
    out[0] = expf(x), out[1] = exp2f(x), out[2] = exp10f(x), out[3] = expm1f(x);
    out[4] = logf(x), out[5] = log2f(x), out[6] = log10f(x), out[7] = log1pf(x);
    out[8] = sinf(x), out[9] = cosf(x), out[10] = tanf(x), out[11] = tanhf(x);
    out[12] = erff(x), out[13] = erfcf(x), out[14] = sqrtf(x), out[15] = cbrtf(x);
    out[16] = sqrt(x), out[17] = exp(x), out[18] = log(x), out[19] = fabs(-x);
    out[20] = __expf(x), out[21] = __logf(x), out[22] = __sinf(x), out[23] = __cosf(x);
    out[24] = powf(x, 1.5f), out[25] = __powf(x, 1.5f), out[26] = hypotf(x, 2), out[27] = atan2f(x, 2);
    out[28] = fmodf(x, 0.3f), out[29] = rsqrtf(x), out[30] = __fdividef(x, 3), out[31] = __frcp_rn(x);
    out[32] = asinf(x / 8), out[33] = acosf(x / 8), out[34] = atanf(x), out[35] = sinhf(x);
    out[36] = floorf(x), out[37] = ceilf(x), out[38] = truncf(-x), out[39] = roundf(x);
    out[40] = rintf(x), out[41] = copysignf(x, -1), out[42] = __saturatef(x), out[43] = fmaf(x, x, 1);
}

__device__ void doubles(float* out, double x) {
    const double found[] = {sqrt(x), exp(x), log(x), sin(x), cos(x), tanh(x), erf(x), pow(x, 1.5), fma(x, x, 1.0),
                            fabs(-x), floor(x), rsqrt(x), fmax(x, 1.0), fmin(x, 1.0)};
    for (int i = 0; i < 14; i++) {
        const long long bits = __double_as_longlong(found[i]);
        out[2 * i] = __uint_as_float((unsigned)bits), out[2 * i + 1] = __uint_as_float((unsigned)(bits >> 32));
    }
}

__device__ void words(int* out, int x, int y) {
    out[0] = __popc(x), out[1] = __clz(x), out[2] = __ffs(x), out[3] = (int)__brev(x);
    out[4] = __mulhi(x, y), out[5] = (int)__umulhi(x, y), out[6] = (int)__byte_perm(x, y, 0x2560);
    out[7] = (int)__funnelshift_l(x, y, 5), out[8] = (int)__funnelshift_r(x, y, 37);
    out[9] = __float_as_int(__int_as_float(x)), out[10] = (int)__float_as_uint(__uint_as_float(x));
    const long long both = (long long)y << 32 | (unsigned)x;
    out[11] = __popcll(both), out[12] = __clzll(both), out[13] = __ffsll(both);
    out[14] = min(x, y), out[15] = max(x, y), out[16] = (int)max(x, (unsigned)y), out[17] = abs(y | 1);
    out[18] = __ldg(&out[0]), out[19] = warpSize;
    __stcs(&out[20], x);
    out[21] = make_uchar4(1, 2, 3, 250).w + (int)dim3(7, 2).y + (int)dim3(7).z + make_short2(3, -4).y;
}

__device__ void conversions(int* out, float x) {
    out[0] = __float2int_rz(x), out[1] = __float2int_rn(x), out[2] = __float2int_rd(x), out[3] = __float2int_ru(x);
    out[4] = isnan(x), out[5] = isinf(x), out[6] = isfinite(x), out[7] = signbit(x);
    out[8] = __float_as_int(__int2float_rn(16777217)), out[9] = (int)powers[threadIdx.x % 4];
}

__device__ void atomics(int* out, int x) {
    atomicAdd(&out[0], x), atomicSub(&out[1], x), atomicMax(&out[2], x), atomicMin(&out[3], x);
    atomicAnd(&out[4], x), atomicOr(&out[5], x), atomicXor(&out[6], x);
    unsigned* const unsigneds = (unsigned*)out;
    atomicMax(&unsigneds[7], (unsigned)x), atomicMin(&unsigneds[8], (unsigned)x);
    atomicInc(&unsigneds[9], 10), atomicDec(&unsigneds[10], 10);
    atomicAdd((float*)&out[11], 0.5f);
    atomicAdd((unsigned long long*)&out[12], 1ull << 31), atomicMax((long long*)&out[14], (long long)x << 32);
    atomicAdd((double*)&out[16], 0.25);
    out[18] = atomicExch((float*)&out[19], 2.0f) == 2.0f;
    out[20] = atomicCAS(&out[21], 0, 7);
}

__device__ void warps(int* out, int x) {
    out[0] = __reduce_add_sync(~0u, x), out[1] = __reduce_min_sync(~0u, x), out[2] = __reduce_max_sync(~0u, x);
    out[3] = (int)__reduce_and_sync(~0u, (unsigned)x), out[4] = (int)__reduce_or_sync(~0u, (unsigned)x);
    out[5] = (int)__reduce_xor_sync(~0u, (unsigned)x);
    out[6] = (int)__reduce_max_sync(~0u, (unsigned)x), out[7] = (int)__reduce_min_sync(~0u, (unsigned)x);
    const unsigned half = threadIdx.x % 32 < 16 ? 0xFFFFu : 0xFFFF0000u;
    for (int i = 0; i < 3; i++) out[8 + i] = __reduce_add_sync(half, x + i);
}

extern "C" __global__ void everyday(int* out, const int* in, int kind) {
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    int* const mine = out + 64 * thread;
    const int x = in[2 * thread], y = in[2 * thread + 1];
    if (kind == FLOATS) floats((float*)mine, __int_as_float(x));
    if (kind == DOUBLES) doubles((float*)mine, __longlong_as_double((long long)y << 32 | (unsigned)x));
    if (kind == WORDS) words(mine, x, y);
    if (kind == CONVERSIONS) conversions(mine, __int_as_float(x));
    if (kind == ATOMICS) atomics(out, x);
    if (kind == WARPS) warps(mine, x);
}
