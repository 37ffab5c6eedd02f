// Kernels as a shared object, which a train executable carries.
#pragma once
#include "backend/lower/kernels.h"
#include "base/status.h"

// The object in memory (sn_free `*data`); NULL and 0 bytes when there are no kernels. `threads` compile.
SN_MUST_USE sn_status sn_kernels_link(const sn_kernels *kernels, int threads, void **data, size_t *bytes);
