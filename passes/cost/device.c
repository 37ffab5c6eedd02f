#include "passes/cost/device.h"

#include <string.h>

#define SN_CURVE(name, ...) static const sn_curve curve_##name = {#name, __VA_ARGS__};
#include "passes/cost/curves.def"
#undef SN_CURVE

static const sn_device_kind devices[] = {
#define SN_DEVICE(name, curve, ...) {name, &curve_##curve, __VA_ARGS__},
#include "passes/cost/devices.def"
#undef SN_DEVICE
};

const sn_device_kind *sn_device_kind_at(size_t index) {
    return index < sizeof devices / sizeof *devices ? &devices[index] : NULL;
}

const sn_device_kind *sn_device_kind_find(const char *name) {
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(devices[i].name, name) == 0) return &devices[i];
    return NULL;
}

const char *sn_device_kind_names(sn_arena *scratch) {
    const char *names = "";
    for (size_t i = 0; sn_device_kind_at(i); i++)
        names = sn_arena_printf(scratch, "%s%s%s", names, i ? ", " : "", sn_device_kind_at(i)->name);
    return names;
}

double sn_device_pace(const sn_device_kind *device) {
    return device->flops[SN_RATE_16] > 0 ? device->flops[SN_RATE_16] : device->flops[SN_RATE_F32];
}
