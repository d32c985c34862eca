// The bits of a value as another type of the same size.
#pragma once

namespace pagewalk {

template <typename To, typename From>
inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "both have as many bits");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}

}  // namespace pagewalk
