// From one SPMD program over global types to what each rank runs on its own part:
//
//     %x: f32[12,64]{dp,-} on dp=4          ->  %x: f32[3,64]
//     %i = iota <axis=0> : i64[12]{dp}      ->  %a = axis_index <axes=dp>; %s = mul(%a, 3); %i = add(iota : i64[3], %s)
//     all_gather(%x) <dim=1>                ->  %t = transpose(%x); %g = all_gather(%t) <dim=0>; transpose(%g)
#include "passes/partition/distribute.h"

#include "ir/build.h"
#include "passes/pass.h"

static void localize_value(const sn_mesh *mesh, sn_value *value) {
    value->type = sn_local_type(mesh, value->type, value->layout);
    value->layout = (sn_layout){0};
}

// Where this rank's part of a dim of `size` local elements starts, as an i64 scalar.
static sn_value *part_start(sn_builder *b, const sn_mesh *mesh, sn_axes axes, int64_t size) {
    sn_str names = {0};
    for (int i = 0; i < mesh->n_axes; i++)
        if (axes >> i & 1) sn_str_printf(&names, "%s%s", names.length ? "," : "", mesh->name[i]);
    sn_attr attr = sn_attr_string("axes", sn_str_text(&names));
    sn_type scalar = sn_type_scalar(SN_I64);
    sn_value *index = sn_build(b, SN_OP_AXIS_INDEX, 0, NULL, 1, &attr, &scalar)->results[0];
    sn_str_free(&names);
    return sn_build_binary_number(b, SN_OP_MUL, index, (double)size);
}

static int cut_dim_of(const sn_layout *layout, int rank) {
    int cut = -1;
    for (int i = 0; i < rank; i++) {
        if (!layout->dim[i]) continue;
        SN_CHECK(cut < 0); // one cut dim per generator: what data parallelism makes
        cut = i;
    }
    return cut;
}

static void localize_iota(sn_op *op, const sn_mesh *mesh) {
    sn_value *value = op->results[0];
    int axis = (int)sn_op_int(op, "axis");
    sn_axes axes = value->layout.dim[axis];
    localize_value(mesh, value);
    if (!axes) return;
    sn_builder b = {op->func, op, op->origin, op->phase};
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_int("start", sn_op_int(op, "start")),
                       sn_attr_int("step", sn_op_int(op, "step"))};
    sn_value *part = sn_build(&b, SN_OP_IOTA, 0, NULL, 3, attrs, &value->type)->results[0];
    sn_value *start = part_start(&b, mesh, axes, value->type.dim[axis]);
    start = sn_build_binary_number(&b, SN_OP_MUL, start, (double)sn_op_int(op, "step"));
    start = sn_build_cast(&b, start, value->type.dtype);
    sn_value_replace(value, sn_build_binary(&b, SN_OP_ADD, part, start));
    sn_op_erase(op);
}

static void localize_random(sn_op *op, const sn_mesh *mesh) {
    sn_value *value = op->results[0];
    sn_type global = value->type;
    int dim = cut_dim_of(&value->layout, global.rank);
    sn_axes axes = dim < 0 ? 0 : value->layout.dim[dim];
    localize_value(mesh, value);
    if (!axes) return;
    sn_builder b = {op->func, op, op->origin, op->phase};
    sn_value *start = part_start(&b, mesh, axes, value->type.dim[dim]);
    sn_attr attrs[] = {sn_attr_int("id", sn_op_int(op, "id")), sn_attr_ints("global", global.dim, global.rank),
                       sn_attr_int("dim", dim)};
    sn_value *operands[] = {op->operands[0], op->operands[1], start};
    sn_op *part = sn_build(&b, SN_OP_RANDOM_UNIFORM, 3, operands, 3, attrs, &value->type);
    sn_value_replace(value, part->results[0]);
    sn_op_erase(op);
}

// A rank's part starts where only the rank knows: a gather of consecutive rows.
static void localize_shard(sn_op *op, const sn_mesh *mesh) {
    sn_value *value = op->results[0], *whole = op->operands[0];
    int dim = (int)sn_op_int(op, "dim");
    sn_axes axes = (sn_axes)(value->layout.dim[dim]); // the operand's own type is local already
    localize_value(mesh, value);
    sn_builder b = {op->func, op, op->origin, op->phase};
    int64_t size = value->type.dim[dim];
    sn_value *start = part_start(&b, mesh, axes, size);
    sn_value *rows = sn_build_binary(&b, SN_OP_ADD, sn_build_iota(&b, sn_type_make(SN_I64, 1, &size), 0), start);
    sn_value_replace(value, sn_build_gather(&b, whole, rows, dim));
    sn_op_erase(op);
}

// Communicators join whole parts, one behind the other: another dim than the first is brought to the front and back.
static void localize_all_gather(sn_op *op, const sn_mesh *mesh) {
    sn_value *value = op->results[0], *part = op->operands[0];
    int dim = (int)sn_op_int(op, "dim"), rank = part->type.rank;
    localize_value(mesh, value);
    if (!dim) return;
    int64_t front[SN_MAX_RANK], back[SN_MAX_RANK];
    sn_type joined = value->type;
    for (int i = 0; i < rank; i++) {
        front[i] = i > dim ? i : i ? i - 1 : dim;
        back[i] = i > dim ? i : i < dim ? i + 1 : 0;
        joined.dim[i] = value->type.dim[front[i]];
    }
    sn_builder b = {op->func, op, op->origin, op->phase};
    part = sn_build_transpose(&b, part, front);
    sn_attr attrs[] = {sn_attr_string("axes", sn_op_string(op, "axes")), sn_attr_int("dim", 0)};
    sn_op *gather = sn_op_new(op->func, op, SN_OP_ALL_GATHER, 1, &part, 2, attrs, 1, &joined);
    gather->origin = op->origin;
    gather->phase = op->phase;
    sn_value_replace(value, sn_build_transpose(&b, gather->results[0], back));
    sn_op_erase(op);
}

static void localize_op(sn_op *op, const sn_mesh *mesh) {
    bool alone = sn_mesh_ranks(mesh) == 1;
    if (op->kind == SN_OP_SHARD) {
        localize_shard(op, mesh);
    } else if (op->kind == SN_OP_IOTA) {
        localize_iota(op, mesh);
    } else if (op->kind == SN_OP_RANDOM_UNIFORM) {
        localize_random(op, mesh);
    } else if (op->kind == SN_OP_ALL_GATHER && !alone) {
        localize_all_gather(op, mesh);
    } else {
        for (int i = 0; i < op->n_results; i++) localize_value(mesh, op->results[i]);
        if (alone && sn_op_has(op->kind, SN_TRAIT_COLLECTIVE)) {
            sn_value_replace(op->results[0], op->operands[0]);
            sn_op_erase(op);
        }
    }
}

void sn_localize(sn_module *module) {
    SN_CHECK(module->form == SN_FORM_DIST);
    for (size_t i = 0; i < module->globals.count; i++) localize_value(&module->mesh, module->globals.data[i]->value);
    for (size_t i = 0; i < module->funcs.count; i++) {
        sn_func *func = module->funcs.data[i];
        for (size_t a = 0; a < func->args.count; a++) localize_value(&module->mesh, func->args.data[a]);
        for (sn_op *op = func->first, *next; op; op = next) {
            next = op->next;
            localize_op(op, &module->mesh);
        }
    }
    module->form = SN_FORM_SCHED;
}

static void run(sn_module *module, sn_pass_context *context) {
    (void)context;
    sn_localize(module);
}

const sn_pass sn_pass_localize = {
    .name = "localize",
    .summary = "turns global types and layouts into the types of one rank",
    .forms = 1 << SN_FORM_DIST,
    .result = SN_FORM_SCHED,
    .run = run,
};
