// The work of a decode kernel: what it is given, the segments of a share, and a warp's walk over their tiles, which
// runs ahead of the computation.
#pragma once
#include "walk.cuh"

#define WARPS 4
#define SETS (HEADS / 8)  // of 8 query heads, HEADS in all: 8 or 16
#define SEGMENT_FIELDS 6

typedef QUERY Query;

constexpr int RING_BYTES = WARPS * STAGES * TILE_BYTES;

// What every kernel of this family is given beside the pool. Absent arrays are null.
struct Decode {
    Query* out;                // [B, Hq, D], the sequences out_stride apart
    float* lse;                // [B, Hq], in base 2
    float* partial_out;        // [partials, HEADS, D]
    float* partial_lse;        // [partials, HEADS]
    const Query* query;        // [B, Hq, D], the sequences query_stride apart
    const int* lengths;        // [B] in tokens, for ALIBI alone
    const int* segments;       // [n, 6] of the plan
    const int* share_starts;   // [shares + 1] of the plan
    const float* alibi;        // [Hq] slopes
    const float* sinks;        // [Hq] logits in base e
    const float* key_scale;    // [Hkv] or [1], of a narrow cache
    const float* value_scale;
    int64 out_stride, query_stride, lse_stride;
    int scale_stride;  // 1: a scale for each KV head, 0: one for all
    int group;         // query heads that share a KV head
    float scale_log2;  // of the scores, times log2 e
    float soft_cap;
};

struct Segment {
    int sequence;
    int head, kv_head;   // the first query head, and the KV head that it shares with the others
    int first, end;      // tokens
    int partial;         // number of its partial result; -1: it is the whole item, and writes the output
};

__device__ __forceinline__ Segment segment_at(const int* segments, int i) {
    const int* field = segments + (int64)i * SEGMENT_FIELDS;
    return Segment{field[0], field[1], field[2], field[3], field[4], field[5]};
}

// Query heads of a segment that exist: the last heads of a group may be fewer than HEADS.
__device__ __forceinline__ int heads_of(const Decode& decode, const Segment& segment) {
    const int left = (segment.kv_head + 1) * decode.group - segment.head;
    return left < HEADS ? left : HEADS;
}

// The tokens from which a warp's tiles of a segment begin.
__device__ __forceinline__ int first_tile(const Segment& segment, int warp) {
    return segment.first / TILE * TILE + warp * TILE;
}

// A warp's walk over the tiles of all its segments, ahead of the computation.
template <typename Walk>
struct Ahead {
    const PagedKV& kv;
    const int* segments;
    int number, last;  // of the segment
    int token;         // the first of the tile
    Segment segment;
    Walk walk;

    __device__ __forceinline__ Ahead(const PagedKV& pool, const Walk& start, const int* all, int from, int to, int warp)
        : kv(pool), segments(all), number(from - 1), last(to), token(0), segment{}, walk(start) {
        enter_next(warp);
    }

    __device__ __forceinline__ bool valid() const { return number < last; }

    // Go on to the next segment in which this warp has a tile.
    __device__ __forceinline__ void enter_next(int warp) {
        do {
            if (++number >= last) return;
            segment = segment_at(segments, number);
            token = first_tile(segment, warp);
        } while (token >= segment.end);
        walk.enter(segment.sequence, segment.kv_head);
        walk.look_ahead(token, segment.end);
    }

    __device__ __forceinline__ void next(int warp) {
        token += WARPS * TILE;
        if (token >= segment.end) enter_next(warp);
        else walk.look_ahead(token, segment.end);
    }

    __device__ __forceinline__ void load(unsigned char* shared, int tile, int lane) const {
        load_tile(walk, kv, shared, tile, token, segment.first, segment.end, lane);
    }
};

// What a warp knows of a segment's output so far.
struct State {
    float out[SETS][STEPS][4];
    float highest[SETS][2];
    float total[SETS][2];  // of this lane's tokens
};
