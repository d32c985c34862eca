// The memory meter (meter.cpp): what the requests of a warp cost, counted as the hardware counts.
//
// The lanes of a warp that execute one load together make one request. Of the cache, the memory delivers sectors of 32
// bytes, and the address of each page of 2 MiB must be translated: a request of 32 x 16 neighbouring bytes takes 16
// sectors of 1 page. Shared memory has 32 banks, each of which gives 4 bytes at a time: a request takes as many turns as
// its busiest bank has different words to give, and 128 bytes take at least one.
#pragma once
#include "fiber.h"

namespace pagewalk {

constexpr uintptr_t SECTOR_BYTES = 32;
constexpr uintptr_t PAGE_BYTES = 2 << 20;
constexpr unsigned BANKS = 32;

// The sums over all requests of one load or store of the kernel.
struct MeterSite {
    uint64_t at;  // in the kernel's code
    uint64_t write, shared;
    uint64_t requests, lanes, bytes;
    uint64_t sectors, pages;       // of the cache
    uint64_t turns, fewest_turns;  // of the banks of shared memory
};

// One load, store or copy of the kernel.
struct Place {
    const void* at;
    bool write, shared;
};

// What the caller gives and gets. `touched` has one byte for each page of the span.
struct MeterRecord {
    Span cache;
    MeterSite* sites;
    uint64_t most_sites, site_count;
    uint64_t lost;  // accesses that found no room
    unsigned char* touched;
};

class Meter {
  public:
    static Meter* make(unsigned warps, MeterRecord* record);
    static void destroy(Meter* meter);

    // `address` in the cache, or counted from the beginning of shared memory.
    void access(unsigned warp, unsigned lane, uintptr_t address, unsigned bytes, Place place);
    // The lanes of a warp meet: what they did before is complete, and what they do next are other requests.
    void close_requests(unsigned warp);

  private:
    // A lane runs ahead of the others until it waits: its n-th access is a part of the n-th request.
    struct Request {
        unsigned lanes, bytes;
        uintptr_t address[WARP_LANES];
    };
    struct OpenSite {
        MeterSite* sums;
        Request* requests;
        unsigned capacity, count;
        unsigned next[WARP_LANES];  // request of each lane's next access
    };
    static constexpr unsigned MOST_SITES = 512;
    struct OpenWarp {
        OpenSite site[MOST_SITES];
        unsigned sites, last;  // the one that was used last: a loop goes from each to the next
    };

    OpenSite* open_site(OpenWarp& warp, Place place);
    MeterSite* sums_of(Place place);
    static bool make_room(OpenSite& site);
    void close(OpenSite& site);
    void add_cache(MeterSite& sums, const Request& request);
    static void add_shared(MeterSite& sums, const Request& request);

    MeterRecord* record_;
    unsigned warps_;
    OpenWarp* open_;
};

}  // namespace pagewalk
