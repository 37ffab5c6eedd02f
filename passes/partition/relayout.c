#include "passes/partition/relayout.h"

typedef struct planner {
    const sn_mesh *mesh;
    sn_type type;
    sn_layout now, to;
    sn_move *moves;
    int n;
} planner;

static void add(planner *p, sn_op_kind kind, sn_axes axes, int dim, int to, sn_layout layout) {
    SN_CHECK(p->n < SN_MAX_MOVES);
    p->moves[p->n++] = (sn_move){kind, axes, dim, to, layout};
    p->now = layout;
}

// Where an axis cuts a layout: the dim, or -1, and its digit.
static int place_of(const planner *p, sn_layout layout, int axis, int64_t *outer) {
    int64_t outers[SN_MAX_AXES];
    int dim = sn_layout_dim_of(layout, axis);
    *outer = 0;
    if (dim < 0) return -1;
    sn_layout_outers(p->mesh, layout, dim, outers);
    *outer = outers[axis];
    return dim;
}

static bool stays(const planner *p, int axis) {
    int64_t a, b;
    return place_of(p, p->now, axis, &a) == place_of(p, p->to, axis, &b) && a == b;
}

// Gives the axis its place in the wanted layout, by a move of this kind, where the axes that are there leave room.
static bool cut(planner *p, sn_op_kind kind, int axis) {
    int64_t outer;
    int dim = place_of(p, p->to, axis, &outer), from = sn_layout_dim_of(p->now, axis);
    sn_layout layout = p->now;
    layout.partial &= (sn_axes) ~(1 << axis);
    sn_layout_remove(p->mesh, &layout, (sn_axes)(1 << axis));
    sn_layout_add(p->mesh, &layout, dim, axis, outer);
    if (!sn_layout_divides(p->mesh, layout, dim, p->type.dim[dim])) return false;
    bool exchange = kind == SN_OP_ALL_TO_ALL;
    add(p, kind, (sn_axes)(1 << axis), exchange ? from : dim, exchange ? dim : 0, layout);
    return true;
}

// Cuts of what every rank holds: nothing is sent.
static void shard(planner *p) {
    for (int a = 0; a < p->mesh->n_axes; a++) {
        bool held = sn_layout_dim_of(p->now, a) < 0 && !(p->now.partial >> a & 1);
        if (held && sn_layout_dim_of(p->to, a) >= 0) (void)cut(p, SN_OP_SHARD, a);
    }
}

static bool is_scattered(const planner *p, int axis) {
    bool summed = p->now.partial >> axis & 1 && p->now.partial_kind == SN_PARTIAL_SUM;
    return summed && sn_layout_dim_of(p->to, axis) >= 0;
}

// Axes that cut a dim one inside the other, in the order of the mesh, scatter as one group: with the ranks of a node as
// one of the axes, less crosses the slow links than where each axis scatters by itself.
static void scatter_from(planner *p, int axis) {
    sn_axes axes = (sn_axes)(1 << axis);
    int64_t outer, end;
    int dim = place_of(p, p->to, axis, &outer);
    sn_layout layout = p->now;
    layout.partial &= (sn_axes)~axes;
    sn_layout_add(p->mesh, &layout, dim, axis, outer);
    end = outer * p->mesh->size[axis];
    for (int a = axis + 1; a < p->mesh->n_axes; a++) {
        if (!is_scattered(p, a) || place_of(p, p->to, a, &outer) != dim || outer != end) continue;
        axes |= (sn_axes)(1 << a);
        layout.partial &= (sn_axes) ~(1 << a);
        sn_layout_add(p->mesh, &layout, dim, a, outer);
        end *= p->mesh->size[a];
    }
    if (sn_layout_divides(p->mesh, layout, dim, p->type.dim[dim]))
        add(p, SN_OP_REDUCE_SCATTER, axes, dim, 0, layout);
    else
        (void)cut(p, SN_OP_REDUCE_SCATTER, axis);
}

static void reduce(planner *p) {
    for (int a = 0; a < p->mesh->n_axes; a++)
        if (is_scattered(p, a)) scatter_from(p, a);
    for (int a = 0; a < p->mesh->n_axes; a++) {
        int from = sn_layout_dim_of(p->now, a), to = sn_layout_dim_of(p->to, a);
        if (from >= 0 && to >= 0 && from != to) (void)cut(p, SN_OP_ALL_TO_ALL, a);
    }
    sn_axes left = p->now.partial & (sn_axes)~p->to.partial;
    if (!left) return;
    sn_layout layout = p->now;
    layout.partial &= (sn_axes)~left;
    add(p, SN_OP_ALL_REDUCE, left, 0, 0, layout);
}

static void gather(planner *p) {
    for (int d = 0; d < p->type.rank; d++) {
        sn_axes axes = 0;
        for (int a = 0; a < p->mesh->n_axes; a++)
            if (p->now.dim[d] >> a & 1 && !stays(p, a)) axes |= (sn_axes)(1 << a);
        if (!axes) continue;
        sn_layout layout = p->now;
        sn_layout_remove(p->mesh, &layout, axes);
        add(p, SN_OP_ALL_GATHER, axes, d, 0, layout);
    }
}

int sn_relayout(const sn_mesh *mesh, sn_type type, sn_layout from, sn_layout to, sn_move *moves) {
    planner p = {mesh, type, from, to, moves, 0};
    SN_CHECK(!(to.partial & ~from.partial));
    if (sn_layout_equal(from, to)) return 0;
    shard(&p);
    reduce(&p);
    gather(&p);
    shard(&p);
    SN_CHECK(sn_layout_equal(p.now, to));
    return p.n;
}

static double local_bytes(const sn_mesh *mesh, sn_type type, sn_layout layout) {
    return (double)sn_type_bytes(type) / (double)sn_mesh_size(mesh, sn_layout_axes(layout));
}

static double move_bytes(const sn_mesh *mesh, sn_type type, sn_layout before, const sn_move *move) {
    if (move->kind == SN_OP_SHARD) return 0;
    double parts = (double)sn_mesh_size(mesh, move->axes), share = (parts - 1) / parts;
    double bytes = local_bytes(mesh, type, move->kind == SN_OP_ALL_GATHER ? move->layout : before);
    return (move->kind == SN_OP_ALL_REDUCE ? 2 : 1) * share * bytes;
}

double sn_relayout_bytes(const sn_mesh *mesh, sn_type type, sn_layout from, sn_layout to) {
    sn_move moves[SN_MAX_MOVES];
    int n = sn_relayout(mesh, type, from, to, moves);
    double bytes = 0;
    for (int i = 0; i < n; i++) bytes += move_bytes(mesh, type, i ? moves[i - 1].layout : from, &moves[i]);
    return bytes;
}
