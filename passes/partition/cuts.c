#include "passes/partition/cuts.h"

sn_cuts sn_cuts_none(const sn_mesh *mesh, const sn_factors *factors) {
    sn_cuts cuts = {.mesh = mesh, .factors = factors};
    for (int a = 0; a < SN_MAX_AXES; a++) cuts.axis[a].factor = -1;
    return cuts;
}

sn_factor_cut sn_factor_cut_at(const sn_factors *factors, const sn_dim_factors *dim, int64_t outer, int64_t parts) {
    const sn_factor_cut none = {.factor = -1};
    int64_t before = 1; // values of the factors in front
    for (int i = 0; i < dim->n; i++) {
        int64_t size = factors->factor[dim->factor[i]].size;
        if (outer < before * size) {
            bool inside = outer % before == 0 && size % (outer / before * parts) == 0;
            return inside ? (sn_factor_cut){dim->factor[i], outer / before} : none;
        }
        before *= size;
    }
    return none;
}

bool sn_factor_cut_dim(const sn_factors *factors, const sn_dim_factors *dims, int rank, sn_factor_cut cut, int *dim,
                       int64_t *outer) {
    for (*dim = 0; *dim < rank; ++*dim) {
        *outer = cut.outer;
        for (int i = 0; i < dims[*dim].n; i++) {
            if (dims[*dim].factor[i] == cut.factor) return true;
            *outer *= factors->factor[dims[*dim].factor[i]].size;
        }
    }
    return false;
}

sn_factor_cut sn_cut_of_dim(const sn_cuts *cuts, sn_layout layout, int dim, const sn_dim_factors *factors, int axis) {
    int64_t outers[SN_MAX_AXES];
    if (!(layout.dim[dim] >> axis & 1)) return (sn_factor_cut){.factor = -1};
    sn_layout_outers(cuts->mesh, layout, dim, outers);
    return sn_factor_cut_at(cuts->factors, factors, outers[axis], cuts->mesh->size[axis]);
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

sn_layout sn_cuts_layout(const sn_cuts *cuts, const sn_dim_factors *dims, int rank) {
    sn_layout layout = {0};
    for (int a = 0; a < cuts->mesh->n_axes; a++) {
        int dim;
        int64_t outer;
        if (cuts->axis[a].factor >= 0 && sn_factor_cut_dim(cuts->factors, dims, rank, cuts->axis[a], &dim, &outer))
            sn_layout_add(cuts->mesh, &layout, dim, a, outer);
    }
    return layout;
}

sn_axes sn_cuts_partial(const sn_cuts *cuts, const sn_dim_factors *dims, int rank, sn_partial *kind) {
    static const sn_partial kinds[] = {
        [SN_FACTOR_SUM] = SN_PARTIAL_SUM, [SN_FACTOR_MAX] = SN_PARTIAL_MAX, [SN_FACTOR_MIN] = SN_PARTIAL_MIN};
    sn_axes axes = 0;
    for (int a = 0; a < cuts->mesh->n_axes; a++) {
        int f = cuts->axis[a].factor, dim;
        int64_t outer;
        if (f < 0 || cuts->factors->factor[f].kind == SN_FACTOR_PARALLEL) continue;
        if (sn_factor_cut_dim(cuts->factors, dims, rank, cuts->axis[a], &dim, &outer)) continue;
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
