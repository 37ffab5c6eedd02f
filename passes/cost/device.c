#include "passes/cost/device.h"

#include <string.h>

static const sn_curve curves[] = {
#define SN_CURVE(...) {__VA_ARGS__},
#include "passes/cost/curves.def"
#undef SN_CURVE
};

// The curve of each device is looked up when the device is; the table itself stays constant.
static const sn_device devices[] = {
#define SN_DEVICE(...) {__VA_ARGS__},
#include "passes/cost/devices.def"
#undef SN_DEVICE
};

const sn_device *sn_device_at(size_t index) {
    return index < sizeof devices / sizeof *devices ? &devices[index] : NULL;
}

const sn_device *sn_device_find(const char *name) {
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(devices[i].name, name) == 0) return &devices[i];
    return NULL;
}

const sn_curve *sn_device_curve(const sn_device *device) {
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        if (strcmp(curves[i].name, device->curve) == 0) return &curves[i];
    SN_BUG("device %s has no curve %s", device->name, device->curve);
}

const char *sn_device_names(sn_arena *scratch) {
    const char *names = "";
    for (size_t i = 0; sn_device_at(i); i++)
        names = sn_arena_printf(scratch, "%s%s%s", names, i ? ", " : "", sn_device_at(i)->name);
    return names;
}
