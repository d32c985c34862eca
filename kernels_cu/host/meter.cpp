#include "meter.h"

#include <stdlib.h>
#include <string.h>

namespace pagewalk {
namespace {

// Distinct values, few of them and mostly in ascending order.
template <unsigned MOST>
struct Distinct {
    uintptr_t value[MOST];
    unsigned count = 0;
    void add(uintptr_t x) {
        for (unsigned i = count; i > 0; i--)
            if (value[i - 1] == x) return;
        if (count < MOST) value[count++] = x;
    }
};

bool is_at(const MeterSite& site, Place place) {
    return site.at == reinterpret_cast<uintptr_t>(place.at) && site.write == place.write && site.shared == place.shared;
}

// Turns of the banks for the lanes `lanes` of a request: the most different words that one bank has to give.
unsigned turns_for(unsigned lanes, const uintptr_t* address, unsigned bytes) {
    Distinct<4 * WARP_LANES> words;
    for (unsigned left = lanes; left; left &= left - 1) {
        const uintptr_t first = address[__builtin_ctz(left)];
        for (uintptr_t word = first / 4; word <= (first + bytes - 1) / 4; word++) words.add(word);
    }
    unsigned of_bank[BANKS] = {}, most = 0;
    for (unsigned i = 0; i < words.count; i++) {
        const unsigned turns = ++of_bank[words.value[i] % BANKS];
        most = turns > most ? turns : most;
    }
    return most;
}

}  // namespace

Meter* Meter::make(unsigned warps, MeterRecord* record) {
    Meter* meter = static_cast<Meter*>(calloc(1, sizeof(Meter)));
    OpenWarp* open = static_cast<OpenWarp*>(calloc(warps, sizeof(OpenWarp)));
    if (meter && open) {
        meter->record_ = record;
        meter->warps_ = warps;
        meter->open_ = open;
        return meter;
    }
    free(meter);
    free(open);
    return nullptr;
}

void Meter::destroy(Meter* meter) {
    if (!meter) return;
    for (unsigned warp = 0; warp < meter->warps_; warp++)
        for (OpenSite& site : meter->open_[warp].site) free(site.requests);
    free(meter->open_);
    free(meter);
}

MeterSite* Meter::sums_of(Place place) {
    for (uint64_t i = 0; i < record_->site_count; i++)
        if (is_at(record_->sites[i], place)) return &record_->sites[i];
    if (record_->site_count == record_->most_sites) return nullptr;
    MeterSite* sums = &record_->sites[record_->site_count++];
    *sums = {reinterpret_cast<uintptr_t>(place.at), place.write, place.shared, 0, 0, 0, 0, 0, 0, 0};
    return sums;
}

Meter::OpenSite* Meter::open_site(OpenWarp& warp, Place place) {
    for (unsigned tried = 0; tried < warp.sites; tried++) {
        if (is_at(*warp.site[warp.last].sums, place)) return &warp.site[warp.last];
        warp.last = warp.last + 1 < warp.sites ? warp.last + 1 : 0;
    }
    MeterSite* sums = warp.sites < MOST_SITES ? sums_of(place) : nullptr;
    if (!sums) return nullptr;
    warp.site[warp.sites].sums = sums;
    warp.last = warp.sites++;
    return &warp.site[warp.last];
}

bool Meter::make_room(OpenSite& site) {
    if (site.count < site.capacity) return true;
    const unsigned capacity = site.capacity ? 2 * site.capacity : 16;
    void* requests = realloc(site.requests, capacity * sizeof(Request));
    if (!requests) return false;
    site.requests = static_cast<Request*>(requests);
    site.capacity = capacity;
    return true;
}

void Meter::access(unsigned warp, unsigned lane, uintptr_t address, unsigned bytes, Place place) {
    OpenSite* site = open_site(open_[warp], place);
    const unsigned index = site ? site->next[lane] : 0;
    if (!site || (index == site->count && !make_room(*site))) {
        record_->lost++;
        return;
    }
    if (index == site->count) {
        memset(&site->requests[site->count++], 0, sizeof(Request));
    }
    site->next[lane]++;
    Request& request = site->requests[index];
    request.lanes |= 1u << lane;
    request.bytes = bytes;
    request.address[lane] = address;
}

void Meter::add_cache(MeterSite& sums, const Request& request) {
    Distinct<WARP_LANES> places;
    Distinct<3 * WARP_LANES> sectors;
    Distinct<2 * WARP_LANES> pages;
    for (unsigned left = request.lanes; left; left &= left - 1) {
        const uintptr_t first = request.address[__builtin_ctz(left)], last = first + request.bytes - 1;
        places.add(first);
        for (uintptr_t sector = first / SECTOR_BYTES; sector <= last / SECTOR_BYTES; sector++) sectors.add(sector);
        for (uintptr_t page = first / PAGE_BYTES; page <= last / PAGE_BYTES; page++) pages.add(page);
    }
    sums.bytes += places.count * request.bytes;  // lanes that want the same bytes get them once
    sums.sectors += sectors.count;
    sums.pages += pages.count;
    const uintptr_t first_page = record_->cache.begin / PAGE_BYTES;
    const uintptr_t last_page = (record_->cache.begin + record_->cache.bytes - 1) / PAGE_BYTES;
    for (unsigned i = 0; i < pages.count; i++)
        if (pages.value[i] <= last_page) record_->touched[pages.value[i] - first_page] = 1;
}

// Lanes of 8 bytes take turns by halves of the warp, lanes of 16 bytes by quarters.
void Meter::add_shared(MeterSite& sums, const Request& request) {
    const unsigned together = request.bytes > 8 ? 8 : request.bytes > 4 ? 16 : WARP_LANES;
    for (unsigned first = 0; first < WARP_LANES; first += together) {
        const unsigned lanes = request.lanes & (together == WARP_LANES ? ALL_LANES : ((1u << together) - 1) << first);
        if (!lanes) continue;
        sums.turns += turns_for(lanes, request.address, request.bytes);
        sums.fewest_turns++;
    }
    sums.bytes += unsigned(__builtin_popcount(request.lanes)) * request.bytes;
}

void Meter::close(OpenSite& site) {
    for (unsigned i = 0; i < site.count; i++) {
        site.sums->requests++;
        site.sums->lanes += unsigned(__builtin_popcount(site.requests[i].lanes));
        if (site.sums->shared) add_shared(*site.sums, site.requests[i]);
        else add_cache(*site.sums, site.requests[i]);
    }
    site.count = 0;
    memset(site.next, 0, sizeof(site.next));
}

void Meter::close_requests(unsigned warp) {
    for (unsigned i = 0; i < open_[warp].sites; i++) close(open_[warp].site[i]);
}

}  // namespace pagewalk
