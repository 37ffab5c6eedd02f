#include "backend/package/schedule.h"

#include "backend/package/library.h"
#include "base/map.h"
#include "ir/index_range.h"
#include "passes/memory/share.h"
#include "passes/partition/stages.h"
#include "passes/schedule/sequence.h"

#include <string.h>

typedef struct writer {
    sn_module *module;
    int rank; // pipeline rank: the rank class
    bool has_stages;
    const sn_schedule_request *request;
    const sn_kernel_entry *kernels;
    size_t n_kernels;
    sn_arena *arena;
    sn_str *constants;
    sn_schedule *out;
    SN_VEC(sn_buffer) buffers;
    SN_VEC(sn_special) specials;
    SN_VEC(const char *) origins;
    sn_map origin_index, args; // text -> index + 1; name -> first argument's value
} writer;

// Whether the class runs a function, or holds a global.
static bool runs(const writer *w, const sn_func *func) {
    int rank = sn_pipeline_rank_of(func);
    return !func->is_body && (rank < 0 || rank == w->rank);
}

static bool holds(const writer *w, const sn_global *global) {
    return !w->has_stages || sn_pipeline_rank_of_global(global) == w->rank;
}

static int64_t align(int64_t bytes) {
    return (bytes + SN_SCHEDULE_ALIGNMENT - 1) / SN_SCHEDULE_ALIGNMENT * SN_SCHEDULE_ALIGNMENT;
}

#define COPY_LIST(w, to, vec)                                                                                          \
    do {                                                                                                               \
        (to).items = sn_arena_copy((w)->arena, (vec)->data, (vec)->count * sizeof *(vec)->data);                       \
        (to).count = (vec)->count;                                                                                     \
    } while (0)

static sn_dims dims_of(writer *w, sn_type type) {
    sn_dims dims = {.count = (size_t)type.rank};
    dims.items = sn_arena_copy(w->arena, type.dim, sizeof *type.dim * (size_t)type.rank);
    return dims;
}

static sn_dims slots_of(writer *w, const sn_slot_table *table) {
    sn_dims dims = {.items = SN_NEW_N(w->arena, int64_t, table->n + 1), .count = (size_t)table->n};
    for (int m = 0; m < table->n; m++) dims.items[m] = table->of[m];
    return dims;
}

// value->id is the buffer's index plus one, for values with storage of their own.
static int64_t buffer_of(writer *w, sn_value *storage) {
    if (storage->id) return (int64_t)storage->id - 1;
    SN_CHECK(storage->place.placed);
    const char *name = storage->name;
    if (!name && storage->kind == SN_VALUE_RESULT)
        name = sn_arena_printf(w->arena, "%s.%zu", sn_op_name(storage->def->kind), w->buffers.count);
    sn_buffer buffer = {.name = sn_arena_strdup(w->arena, name),
                        .dtype = storage->type.dtype,
                        .shape = dims_of(w, storage->type),
                        .offset = storage->place.offset,
                        .bytes = sn_type_bytes(storage->type)};
    if (storage->place.slots > 1) buffer.slots = storage->place.slots, buffer.slot_bytes = align(buffer.bytes);
    if (storage->place.table) buffer.slot_of = slots_of(w, storage->place.table);
    sn_vec_push(&w->buffers, buffer);
    storage->id = (uint32_t)w->buffers.count;
    return (int64_t)w->buffers.count - 1;
}

static sn_view strided_view(writer *w, const sn_strided *strided) {
    sn_value *storage = sn_owner_of(strided->root);
    int64_t bytes = (int64_t)sn_dtype_bytes(strided->root->type.dtype);
    return (sn_view){buffer_of(w, storage), strided->offset * bytes};
}

static sn_strided strides_of(sn_value *value) {
    sn_strided strided;
    if (!sn_strided_view(value, &strided)) SN_BUG("a reshape of a strided view reached the backend");
    return strided;
}

static sn_view dense_view(writer *w, sn_value *value) {
    sn_strided strided = strides_of(value);
    if (!sn_strided_is_dense(&strided)) SN_BUG("an operand that must be dense is a strided view");
    return strided_view(w, &strided);
}

static int64_t origin_of(writer *w, const sn_op *op) {
    sn_str text = {0};
    sn_origin_print(&text, op->origin);
    int64_t index = -1;
    if (text.length) {
        index = (int64_t)(intptr_t)sn_map_get(&w->origin_index, sn_str_text(&text)) - 1;
        if (index < 0) {
            const char *copy = sn_arena_strdup(w->arena, sn_str_text(&text));
            sn_vec_push(&w->origins, copy);
            index = (int64_t)w->origins.count - 1;
            sn_map_put(&w->origin_index, copy, (void *)(intptr_t)(index + 1));
        }
    }
    sn_str_free(&text);
    return index;
}

static const sn_kernel_entry *find_kernel(const writer *w, const sn_func *body, int64_t *symbol) {
    for (size_t i = 0; i < w->n_kernels; i++) {
        if (w->kernels[i].body != body) continue;
        *symbol = (int64_t)i;
        return &w->kernels[i];
    }
    SN_BUG("kernel %s was not compiled", body->name);
}

static void add_arg(writer *w, sn_value *value, int64_t access, sn_do_kernel *out) {
    out->arg_bytes.items[out->args.count] = sn_type_bytes(value->type);
    out->access.items[out->args.count] = access;
    out->args.items[out->args.count++] = dense_view(w, value);
}

// A kernel's parameters are its operands, then the results that are not written over an operand.
static void write_kernel(writer *w, sn_op *op, sn_do_kernel *out) {
    const sn_kernel_entry *entry = find_kernel(w, sn_op_func(op, "body"), &out->symbol);
    int n;
    const int64_t *inplace = sn_op_ints(op, "inplace", &n);
    out->grid = entry->grid;
    out->one_thread = entry->one_thread;
    int most = op->n_operands + op->n_results;
    out->args.items = SN_NEW_N(w->arena, sn_view, most);
    out->arg_bytes.items = SN_NEW_N(w->arena, int64_t, most);
    out->access.items = SN_NEW_N(w->arena, int64_t, most);
    for (int i = 0; i < op->n_operands; i++) add_arg(w, op->operands[i], SN_ACCESS_READ, out);
    for (int i = 0; i < op->n_results; i++) {
        if (i >= n || inplace[i] < 0) {
            add_arg(w, op->results[i], SN_ACCESS_WRITE, out);
        } else {
            out->access.items[inplace[i]] |= SN_ACCESS_WRITE;
        }
    }
    out->arg_bytes.count = out->access.count = out->args.count;
}

// A collective without the attribute moves data or sums it.
static sn_reduce reduction_of(sn_op *op) {
    const sn_attr *reduction = sn_op_attr(op, "reduction");
    if (reduction && strcmp(reduction->s, "max") == 0) return SN_REDUCE_MAX;
    SN_CHECK(!reduction || strcmp(reduction->s, "sum") == 0); // localize negates for a minimum
    return SN_REDUCE_SUM;
}

static void write_collective(writer *w, sn_op *op, sn_do_collective *out) {
    const sn_attr *dim = sn_op_attr(op, "dim");
    SN_CHECK(!dim || dim->i == 0); // parts lie one behind the other: localize saw to it
    int64_t axes = sn_mesh_axes_named(&w->module->mesh, sn_op_string(op, "axes"));
    int64_t peers = op->kind == SN_OP_ALL_TO_ALL ? sn_mesh_size(&w->module->mesh, (sn_axes)axes) : 1;
    sn_value *smaller = op->kind == SN_OP_ALL_GATHER ? op->operands[0] : op->results[0];
    *out = (sn_do_collective){.dtype = smaller->type.dtype,
                              .reduce = reduction_of(op),
                              .axes = axes,
                              .count = sn_type_count(smaller->type) / peers,
                              .from = dense_view(w, op->operands[0]),
                              .to = dense_view(w, op->results[0])};
}

static void write_transfer(writer *w, sn_op *op, sn_do_transfer *out) {
    sn_value *value = op->kind == SN_OP_SEND ? op->operands[0] : op->results[0];
    *out = (sn_do_transfer){.dtype = value->type.dtype,
                            .peer = sn_op_int(op, "stage") % sn_pipeline_ranks(w->module),
                            .channel = sn_op_int(op, "channel"),
                            .count = sn_type_count(value->type),
                            .view = dense_view(w, value)};
}

static void write_copy(writer *w, sn_value *from, sn_value *to, sn_do_copy *out) {
    sn_strided a = strides_of(from), b = strides_of(to);
    *out =
        (sn_do_copy){.dtype = from->type.dtype, .rank = a.rank, .from = strided_view(w, &a), .to = strided_view(w, &b)};
    for (int d = 0; d < a.rank; d++) {
        out->dims[d] = a.dim[d];
        out->from_stride[d] = a.stride[d];
        out->to_stride[d] = b.stride[d];
    }
}

static void write_fill(writer *w, sn_op *assign, sn_instr *out) {
    sn_value *to = assign->operands[0];
    out->kind = SN_INSTR_FILL;
    out->fill = (sn_do_fill){.dtype = to->type.dtype, .count = sn_type_count(to->type), .to = dense_view(w, to)};
    if (!sn_value_number(assign->operands[1], &out->fill.value)) SN_BUG("a constant without a number");
}

static const sn_instr_kind instr_kinds[SN_OP_COUNT] = {
    [SN_OP_KERNEL] = SN_INSTR_KERNEL,
    [SN_OP_MATMUL] = SN_INSTR_GEMM,
    [SN_OP_CONV] = SN_INSTR_CONV,
    [SN_OP_CONV_INPUT_GRAD] = SN_INSTR_CONV_INPUT_GRAD,
    [SN_OP_CONV_WEIGHT_GRAD] = SN_INSTR_CONV_WEIGHT_GRAD,
    [SN_OP_ATTENTION] = SN_INSTR_ATTENTION,
    [SN_OP_ATTENTION_GRAD] = SN_INSTR_ATTENTION_GRAD,
    [SN_OP_ALL_REDUCE] = SN_INSTR_ALL_REDUCE,
    [SN_OP_ALL_GATHER] = SN_INSTR_ALL_GATHER,
    [SN_OP_REDUCE_SCATTER] = SN_INSTR_REDUCE_SCATTER,
    [SN_OP_ALL_TO_ALL] = SN_INSTR_ALL_TO_ALL,
    [SN_OP_SEND] = SN_INSTR_SEND,
    [SN_OP_RECV] = SN_INSTR_RECV,
    [SN_OP_RECORD] = SN_INSTR_RECORD,
    [SN_OP_WAIT] = SN_INSTR_WAIT,
};

static void write_instr(writer *w, sn_op *op, sn_instr *out) {
    sn_instr instr = {.kind = instr_kinds[op->kind],
                      .stream = op->stream ? SN_STREAM_COMM : SN_STREAM_COMPUTE,
                      .phase = op->phase,
                      .origin = origin_of(w, op)};
    if (op->kind == SN_OP_KERNEL) {
        write_kernel(w, op, &instr.kernel);
    } else if (sn_op_has(op->kind, SN_TRAIT_COLLECTIVE)) {
        write_collective(w, op, &instr.collective);
    } else if (sn_op_has(op->kind, SN_TRAIT_TRANSFER)) {
        write_transfer(w, op, &instr.transfer);
    } else if (op->kind == SN_OP_RECORD || op->kind == SN_OP_WAIT) {
        instr.event.event = sn_op_int(op, "event");
    } else {
        sn_library_operands operands;
        for (int i = 0; i < op->n_operands; i++) {
            operands.in[i] = strides_of(op->operands[i]);
            operands.in_view[i] = strided_view(w, &operands.in[i]);
        }
        for (int i = 0; i < op->n_results; i++) {
            operands.out[i] = strides_of(op->results[i]);
            operands.out_view[i] = strided_view(w, &operands.out[i]);
        }
        sn_library_call(op, &operands, &instr);
    }
    *out = instr;
}

bool sn_op_is_instruction(const sn_op *op) {
    return !sn_is_view_op(op) && op->kind != SN_OP_AXIS_INDEX && op->kind != SN_OP_ASSIGN &&
           op->kind != SN_OP_CONSTANT; // which only an assign reads: it fills the global
}

static void bind(sn_value *value, const sn_value *to) {
    sn_value *storage = sn_owner_of(strides_of(value).root);
    bool same = storage->kind == SN_VALUE_RESULT && sn_place_equal(&storage->place, &to->place);
    if (same && !storage->id) storage->id = to->id;
}

// What one function keeps for another is written where the other's argument lies, and a new value of a global perhaps
// where the global lies: the two are one buffer. The place alone does not tell which: values of a pool may lie in the
// same slots one after the other.
static void bind_shared(writer *w, sn_func *func) {
    for (size_t i = 0; i < func->results.count; i++) {
        const char *name = func->result_names.data[i];
        const sn_value *reader = sn_is_kept_name(name) ? sn_map_get(&w->args, name) : NULL;
        if (reader) bind(func->results.data[i], reader);
    }
    SN_FOR_OPS(op, func) {
        if (op->kind == SN_OP_ASSIGN && op->operands[0]->id) bind(op->operands[1], op->operands[0]);
    }
}

// A kept value that could not be computed where its readers look is copied there at the end.
static sn_instr *copy_kept(writer *w, sn_func *func, sn_instr *next) {
    for (size_t i = 0; i < func->results.count; i++) {
        const char *name = func->result_names.data[i];
        sn_value *value = func->results.data[i], *reader = sn_is_kept_name(name) ? sn_map_get(&w->args, name) : NULL;
        if (!reader || sn_place_equal(&sn_owner_of(strides_of(value).root)->place, &reader->place)) continue;
        const sn_op *op = value->kind == SN_VALUE_RESULT ? value->def : func->last;
        *next = (sn_instr){.kind = SN_INSTR_COPY, .phase = op ? op->phase : SN_PHASE_FORWARD, .origin = -1};
        if (op) next->origin = origin_of(w, op);
        write_copy(w, value, reader, &next->copy);
        next++;
    }
    return next;
}

static void write_program(writer *w, sn_func *func, sn_program *out) {
    *out = (sn_program){.name = func->name};
    out->instrs.items = SN_NEW_N(w->arena, sn_instr, func->n_ops + func->results.count);
    sn_instr *next = out->instrs.items;
    bind_shared(w, func);
    SN_FOR_OPS(op, func) {
        if (op->kind == SN_OP_AXIS_INDEX) {
            int64_t axes = sn_mesh_axes_named(&w->module->mesh, sn_op_string(op, "axes"));
            SN_CHECK(axes && !(axes & (axes - 1)));
            sn_special coordinate = {SN_SPECIAL_COORDINATE, buffer_of(w, op->results[0]),
                                     __builtin_ctzll((uint64_t)axes)};
            sn_vec_push(&w->specials, coordinate);
        }
        if (sn_op_is_instruction(op)) write_instr(w, op, next++);
    }
    // Values that could not be written over their global are copied when nothing reads the old value any more.
    SN_FOR_OPS(op, func) {
        if (op->kind != SN_OP_ASSIGN || sn_assign_is_in_place(op)) continue;
        *next = (sn_instr){.kind = SN_INSTR_COPY, .phase = op->phase, .origin = origin_of(w, op)};
        if (sn_value_is_constant(op->operands[1]))
            write_fill(w, op, next);
        else
            write_copy(w, op->operands[1], op->operands[0], &next->copy);
        next++;
    }
    next = copy_kept(w, func, next);
    out->instrs.count = (size_t)(next - out->instrs.items);
}

static sn_initial initial_of(writer *w, const sn_global *global) {
    sn_type type = sn_whole_type(&w->module->mesh, global->value->type, global->value->layout);
    sn_initial initial = {.dtype = type.dtype, .bytes = sn_type_bytes(type)};
    switch (global->source.kind) {
    case SN_SOURCE_FILL:
        initial.kind = SN_INITIAL_FILL;
        initial.value = global->source.fill;
        initial.bytes = 0;
        break;
    case SN_SOURCE_FILE:
        initial.kind = SN_INITIAL_FILE;
        initial.path = global->source.path;
        initial.offset = global->source.offset;
        break;
    case SN_SOURCE_MEMORY:
        while (w->constants->length % 64) sn_str_putc(w->constants, 0);
        initial.kind = SN_INITIAL_PAYLOAD;
        initial.offset = (int64_t)w->constants->length;
        sn_str_append(w->constants, global->source.data, (size_t)initial.bytes);
        break;
    }
    return initial;
}

// How the mesh cuts a value, in pieces that are cut in blocks.
static void write_cut(writer *w, const sn_value *value, sn_dims *shape, sn_dims *pieces, sn_dims *sharding) {
    const sn_mesh *mesh = &w->module->mesh;
    sn_type whole = sn_whole_type(mesh, value->type, value->layout);
    *shape = dims_of(w, whole);
    if (!sn_layout_axes(value->layout)) return;
    SN_VEC(int64_t) sizes = {0}, axes = {0};
    for (int d = 0; d < whole.rank; d++) {
        sn_piece of_dim[SN_MAX_AXES + 1];
        int n = sn_layout_pieces(mesh, value->layout, d, whole.dim[d], of_dim);
        for (int i = 0; i < n; i++) {
            sn_vec_push(&sizes, of_dim[i].size);
            sn_vec_push(&axes, (int64_t)of_dim[i].axes);
        }
    }
    COPY_LIST(w, *pieces, &sizes);
    COPY_LIST(w, *sharding, &axes);
    sn_vec_free(&sizes);
    sn_vec_free(&axes);
}

static void write_globals(writer *w) {
    static const sn_resident_role roles[SN_ROLE_COUNT] = {
        [SN_ROLE_PARAMETER] = SN_RESIDENT_PARAMETER, [SN_ROLE_FROZEN] = SN_RESIDENT_CONSTANT,
        [SN_ROLE_STATE] = SN_RESIDENT_STATE,         [SN_ROLE_OPTIMIZER] = SN_RESIDENT_MOMENT,
        [SN_ROLE_CONSTANT] = SN_RESIDENT_CONSTANT,   [SN_ROLE_SUM] = SN_RESIDENT_SUM,
    };
    size_t n = w->module->globals.count;
    w->out->globals.items = SN_NEW_N(w->arena, sn_resident, n);
    for (size_t i = 0; i < n; i++) {
        const sn_global *global = w->module->globals.data[i];
        if (!holds(w, global)) continue;
        sn_resident *out = &w->out->globals.items[w->out->globals.count++];
        *out = (sn_resident){.name = global->name,
                             .role = roles[global->role],
                             .of = global->of ? global->of->name : NULL,
                             .buffer = buffer_of(w, global->value),
                             .source = initial_of(w, global)};
        write_cut(w, global->value, &out->shape, &out->pieces, &out->sharding);
    }
}

static bool is_label(const writer *w, const char *name) {
    for (size_t i = 0; w->request->labels && i < w->request->labels->count; i++)
        if (strcmp(w->request->labels->items[i], name) == 0) return true;
    return false;
}

// Data arguments are cut along dim 0 alone, in blocks (passes/partition/distribute.h).
static sn_data_input data_input(writer *w, sn_value *arg) {
    sn_type global = sn_whole_type(&w->module->mesh, arg->type, arg->layout);
    sn_dims sharding = {.items = SN_NEW_N(w->arena, int64_t, global.rank + 1), .count = (size_t)global.rank};
    if (global.rank) sharding.items[0] = arg->layout.dim[0];
    sn_index_range range = arg->range ? *arg->range : (sn_index_range){0};
    return (sn_data_input){.name = arg->name,
                           .buffer = buffer_of(w, arg),
                           .shape = dims_of(w, global),
                           .batch_dim = global.rank ? 0 : -1,
                           .sharding = sharding,
                           .is_label = is_label(w, arg->name),
                           .has_range = range.known,
                           .lo = range.lo,
                           .hi = range.hi,
                           .has_ignore = range.has_ignore,
                           .ignore_index = range.ignore};
}

static void write_args(writer *w) {
    static const struct {
        const char *name;
        sn_special_kind kind;
    } known[] = {{"$step", SN_SPECIAL_STEP}, {"$seed", SN_SPECIAL_SEED}, {"$lr", SN_SPECIAL_LR}};
    SN_VEC(sn_data_input) inputs = {0};
    for (size_t f = 0; f < w->module->funcs.count; f++) {
        const sn_func *func = w->module->funcs.data[f];
        for (size_t a = 0; runs(w, func) && a < func->args.count; a++) {
            sn_value *arg = func->args.data[a], *first = sn_map_get(&w->args, arg->name);
            if (first) { // one buffer serves an argument of several functions
                arg->id = first->id;
                continue;
            }
            sn_map_put(&w->args, arg->name, arg);
            if (sn_is_kept_name(arg->name)) {
                buffer_of(w, arg);
                continue;
            }
            size_t k = 0;
            while (k < sizeof known / sizeof *known && strcmp(known[k].name, arg->name) != 0) k++;
            if (k < sizeof known / sizeof *known) {
                sn_special special = {.kind = known[k].kind, .buffer = buffer_of(w, arg)};
                sn_vec_push(&w->specials, special);
            } else {
                sn_vec_push(&inputs, data_input(w, arg));
            }
        }
    }
    COPY_LIST(w, w->out->inputs, &inputs);
    sn_vec_free(&inputs);
}

typedef SN_VEC(sn_output) outputs;

// A function's result as a buffer of its own shape: one more name for the bytes where it is a view of a value of
// another shape.
static int64_t result_buffer(writer *w, const sn_func *func, size_t index) {
    sn_value *value = func->results.data[index];
    sn_view view = dense_view(w, value);
    const sn_buffer *whole = &w->buffers.data[view.buffer];
    if (view.offset == 0 && sn_type_equal(sn_owner_of(strides_of(value).root)->type, value->type)) return view.buffer;
    sn_buffer part = {.name = sn_arena_strdup(w->arena, func->result_names.data[index]),
                      .dtype = value->type.dtype,
                      .shape = dims_of(w, value->type),
                      .offset = whole->offset + view.offset,
                      .bytes = sn_type_bytes(value->type)};
    sn_vec_push(&w->buffers, part);
    return (int64_t)w->buffers.count - 1;
}

// Whether the function is `name`, or does that part of it that its stage or rank has.
static bool does(const sn_func *func, const char *name) {
    int stage;
    sn_stage_part part;
    const char *own = sn_stage_of(func, &stage, &part) ? sn_stage_part_name(part) : func->name;
    return strcmp(own, name) == 0;
}

// Results of the class's functions that do `name`: those that begin with `prefix`, named without it.
static void list_results(writer *w, const char *name, const char *prefix, outputs *out) {
    for (size_t f = 0; f < w->module->funcs.count; f++) {
        const sn_func *func = w->module->funcs.data[f];
        for (size_t i = 0; runs(w, func) && does(func, name) && i < func->results.count; i++) {
            const char *result = func->result_names.data[i];
            if (!sn_starts_with(result, prefix) || sn_is_kept_name(result)) continue;
            sn_output output = {.name = result + strlen(prefix),
                                .buffer = result_buffer(w, func, i),
                                .shape = dims_of(w, func->results.data[i]->type)};
            sn_vec_push(out, output);
        }
    }
}

static int64_t scalar_result(writer *w, const char *name, const char *result) {
    outputs found = {0};
    list_results(w, name, result, &found);
    int64_t buffer = found.count ? found.data[0].buffer : -1;
    sn_vec_free(&found);
    return buffer;
}

static void write_outputs(writer *w) {
    outputs gradients = {0}, predictions = {0};
    list_results(w, "gradients", "grad:", &gradients);
    list_results(w, "predict", "", &predictions);
    COPY_LIST(w, w->out->gradients, &gradients);
    COPY_LIST(w, w->out->predictions, &predictions);
    sn_vec_free(&gradients);
    sn_vec_free(&predictions);
    const char *last = w->has_stages || sn_module_func(w->module, "update") ? "update" : "step";
    w->out->loss = scalar_result(w, last, "loss");
    w->out->grad_norm = scalar_result(w, last, "grad_norm");
    w->out->eval_loss = scalar_result(w, "eval", "loss");
}

static void write_mesh(writer *w) {
    const sn_mesh *mesh = &w->module->mesh;
    w->out->mesh.items = SN_NEW_N(w->arena, sn_schedule_axis, mesh->n_axes);
    w->out->mesh.count = (size_t)mesh->n_axes;
    for (int i = 0; i < mesh->n_axes; i++)
        w->out->mesh.items[i] = (sn_schedule_axis){sn_arena_strdup(w->arena, mesh->name[i]), mesh->size[i]};
    w->out->ranks = sn_mesh_ranks(mesh);
}

static void forget_ids(const sn_module *module) {
    for (size_t i = 0; i < module->globals.count; i++) module->globals.data[i]->value->id = 0;
    for (size_t f = 0; f < module->funcs.count; f++) {
        const sn_func *func = module->funcs.data[f];
        for (size_t a = 0; a < func->args.count; a++) func->args.data[a]->id = 0;
        SN_FOR_OPS(op, func) {
            for (int i = 0; i < op->n_results; i++) op->results[i]->id = 0;
        }
    }
}

static void write_programs(writer *w) {
    SN_VEC(sn_program) programs = {0};
    for (size_t f = 0; f < w->module->funcs.count; f++) {
        if (!runs(w, w->module->funcs.data[f])) continue;
        sn_program program;
        write_program(w, w->module->funcs.data[f], &program);
        sn_vec_push(&programs, program);
    }
    COPY_LIST(w, w->out->programs, &programs);
    sn_vec_free(&programs);
}

static int64_t program_index(const sn_schedule *s, const char *name) {
    return sn_schedule_program(s, name) - s->programs.items;
}

// The data of a micro-batch is read before its first run of a class that takes any.
static void write_sequences(writer *w) {
    sn_schedule *s = w->out;
    s->sequences.items = SN_NEW_N(w->arena, sn_sequence, SN_SEQUENCE_COUNT);
    for (sn_sequence_kind kind = 0; kind < SN_SEQUENCE_COUNT; kind++) {
        sn_func_runs order = {0};
        if (!sn_sequence_of(w->module, w->request->plan, w->rank, kind, &order)) continue;
        sn_sequence *sequence = &s->sequences.items[s->sequences.count++];
        *sequence = (sn_sequence){.name = sn_sequence_name(kind)};
        sequence->runs.items = SN_NEW_N(w->arena, sn_sequence_run, order.count + 1);
        bool *loaded = SN_NEW_N(w->arena, bool, w->request->microbatches + 1);
        for (size_t i = 0; i < order.count; i++) {
            const sn_func_run *run = &order.data[i];
            bool load = run->micro_batch >= 0 && s->inputs.count && !loaded[run->micro_batch];
            if (load) loaded[run->micro_batch] = true;
            sequence->runs.items[sequence->runs.count++] =
                (sn_sequence_run){program_index(s, run->func->name), run->micro_batch, load};
        }
        sn_vec_free(&order);
    }
}

// Of all classes: one may take no data.
static int64_t samples_of_a_step(const writer *w) {
    for (size_t f = 0; f < w->module->funcs.count; f++) {
        const sn_func *func = w->module->funcs.data[f];
        for (size_t a = 0; !func->is_body && a < func->args.count; a++) {
            const sn_value *arg = func->args.data[a];
            if (arg->name[0] == '$' || !arg->type.rank) continue;
            sn_type whole = sn_whole_type(&w->module->mesh, arg->type, arg->layout);
            return whole.dim[0] * w->request->microbatches;
        }
    }
    return 1;
}

// What the class's buffers span.
static int64_t arena_of(const writer *w) {
    int64_t bytes = 0;
    for (size_t i = 0; i < w->buffers.count; i++) {
        const sn_buffer *b = &w->buffers.data[i];
        int64_t end = b->offset + b->bytes + (b->slots > 1 ? (b->slots - 1) * b->slot_bytes : 0);
        if (end > bytes) bytes = end;
    }
    return w->has_stages ? align(bytes) : w->module->arena_bytes;
}

void sn_schedule_build(sn_module *module, const sn_schedule_request *request, int rank, const sn_kernel_entry *kernels,
                       size_t n_kernels, sn_arena *arena, sn_str *constants, sn_schedule *out) {
    SN_CHECK(module->form == SN_FORM_SCHED);
    bool has_stages = sn_module_has_stages(module);
    *out = (sn_schedule){.pipeline_axis = has_stages ? sn_mesh_axis(&module->mesh, "pp") : -1,
                         .model_path = request->model_path,
                         .model_bytes = request->model_bytes,
                         .model_hash = request->model_hash,
                         .plan_hash = request->plan_hash,
                         .threads = request->threads,
                         .micro_batches = request->microbatches,
                         .lr = request->lr};
    writer w = {.module = module,
                .rank = rank,
                .has_stages = has_stages,
                .request = request,
                .kernels = kernels,
                .n_kernels = n_kernels,
                .arena = arena,
                .constants = constants,
                .out = out};
    forget_ids(module);
    write_mesh(&w);
    write_globals(&w);
    write_args(&w);
    out->step_samples = samples_of_a_step(&w);
    write_programs(&w);
    write_sequences(&w);
    write_outputs(&w);
    out->arena_bytes = arena_of(&w);
    out->kernels.items = SN_NEW_N(arena, const char *, n_kernels);
    for (size_t i = 0; i < n_kernels; i++) out->kernels.items[out->kernels.count++] = kernels[i].symbol;
    out->settings.items = sn_arena_copy(arena, request->settings, request->n_settings * sizeof *request->settings);
    out->settings.count = request->n_settings;
    COPY_LIST(&w, out->buffers, &w.buffers);
    COPY_LIST(&w, out->specials, &w.specials);
    COPY_LIST(&w, out->origins, &w.origins);
    sn_vec_free(&w.buffers);
    sn_vec_free(&w.specials);
    sn_vec_free(&w.origins);
    sn_map_free(&w.origin_index);
    sn_map_free(&w.args);
}

void sn_schedules_build(sn_module *module, const sn_schedule_request *request, const sn_kernel_entry *kernels,
                        size_t n_kernels, sn_arena *arena, sn_str *constants, sn_schedules *out) {
    int classes = sn_module_has_stages(module) ? sn_pipeline_ranks(module) : 1;
    *out = (sn_schedules){.version = SN_SCHEDULE_VERSION};
    out->classes.items = SN_NEW_N(arena, sn_schedule, classes);
    for (int rank = 0; rank < classes; rank++)
        sn_schedule_build(module, request, rank, kernels, n_kernels, arena, constants,
                          &out->classes.items[out->classes.count++]);
    sn_status wrong = sn_schedules_check(out);
    if (wrong) SN_BUG("the schedule is malformed: %s", sn_status_message(wrong));
}
