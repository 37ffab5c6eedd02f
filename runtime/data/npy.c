#include "runtime/data/npy.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_spaces(cursor *c) {
    while (c->at < c->end && isspace((unsigned char)*c->at)) c->at++;
}

static bool take(cursor *c, const char *text) {
    size_t length = strlen(text);
    skip_spaces(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, text, length) != 0) return false;
    c->at += length;
    return true;
}

// A Python string literal without escapes.
static bool take_string(cursor *c, char *out, size_t room) {
    skip_spaces(c);
    if (c->at >= c->end || (*c->at != '\'' && *c->at != '"')) return false;
    char quote = *c->at++;
    size_t n = 0;
    while (c->at < c->end && *c->at != quote) {
        if (n + 1 >= room) return false;
        out[n++] = *c->at++;
    }
    out[n] = 0;
    return c->at++ < c->end;
}

static bool take_size(cursor *c, int64_t *out) {
    skip_spaces(c);
    int64_t value = 0;
    const char *first = c->at;
    while (c->at < c->end && isdigit((unsigned char)*c->at)) {
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *c->at - '0', &value))
            return false;
        c->at++;
    }
    take(c, "L"); // Python 2 wrote 3L
    *out = value;
    return c->at > first;
}

static bool take_shape(cursor *c, sn_npy *npy) {
    if (!take(c, "(")) return false;
    while (!take(c, ")")) {
        if (npy->rank == SN_NPY_MAX_RANK || !take_size(c, &npy->shape[npy->rank++])) return false;
        if (!take(c, ",")) return take(c, ")");
    }
    return true;
}

// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
static const char *parse_header(cursor *c, sn_npy *npy) {
    bool descr = false, order = false, shape = false;
    char key[32], text[32];
    if (!take(c, "{")) return "has no header";
    while (!take(c, "}")) {
        if (!take_string(c, key, sizeof key) || !take(c, ":")) return "has a malformed header";
        if (!strcmp(key, "descr")) {
            if (!take_string(c, text, sizeof text)) return "holds records; only plain numbers are read";
            npy->dtype = sn_dtype_from_npy(text);
            descr = npy->dtype != SN_DTYPE_COUNT;
            if (!descr) return "has an element type that is not read (big endian, text or complex)";
        } else if (!strcmp(key, "fortran_order")) {
            if (take(c, "True")) return "is in Fortran order; save numpy.ascontiguousarray(x)";
            order = take(c, "False");
        } else if (!strcmp(key, "shape")) {
            shape = take_shape(c, npy);
            if (!shape) return "has a malformed shape";
        } else {
            return "has a malformed header";
        }
        if (!take(c, ",") && !take(c, "}")) return "has a malformed header";
        if (c->at[-1] == '}') break;
    }
    return descr && order && shape ? NULL : "has a malformed header";
}

static const char *parse(sn_npy *npy) {
    const uint8_t *d = npy->file.data;
    size_t bytes = npy->file.bytes;
    if (bytes < 12 || memcmp(d, "\x93NUMPY", 6) != 0) return "is not a .npy file";
    if (d[6] < 1 || d[6] > 3) return "is of a newer .npy version";
    size_t start = d[6] == 1 ? 10 : 12;
    size_t length = d[6] == 1 ? (size_t)d[8] | (size_t)d[9] << 8
                              : (size_t)d[8] | (size_t)d[9] << 8 | (size_t)d[10] << 16 | (size_t)d[11] << 24;
    if (length > bytes - start) return "is cut short";
    cursor c = {(const char *)d + start, (const char *)d + start + length};
    const char *wrong = parse_header(&c, npy);
    if (wrong) return wrong;
    int64_t total = (int64_t)sn_dtype_bytes(npy->dtype);
    for (size_t i = 0; i < npy->rank; i++) {
        if (__builtin_mul_overflow(total, npy->shape[i], &total)) return "claims to be impossibly large";
    }
    if (total != (int64_t)(bytes - start - length)) return "does not hold as many elements as its header says";
    npy->data = d + start + length;
    return NULL;
}

sn_status sn_npy_open(const char *path, sn_npy *out) {
    sn_npy npy = {0};
    SN_TRY(sn_file_map(path, &npy.file));
    const char *wrong = parse(&npy);
    if (wrong) {
        sn_file_unmap(&npy.file);
        return sn_status_make("'%s' %s", path, wrong);
    }
    *out = npy;
    return SN_OK;
}

void sn_npy_close(sn_npy *npy) {
    sn_file_unmap(&npy->file);
    *npy = (sn_npy){0};
}
