// A status is NULL (fine) or an error that carries a message and where it was raised. The environment's failures
// (files, memory maps, MPI, the disk) travel as statuses; the caller owns a returned status and frees or returns it.
#pragma once
#include "base/bug.h"

typedef struct sn_error *sn_status;
#define SN_OK ((sn_status)0)

sn_status sn_status_make(const char *format, ...) SN_PRINTF(1, 2) __attribute__((warn_unused_result));
// Appends ": <strerror(errno)>" to the message.
sn_status sn_status_errno(const char *format, ...) SN_PRINTF(1, 2) __attribute__((warn_unused_result));
const char *sn_status_message(sn_status status); // "" for SN_OK
void sn_status_free(sn_status status);           // SN_OK is fine

#define SN_MUST_USE __attribute__((warn_unused_result))
#define SN_TRY(expression)                                                                                             \
    do {                                                                                                               \
        sn_status status_ = (expression);                                                                              \
        if (status_) return status_;                                                                                   \
    } while (0)
