// A tile: K and V of 16 tokens of one KV head in shared memory, and the tensor core's fragments made of it.
//
// A row is one token's K or V, in chunks of 16 bytes. ldmatrix reads the same chunk of 8 rows at once; side by side
// these would all lie in the same banks. So chunk c of row r is stored in place c ^ (r % 8) of its row: the 8 chunks
// then lie in 8 different columns of 16 bytes, in which the 32 banks hold 128 bytes at a time.
//
//     row 0   0 1 2 3 4 5 6 7      chunk 0 of the rows 0 to 7 lies on the diagonal
//     row 1   1 0 3 2 5 4 7 6
//     row 2   2 3 0 1 6 7 4 5      (a row of 4 chunks shares its 128 bytes with the next row: c ^ (r / 2 % 4))
//
// Elements of 8 bits become float16 on their way into a fragment. One register of ldmatrix then holds 4 of them, of two
// columns of the fragment: the even ones make one register of float16, the odd ones another. That permutes the order of
// d within 16, which K's product does not mind if the query is permuted alike, and which out undoes when it is written.
#pragma once
#include "e4m3.cuh"
#include "paged_kv.cuh"

#define TILE 16  // tokens
#define NARROW (sizeof(Element) == 1)

constexpr int CHUNKS = HEAD_DIM * (int)sizeof(Element) / 16;  // in a row
constexpr int MATRIX_BYTES = TILE * CHUNKS * 16;              // K or V of a tile
constexpr int TILE_BYTES = 2 * MATRIX_BYTES;
constexpr int STEPS = HEAD_DIM / 16;  // a product over d takes 16 in a step; so many rows of 16 d has the output

// Where chunk `chunk` of a row lies, in bytes from the beginning of its matrix. Matrices begin at multiples of 128, so
// place_of(row, chunk ^ x) is place_of(row, chunk) ^ x * 16, also in an address: a loop over chunks costs one XOR each.
__device__ __forceinline__ int place_of(int row, int chunk) {
    return (row * CHUNKS + (chunk ^ (CHUNKS >= 8 ? row % 8 : row / 2 % 4))) * 16;
}

// The type in which a tensor core multiplies: bfloat16 for itself, float16 for all others.
template <typename T>
struct TensorCore {
    static __device__ __forceinline__ void multiply(float* d, const uint32* a, const uint32* b) {
        ptx_mma_m16n8k16_f16(d, a, b);
    }
    static __device__ __forceinline__ uint32 pack(float low, float high) { return ptx_half2_from_floats(low, high); }
};
template <>
struct TensorCore<bfloat16> {
    static __device__ __forceinline__ void multiply(float* d, const uint32* a, const uint32* b) {
        ptx_mma_m16n8k16_bf16(d, a, b);
    }
    static __device__ __forceinline__ uint32 pack(float low, float high) {
        return ptx_bfloat162_from_floats(low, high);
    }
};
typedef TensorCore<Element> Core;

// Four elements of 8 bits: bytes 0 and 2 as float16 in `even`, 1 and 3 in `odd`.
__device__ __forceinline__ void widen(e4m3, uint32 bytes, uint32* even, uint32* odd) {
    const uint32 sorted = ptx_permute_bytes(bytes, 0, 0x3120);
    *even = half2_from_e4m3x2((uint16)sorted);
    *odd = half2_from_e4m3x2((uint16)(sorted >> 16));
}
// 0x6400 with an integer from 0 to 255 in its last byte is the float16 1024 + that integer.
__device__ __forceinline__ void widen(int8, uint32 bytes, uint32* even, uint32* odd) {
    const uint32 shifted = bytes ^ 0x80808080u;  // 128 more
    *even = ptx_half2_subtract(ptx_permute_bytes(shifted, 0x64646464u, 0x4240), 0x64806480u);  // less 1024 + 128
    *odd = ptx_half2_subtract(ptx_permute_bytes(shifted, 0x64646464u, 0x4341), 0x64806480u);
}
template <typename T>
__device__ __forceinline__ void widen(T, uint32, uint32*, uint32*) {}  // wide elements are fragments as they are

// The d of K, of 16 in a step, that stand in columns 2 i and 2 i + 1 (`upper` 0) or 2 i + 8 and 2 i + 9 (1).
__device__ __forceinline__ int key_column(int i, int upper, int second) {
    return NARROW ? 4 * i + upper + 2 * second : 2 * i + 8 * upper + second;
}
// The d of 16 that stands in row g (`upper` 0) or g + 8 (1) of the output.
__device__ __forceinline__ int value_row_of(int g, int upper) { return NARROW ? 2 * g + upper : g + 8 * upper; }

// ldmatrix reads 16 tokens x 16 d, which are two such fragments where elements are narrow. K's as the tall operand A,
// 16 tokens x 16 d of the steps read * FRAGMENTS on; registers 0 and 2 are tokens 0 to 7 of it, 1 and 3 tokens 8 to 15,
// each pair the operand B of the transposed product. The matrix lies `matrix` bytes behind the beginning of `shared`.
#define FRAGMENTS (NARROW ? 2 : 1)

__device__ __forceinline__ void key_fragments(
    uint32 (&k)[FRAGMENTS][4], const unsigned char* shared, int matrix, int read, int lane) {
    const int first = matrix + place_of(lane % 16, lane / 16);
    if (!NARROW) {
        ptx_ldmatrix_x4(k[0], shared + (first ^ read * 32));
    } else {
        uint32 bytes[4];
        ptx_ldmatrix_x4(bytes, shared + (first ^ read * 32));
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++) {
            widen(Element(), bytes[2 * f], &k[f][0], &k[f][2]);
            widen(Element(), bytes[2 * f + 1], &k[f][1], &k[f][3]);
        }
    }
}

// V's as the tall operand A, 16 d x 16 tokens; registers 0 and 2 are the d of `upper` 0, 1 and 3 of 1 (value_row_of).
__device__ __forceinline__ void value_fragments(
    uint32 (&v)[FRAGMENTS][4], const unsigned char* shared, int matrix, int read, int lane) {
    const int first = matrix + place_of(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    if (!NARROW) {
        ptx_ldmatrix_x4_trans(v[0], shared + (first ^ read * 32));
    } else {
        uint32 bytes[4];
        ptx_ldmatrix_x4_trans(bytes, shared + (first ^ read * 32));
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++) {
            widen(Element(), bytes[f], &v[f][0], &v[f][1]);
            widen(Element(), bytes[f + 2], &v[f][2], &v[f][3]);
        }
    }
}

// scores[n] += K * query[n]: 16 tokens x 8 heads for each n. query[n][step] is that step's B fragment.
template <int N>
__device__ __forceinline__ void multiply_keys(
    float (&scores)[N][4], const unsigned char* shared, int matrix, const uint32 (&query)[N][STEPS][2], int lane) {
#pragma unroll
    for (int step = 0; step < STEPS; step += FRAGMENTS) {
        uint32 k[FRAGMENTS][4];
        key_fragments(k, shared, matrix, step / FRAGMENTS, lane);
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++)
#pragma unroll
            for (int n = 0; n < N; n++) Core::multiply(scores[n], k[f], query[n][step + f]);
    }
}

// out[n][step] += V^T * weights[n]: 16 d x 8 heads for each n and step. weights[n] is a B fragment, 16 tokens x 8.
template <int N>
__device__ __forceinline__ void multiply_values(
    float (&out)[N][STEPS][4], const unsigned char* shared, int matrix, const uint32 (&weights)[N][2], int lane) {
#pragma unroll
    for (int step = 0; step < STEPS; step += FRAGMENTS) {
        uint32 v[FRAGMENTS][4];
        value_fragments(v, shared, matrix, step / FRAGMENTS, lane);
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++)
#pragma unroll
            for (int n = 0; n < N; n++) Core::multiply(out[n][step + f], v[f], weights[n]);
    }
}
