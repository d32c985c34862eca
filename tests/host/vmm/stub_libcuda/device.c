/* Devices: STUB_DEVICES of them, of which the first STUB_VMM (default: all) have the virtual memory calls. */
#include "stub.h"

#include <string.h>

static int is_device(int device) { return device >= 0 && device < setting("STUB_DEVICES", 1); }

CUresult CUDAAPI cuInit(unsigned int flags) {
    begin("cuInit");
    ARG(flags);
    REFUSE(ANYTIME);
    initialised = 1;
    return end(SUCCESS);
}

CUresult CUDAAPI cuDriverGetVersion(int *version) {
    begin("cuDriverGetVersion");
    REFUSE(ANYTIME);
    *version = 13040;
    OUT(*version);
    return end(SUCCESS);
}

CUresult CUDAAPI cuDeviceGetCount(int *count) {
    begin("cuDeviceGetCount");
    REFUSE(FROM_INIT);
    *count = (int)setting("STUB_DEVICES", 1);
    OUT(*count);
    return end(SUCCESS);
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal) {
    begin("cuDeviceGet");
    ARG(ordinal);
    REFUSE(FROM_INIT);
    if (!is_device(ordinal)) return end(INVALID_DEVICE);
    *device = ordinal;
    OUT(*device);
    return end(SUCCESS);
}

CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device) {
    begin("cuDeviceGetName");
    ARG(length);
    ARG(device);
    REFUSE(FROM_INIT);
    memset(name, 0, (size_t)length);
    strncpy(name, "Stub GPU", (size_t)length - 1);
    return end(SUCCESS);
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    begin("cuDeviceGetUuid");
    ARG(device);
    REFUSE(FROM_INIT);
    memset(uuid, 0x5A, sizeof *uuid);
    return end(SUCCESS);
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    begin("cuDeviceTotalMem");
    ARG(device);
    REFUSE(FROM_INIT);
    *bytes = MEMORY_TOTAL;
    OUT(*bytes);
    return end(SUCCESS);
}

static int attribute_value(int attribute, int device) {
    switch (attribute) {
        case 33: return 0x41; /* PCI bus */
        case 75: return 9;    /* compute capability */
        case 102: return device < setting("STUB_VMM", 8);
        case 103: return 1; /* file descriptors as handles */
        default: return 0;
    }
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    begin("cuDeviceGetAttribute");
    ARG(attribute);
    ARG(device);
    REFUSE(FROM_INIT);
    *value = attribute_value((int)attribute, device);
    OUT(*value);
    return end(SUCCESS);
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    begin("cuDeviceCanAccessPeer");
    ARG(device);
    ARG(peer);
    REFUSE(FROM_INIT);
    if (!is_device(device) || !is_device(peer)) return end(INVALID_DEVICE);
    *can = device != peer;
    OUT(*can);
    return end(SUCCESS);
}
