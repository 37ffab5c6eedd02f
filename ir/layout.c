#include "ir/layout.h"

#include "base/bug.h"

#include <inttypes.h>
#include <string.h>

int sn_mesh_axis(const sn_mesh *mesh, const char *name) {
    for (int i = 0; i < mesh->n_axes; i++)
        if (strcmp(mesh->name[i], name) == 0) return i;
    return -1;
}

sn_axes sn_mesh_axes_named(const sn_mesh *mesh, const char *names) {
    sn_axes axes = 0;
    for (const char *name = names; *name; name += *name == ',') {
        size_t length = strcspn(name, ",");
        for (int i = 0; i < mesh->n_axes; i++)
            if (strlen(mesh->name[i]) == length && strncmp(mesh->name[i], name, length) == 0)
                axes |= (sn_axes)(1u << i);
        name += length;
    }
    return axes;
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
    return memcmp(a.dim, b.dim, sizeof a.dim) == 0 && memcmp(a.outer, b.outer, sizeof a.outer) == 0 &&
           a.partial == b.partial && (!a.partial || a.partial_kind == b.partial_kind);
}

bool sn_layout_is_replicated(sn_layout layout) {
    return sn_layout_equal(layout, (sn_layout){0});
}

sn_axes sn_layout_axes(sn_layout layout) {
    sn_axes axes = 0;
    for (int i = 0; i < SN_MAX_RANK; i++) axes |= layout.dim[i];
    return axes;
}

int sn_layout_dim_of(sn_layout layout, int axis) {
    for (int i = 0; i < SN_MAX_RANK; i++)
        if (layout.dim[i] >> axis & 1) return i;
    return -1;
}

void sn_layout_outers(const sn_mesh *mesh, sn_layout layout, int dim, int64_t outer[SN_MAX_AXES]) {
    int64_t nested = 1;
    for (int a = 0; a < mesh->n_axes; a++) {
        if (!(layout.dim[dim] >> a & 1)) continue;
        outer[a] = layout.outer[a] ? layout.outer[a] : nested;
        nested *= mesh->size[a];
    }
}

void sn_layout_set_dim(const sn_mesh *mesh, sn_layout *layout, int dim, sn_axes axes,
                       const int64_t outer[SN_MAX_AXES]) {
    int64_t nested = 1;
    bool as_nested = true;
    for (int a = 0; a < mesh->n_axes; a++) {
        if (layout->dim[dim] >> a & 1) layout->outer[a] = 0;
        if (!(axes >> a & 1)) continue;
        as_nested = as_nested && outer[a] == nested;
        nested *= mesh->size[a];
    }
    layout->dim[dim] = axes;
    for (int a = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1) layout->outer[a] = as_nested ? 0 : (int32_t)outer[a];
}

void sn_layout_add(const sn_mesh *mesh, sn_layout *layout, int dim, int axis, int64_t outer) {
    int64_t outers[SN_MAX_AXES];
    sn_layout_outers(mesh, *layout, dim, outers);
    outers[axis] = outer;
    sn_layout_set_dim(mesh, layout, dim, (sn_axes)(layout->dim[dim] | 1 << axis), outers);
}

void sn_layout_remove(const sn_mesh *mesh, sn_layout *layout, sn_axes axes) {
    for (int d = 0; d < SN_MAX_RANK; d++) {
        if (!(layout->dim[d] & axes)) continue;
        // digits of axes that go before others' were counted in `outer`: they now belong to the rank
        int64_t outers[SN_MAX_AXES];
        sn_layout_outers(mesh, *layout, d, outers);
        sn_layout_set_dim(mesh, layout, d, layout->dim[d] & (sn_axes)~axes, outers);
    }
}

int sn_layout_order(const sn_mesh *mesh, sn_layout layout, int dim, int order[SN_MAX_AXES]) {
    int64_t outer[SN_MAX_AXES];
    int n = 0;
    sn_layout_outers(mesh, layout, dim, outer);
    for (int a = 0; a < mesh->n_axes; a++) {
        if (!(layout.dim[dim] >> a & 1)) continue;
        int at = n++;
        for (; at > 0 && outer[order[at - 1]] > outer[a]; at--) order[at] = order[at - 1];
        order[at] = a;
    }
    return n;
}

bool sn_layout_divides(const sn_mesh *mesh, sn_layout layout, int dim, int64_t size) {
    int64_t outer[SN_MAX_AXES], done = 1; // done: values of the digits so far
    int order[SN_MAX_AXES], n = sn_layout_order(mesh, layout, dim, order);
    sn_layout_outers(mesh, layout, dim, outer);
    for (int i = 0; i < n; i++) {
        if (outer[order[i]] % done) return false;
        done = outer[order[i]] * mesh->size[order[i]];
    }
    return size % done == 0;
}

int64_t sn_layout_index(const sn_mesh *mesh, sn_layout layout, int dim, int64_t size, const int64_t *coordinate,
                        int64_t local) {
    int64_t outer[SN_MAX_AXES], index = local;
    int order[SN_MAX_AXES], n = sn_layout_order(mesh, layout, dim, order);
    sn_layout_outers(mesh, layout, dim, outer);
    for (int i = n - 1; i >= 0; i--) { // minor digits first: those in front do not move them
        int a = order[i];
        int64_t after = size / (outer[a] * mesh->size[a]);
        index = (index / after * mesh->size[a] + coordinate[a]) * after + index % after;
    }
    return index;
}

int sn_layout_pieces(const sn_mesh *mesh, sn_layout layout, int dim, int64_t size, sn_piece out[SN_MAX_AXES + 1]) {
    int64_t outers[SN_MAX_AXES], from = 1, parts = 1; // where the piece at hand begins, and in how many it is cut
    int order[SN_MAX_AXES], n_axes = sn_layout_order(mesh, layout, dim, order), n = 0, last = -1;
    sn_axes axes = 0;
    sn_layout_outers(mesh, layout, dim, outers);
    for (int i = 0; i <= n_axes; i++) {
        int64_t end = i < n_axes ? outers[order[i]] : size;
        if (i == n_axes || end != from * parts || order[i] < last) {
            if (end > from) out[n++] = (sn_piece){end / from, end / from / parts, size / end, axes};
            from = end, parts = 1, axes = 0;
        }
        if (i == n_axes) break;
        axes |= (sn_axes)(1 << order[i]);
        parts *= mesh->size[order[i]];
        last = order[i];
    }
    return n;
}

sn_type sn_whole_type(const sn_mesh *mesh, sn_type local, sn_layout layout) {
    for (int i = 0; i < local.rank; i++) local.dim[i] *= sn_mesh_size(mesh, layout.dim[i]);
    return local;
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

static void print_cut(sn_str *out, const sn_mesh *mesh, sn_layout layout, int dim) {
    int64_t outer[SN_MAX_AXES];
    bool stated = false;
    print_axes(out, mesh, layout.dim[dim]);
    sn_layout_outers(mesh, layout, dim, outer);
    for (int a = 0; a < mesh->n_axes; a++) stated |= (layout.dim[dim] >> a & 1) && layout.outer[a];
    for (int a = 0; stated && a < mesh->n_axes; a++)
        if (layout.dim[dim] >> a & 1) sn_str_printf(out, ":%" PRId64, outer[a]);
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
                print_cut(out, mesh, layout, i);
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
