// From one SPMD program over global types to what each rank runs on its own part:
//
//     %x: f32[12,64]{dp,-} on dp=4          ->  %x: f32[3,64]
//     %i = iota <axis=0> : i64[12]{dp}      ->  %a = axis_index <axes=dp>; %s = mul(%a, 3); %i = add(iota : i64[3], %s)
//
// Globals and arguments keep their layouts beside their local types: the runtime cuts and joins them.
#include "passes/partition/localize.h"

#include "passes/partition/distribute.h"
#include "passes/pass.h"

static void localize_type(const sn_mesh *mesh, sn_value *value) {
    value->type = sn_local_type(mesh, value->type, value->layout);
}

sn_value *sn_local_coordinate(sn_localizer *l, int axis) {
    sn_attr attr = sn_attr_string("axes", l->mesh->name[axis]);
    sn_type scalar = sn_type_scalar(SN_I64);
    return sn_build(&l->b, SN_OP_AXIS_INDEX, 0, NULL, 1, &attr, &scalar)->results[0];
}

sn_value *sn_local_start(sn_localizer *l, sn_layout layout, int dim, int64_t size) {
    int64_t outers[SN_MAX_AXES];
    sn_value *start = NULL;
    sn_layout_outers(l->mesh, layout, dim, outers);
    for (int a = 0; a < l->mesh->n_axes; a++) {
        if (!(layout.dim[dim] >> a & 1)) continue;
        double after = (double)(size / (outers[a] * l->mesh->size[a]));
        sn_value *term = sn_build_binary_number(&l->b, SN_OP_MUL, sn_local_coordinate(l, a), after);
        start = start ? sn_build_binary(&l->b, SN_OP_ADD, start, term) : term;
    }
    return start;
}

void sn_local_replace(sn_localizer *l, sn_value *with) {
    SN_CHECK(sn_type_equal(with->type, l->op->results[0]->type));
    if (with->kind == SN_VALUE_RESULT) with->layout = l->op->results[0]->layout; // for moves of it
    sn_value_replace(l->op->results[0], with);
    sn_op_erase(l->op);
}

static void localize_op(sn_op *op, const sn_mesh *mesh) {
    sn_localizer l = {mesh, op, {op->func, op, op->origin, op->phase}};
    sn_type global = op->n_results ? op->results[0]->type : (sn_type){0};
    const sn_value *table = op->n_operands ? op->operands[0] : NULL;
    int axis = op->kind == SN_OP_GATHER || op->kind == SN_OP_GATHER_GRAD ? (int)sn_op_int(op, "axis") : 0;
    for (int i = 0; i < op->n_results; i++) localize_type(mesh, op->results[i]);
    switch (op->kind) {
    case SN_OP_ALL_REDUCE:
    case SN_OP_REDUCE_SCATTER:
    case SN_OP_ALL_GATHER:
    case SN_OP_ALL_TO_ALL:
    case SN_OP_SHARD:
        sn_localize_move(&l);
        break;
    case SN_OP_IOTA:
    case SN_OP_RANDOM_UNIFORM:
        sn_localize_generator(&l, global);
        break;
    case SN_OP_SLICE:
        sn_localize_slice(&l);
        break;
    case SN_OP_PAD:
        sn_localize_pad(&l);
        break;
    case SN_OP_GATHER:
        sn_localize_gather(&l, table->type.dim[axis] * sn_mesh_size(mesh, table->layout.dim[axis]));
        break;
    case SN_OP_GATHER_GRAD:
        sn_localize_gather_grad(&l, global.dim[axis]);
        break;
    case SN_OP_ATTENTION:
    case SN_OP_ATTENTION_GRAD:
        sn_localize_attention(&l, table->type.dim[2] * sn_mesh_size(mesh, table->layout.dim[2]));
        break;
    default:
        break;
    }
}

static void localize_func(sn_func *func, const sn_mesh *mesh) {
    for (size_t a = 0; a < func->args.count; a++) localize_type(mesh, func->args.data[a]);
    for (sn_op *op = func->first, *next; op; op = next) {
        next = op->next;
        localize_op(op, mesh);
    }
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_results; i++) op->results[i]->layout = (sn_layout){0};
    }
}

void sn_localize(sn_module *module) {
    SN_CHECK(module->form == SN_FORM_DIST);
    for (size_t i = 0; i < module->globals.count; i++) localize_type(&module->mesh, module->globals.data[i]->value);
    for (size_t i = 0; i < module->funcs.count; i++) localize_func(module->funcs.data[i], &module->mesh);
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
