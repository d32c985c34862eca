/* How the bindings find a call: cuGetProcAddress_v2, by base name and the CUDA version of the signature they know.
 *
 * STUB_MISSING is a list of names that this library then lacks.
 */
#include "stub.h"

#include <string.h>

#define GONE(name, since)
#ifdef WITH_CUDA_H
#include <cudaTypedefs.h>
#define CALL(name, since, function)                                                                                  \
    _Static_assert(__builtin_types_compatible_p(PFN_##name##_v##since, __typeof__(&function)), #name);
#else
#define CALL(name, since, function) extern CUresult function(); /* only its address is needed here */
#endif
#include "calls.h"
#undef CALL
#undef GONE

struct entry {
    const char *name;
    int since;
    void *function;
};

static const struct entry table[] = {
#define CALL(name, since, function) {#name, since, (void *)function},
#define GONE(name, since) {#name, since, NULL},
#include "calls.h"
};

static const struct entry *find(const char *name, int version) {
    const struct entry *best = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name) && table[i].since <= version && (!best || table[i].since > best->since))
            best = &table[i];
    return best && best->function && !setting_lists("STUB_MISSING", name) ? best : NULL;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status) {
    (void)flags; /* 0, or the per-thread default stream: the calls are the same here */
    const struct entry *found = find(name, version);
    *function = found ? found->function : NULL;
    if (status) *status = found ? 0 : 1; /* found, or no such symbol */
    return found ? SUCCESS : NOT_FOUND;
}
