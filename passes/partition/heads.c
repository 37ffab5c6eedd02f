#include "passes/partition/heads.h"

#include "base/diag.h"
#include "ir/factors.h"
#include "passes/partition/plan.h"

#include <inttypes.h>
#include <string.h>

int64_t sn_heads_common_divisor(int64_t a, int64_t b) {
    return b ? sn_heads_common_divisor(b, a % b) : a;
}

int64_t sn_heads_ranks(const sn_op *op, int64_t tp) {
    sn_factors factors;
    sn_arena scratch = {0};
    int64_t ranks = tp;
    sn_factors_of(op, &scratch, &factors);
    for (int i = 0; i < op->n_operands && ranks == tp; i++)
        for (int d = 0; d < op->operands[i]->type.rank && ranks == tp; d++) {
            const sn_dim_factors *dim = &factors.operand[i][d];
            if (dim->n != 2) continue;
            const sn_factor *outer = &factors.factor[dim->factor[0]], *inner = &factors.factor[dim->factor[1]];
            if (outer->kind == SN_FACTOR_WHOLE || inner->kind == SN_FACTOR_WHOLE || outer->size % tp == 0) continue;
            int64_t common = sn_heads_common_divisor(outer->size, tp);
            if (inner->size % (tp / common) == 0) ranks = common;
        }
    sn_arena_free(&scratch);
    return ranks;
}

static bool is_forward_product(const sn_op *op) {
    return op->phase == SN_PHASE_FORWARD && sn_op_has(op->kind, SN_TRAIT_LIBRARY);
}

void sn_heads_split_axis(const sn_module *module, sn_mesh *mesh) {
    int axis = sn_mesh_axis(mesh, "tp");
    if (axis < 0 || sn_mesh_axis(mesh, "tp_q") >= 0 || mesh->n_axes == SN_MAX_AXES) return;
    int64_t tp = mesh->size[axis], ranks = tp;
    for (size_t i = 0; i < module->funcs.count; i++) SN_FOR_OPS(op, module->funcs.data[i]) {
            if (is_forward_product(op)) ranks = sn_heads_common_divisor(ranks, sn_heads_ranks(op, tp));
        }
    if (ranks == 1 || ranks == tp) return; // all ranks may share one key head
    int inside = mesh->n_axes - axis - 1;
    memmove(mesh->name[axis + 2], mesh->name[axis + 1], (size_t)inside * sizeof *mesh->name);
    memmove(&mesh->size[axis + 2], &mesh->size[axis + 1], (size_t)inside * sizeof *mesh->size);
    strcpy(mesh->name[axis + 1], "tp_q");
    mesh->size[axis] = (int)ranks, mesh->size[axis + 1] = (int)(tp / ranks);
    mesh->n_axes++;
}

// Heads are dim 1 of [batch, heads, …]: the factors of the first operand's, the major of which the second one has too
// where it has more than one head. (A convolution's operands have no batch in common.)
static bool has_heads(const sn_op *op, const sn_factors *factors) {
    sn_type a = op->operands[0]->type, b = op->operands[1]->type;
    const sn_dim_factors *first = &factors->operand[0][1], *second = &factors->operand[1][1];
    if (a.rank != 4 || b.rank != 4 || a.dim[0] != b.dim[0] || !first->n) return false;
    return b.dim[1] == 1 || (second->n && second->factor[0] == first->factor[0]);
}

static bool is_cut(const sn_op *op, int axis) {
    sn_axes used = 0;
    for (int i = 0; i < op->n_results; i++)
        used |= sn_layout_axes(op->results[i]->layout) | op->results[i]->layout.partial;
    return used >> axis & 1;
}

// Whether the axis cannot cut the heads beside the axes that do: neither those of keys nor the queries' that share one.
static bool is_indivisible(const sn_op *op, const sn_factors *factors, const sn_mesh *mesh, int axis) {
    const sn_dim_factors *dim = &factors->operand[0][1];
    int64_t cut = sn_mesh_size(mesh, op->operands[0]->layout.dim[1]) * mesh->size[axis];
    bool fits = false;
    for (int i = 0; i < dim->n; i++) fits |= factors->factor[dim->factor[i]].size % mesh->size[axis] == 0;
    return !fits || op->operands[0]->type.dim[1] % cut != 0;
}

typedef struct finding {
    const sn_op *first; // of those that are left whole
    int count;
    int64_t queries, keys; // heads of the first
} finding;

static void look(const sn_op *op, const sn_mesh *mesh, int axis, finding *found) {
    sn_arena scratch = {0};
    sn_factors factors;
    if (!is_forward_product(op) || is_cut(op, axis)) return;
    sn_factors_of(op, &scratch, &factors);
    if (has_heads(op, &factors) && is_indivisible(op, &factors, mesh, axis) && !found->count++) {
        found->first = op;
        found->queries = op->operands[0]->type.dim[1], found->keys = op->operands[1]->type.dim[1];
    }
    sn_arena_free(&scratch);
}

static void report(const finding *found, const char *name, int size, sn_diags *diags) {
    const char *heads = found->keys == found->queries
                            ? sn_arena_printf(&diags->arena, "%" PRId64 " heads", found->queries)
                            : sn_arena_printf(&diags->arena, "%" PRId64 " query heads and %" PRId64 " key/value heads",
                                              found->queries, found->keys);
    const char *more = found->count > 1 ? sn_arena_printf(&diags->arena, ", and of %d more", found->count - 1) : "";
    int64_t common = sn_heads_common_divisor(found->keys, size);
    int64_t open = found->queries % size ? found->queries : found->keys;
    const char *help =
        sn_arena_printf(&diags->arena,
                        "choose a size of %s that divides %" PRId64 "%s; matrices that it divides are "
                        "cut all the same",
                        name, open, common > 1 ? sn_arena_printf(&diags->arena, " (%" PRId64 ", say)", common) : "");
    sn_warning(diags, "W0432", sn_origin_node(found->first->origin), help,
               "%s=%d does not divide the %s of this %s%s: its ranks all compute the whole of it", name, size, heads,
               sn_op_name(found->first->kind), more);
}

void sn_heads_check(const sn_module *module, sn_diags *diags) {
    const sn_mesh *mesh = &module->mesh;
    const sn_func *func = module->funcs.count ? module->funcs.data[0] : NULL; // all have the forward pass's
    for (int axis = 0; func && axis < mesh->n_axes; axis++) {
        finding found = {0};
        if (mesh->size[axis] == 1 || !sn_mesh_is_tensor_axis(mesh, axis)) continue;
        SN_FOR_OPS(op, func) {
            look(op, mesh, axis, &found);
        }
        if (found.count) report(&found, mesh->name[axis], mesh->size[axis], diags);
    }
}
