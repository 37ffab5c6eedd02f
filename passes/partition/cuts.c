#include "passes/partition/cuts.h"

sn_cuts sn_cuts_none(const sn_mesh *mesh, const sn_factors *factors) {
    sn_cuts cuts = {.mesh = mesh, .factors = factors};
    for (int a = 0; a < SN_MAX_AXES; a++) cuts.axis[a].factor = -1;
    return cuts;
}

sn_factor_cut sn_cut_of_dim(const sn_cuts *cuts, sn_layout layout, int dim, const sn_dim_factors *factors, int axis) {
    sn_factor_cut none = {.factor = -1};
    int64_t outers[SN_MAX_AXES], before = 1; // before: values of the factors in front
    if (!(layout.dim[dim] >> axis & 1)) return none;
    sn_layout_outers(cuts->mesh, layout, dim, outers);
    int64_t outer = outers[axis], parts = cuts->mesh->size[axis];
    for (int i = 0; i < factors->n; i++) {
        int64_t size = cuts->factors->factor[factors->factor[i]].size;
        if (outer < before * size) {
            bool inside = outer % before == 0 && size % (outer / before * parts) == 0;
            return inside ? (sn_factor_cut){factors->factor[i], outer / before} : none;
        }
        before *= size;
    }
    return none;
}

bool sn_cut_is_legal(const sn_cuts *cuts, int axis, sn_factor_cut cut) {
    const sn_factor *factor = &cuts->factors->factor[cut.factor];
    if (factor->kind == SN_FACTOR_WHOLE) return false;
    // The digits of a factor must not overlap: the factor as a dim of its own.
    sn_layout layout = {0};
    int64_t nested = 1;
    for (int a = 0; a < cuts->mesh->n_axes; a++) {
        if (cuts->axis[a].factor != cut.factor) continue;
        sn_layout_add(cuts->mesh, &layout, 0, a, cuts->axis[a].outer);
        nested *= cuts->mesh->size[a];
    }
    if (factor->masked && cut.outer != nested) return false; // a mask is a range of indices
    sn_layout_add(cuts->mesh, &layout, 0, axis, cut.outer);
    return sn_layout_divides(cuts->mesh, layout, 0, factor->size);
}

static bool find_factor(const sn_dim_factors *dims, int rank, int factor, int *dim, int *at) {
    for (*dim = 0; *dim < rank; ++*dim)
        for (*at = 0; *at < dims[*dim].n; ++*at)
            if (dims[*dim].factor[*at] == factor) return true;
    return false;
}

sn_layout sn_cuts_layout(const sn_cuts *cuts, const sn_dim_factors *dims, int rank) {
    sn_layout layout = {0};
    for (int a = 0; a < cuts->mesh->n_axes; a++) {
        int dim, at;
        if (cuts->axis[a].factor < 0 || !find_factor(dims, rank, cuts->axis[a].factor, &dim, &at)) continue;
        int64_t outer = cuts->axis[a].outer;
        for (int i = 0; i < at; i++) outer *= cuts->factors->factor[dims[dim].factor[i]].size;
        sn_layout_add(cuts->mesh, &layout, dim, a, outer);
    }
    return layout;
}

sn_axes sn_cuts_partial(const sn_cuts *cuts, const sn_dim_factors *dims, int rank, sn_partial *kind) {
    static const sn_partial kinds[] = {
        [SN_FACTOR_SUM] = SN_PARTIAL_SUM, [SN_FACTOR_MAX] = SN_PARTIAL_MAX, [SN_FACTOR_MIN] = SN_PARTIAL_MIN};
    sn_axes axes = 0;
    for (int a = 0; a < cuts->mesh->n_axes; a++) {
        int f = cuts->axis[a].factor, dim, at;
        if (f < 0 || cuts->factors->factor[f].kind == SN_FACTOR_PARALLEL) continue;
        if (find_factor(dims, rank, f, &dim, &at)) continue;
        axes |= (sn_axes)(1 << a);
        *kind = kinds[cuts->factors->factor[f].kind];
    }
    return axes;
}

sn_axes sn_cuts_axes(const sn_cuts *cuts) {
    sn_axes axes = 0;
    for (int a = 0; a < cuts->mesh->n_axes; a++)
        if (cuts->axis[a].factor >= 0) axes |= (sn_axes)(1 << a);
    return axes;
}
