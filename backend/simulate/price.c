#include "backend/simulate/price.h"

#include "backend/simulate/signature.h"
#include "passes/cost/profile.h"
#include "runtime/mesh.h"

#include <math.h>

typedef struct pricer {
    const sn_price_request *request;
    sn_arena *arena;
    sn_cost_model model;
    const sn_schedule *schedule;
    int64_t rank;            // the class's first
    const char **kernels;    // their signatures
    SN_VEC(sn_group) groups; // by axes
    SN_VEC(int64_t) group_axes;
} pricer;

static const sn_op_kind op_kinds[SN_INSTR_COUNT] = {
    [SN_INSTR_ALL_REDUCE] = SN_OP_ALL_REDUCE,         [SN_INSTR_ALL_GATHER] = SN_OP_ALL_GATHER,
    [SN_INSTR_REDUCE_SCATTER] = SN_OP_REDUCE_SCATTER, [SN_INSTR_ALL_TO_ALL] = SN_OP_ALL_TO_ALL,
    [SN_INSTR_BROADCAST] = SN_OP_ALL_GATHER,
};

static const sn_group *group_of(pricer *p, int64_t axes) {
    for (size_t i = 0; i < p->group_axes.count; i++)
        if (p->group_axes.data[i] == axes) return &p->groups.data[i];
    int64_t n = sn_schedule_group_size(p->schedule, axes), *ranks = sn_alloc((size_t)n * sizeof *ranks);
    for (int64_t i = 0; i < n; i++) ranks[i] = sn_schedule_member(p->schedule, p->rank, axes, i);
    sn_group group = sn_cluster_group_of(p->request->cluster, n, ranks);
    sn_free(ranks);
    sn_vec_push(&p->groups, group);
    sn_vec_push(&p->group_axes, axes);
    return &sn_vec_last(&p->groups);
}

// Bytes of the tensor as a whole (passes/cost/cost.h).
static double collective_bytes(const sn_do_collective *c, sn_instr_kind kind, int64_t ranks) {
    bool parts = kind == SN_INSTR_ALL_GATHER || kind == SN_INSTR_REDUCE_SCATTER || kind == SN_INSTR_ALL_TO_ALL;
    return (double)c->count * (double)sn_dtype_bytes(c->dtype) * (double)(parts ? ranks : 1);
}

static sn_price price_collective(pricer *p, const sn_instr *in) {
    const sn_group *group = group_of(p, in->collective.axes);
    double bytes = collective_bytes(&in->collective, in->kind, group->ranks), seconds;
    const sn_profile *profile = p->request->profile;
    if (group->ranks < 2) return (sn_price){0};
    if (profile && sn_profile_collective(profile, op_kinds[in->kind], group->ranks, bytes, &seconds))
        return (sn_price){.seconds = seconds};
    return (sn_price){.seconds = sn_cost_collective(&p->model, op_kinds[in->kind], bytes, group)};
}

// A device hands a message over by itself; a rank on a CPU copies it, which the profile says.
static sn_price price_transfer(pricer *p, const sn_instr *in) {
    double bytes = (double)in->transfer.count * (double)sn_dtype_bytes(in->transfer.dtype);
    int64_t to = sn_schedule_peer(p->schedule, p->rank, in->transfer.peer);
    if (to == p->rank) return (sn_price){0};
    sn_message_cost cost;
    if (p->request->profile && sn_profile_message(p->request->profile, bytes, &cost)) {
        if (in->kind == SN_INSTR_RECV) return (sn_price){.seconds = cost.receive};
        return (sn_price){.seconds = cost.send, .message = cost.flight};
    }
    if (in->kind == SN_INSTR_RECV) return (sn_price){0};
    int64_t pair[2] = {p->rank < to ? p->rank : to, p->rank < to ? to : p->rank};
    sn_group group = sn_cluster_group_of(p->request->cluster, 2, pair);
    return (sn_price){.message = sn_cost_message(&p->model, bytes, &group)};
}

// An op, by what was measured, else by the cost model. A copy that the schedule adds for no op of its own streams.
static double price_work(pricer *p, const sn_instr *in, const sn_op *op, sn_arena *scratch) {
    double seconds = 0;
    if (p->request->profile) {
        sn_str text = {0};
        sn_instr_signature(in, p->kernels, &text);
        bool known = sn_profile_instruction(p->request->profile, sn_str_text(&text), p->schedule->ranks > 1, &seconds);
        sn_str_free(&text);
        if (known) return seconds;
    }
    if (op) {
        sn_cost_ops(&p->model, 1, &op, &seconds, scratch);
    } else if (in->kind == SN_INSTR_COPY || in->kind == SN_INSTR_FILL) {
        double count = in->kind == SN_INSTR_FILL ? (double)in->fill.count : 1;
        for (int64_t d = 0; in->kind == SN_INSTR_COPY && d < in->copy.rank; d++) count *= (double)in->copy.dims[d];
        double bytes = (in->kind == SN_INSTR_COPY ? 2 : 1) * count *
                       (double)sn_dtype_bytes(in->kind == SN_INSTR_COPY ? in->copy.dtype : in->fill.dtype);
        const sn_device_kind *device = p->model.device;
        seconds = device->curve->start + bytes / (device->memory_bandwidth * device->curve->stream);
    }
    return seconds;
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

void sn_prices_make(const sn_price_request *request, sn_arena *arena, sn_prices *out) {
    pricer p = {.request = request, .arena = arena, .model = {.plugins = request->plugins, .diags = request->diags}};
    size_t classes = request->schedules->classes.count;
    p.model.profile = request->profile;
    p.kernels = request->profile ? sn_kernel_signatures(request->kernels, arena) : NULL;
    out->of = SN_NEW_N(arena, sn_price **, classes);
    out->run = request->profile ? request->profile->run : 0;
    for (size_t c = 0; c < classes; c++) {
        p.schedule = &request->schedules->classes.items[c];
        p.rank = sn_schedule_first_rank(p.schedule, (int64_t)c);
        p.model.device = sn_cluster_nodes_of(request->cluster, p.rank)->device;
        p.groups.count = p.group_axes.count = 0;
        out->of[c] = SN_NEW_N(arena, sn_price *, p.schedule->programs.count + 1);
        price_class(&p, out->of[c]);
    }
    sn_vec_free(&p.groups);
    sn_vec_free(&p.group_axes);
}
