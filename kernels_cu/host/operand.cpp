// Encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2.
#include "operand.h"

#include <string.h>

namespace pagewalk {

#if defined(__x86_64__)
namespace {

const int REGISTERS[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                         REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

bool is_plain_prefix(unsigned char byte) {
    return byte == 0x66 || byte == 0xF2 || byte == 0xF3 || byte == 0x2E || byte == 0x3E;
}

// What stands before the ModRM byte: the upper bits of its registers, and what its short displacement counts.
struct Head {
    const unsigned char* modrm;
    unsigned index, base, step;
};

Head head_of(const unsigned char* p) {
    while (is_plain_prefix(*p)) p++;
    const unsigned upper = unsigned(~p[1]);  // VEX and EVEX have them inverted
    if (*p == 0xC5) return {p + 3, 0, 0, 1};
    if (*p == 0xC4) return {p + 4, upper >> 6 & 1, upper >> 5 & 1, 1};
    if (*p == 0x62) return {p + 5, upper >> 6 & 1, upper >> 5 & 1, 16u << (p[3] >> 5 & 3)};
    const unsigned rex = (*p & 0xF0) == 0x40 ? *p++ : 0;
    if (*p == 0x0F) p += p[1] == 0x38 || p[1] == 0x3A ? 2 : 1;
    return {p + 1, rex >> 1 & 1, rex & 1, 1};
}

}  // namespace

uintptr_t operand_address(const ucontext_t* context) {
    const greg_t* registers = context->uc_mcontext.gregs;
    const Head head = head_of(reinterpret_cast<const unsigned char*>(registers[REG_RIP]));
    const unsigned char* p = head.modrm;
    const unsigned mode = *p >> 6, low = *p++ & 7;
    uintptr_t address = 0;
    bool no_base = mode == 0 && low == 5;
    if (mode == 3 || no_base) return 0;  // a register, or a constant of the kernel
    if (low == 4) {
        const unsigned scale = *p >> 6, index = (*p >> 3 & 7) + 8 * head.index, base = *p & 7;
        p++;
        no_base = mode == 0 && base == 5;
        if (!no_base) address = uintptr_t(registers[REGISTERS[base + 8 * head.base]]);
        if (index != 4) address += uintptr_t(registers[REGISTERS[index]]) << scale;
    } else {
        address = uintptr_t(registers[REGISTERS[low + 8 * head.base]]);
    }
    if (mode == 1) return address + uintptr_t(intptr_t(static_cast<signed char>(*p)) * intptr_t(head.step));
    int32_t displacement = 0;
    if (mode == 2 || no_base) memcpy(&displacement, p, 4);
    return address + uintptr_t(intptr_t(displacement));
}
#else
uintptr_t operand_address(const ucontext_t*) { return 0; }
#endif

}  // namespace pagewalk
