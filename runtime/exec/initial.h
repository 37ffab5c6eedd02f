// First values of the globals.
#pragma once
#include "runtime/device/device.h"
#include "runtime/package.h"
#include "runtime/schedule.h"

// Writes this rank's shard of every global from its source. Reads files in pieces: none stays mapped.
SN_MUST_USE sn_status sn_initial_load(const sn_schedule *schedule, int64_t rank, sn_blob constants, sn_device *device);
