// What a warp computes together (tensor_core.cpp).
#pragma once
#include "fiber.h"

namespace pagewalk {

// Do `operation` for all lanes of a warp: operands in their slots, where the results replace them.
void compute(Warp& warp, Meeting operation);

// Whether the rows that the lanes give to ldmatrix lie in shared memory, at multiples of their 16 bytes: DONE if they do,
// and else what is wrong with the `row`.
Status check_rows(const Block& block, const Warp& warp, const void** row);

}  // namespace pagewalk
