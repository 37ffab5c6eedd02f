// A device: the memory of a rank and the execution of instructions on it. Collectives and events are not its concern
// (runtime/comm, runtime/exec). A device is used by one thread at a time, except that `launch` of operations of
// different streams may run at the same time.
#pragma once
#include "base/status.h"
#include "runtime/package.h"
#include "runtime/schedule.h"

typedef struct sn_device sn_device;
typedef struct sn_device_op sn_device_op; // an instruction made ready: addresses resolved, library objects created

typedef struct sn_device_vtable {
    void (*destroy)(sn_device *device);
    // Allocates the arena, once; its bytes are zero.
    sn_status (*allocate)(sn_device *device, int64_t bytes);
    // Loads the shared object that exports `symbols`. `kernels` may be empty when there are none.
    sn_status (*load)(sn_device *device, sn_blob kernels, const sn_texts *symbols);
    // Makes an instruction ready for micro-batches in the slots of `micro_batch` (-1: none); all costly work (library
    // objects) is done here. `schedule` and `instr` outlive the result; kinds other than kernels, library calls, copy
    // and fill are refused. Only after allocate and load.
    sn_status (*prepare)(sn_device *device, const sn_schedule *schedule, const sn_instr *instr, int64_t micro_batch,
                         sn_device_op **out);
    void (*release)(sn_device *device, sn_device_op *op);
    // Runs it, or puts it on its stream.
    sn_status (*launch)(sn_device *device, const sn_device_op *op);
    // Between host memory and the arena; done when they return.
    sn_status (*write)(sn_device *device, int64_t offset, const void *from, size_t bytes);
    sn_status (*read)(sn_device *device, int64_t offset, void *to, size_t bytes);
    // Where the communicator finds the arena's bytes. NULL before allocate.
    void *(*address)(sn_device *device, int64_t offset);
} sn_device_vtable;

struct sn_device {
    const sn_device_vtable *vtable;
};

// The CPU. `threads` >= 1 work on each instruction.
SN_MUST_USE sn_status sn_device_cpu_create(int threads, sn_device **out);

static inline void sn_device_destroy(sn_device *device) {
    if (device) device->vtable->destroy(device);
}
