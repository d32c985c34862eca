// The memory meter (meter.cpp): what the requests of a warp to the cache cost, counted as the hardware counts.
//
// The lanes of a warp that execute one load together make one request. The memory delivers sectors of 32 bytes, and the
// address of each page of 2 MiB must be translated: a request of 32 x 16 neighbouring bytes takes 16 sectors of 1 page.
#pragma once
#include "fiber.h"

namespace pagewalk {

constexpr uintptr_t SECTOR_BYTES = 32;
constexpr uintptr_t PAGE_BYTES = 2 << 20;

// The sums over all requests of one load or store of the kernel.
struct MeterSite {
    uint64_t at;  // in the kernel's code
    uint64_t write;
    uint64_t requests, lanes, bytes, sectors, pages;
};

// What the caller gives and gets. `touched` has one byte for each page of the span.
struct MeterRecord {
    Span cache;
    MeterSite* sites;
    uint64_t most_sites, site_count;
    unsigned char* touched;
};

class Meter {
  public:
    static Meter* make(unsigned warps, MeterRecord* record);
    static void destroy(Meter* meter);

    void access(unsigned warp, unsigned lane, const void* address, unsigned bytes, bool write, const void* at);
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
    static constexpr unsigned MOST_SITES = 32;
    struct OpenWarp {
        OpenSite site[MOST_SITES];
        unsigned sites;
    };

    OpenSite* open_site(OpenWarp& warp, const void* at, bool write);
    MeterSite* sums_of(const void* at, bool write);
    static bool make_room(OpenSite& site);
    void close(OpenSite& site);
    void add_up(MeterSite& sums, const Request& request);

    MeterRecord* record_;
    unsigned warps_;
    OpenWarp* open_;
};

}  // namespace pagewalk
