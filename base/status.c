#include "base/status.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

struct sn_error {
    sn_str message;
};

static sn_status make(const char *suffix, const char *format, va_list args) {
    sn_status status = sn_alloc(sizeof *status);
    sn_str_vprintf(&status->message, format, args);
    if (suffix) sn_str_printf(&status->message, ": %s", suffix);
    return status;
}

sn_status sn_status_make(const char *format, ...) {
    va_list args;
    va_start(args, format);
    sn_status status = make(NULL, format, args);
    va_end(args);
    return status;
}

sn_status sn_status_errno(const char *format, ...) {
    const char *reason = strerror(errno);
    va_list args;
    va_start(args, format);
    sn_status status = make(reason, format, args);
    va_end(args);
    return status;
}

const char *sn_status_message(sn_status status) {
    return status ? sn_str_text(&status->message) : "";
}

void sn_status_free(sn_status status) {
    if (!status) return;
    sn_str_free(&status->message);
    sn_free(status);
}
