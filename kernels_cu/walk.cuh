// From the tokens of a sequence to their rows of K and V, tile by tile: through a block table, or without one.
//
// A walk enters a sequence and KV head, reads what it needs for a tile before the tile's address is needed
// (look_ahead), and gives the row of each of its tokens. EVEN: the rows of a tile lie evenly apart. BOUND: behind the
// last token there may be no memory, not even for an address that is only named.
#pragma once
#include "softmax.cuh"
#include "tile.cuh"

#ifdef BLOCK_SIZE
struct BlockWalk {
    const int* block_tables;  // [B, max_blocks], the tables table_stride apart
    int64 table_stride;
    const int* table;
    int head;
    int block;  // of the tile's tokens; where these lie in several blocks, of token lane % 16

    enum { EVEN = BLOCK_SIZE % TILE == 0 };  // it is in one block,
    enum { BOUND = 0 };                      // and a block that has one token has memory for all its slots

    __device__ __forceinline__ void enter(int sequence, int kv_head) {
        table = block_tables + sequence * table_stride;
        head = kv_head;
    }
    // Read the block id of the tile that begins at `token`, of a sequence that is walked to `end`.
    __device__ __forceinline__ void look_ahead(int token, int end) {
        const unsigned mine = EVEN ? token : min(token + (int)threadIdx.x % TILE, end - 1);
        block = table[mine / BLOCK_SIZE];
    }
    // The row of K, or of V, of token + row; behind the end, one that is there.
    __device__ __forceinline__ int64 row(const PagedKV& kv, int token, int row, int end) const {
        const unsigned mine = EVEN ? token + row : min(token + row, end - 1);
        return key_row(kv, Place{EVEN ? block : __shfl_sync(ALL_LANES, block, row), (int)(mine % BLOCK_SIZE)}, head);
    }
};
#endif

struct SpanWalk {
    const int64* starts;  // [B] elements from the base to token 0 of each sequence, start_stride apart
    int64 start_stride;
    int64 start;
    int head;

    enum { EVEN = 1 };
    enum { BOUND = 1 };

    __device__ __forceinline__ void enter(int sequence, int kv_head) {
        start = starts[sequence * start_stride];
        head = kv_head;
    }
    __device__ __forceinline__ void look_ahead(int, int) {}
    __device__ __forceinline__ int64 row(const PagedKV& kv, int token, int row, int end) const {
        return span_row(kv, start, min(token + row, end - 1), head);
    }
};

// A warp begins to copy the tile at `token` to `tile` bytes behind the beginning of `shared`. Rows outside the tokens
// from `first` to `end` become zeros: what stands in their slots, NaN perhaps, is not read, and a weight of 0 times a V
// of 0 is 0. Their addresses, which a copy of no bytes has too, are those of rows that are there wherever a walk needs
// it: a block before a window may be gone, and memory behind the last token never have been.
template <typename Walk>
__device__ __forceinline__ void load_tile(
    const Walk& walk, const PagedKV& kv, unsigned char* shared, int tile, int token, int first, int end, int lane) {
    constexpr int ROWS = LANES / CHUNKS;  // that the warp copies at once
    constexpr bool NEAR = WINDOW && (Walk::BOUND || !Walk::EVEN);  // rows before `first` need the address of another
    const int mine = lane / CHUNKS, chunk = lane % CHUNKS;
    const int begin = first - token - mine, last = end - token - mine;  // rows that are there, from this lane's first
    const int to = tile + place_of(mine, chunk);
    const int ahead = NEAR ? max(begin, 0) : 0;
    const int64 there = walk.row(kv, token, mine + ahead, end) + chunk * Vector<Element>::SIZE;
    int64 from = there - (NEAR ? rows_apart(kv, ahead) : 0);
#pragma unroll
    for (int row = 0; row < TILE; row += ROWS) {
        const int bytes = row < last && (!WINDOW || row >= begin) ? 16 : 0;
        if (!Walk::EVEN && row > 0)
            from = walk.row(kv, token, mine + (NEAR ? max(row, begin) : row), end) + chunk * Vector<Element>::SIZE;
        const int64 at = Walk::BOUND && !bytes ? there : from;
        unsigned char* place = shared + (to ^ row % 8 * 16 * (CHUNKS >= 8)) + row * CHUNKS * 16;
        ptx_cp_async_16(place, kv.key + at, bytes);
        ptx_cp_async_16(place + MATRIX_BYTES, kv.value + at, bytes);
        if (Walk::EVEN) from += rows_apart(kv, ROWS);
    }
}
