// What a warp computes together (tensor_core.cpp).
#pragma once
#include "fiber.h"

namespace pagewalk {

// Do `operation` for all lanes of a warp: operands in their slots, where the results replace them.
void compute(Warp& warp, Meeting operation);

// A row that the lanes give to ldmatrix and that is not aligned to its 16 bytes, or null.
const void* misaligned_row(const Warp& warp);

}  // namespace pagewalk
