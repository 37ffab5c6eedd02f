// A host for compiled functions (backend/jit.h): memory and library calls of the CPU device.
#pragma once
#include "backend/jit.h"
#include "runtime/device/device.h"

static inline sn_status host_allocate(void *user, const sn_schedule *schedule, void **arena) {
    sn_device **device = user;
    sn_device_destroy(*device);
    *device = NULL;
    SN_TRY(sn_device_cpu_create(1, device));
    SN_TRY((*device)->vtable->allocate(*device, schedule->arena_bytes ? schedule->arena_bytes : 64));
    *arena = (*device)->vtable->address(*device, 0);
    return SN_OK;
}

static inline sn_status host_library(void *user, const sn_schedule *schedule, const sn_instr *instr) {
    sn_device *device = *(sn_device **)user;
    sn_device_op *op;
    SN_TRY(device->vtable->prepare(device, schedule, instr, -1, &op));
    sn_status status = device->vtable->launch(device, op);
    device->vtable->release(device, op);
    return status;
}

// `device` starts as NULL; destroy it after the last run.
static inline sn_jit_host host_of(sn_device **device) {
    return (sn_jit_host){device, host_allocate, host_library};
}
