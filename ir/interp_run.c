// Running whole functions. A frame holds, for each value that is still needed, one tensor per rank; all ranks execute
// an op before any goes on to the next. The body of a kernel runs in a frame of its own with one rank.
#include "base/alloc.h"
#include "ir/interp_mesh.h"
#include "ir/interp_reference.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef struct message { // sent and not received
    int64_t channel;
    sn_tensor *parts;
} message;

struct sn_interp {
    const sn_module *module;
    bool f64;
    sn_map globals; // name -> sn_tensor *
    SN_VEC(message) messages;
    sn_str message;
};

typedef struct slot {
    const sn_value *value; // NULL when free
    sn_tensor *parts;
    size_t uses_left;
} slot;

typedef struct assignment {
    const sn_global *global;
    sn_tensor *parts;
} assignment;

typedef struct frame {
    sn_interp *interp; // NULL inside of sn_evaluate
    const sn_mesh *mesh;
    sn_form form;
    bool f64;
    int64_t first_rank, ranks;
    slot *slots; // open addressing; never more than half full
    size_t capacity, count;
    SN_VEC(assignment) assignments;
    const sn_op *failed; // the op that could not be computed
    const sn_op *next;   // where a function that waited goes on; NULL: at its start
} frame;

static const char waiting[] = "nothing was sent on its channel";

static const sn_mesh one_rank = {0};

// In graph form a mesh and layouts are what is planned (passes/partition/partition.h): nothing is cut yet.
static const sn_mesh *mesh_of(const sn_module *module) {
    return module->form == SN_FORM_GRAPH ? &one_rank : &module->mesh;
}

static sn_type as_computed(bool f64, sn_type type) {
    return f64 && sn_dtype_is_float(type.dtype) ? sn_type_with_dtype(type, SN_F64) : type;
}

static sn_type local_type(const frame *f, const sn_value *value) {
    sn_type type = value->type;
    if (f->form == SN_FORM_DIST) type = sn_local_type(f->mesh, type, value->layout);
    return as_computed(f->f64, type);
}

// Types are those of whole tensors but in sched form.
static sn_type whole_type(const sn_module *module, bool f64, const sn_value *value) {
    sn_type type = value->type;
    if (module->form == SN_FORM_SCHED) type = sn_whole_type(&module->mesh, type, value->layout);
    return as_computed(f64, type);
}

static size_t hash_pointer(const void *pointer) {
    return (size_t)((uint64_t)(uintptr_t)pointer * 0x9E3779B97F4A7C15u >> 20);
}

static slot *find_slot(const frame *f, const sn_value *value) {
    for (size_t i = hash_pointer(value);; i++) {
        slot *s = &f->slots[i & (f->capacity - 1)];
        if (!s->value || s->value == value) return s;
    }
}

// Slots are not taken out again when a value dies: only its data is freed.
static void put_parts(frame *f, const sn_value *value, sn_tensor *parts, size_t uses) {
    if (f->count * 2 >= f->capacity) {
        slot *old = f->slots;
        size_t n = f->capacity;
        f->capacity = n ? 2 * n : 64;
        f->slots = sn_alloc(sizeof *f->slots * f->capacity);
        for (size_t i = 0; i < n; i++)
            if (old[i].value) *find_slot(f, old[i].value) = old[i];
        sn_free(old);
    }
    slot *s = find_slot(f, value);
    f->count += !s->value;
    *s = (slot){value, parts, uses};
}

static sn_tensor *new_parts(const frame *f, sn_type type) {
    sn_tensor *parts = sn_alloc(sizeof *parts * (size_t)f->ranks);
    for (int64_t r = 0; r < f->ranks; r++) parts[r] = sn_tensor_new(type);
    return parts;
}

static void free_parts(const frame *f, sn_tensor *parts) {
    for (int64_t r = 0; parts && r < f->ranks; r++) sn_tensor_free(&parts[r]);
    sn_free(parts);
}

static sn_tensor *copy_parts(const frame *f, const sn_tensor *parts) {
    sn_tensor *copy = new_parts(f, parts[0].type);
    for (int64_t r = 0; r < f->ranks; r++) memcpy(copy[r].data, parts[r].data, (size_t)sn_type_bytes(parts[r].type));
    return copy;
}

static size_t count_uses(const sn_func *func, const sn_value *value) {
    size_t uses = value->uses.count;
    for (size_t i = 0; i < func->results.count; i++) uses += func->results.data[i] == value;
    return uses;
}

static sn_tensor *cut_parts(const frame *f, const sn_value *value, const sn_tensor *whole) {
    sn_tensor *parts = sn_alloc(sizeof *parts * (size_t)f->ranks);
    for (int64_t r = 0; r < f->ranks; r++)
        parts[r] = sn_mesh_cut(f->mesh, value->layout, f->first_rank + r, whole, local_type(f, value));
    return parts;
}

// The parts of a value that has been computed, or of a global, read when it is first needed.
static const char *get_parts(frame *f, const sn_value *value, sn_tensor **out) {
    slot *s = f->capacity ? find_slot(f, value) : NULL;
    if (s && s->parts) {
        *out = s->parts;
        return NULL;
    }
    if (value->kind != SN_VALUE_GLOBAL) SN_BUG("a value is used before it is computed");
    if (!f->interp) return "a kernel reads a global that is not its argument";
    const char *problem = NULL;
    const sn_tensor *whole = sn_interp_global(f->interp, value->global, &problem);
    if (!whole) return problem;
    *out = cut_parts(f, value, whole);
    put_parts(f, value, *out, SIZE_MAX);
    return NULL;
}

static void drop_use(frame *f, const sn_value *value) {
    slot *s = find_slot(f, value);
    if (!s->value || s->uses_left == SIZE_MAX || --s->uses_left > 0) return;
    free_parts(f, s->parts);
    s->parts = NULL;
}

static const char *run_ops(frame *f, const sn_func *func);

static void frame_end(frame *f) {
    for (size_t i = 0; i < f->capacity; i++) free_parts(f, f->slots[i].parts);
    for (size_t i = 0; i < f->assignments.count; i++) free_parts(f, f->assignments.data[i].parts);
    sn_vec_free(&f->assignments);
    sn_free(f->slots);
}

// One rank's run of a kernel's body. `out` is allocated.
static const char *run_body(frame *f, const sn_func *body, const sn_tensor *in, sn_tensor *out) {
    for (size_t i = 0; i < body->args.count; i++) {
        sn_tensor *parts = copy_parts(f, &in[i]);
        put_parts(f, body->args.data[i], parts, SIZE_MAX);
    }
    const char *problem = run_ops(f, body);
    for (size_t i = 0; !problem && i < body->results.count; i++) {
        sn_tensor *parts;
        problem = get_parts(f, body->results.data[i], &parts);
        if (!problem) memcpy(out[i].data, parts->data, (size_t)sn_type_bytes(out[i].type));
    }
    return problem;
}

static const char *run_kernel(const frame *outer, const sn_op *op, int64_t rank, const sn_tensor *in, sn_tensor *out) {
    frame f = {.interp = outer->interp,
               .mesh = outer->mesh,
               .form = outer->form,
               .f64 = outer->f64,
               .first_rank = rank,
               .ranks = 1};
    const char *problem = run_body(&f, sn_op_func(op, "body"), in, out);
    frame_end(&f);
    return problem;
}

// Outside of a module's run a kernel has one rank; f64 mode shows in the types of its operands.
const char *sn_reference_kernel(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    frame f = {.mesh = &one_rank, .form = SN_FORM_SCHED, .ranks = 1};
    for (int i = 0; i < op->n_operands; i++) f.f64 |= in[i].type.dtype != op->operands[i]->type.dtype;
    return run_kernel(&f, op, 0, in, out);
}

static bool is_collective(const sn_op *op) {
    return sn_op_has(op->kind, SN_TRAIT_COLLECTIVE) || op->kind == SN_OP_SHARD || op->kind == SN_OP_AXIS_INDEX;
}

// In dist form a generator that is cut gives the rank's part of the whole tensor.
static const char *run_generator(const frame *f, const sn_op *op, int64_t rank, const sn_tensor *in, sn_tensor *out) {
    const sn_value *value = op->results[0];
    sn_tensor whole = sn_tensor_new(sn_type_with_dtype(value->type, out->type.dtype));
    const char *problem = sn_evaluate(op, in, &whole);
    if (!problem) {
        sn_tensor part = sn_mesh_cut(f->mesh, value->layout, rank, &whole, out->type);
        memcpy(out->data, part.data, (size_t)sn_type_bytes(out->type));
        sn_tensor_free(&part);
    }
    sn_tensor_free(&whole);
    return problem;
}

// Whether an op of dist form counts elements from the start of a dim that is cut: its local form has other attributes,
// or other ops (passes/partition/localize.c).
static bool needs_place(const sn_op *op) {
    const sn_value *x = op->operands[0], *y = op->results[0];
    if (op->kind == SN_OP_SLICE || op->kind == SN_OP_PAD) {
        for (int d = 0; d < y->type.rank; d++)
            if (y->layout.dim[d] && x->type.dim[d] != y->type.dim[d]) return true;
        return false;
    }
    if (op->kind == SN_OP_GATHER) return x->layout.dim[sn_op_int(op, "axis")] != 0;
    if (op->kind == SN_OP_GATHER_GRAD) return y->layout.dim[sn_op_int(op, "axis")] != 0;
    bool attends = op->kind == SN_OP_ATTENTION || op->kind == SN_OP_ATTENTION_GRAD;
    return attends && sn_op_int(op, "causal") && x->layout.dim[2];
}

static const char *run_on_one(frame *f, const sn_op *op, int64_t rank, const sn_tensor *in, sn_tensor *out) {
    if (op->kind == SN_OP_KERNEL) return run_kernel(f, op, rank, in, out);
    if (f->form == SN_FORM_DIST && (op->kind == SN_OP_IOTA || op->kind == SN_OP_RANDOM_UNIFORM))
        return run_generator(f, op, rank, in, out);
    if (f->form == SN_FORM_DIST && op->n_operands && op->n_results && needs_place(op))
        return "the op depends on the rank's place: localize the module first";
    return sn_evaluate(op, in, out);
}

static const char *run_on_rank(frame *f, const sn_op *op, int64_t r, sn_tensor *const *in, sn_tensor *const *out) {
    sn_tensor *operands = sn_alloc(sizeof *operands * (size_t)(op->n_operands + 1));
    sn_tensor *results = sn_alloc(sizeof *results * (size_t)(op->n_results + 1));
    for (int i = 0; i < op->n_operands; i++) operands[i] = in[i][r];
    for (int i = 0; i < op->n_results; i++) results[i] = out[i][r];
    const char *problem = run_on_one(f, op, f->first_rank + r, operands, results);
    sn_free(operands);
    sn_free(results);
    return problem;
}

static const char *run_parts(frame *f, const sn_op *op, sn_tensor **in, sn_tensor **out) {
    if (is_collective(op) && f->mesh->n_axes > 0) {
        if (f->ranks != sn_mesh_ranks(f->mesh)) return "a collective inside of a kernel";
        if (f->form == SN_FORM_DIST && op->n_operands)
            sn_mesh_relayout(f->mesh, op, in[0], out[0]);
        else
            sn_mesh_collective(f->mesh, op, op->n_operands ? in[0] : NULL, out[0]);
        return NULL;
    }
    for (int64_t r = 0; r < f->ranks; r++) {
        const char *problem = run_on_rank(f, op, r, in, out);
        if (problem) return problem;
    }
    return NULL;
}

static const message *find_message(const sn_interp *interp, int64_t channel) {
    for (size_t i = 0; i < interp->messages.count; i++)
        if (interp->messages.data[i].channel == channel) return &interp->messages.data[i];
    return NULL;
}

static const char *run_transfer(frame *f, const sn_func *func, const sn_op *op) {
    int64_t channel = sn_op_int(op, "channel");
    if (!f->interp) return "a transfer inside of a kernel";
    if (op->kind == SN_OP_SEND) {
        sn_tensor *parts;
        const char *problem = get_parts(f, op->operands[0], &parts);
        if (problem) return problem;
        sn_vec_push(&f->interp->messages, (message){channel, copy_parts(f, parts)});
        drop_use(f, op->operands[0]);
        return NULL;
    }
    const message *found = find_message(f->interp, channel);
    if (!found) return waiting;
    size_t uses = count_uses(func, op->results[0]);
    if (uses)
        put_parts(f, op->results[0], found->parts, uses);
    else
        free_parts(f, found->parts);
    size_t at = (size_t)(found - f->interp->messages.data), behind = --f->interp->messages.count - at;
    memmove(&f->interp->messages.data[at], &f->interp->messages.data[at + 1], behind * sizeof *found);
    return NULL;
}

static const char *run_op(frame *f, const sn_func *func, const sn_op *op) {
    if (sn_op_has(op->kind, SN_TRAIT_TRANSFER)) return run_transfer(f, func, op);
    sn_tensor **in = sn_alloc(sizeof *in * (size_t)(op->n_operands + 1));
    sn_tensor **out = sn_alloc(sizeof *out * (size_t)(op->n_results + 1));
    const char *problem = NULL;
    int first = op->kind == SN_OP_ASSIGN ? 1 : 0; // what is overwritten is not read
    for (int i = first; !problem && i < op->n_operands; i++) problem = get_parts(f, op->operands[i], &in[i]);
    for (int i = 0; !problem && i < op->n_results; i++) out[i] = new_parts(f, local_type(f, op->results[i]));
    if (!problem && op->kind == SN_OP_ASSIGN)
        sn_vec_push(&f->assignments, (assignment){op->operands[0]->global, copy_parts(f, in[1])});
    else if (!problem)
        problem = run_parts(f, op, in, out);
    for (int i = 0; i < op->n_results; i++) {
        size_t uses = count_uses(func, op->results[i]);
        if (!problem && uses)
            put_parts(f, op->results[i], out[i], uses);
        else
            free_parts(f, out[i]);
    }
    for (int i = first; !problem && i < op->n_operands; i++) drop_use(f, op->operands[i]);
    sn_free(in);
    sn_free(out);
    return problem;
}

static const char *run_ops(frame *f, const sn_func *func) {
    for (const sn_op *op = f->next ? f->next : func->first; op; op = op->next) {
        const char *problem = run_op(f, func, op);
        if (!problem) continue;
        f->next = op;
        if (!f->failed || problem == waiting) f->failed = op;
        return problem;
    }
    return NULL;
}

sn_interp *sn_interp_new(const sn_module *module) {
    sn_interp *interp = sn_alloc(sizeof *interp);
    interp->module = module;
    return interp;
}

void sn_interp_free(sn_interp *interp) {
    for (size_t i = 0; i < interp->globals.count; i++) {
        sn_tensor_free(interp->globals.entries[i].value);
        sn_free(interp->globals.entries[i].value);
    }
    sn_map_free(&interp->globals);
    for (size_t i = 0; i < interp->messages.count; i++) {
        int64_t ranks = sn_mesh_ranks(mesh_of(interp->module));
        for (int64_t r = 0; r < ranks; r++) sn_tensor_free(&interp->messages.data[i].parts[r]);
        sn_free(interp->messages.data[i].parts);
    }
    sn_vec_free(&interp->messages);
    sn_str_free(&interp->message);
    sn_free(interp);
}

static void convert(sn_tensor *tensor, sn_type type) {
    sn_tensor converted = sn_tensor_new(type);
    sn_reference_cast(NULL, tensor, &converted);
    sn_tensor_free(tensor);
    *tensor = converted;
}

void sn_interp_set_f64(sn_interp *interp, bool on) {
    interp->f64 = on;
    for (size_t i = 0; i < interp->globals.count; i++) {
        const sn_global *global = sn_module_global(interp->module, interp->globals.entries[i].key);
        convert(interp->globals.entries[i].value, whole_type(interp->module, on, global->value));
    }
}

static const char *read_file(const sn_source *source, sn_tensor *out) {
    int fd = source->path ? open(source->path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return "the file of a global cannot be opened";
    size_t bytes = (size_t)sn_type_bytes(out->type), done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, (char *)out->data + done, bytes - done, source->offset + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    close(fd);
    return done == bytes ? NULL : "the file of a global ends too early";
}

static const char *read_source(const sn_source *source, sn_tensor *out) {
    int64_t count = sn_type_count(out->type);
    if (source->kind == SN_SOURCE_FILL)
        for (int64_t i = 0; i < count; i++) sn_put_f64(out, i, source->fill);
    else if (source->data)
        memcpy(out->data, source->data, (size_t)sn_type_bytes(out->type));
    else if (count)
        return read_file(source, out);
    return NULL;
}

sn_tensor *sn_interp_global(sn_interp *interp, const sn_global *global, const char **problem) {
    sn_tensor *tensor = sn_map_get(&interp->globals, global->name);
    if (tensor) return tensor;
    sn_tensor read = sn_tensor_new(whole_type(interp->module, false, global->value));
    *problem = read_source(&global->source, &read);
    if (*problem) {
        sn_tensor_free(&read);
        return NULL;
    }
    if (interp->f64) convert(&read, as_computed(true, read.type));
    tensor = sn_alloc(sizeof *tensor);
    *tensor = read;
    sn_map_put(&interp->globals, global->name, tensor);
    return tensor;
}

static const char *bind_args(frame *f, const sn_func *func, const sn_tensor *args) {
    for (size_t i = 0; i < func->args.count; i++) {
        const sn_value *arg = func->args.data[i];
        sn_type type = whole_type(f->interp->module, f->f64, arg);
        bool both_float = sn_tensor_is_float(&args[i]) && sn_dtype_is_float(type.dtype);
        if (!sn_shape_equal(args[i].type, type) || (args[i].type.dtype != type.dtype && !both_float))
            return "an argument has another type than the function's";
        sn_tensor whole = sn_tensor_new(type);
        sn_reference_cast(NULL, &args[i], &whole);
        put_parts(f, arg, cut_parts(f, arg, &whole), count_uses(func, arg) + 1);
        sn_tensor_free(&whole);
    }
    return NULL;
}

static const char *join_results(frame *f, const sn_func *func, sn_tensor *results) {
    const char *problem = NULL;
    for (size_t i = 0; i < func->results.count; i++) results[i] = (sn_tensor){0};
    for (size_t i = 0; !problem && i < func->results.count; i++) {
        const sn_value *value = func->results.data[i];
        sn_tensor *parts;
        problem = value->layout.partial ? "a partial sum leaves the function" : get_parts(f, value, &parts);
        if (!problem)
            problem =
                sn_mesh_join(f->mesh, value->layout, parts, whole_type(f->interp->module, f->f64, value), &results[i]);
    }
    for (size_t i = 0; problem && i < func->results.count; i++) sn_tensor_free(&results[i]);
    return problem;
}

static const char *apply_assignments(frame *f) {
    for (size_t i = 0; i < f->assignments.count; i++) {
        const assignment *a = &f->assignments.data[i];
        const char *problem = NULL;
        sn_tensor *held = sn_interp_global(f->interp, a->global, &problem), joined;
        if (!problem) problem = sn_mesh_join(f->mesh, a->global->value->layout, a->parts, held->type, &joined);
        if (problem) return problem;
        sn_tensor_free(held);
        *held = joined;
    }
    return NULL;
}

// Goes through the functions until all have ended or none moves.
static const char *run_frames(frame *frames, int n, sn_func *const *funcs, frame **failed) {
    bool *ended = sn_alloc(sizeof *ended * (size_t)n), moved = true;
    const char *problem = NULL;
    int left = n;
    while (left && moved && (!problem || problem == waiting)) {
        moved = false;
        for (int i = 0; i < n && (!problem || problem == waiting); i++) {
            const sn_op *before = frames[i].next;
            if (ended[i]) continue;
            problem = run_ops(&frames[i], funcs[i]);
            ended[i] = !problem;
            left -= ended[i];
            moved |= ended[i] || frames[i].next != before;
            *failed = &frames[i];
        }
    }
    sn_free(ended);
    return left ? problem : NULL;
}

static const char *describe(sn_interp *interp, const frame *f, const char *problem) {
    sn_str_clear(&interp->message);
    if (f && f->failed) {
        sn_str_puts(&interp->message, sn_op_name(f->failed->kind));
        if (f->failed->origin) sn_str_putc(&interp->message, ' ');
        sn_origin_print(&interp->message, f->failed->origin);
        sn_str_puts(&interp->message, ": ");
    }
    sn_str_puts(&interp->message, problem);
    return sn_str_text(&interp->message);
}

const char *sn_interp_run_all(sn_interp *interp, int n, sn_func *const *funcs, const sn_tensor *const *args,
                              sn_tensor *const *results) {
    const sn_module *module = interp->module;
    frame *frames = sn_alloc(sizeof *frames * (size_t)n), *failed = NULL;
    const char *problem = NULL;
    for (int i = 0; i < n; i++) {
        frames[i] = (frame){.interp = interp,
                            .mesh = mesh_of(module),
                            .form = module->form,
                            .f64 = interp->f64,
                            .ranks = sn_mesh_ranks(mesh_of(module))};
        if (!problem) problem = bind_args(&frames[i], funcs[i], args[i]);
    }
    if (!problem) problem = run_frames(frames, n, funcs, &failed);
    int joined = 0;
    for (; !problem && joined < n; joined++) problem = join_results(&frames[joined], funcs[joined], results[joined]);
    for (int i = 0; !problem && i < n; i++) problem = apply_assignments(&frames[i]);
    for (int i = 0; problem && i < joined; i++)
        for (size_t r = 0; r < funcs[i]->results.count; r++) sn_tensor_free(&results[i][r]);
    if (problem) problem = describe(interp, failed, problem);
    for (int i = 0; i < n; i++) frame_end(&frames[i]);
    sn_free(frames);
    return problem;
}

const char *sn_interp_run(sn_interp *interp, const sn_func *func, const sn_tensor *args, sn_tensor *results) {
    sn_func *funcs[] = {(sn_func *)(uintptr_t)func};
    return sn_interp_run_all(interp, 1, funcs, &args, &results);
}

bool sn_interp_is_ready(const sn_interp *interp, const sn_func *func) {
    SN_FOR_OPS(op, func) {
        if (op->kind == SN_OP_RECV && !find_message(interp, sn_op_int(op, "channel"))) return false;
    }
    return true;
}
