#include "backend/simulate/price.h"

#include "backend/simulate/signature.h"
#include "passes/cost/profile.h"
#include "runtime/mesh.h"

#include <math.h>

// The groups along some axes, or (with all bits but `peer`) the pairs with another pipeline coordinate, of all ranks of
// a class: one of each shape that the links give them.
typedef struct shapes {
    int64_t axes; // ~peer for pairs
    SN_VEC(sn_group) groups;
} shapes;

typedef struct pricer {
    const sn_price_request *request;
    sn_arena *arena;
    sn_cost_model model; // its device is one of those below
    const sn_schedule *schedule;
    const char **kernels;  // their signatures
    SN_VEC(int64_t) ranks; // of the class
    const sn_device_kind *devices[SN_MAX_NODE_KINDS];
    int n_devices;
    SN_VEC(shapes) shapes;
} pricer;

static const sn_op_kind op_kinds[SN_INSTR_COUNT] = {
    [SN_INSTR_ALL_REDUCE] = SN_OP_ALL_REDUCE,         [SN_INSTR_ALL_GATHER] = SN_OP_ALL_GATHER,
    [SN_INSTR_REDUCE_SCATTER] = SN_OP_REDUCE_SCATTER, [SN_INSTR_ALL_TO_ALL] = SN_OP_ALL_TO_ALL,
    [SN_INSTR_BROADCAST] = SN_OP_ALL_GATHER,
};

static void add_shape(shapes *known, sn_group group) {
    for (size_t i = 0; i < known->groups.count; i++)
        if (sn_group_equal(&known->groups.data[i], &group)) return;
    sn_vec_push(&known->groups, group);
}

static sn_group group_along(const pricer *p, int64_t rank, int64_t axes) {
    int64_t n = sn_schedule_group_size(p->schedule, axes), *ranks = sn_alloc((size_t)n * sizeof *ranks);
    for (int64_t i = 0; i < n; i++) ranks[i] = sn_schedule_member(p->schedule, rank, axes, i);
    sn_group group = sn_cluster_group_of(p->request->cluster, n, ranks);
    sn_free(ranks);
    return group;
}

static void find_groups(const pricer *p, shapes *out) {
    int64_t colors = p->schedule->ranks / sn_schedule_group_size(p->schedule, out->axes);
    bool *seen = sn_alloc((size_t)colors * sizeof *seen);
    for (size_t i = 0; i < p->ranks.count; i++) {
        int64_t rank = p->ranks.data[i], color = sn_schedule_color(p->schedule, rank, out->axes);
        if (!seen[color]) add_shape(out, group_along(p, rank, out->axes));
        seen[color] = true;
    }
    sn_free(seen);
}

static void find_pairs(const pricer *p, int64_t peer, shapes *out) {
    for (size_t i = 0; i < p->ranks.count; i++) {
        int64_t rank = p->ranks.data[i], to = sn_schedule_peer(p->schedule, rank, peer);
        int64_t pair[2] = {rank < to ? rank : to, rank < to ? to : rank};
        add_shape(out, sn_cluster_group_of(p->request->cluster, 2, pair));
    }
}

static const shapes *shapes_of(pricer *p, int64_t axes) {
    for (size_t i = 0; i < p->shapes.count; i++)
        if (p->shapes.data[i].axes == axes) return &p->shapes.data[i];
    shapes found = {.axes = axes};
    if (axes < 0)
        find_pairs(p, ~axes, &found);
    else
        find_groups(p, &found);
    sn_vec_push(&p->shapes, found);
    return &sn_vec_last(&p->shapes);
}

// Bytes of the tensor as a whole (passes/cost/cost.h).
static double collective_bytes(const sn_do_collective *c, sn_instr_kind kind, int64_t ranks) {
    bool parts = kind == SN_INSTR_ALL_GATHER || kind == SN_INSTR_REDUCE_SCATTER || kind == SN_INSTR_ALL_TO_ALL;
    return (double)c->count * (double)sn_dtype_bytes(c->dtype) * (double)(parts ? ranks : 1);
}

// The longest over the groups of the class, among devices like its slowest.
static double longest(pricer *p, const shapes *over, sn_op_kind kind, double bytes) {
    double seconds = 0;
    p->model.device = p->devices[0];
    for (int d = 1; d < p->n_devices; d++)
        if (sn_device_pace(p->devices[d]) < sn_device_pace(p->model.device)) p->model.device = p->devices[d];
    for (size_t i = 0; i < over->groups.count; i++) {
        const sn_group *group = &over->groups.data[i];
        double here = over->axes < 0 ? sn_cost_message(&p->model, bytes, group)
                                     : sn_cost_collective(&p->model, kind, bytes, group);
        seconds = fmax(seconds, here);
    }
    return seconds;
}

static sn_price price_collective(pricer *p, const sn_instr *in) {
    int64_t ranks = sn_schedule_group_size(p->schedule, in->collective.axes);
    double bytes = collective_bytes(&in->collective, in->kind, ranks), seconds;
    const sn_profile *profile = p->request->profile;
    if (ranks < 2) return (sn_price){0};
    if (profile && sn_profile_collective(profile, op_kinds[in->kind], ranks, bytes, &seconds))
        return (sn_price){.seconds = seconds};
    return (sn_price){.seconds = longest(p, shapes_of(p, in->collective.axes), op_kinds[in->kind], bytes)};
}

// A device hands a message over by itself; a rank on a CPU copies it, which the profile says.
static sn_price price_transfer(pricer *p, const sn_instr *in) {
    double bytes = (double)in->transfer.count * (double)sn_dtype_bytes(in->transfer.dtype);
    int64_t first = p->ranks.data[0];
    if (sn_schedule_peer(p->schedule, first, in->transfer.peer) == first) return (sn_price){0};
    sn_message_cost cost;
    if (p->request->profile && sn_profile_message(p->request->profile, bytes, &cost)) {
        if (in->kind == SN_INSTR_RECV) return (sn_price){.seconds = cost.receive};
        return (sn_price){.seconds = cost.send, .message = cost.flight};
    }
    if (in->kind == SN_INSTR_RECV) return (sn_price){0};
    return (sn_price){.message = longest(p, shapes_of(p, ~(int64_t)in->transfer.peer), SN_OP_COUNT, bytes)};
}

// A copy that the schedule adds for no op of its own streams.
static double stream_seconds(const pricer *p, const sn_instr *in) {
    double count = in->kind == SN_INSTR_FILL ? (double)in->fill.count : 1;
    for (int64_t d = 0; in->kind == SN_INSTR_COPY && d < in->copy.rank; d++) count *= (double)in->copy.dims[d];
    double bytes = (in->kind == SN_INSTR_COPY ? 2 : 1) * count *
                   (double)sn_dtype_bytes(in->kind == SN_INSTR_COPY ? in->copy.dtype : in->fill.dtype);
    const sn_device_kind *device = p->model.device;
    return device->curve->start + bytes / (device->memory_bandwidth * device->curve->stream);
}

// An op, by what was measured, else by the cost model.
static double price_work(pricer *p, const sn_instr *in, const sn_op *op, sn_arena *scratch) {
    double longest = 0;
    if (p->request->profile) {
        sn_str text = {0};
        sn_instr_signature(in, p->kernels, &text);
        bool known = sn_profile_instruction(p->request->profile, sn_str_text(&text), p->schedule->ranks > 1, &longest);
        sn_str_free(&text);
        if (known) return longest;
    }
    for (int d = 0; d < p->n_devices; d++) {
        double seconds = 0;
        p->model.device = p->devices[d];
        if (op)
            sn_cost_ops(&p->model, 1, &op, &seconds, scratch);
        else if (in->kind == SN_INSTR_COPY || in->kind == SN_INSTR_FILL)
            seconds = stream_seconds(p, in);
        longest = fmax(longest, seconds);
    }
    return longest;
}

static sn_price price(pricer *p, const sn_instr *in, const sn_op *op, sn_arena *scratch) {
    sn_price price = {0};
    switch (in->kind) {
    case SN_INSTR_RECORD:
    case SN_INSTR_WAIT:
        return price;
    case SN_INSTR_SEND:
    case SN_INSTR_RECV:
        price = price_transfer(p, in);
        break;
    default:
        if (sn_instr_is_collective(in->kind))
            price = price_collective(p, in);
        else
            price.seconds = price_work(p, in, op, scratch);
    }
    if (p->request->profile) price.seconds += p->request->profile->issue;
    return price;
}

// Instructions follow the ops of the function of the same name; copies that belong to none come last
// (backend/package/schedule.c).
static void price_program(pricer *p, const sn_program *program, sn_price *out) {
    const sn_func *func = sn_module_func(p->request->module, program->name);
    const sn_op *op = func ? func->first : NULL;
    sn_arena scratch = {0};
    for (size_t i = 0; i < program->instrs.count; i++) {
        while (op && !sn_op_is_instruction(op)) op = op->next;
        out[i] = price(p, &program->instrs.items[i], op, &scratch);
        if (op) op = op->next;
    }
    sn_arena_free(&scratch);
}

static void price_class(pricer *p, sn_price **out) {
    for (size_t i = 0; i < p->schedule->programs.count; i++) {
        const sn_program *program = &p->schedule->programs.items[i];
        out[i] = SN_NEW_N(p->arena, sn_price, program->instrs.count + 1);
        price_program(p, program, out[i]);
    }
}

static void read_ranks(pricer *p, int64_t rank_class) {
    const sn_schedules *all = p->request->schedules;
    p->ranks.count = 0;
    p->n_devices = 0;
    for (int64_t rank = 0; rank < p->schedule->ranks; rank++) {
        if (sn_schedules_class(all, rank) != rank_class) continue;
        const sn_device_kind *device = sn_cluster_nodes_of(p->request->cluster, rank)->device;
        int known = 0;
        while (known < p->n_devices && p->devices[known] != device) known++;
        if (known == p->n_devices) p->devices[p->n_devices++] = device;
        sn_vec_push(&p->ranks, rank);
    }
}

static void forget_shapes(pricer *p) {
    for (size_t i = 0; i < p->shapes.count; i++) sn_vec_free(&p->shapes.data[i].groups);
    p->shapes.count = 0;
}

void sn_prices_make(const sn_price_request *request, sn_arena *arena, sn_prices *out) {
    pricer p = {.request = request, .arena = arena, .model = {.plugins = request->plugins, .diags = request->diags}};
    size_t classes = request->schedules->classes.count;
    p.model.profile = request->profile;
    p.kernels = request->profile ? sn_kernel_signatures(request->kernels, arena) : NULL;
    out->of = SN_NEW_N(arena, sn_price **, classes);
    out->run = request->profile ? request->profile->run : 0;
    for (size_t c = 0; c < classes; c++) {
        p.schedule = &request->schedules->classes.items[c];
        read_ranks(&p, (int64_t)c);
        out->of[c] = SN_NEW_N(arena, sn_price *, p.schedule->programs.count + 1);
        price_class(&p, out->of[c]);
        forget_shapes(&p);
    }
    sn_vec_free(&p.shapes);
    sn_vec_free(&p.ranks);
}
