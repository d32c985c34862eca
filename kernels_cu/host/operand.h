// Where the operand in memory of an instruction lies. x86 does not tell it for an address that is none of the machine's,
// nor for a vector that is not aligned: both are a general protection fault, which has no address.
#pragma once
#include <stdint.h>
#include <ucontext.h>

namespace pagewalk {

// 0 where the instruction is of a kind that no compiled kernel ends at.
uintptr_t operand_address(const ucontext_t* context);

}  // namespace pagewalk
