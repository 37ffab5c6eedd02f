#include "passes/schedule/domain.h"

sn_domain sn_domain_of_type(sn_type type) {
    return (sn_domain){.n = 1, .size = {sn_type_count(type)}};
}

sn_domain sn_domain_of_reduction(const sn_op *op) {
    sn_domain domain = {0};
    sn_type type = op->operands[0]->type;
    int n_axes;
    const int64_t *axes = sn_op_ints(op, "axes", &n_axes);
    for (int d = 0; d < type.rank; d++) {
        bool reduced = false;
        for (int i = 0; i < n_axes; i++) reduced |= axes[i] == d;
        if (type.dim[d] == 1) continue;
        if (domain.n && domain.reduced[domain.n - 1] == reduced) {
            domain.size[domain.n - 1] *= type.dim[d];
        } else {
            domain.size[domain.n] = type.dim[d];
            domain.reduced[domain.n++] = reduced;
        }
    }
    return domain;
}

bool sn_domain_equal(const sn_domain *a, const sn_domain *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (a->size[i] != b->size[i] || a->reduced[i] != b->reduced[i]) return false;
    return true;
}

bool sn_domain_has_reduced(const sn_domain *domain) {
    for (int i = 0; i < domain->n; i++)
        if (domain->reduced[i]) return true;
    return false;
}

int64_t sn_domain_count(const sn_domain *domain, bool reduced) {
    int64_t count = 1;
    for (int i = 0; i < domain->n; i++)
        if (domain->reduced[i] == reduced) count *= domain->size[i];
    return count;
}

static bool fits(const sn_domain *domain, sn_type type, bool rows, int segment_of[SN_MAX_RANK]) {
    int segment = 0;
    int64_t left = 1; // of the current segment, still to be covered by dims
    for (int d = 0; d < type.rank; d++) {
        segment_of[d] = -1;
        if (type.dim[d] == 1) continue;
        if (left == 1) {
            while (segment < domain->n && rows && domain->reduced[segment]) segment++;
            if (segment == domain->n) return false;
            left = domain->size[segment++];
        }
        if (type.dim[d] == 0 || left % type.dim[d]) return false;
        left /= type.dim[d];
        segment_of[d] = segment - 1;
    }
    for (; segment < domain->n; segment++)
        if (!(rows && domain->reduced[segment]) && domain->size[segment] != 1) return false;
    return left == 1;
}

bool sn_domain_fits_full(const sn_domain *domain, sn_type type, int segment_of[SN_MAX_RANK]) {
    return fits(domain, type, false, segment_of);
}

bool sn_domain_fits_row(const sn_domain *domain, sn_type type, int segment_of[SN_MAX_RANK]) {
    return fits(domain, type, true, segment_of);
}
