// rotate_query: turn the query rows of new tokens by their positions, as append_kv turns their keys.
//
// Computes   out[t, h] = query[t, h] turned by positions[t]   (rotary.cuh)
// Threads    one block of threads a token; a thread takes 8 neighbours in d of one head at a time
// Constants  SOURCE (of query and out), HEAD_DIM (D), ROTARY, WIDE: 1 where rows of both begin at multiples of 16 bytes
#include "rotary.cuh"

typedef SOURCE Source;

extern "C" __global__ void rotate_query(
    Source* out,          // [T, Hq, D], the tokens out_stride apart; other memory than query
    const Source* query,  // [T, Hq, D], the tokens query_stride apart
    int64 out_stride,
    int64 query_stride,
    const float* turns,    // [positions, rotary_dim]: cosines, then sines
    const int* positions,  // [T] of each token in its sequence
    int rotary_dim,
    int query_heads) {  // Hq
    const int64 token = blockIdx.x;
    const Rotation by{turns + (int64)positions[token] * rotary_dim, rotary_dim};
    for (int i = threadIdx.x * CHUNK; i < query_heads * HEAD_DIM; i += blockDim.x * CHUNK) {
        float x[CHUNK];
        load_turned_chunk(x, query + token * query_stride + i / HEAD_DIM * HEAD_DIM, i % HEAD_DIM, by);
        Chunk<Source, WIDE ? 16 : sizeof(Source)> turned;
        for (int j = 0; j < CHUNK; j++) from_float(x[j], &turned.element[j]);
        *(Chunk<Source, WIDE ? 16 : sizeof(Source)>*)(out + token * out_stride + i) = turned;
    }
}
