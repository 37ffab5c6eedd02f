#include "base/str.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(sn_str *str, size_t more) {
    size_t need = str->length + more + 1;
    if (need <= str->capacity) return;
    size_t capacity = str->capacity ? str->capacity : 32;
    while (capacity < need) capacity *= 2;
    str->data = sn_realloc(str->data, capacity);
    str->capacity = capacity;
}

void sn_str_append(sn_str *str, const char *text, size_t length) {
    reserve(str, length);
    if (length) memcpy(str->data + str->length, text, length);
    str->length += length;
    str->data[str->length] = 0;
}

void sn_str_puts(sn_str *str, const char *text) {
    sn_str_append(str, text, strlen(text));
}

void sn_str_putc(sn_str *str, char c) {
    sn_str_append(str, &c, 1);
}

void sn_str_vprintf(sn_str *str, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    SN_CHECK(length >= 0);
    reserve(str, (size_t)length);
    vsnprintf(str->data + str->length, (size_t)length + 1, format, again);
    str->length += (size_t)length;
    va_end(again);
}

void sn_str_printf(sn_str *str, const char *format, ...) {
    va_list args;
    va_start(args, format);
    sn_str_vprintf(str, format, args);
    va_end(args);
}

void sn_str_quote(sn_str *str, const char *text) {
    sn_str_putc(str, '"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') {
            sn_str_printf(str, "\\%c", *c);
        } else if (*c == '\n') {
            sn_str_puts(str, "\\n");
        } else if (*c < 0x20 || *c == 0x7f) {
            sn_str_printf(str, "\\u%04x", *c);
        } else {
            sn_str_putc(str, (char)*c);
        }
    }
    sn_str_putc(str, '"');
}

void sn_str_number(sn_str *str, double value, bool single) {
    if (isnan(value)) {
        sn_str_puts(str, signbit(value) ? "-nan" : "nan");
        return;
    }
    if (isinf(value)) {
        sn_str_puts(str, value < 0 ? "-inf" : "inf");
        return;
    }
    char text[40];
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value) break;
    }
    sn_str_puts(str, text);
}

void sn_str_bytes(sn_str *str, double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4) bytes /= 1024, unit++;
    sn_str_printf(str, unit && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

void sn_str_seconds(sn_str *str, double seconds) {
    if (seconds >= 1)
        sn_str_printf(str, "%.3f s", seconds);
    else if (seconds >= 1e-3)
        sn_str_printf(str, "%.2f ms", 1e3 * seconds);
    else
        sn_str_printf(str, "%.1f us", 1e6 * seconds);
}

void sn_str_align(sn_str *str, size_t from, int width) {
    int length = (int)(str->length - from);
    if (length >= width) return;
    sn_str_printf(str, "%*s", width - length, "");
    memmove(str->data + from + (width - length), str->data + from, (size_t)length);
    memset(str->data + from, ' ', (size_t)(width - length));
}

const char *sn_str_text(const sn_str *str) {
    return str->data ? str->data : "";
}

void sn_str_clear(sn_str *str) {
    str->length = 0;
    if (str->data) str->data[0] = 0;
}

void sn_str_free(sn_str *str) {
    sn_free(str->data);
    *str = (sn_str){0};
}

bool sn_starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool sn_ends_with(const char *text, const char *suffix) {
    size_t a = strlen(text), b = strlen(suffix);
    return a >= b && strcmp(text + a - b, suffix) == 0;
}
