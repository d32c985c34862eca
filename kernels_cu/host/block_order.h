// In which order the blocks of a grid run, and the seed of each one's schedule.
#pragma once
#include "fiber.h"

namespace pagewalk {

enum class Order : int { FORWARD = 0, BACKWARD = 1, SHUFFLED = 2 };

// Steele, Lea and Flood's splitmix64: neighbouring numbers become numbers that have nothing in common.
inline uint64_t scramble(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

class BlockOrder {
  public:
    BlockOrder(Index3 grid, Order order, uint64_t seed)
        : blocks(uint64_t(grid.x) * grid.y * grid.z), grid_(grid), order_(order), seed_(seed) {
        first_ = scramble(seed) % blocks;
        // A step that has no divisor in common with their number visits each of them once, far from its neighbours.
        step_ = (blocks / 2 + scramble(seed + 1) % (blocks / 2 + 1)) | 1;
        while (greatest_common_divisor(step_, blocks) != 1) step_ += 2;
    }

    // The number of the block that runs as the i-th, and its place in the grid.
    uint64_t number(uint64_t i) const {
        if (order_ == Order::BACKWARD) return blocks - 1 - i;
        if (order_ == Order::SHUFFLED) return uint64_t(((unsigned __int128)i * step_ + first_) % blocks);
        return i;
    }
    Index3 index(uint64_t number) const {
        const uint64_t rows = number / grid_.x;
        return {unsigned(number % grid_.x), unsigned(rows % grid_.y), unsigned(rows / grid_.y)};
    }
    uint64_t seed_of(uint64_t number) const { return scramble(seed_ ^ number << 20) | 1; }

    const uint64_t blocks;

  private:
    static uint64_t greatest_common_divisor(uint64_t a, uint64_t b) {
        return b ? greatest_common_divisor(b, a % b) : a;
    }

    Index3 grid_;
    Order order_;
    uint64_t seed_, first_, step_;
};

}  // namespace pagewalk
