// A growing string. Zero-initialise it; sn_str_free gives the memory back. The text is always NUL-terminated.
#pragma once
#include "base/bug.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct sn_str {
    char *data;
    size_t length, capacity;
} sn_str;

void sn_str_append(sn_str *str, const char *text, size_t length);
void sn_str_puts(sn_str *str, const char *text);
void sn_str_putc(sn_str *str, char c);
void sn_str_printf(sn_str *str, const char *format, ...) SN_PRINTF(2, 3);
void sn_str_vprintf(sn_str *str, const char *format, va_list args);
// Appends `text` quoted with "…", escaping quotes, backslashes and control characters as JSON does.
void sn_str_quote(sn_str *str, const char *text);
// Shortest decimal that reads back as the same double (float when single is set); "inf", "-inf", "nan" for the rest.
void sn_str_number(sn_str *str, double value, bool single);
// A quantity for people, in the unit that suits it: "1.4 GiB", "12 KiB"; "3.2 s", "41.7 ms", "0.82 us".
void sn_str_bytes(sn_str *str, double bytes);
void sn_str_seconds(sn_str *str, double seconds);
// Puts blanks before what was added from byte `from` on, so that it ends a column of this width.
void sn_str_align(sn_str *str, size_t from, int width);
const char *sn_str_text(const sn_str *str); // never NULL
void sn_str_clear(sn_str *str);             // keeps the memory
void sn_str_free(sn_str *str);

bool sn_starts_with(const char *text, const char *prefix);
bool sn_ends_with(const char *text, const char *suffix);
