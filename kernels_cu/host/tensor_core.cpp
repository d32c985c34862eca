// The matrix operations of a whole warp, on the fragment layouts that ptx.cuh draws. The sums of a tensor core are added
// in an order that NVIDIA does not document; here it is ascending k, in float32.
#include "tensor_core.h"

#include <string.h>

namespace pagewalk {
namespace {

typedef float Row __attribute__((vector_size(32)));  // 8 columns

struct Half {
    static float to_float(unsigned short bits) {
        _Float16 half;
        memcpy(&half, &bits, 2);
        return half;
    }
};

struct Bfloat16 {
    static float to_float(unsigned short bits) {
        const unsigned word = unsigned(bits) << 16;
        float x;
        memcpy(&x, &word, 4);
        return x;
    }
};

// Lane l = 4 g + t holds pairs of A at rows g and g + 8, columns 2 t (and 2 t + 8 for k = 16), pairs of B at column g.
template <typename Element, unsigned K>
void mma(Warp& warp) {
    Fragments given[WARP_LANES];
    float a[16][K];
    Row b[K], d[16];
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        const unsigned g = lane / 4, c = lane % 4 * 2;
        Fragments& mine = given[lane];
        memcpy(&mine, warp.slot[lane], sizeof(mine));
        for (unsigned i = 0; i < K / 4; i++) {
            const unsigned row = g + i % 2 * 8, column = c + i / 2 * 8;
            a[row][column] = Element::to_float(mine.a[i] & 0xffff);
            a[row][column + 1] = Element::to_float(mine.a[i] >> 16);
        }
        for (unsigned i = 0; i < K / 8; i++) {
            b[c + i * 8][g] = Element::to_float(mine.b[i] & 0xffff);
            b[c + i * 8 + 1][g] = Element::to_float(mine.b[i] >> 16);
        }
        for (unsigned i = 0; i < 4; i++) d[g + i / 2 * 8][c + i % 2] = mine.d[i];
    }
    for (unsigned row = 0; row < 16; row++)
        for (unsigned k = 0; k < K; k++) d[row] += a[row][k] * b[k];
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        const unsigned g = lane / 4, c = lane % 4 * 2;
        const float mine[4] = {d[g][c], d[g][c + 1], d[g + 8][c], d[g + 8][c + 1]};
        memcpy(warp.slot[lane], mine, sizeof(mine));
    }
}

// Lane l gets row l / 4, columns 2 (l % 4) and the next, or that part of the transposed matrix.
unsigned piece_of(const unsigned short matrix[8][8], unsigned lane, bool transposed) {
    const unsigned row = lane / 4, column = lane % 4 * 2;
    if (transposed) return matrix[column][row] | unsigned(matrix[column + 1][row]) << 16;
    return matrix[row][column] | unsigned(matrix[row][column + 1]) << 16;
}

void load_matrices(Warp& warp, bool transposed) {
    RowAddress given[WARP_LANES];
    for (unsigned lane = 0; lane < WARP_LANES; lane++) memcpy(&given[lane], warp.slot[lane], sizeof(RowAddress));
    const unsigned matrices = unsigned(given[0].matrices);
    for (unsigned m = 0; m < matrices; m++) {
        unsigned short matrix[8][8];
        for (unsigned row = 0; row < 8; row++) memcpy(matrix[row], given[m * 8 + row].row, sizeof(matrix[row]));
        for (unsigned lane = 0; lane < WARP_LANES; lane++) {
            const unsigned piece = piece_of(matrix, lane, transposed);
            memcpy(warp.slot[lane] + 4 * m, &piece, 4);
        }
    }
}

void transpose(Warp& warp) {
    unsigned short matrix[8][8];
    for (unsigned lane = 0; lane < WARP_LANES; lane++) memcpy(&matrix[lane / 4][lane % 4 * 2], warp.slot[lane], 4);
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        const unsigned piece = piece_of(matrix, lane, true);
        memcpy(warp.slot[lane], &piece, 4);
    }
}

}  // namespace

Status check_rows(const Block& block, const Warp& warp, const void** row) {
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        RowAddress given;
        memcpy(&given, warp.slot[lane], sizeof(given));
        if (lane >= 8 * given.matrices) break;
        *row = given.row;
        if (reinterpret_cast<uintptr_t>(given.row) % 16) return Status::MISALIGNED;
        if (!is_shared(block, given.row)) return Status::NOT_SHARED;
    }
    return Status::DONE;
}

void compute(Warp& warp, Meeting operation) {
    switch (operation) {
        case Meeting::MMA_K16_F16: return mma<Half, 16>(warp);
        case Meeting::MMA_K16_BF16: return mma<Bfloat16, 16>(warp);
        case Meeting::MMA_K8_F16: return mma<Half, 8>(warp);
        case Meeting::MMA_K8_BF16: return mma<Bfloat16, 8>(warp);
        case Meeting::LDMATRIX: return load_matrices(warp, false);
        case Meeting::LDMATRIX_TRANS: return load_matrices(warp, true);
        case Meeting::MOVMATRIX_TRANS: return transpose(warp);
        case Meeting::BARRIER:
        case Meeting::EXCHANGE: return;
    }
}

}  // namespace pagewalk
