// Rotary position embedding: pairs of elements of a head's row turn by an angle that grows with the token's position.
//
//     x' = x cos - y sin        the pair (x, y) is        ROTARY 1, "halves": d and d + R / 2
//     y' = y cos + x sin                                  ROTARY 2, "pairs":  2 i and 2 i + 1
//
// for the first R elements of D. `turns` [positions, R] holds the R / 2 cosines and then the R / 2 sines of a position.
// A thread turns a chunk of 8 elements, which all lie in one half of R. WIDE is 1 where rows begin at multiples of 16
// bytes.
#pragma once
#include "elements.cuh"

struct Rotation {
    const float* turns;  // of this token's position
    int elements;        // R
};

// Elements d to d + 7 of a row of any type, as floats.
template <typename T>
__device__ inline void load_chunk(float* x, const T* row, int d) {
    const auto chunk = *(const Chunk<T, WIDE ? 16 : sizeof(T)>*)(row + d);
    for (int i = 0; i < CHUNK; i++) x[i] = to_float(chunk.element[i]);
}

// The same, turned. Elements from R on stay as they are.
template <typename T>
__device__ inline void load_turned_chunk(float* x, const T* row, int d, const Rotation& by) {
    load_chunk(x, row, d);
    if (ROTARY == 0 || d >= by.elements) return;  // guard: these do not turn
    const int half = by.elements / 2;
    if (ROTARY == 1) {
        const bool first = d < half;
        float other[CHUNK];
        load_chunk(other, row, first ? d + half : d - half);
        for (int i = 0; i < CHUNK; i++) {
            const int angle = (first ? d : d - half) + i;
            const float sine = by.turns[half + angle];
            x[i] = x[i] * by.turns[angle] + (first ? -sine : sine) * other[i];
        }
    } else {
        for (int i = 0; i < CHUNK; i += 2) {
            const float cosine = by.turns[(d + i) / 2], sine = by.turns[half + (d + i) / 2];
            const float turned = x[i] * cosine - x[i + 1] * sine;
            x[i + 1] = x[i + 1] * cosine + x[i] * sine;
            x[i] = turned;
        }
    }
}
