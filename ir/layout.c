#include "ir/layout.h"

#include "base/bug.h"

#include <string.h>

int sn_mesh_axis(const sn_mesh *mesh, const char *name) {
    for (int i = 0; i < mesh->n_axes; i++)
        if (strcmp(mesh->name[i], name) == 0) return i;
    return -1;
}

int64_t sn_mesh_size(const sn_mesh *mesh, sn_axes axes) {
    int64_t size = 1;
    for (int i = 0; i < mesh->n_axes; i++)
        if (axes >> i & 1) size *= mesh->size[i];
    return size;
}

int64_t sn_mesh_ranks(const sn_mesh *mesh) {
    return sn_mesh_size(mesh, 0xff);
}

bool sn_layout_equal(sn_layout a, sn_layout b) {
    return memcmp(a.dim, b.dim, sizeof a.dim) == 0 && a.partial == b.partial &&
           (!a.partial || a.partial_kind == b.partial_kind);
}

bool sn_layout_is_replicated(sn_layout layout) {
    return sn_layout_equal(layout, (sn_layout){0});
}

sn_type sn_local_type(const sn_mesh *mesh, sn_type global, sn_layout layout) {
    for (int i = 0; i < global.rank; i++) {
        int64_t parts = sn_mesh_size(mesh, layout.dim[i]);
        if (!layout.dim[i]) continue;
        SN_CHECK(global.dim[i] % parts == 0);
        global.dim[i] /= parts;
    }
    return global;
}

static void print_axes(sn_str *out, const sn_mesh *mesh, sn_axes axes) {
    const char *separator = "";
    for (int i = 0; i < mesh->n_axes; i++) {
        if (!(axes >> i & 1)) continue;
        sn_str_printf(out, "%s%s", separator, mesh->name[i]);
        separator = ".";
    }
}

void sn_layout_print(sn_str *out, const sn_mesh *mesh, sn_layout layout, int rank) {
    static const char *const suffix[] = {[SN_PARTIAL_SUM] = "", [SN_PARTIAL_MAX] = ":max", [SN_PARTIAL_MIN] = ":min"};
    bool sharded = false;
    for (int i = 0; i < rank; i++) sharded |= layout.dim[i] != 0;
    if (sharded) {
        sn_str_putc(out, '{');
        for (int i = 0; i < rank; i++) {
            if (i) sn_str_putc(out, ',');
            if (layout.dim[i])
                print_axes(out, mesh, layout.dim[i]);
            else
                sn_str_putc(out, '-');
        }
        sn_str_putc(out, '}');
    }
    if (layout.partial) {
        sn_str_putc(out, '+');
        print_axes(out, mesh, layout.partial);
        sn_str_puts(out, suffix[layout.partial_kind]);
    }
}
