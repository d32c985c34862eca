// What a compiled kernel tells its caller: its parameters, taken from the function's own type, and how to run it.
#pragma once
#include <link.h>
#include <stddef.h>

#include "fiber.h"
#include "shared_edges.h"

namespace pagewalk {

struct Parameter {
    uint32_t offset, size;
    uint32_t kind;  // 'p' pointer, 'i' signed integer, 'u' unsigned integer, 'f' floating point, 's' anything else
};

struct SharedMemory {
    unsigned char* begin;
    size_t size;  // of the kernel's own arrays
    unsigned char *before, *behind;  // shared_edges.h
    uintptr_t code;  // where the compiled kernel is loaded: places in it are counted from here
};

struct Kernel {
    uint32_t parameter_count;
    const Parameter* parameters;
    void (*run)(const void* arguments);  // one thread of it
    SharedMemory (*shared_memory)();     // of the calling host thread
};

template <typename T> struct Kind { static constexpr uint32_t value = 's'; };
template <typename T> struct Kind<T*> { static constexpr uint32_t value = 'p'; };
template <> struct Kind<float> { static constexpr uint32_t value = 'f'; };
template <> struct Kind<double> { static constexpr uint32_t value = 'f'; };
template <> struct Kind<int> { static constexpr uint32_t value = 'i'; };
template <> struct Kind<long> { static constexpr uint32_t value = 'i'; };
template <> struct Kind<long long> { static constexpr uint32_t value = 'i'; };
template <> struct Kind<unsigned> { static constexpr uint32_t value = 'u'; };
template <> struct Kind<unsigned long> { static constexpr uint32_t value = 'u'; };
template <> struct Kind<unsigned long long> { static constexpr uint32_t value = 'u'; };

// Walks over a block of arguments that lie as a C struct would hold them, which is also how CUDA passes them.
struct Cursor {
    size_t offset = 0;
    template <typename T> constexpr size_t take() {
        const size_t at = (offset + alignof(T) - 1) / alignof(T) * alignof(T);
        offset = at + sizeof(T);
        return at;
    }
    template <typename T> T read(const void* arguments) {
        T value;
        __builtin_memcpy(&value, static_cast<const char*>(arguments) + take<T>(), sizeof(T));
        return value;
    }
    template <typename T> constexpr Parameter describe() {
        return {static_cast<uint32_t>(take<T>()), sizeof(T), Kind<T>::value};
    }
};

// Braces, not parentheses, evaluate their elements from left to right, which the cursor needs.
template <typename... P> struct Call {
    Call(void (*kernel)(P...), P... arguments) { kernel(arguments...); }
};

template <typename... P> void call(void (*kernel)(P...), const void* arguments) {
    Cursor cursor;
    Call<P...>{kernel, cursor.read<P>(arguments)...};
}

template <typename... P> struct Table {
    static constexpr uint32_t COUNT = sizeof...(P);
    Parameter parameters[COUNT];
    explicit constexpr Table(void (*)(P...)) : Table(Cursor()) {}
    explicit constexpr Table(Cursor cursor) : parameters{cursor.describe<P>()...} {}
};
template <typename... P> Table(void (*)(P...)) -> Table<P...>;

// Not on a fiber: nobody must watch these.
#define PAGEWALK_UNWATCHED __attribute__((no_sanitize("thread")))

PAGEWALK_UNWATCHED inline int find_code(dl_phdr_info* object, size_t, void* found) {
    const ElfW(Addr) inside = reinterpret_cast<ElfW(Addr)>(&find_code);
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr)& segment = object->dlpi_phdr[i];
        const ElfW(Addr) start = object->dlpi_addr + segment.p_vaddr;
        if (segment.p_type != PT_LOAD || inside < start || inside >= start + segment.p_memsz) continue;
        *static_cast<uintptr_t*>(found) = object->dlpi_addr;
        return 1;
    }
    return 0;
}

PAGEWALK_UNWATCHED inline SharedMemory shared_memory() {
    static uintptr_t known;  // the same for every thread
    uintptr_t code = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!code) dl_iterate_phdr(find_code, &code);
    __atomic_store_n(&known, code, __ATOMIC_RELAXED);
    unsigned char* const begin = pagewalk_before_shared + BEFORE_SHARED;
    return {begin, size_t(pagewalk_behind_shared - begin), pagewalk_before_shared, pagewalk_behind_shared, code};
}

}  // namespace pagewalk

#define PAGEWALK_VISIBLE extern "C" __attribute__((visibility("default")))

// The second declaration is an error unless the kernel is extern "C", as a GPU's launch needs it.
#define PAGEWALK_EXPORT(kernel)                                                             \
    extern "C" decltype(kernel) kernel;                                                     \
    static void pagewalk_run(const void* arguments) { pagewalk::call(&kernel, arguments); } \
    static constexpr pagewalk::Table pagewalk_table(&kernel);                               \
    PAGEWALK_VISIBLE const pagewalk::Kernel pagewalk_kernel;                                \
    const pagewalk::Kernel pagewalk_kernel = {pagewalk_table.COUNT, pagewalk_table.parameters, &pagewalk_run, \
                                              &pagewalk::shared_memory};
