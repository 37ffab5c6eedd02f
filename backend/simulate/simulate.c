#include "backend/simulate/simulate.h"

#include "passes/cost/profile.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

bool sn_simulate(const sn_price_request *request, double cores, sn_arena *arena, sn_simulation *out) {
    *out = (sn_simulation){.schedules = request->schedules};
    sn_prices_make(request, arena, &out->prices);
    if (request->profile) out->outside = sn_profile_step(request->profile, request->schedules->classes.items[0].ranks);
    sn_replay_request replay = {.schedules = request->schedules,
                                .prices = &out->prices,
                                .cluster = request->cluster,
                                .cores = cores,
                                .turn = request->profile ? request->profile->turn : 0,
                                .sharing = request->profile ? request->profile->sharing : 1,
                                .sequence = "step"};
    sn_str stuck = {0};
    bool good = sn_replay_run(&replay, arena, &out->replay, &stuck);
    if (!good)
        sn_error(request->diags, "E0516", NULL, "this is a bug of the compiler; please report it",
                 "the ranks would wait for each other forever; the first one stands at %s", sn_str_text(&stuck));
    sn_str_free(&stuck);
    return good;
}

void sn_simulation_free(sn_simulation *simulation) {
    sn_replay_free(&simulation->replay);
}

double sn_simulate_cores(const sn_cluster *cluster, const sn_profile *profile) {
    bool local = strncmp(cluster->name, "local:", 6) == 0;
    if (profile && local) return profile->cores;
    long cores = local ? sysconf(_SC_NPROCESSORS_ONLN) : 0;
    return cores > 0 ? (double)cores : 0;
}

sn_class_memory sn_class_memory_of(const sn_schedule *s) {
    sn_class_memory memory = {.total = s->arena_bytes, .transient = s->arena_bytes};
    for (size_t i = 0; i < s->globals.count; i++) {
        int64_t bytes = s->buffers.items[s->globals.items[i].buffer].bytes;
        memory.role[s->globals.items[i].role] += bytes;
        memory.transient -= bytes;
    }
    return memory;
}

const char *sn_class_memory_name(sn_resident_role role) {
    static const char *const names[SN_RESIDENT_ROLE_COUNT] = {
        [SN_RESIDENT_PARAMETER] = "parameters",          [SN_RESIDENT_STATE] = "state",
        [SN_RESIDENT_MOMENT] = "optimizer state",        [SN_RESIDENT_CONSTANT] = "constants and frozen weights",
        [SN_RESIDENT_SUM] = "sums of the micro-batches",
    };
    return names[role];
}

static const char *const phase_names[SN_PHASE_COUNT] = {
    [SN_PHASE_FORWARD] = "forward", [SN_PHASE_BACKWARD] = "backward", [SN_PHASE_UPDATE] = "update"};

// The mean over the replayed ranks of a class.
static sn_replay_rank mean_of(const sn_simulation *simulation, size_t rank_class, int64_t *first) {
    sn_replay_rank mean = {.rank_class = (int64_t)rank_class};
    double n = 0;
    for (size_t r = 0; r < simulation->replay.n_ranks; r++) {
        const sn_replay_rank *rank = &simulation->replay.ranks[r];
        if (rank->rank_class != (int64_t)rank_class) continue;
        if (!(n > 0)) *first = rank->rank;
        n++;
        mean.compute += rank->compute;
        mean.communication += rank->communication;
        mean.waiting += rank->waiting;
        for (int p = 0; p < SN_PHASE_COUNT; p++)
            for (int k = 0; k < 2; k++) mean.phase[p][k] += rank->phase[p][k];
    }
    mean.compute /= n, mean.communication /= n, mean.waiting /= n;
    for (int p = 0; p < SN_PHASE_COUNT; p++)
        for (int k = 0; k < 2; k++) mean.phase[p][k] /= n;
    return mean;
}

static json_t *memory_to_json(const sn_schedule *s) {
    sn_class_memory memory = sn_class_memory_of(s);
    json_t *json = json_object();
    for (int r = 0; r < SN_RESIDENT_ROLE_COUNT; r++)
        json_object_set_new(json, sn_class_memory_name((sn_resident_role)r), json_integer(memory.role[r]));
    json_object_set_new(json, "activations, gradients and inputs", json_integer(memory.transient));
    json_object_set_new(json, "total", json_integer(memory.total));
    return json;
}

static json_t *class_to_json(const sn_simulation *simulation, size_t rank_class) {
    int64_t first = 0;
    sn_replay_rank mean = mean_of(simulation, rank_class, &first);
    json_t *phases = json_object();
    for (int p = 0; p < SN_PHASE_COUNT; p++)
        json_object_set_new(
            phases, phase_names[p],
            json_pack("{s:f, s:f}", "compute_seconds", mean.phase[p][0], "communication_seconds", mean.phase[p][1]));
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:o, s:o}", "class", (json_int_t)rank_class, "first_rank",
                     (json_int_t)first, "compute_seconds", mean.compute, "exposed_communication_seconds",
                     mean.communication, "waiting_seconds", mean.waiting, "phases", phases, "memory_bytes",
                     memory_to_json(&simulation->schedules->classes.items[rank_class]));
}

typedef struct totals { // shares of the step, over all ranks
    double bubble, communication;
    int64_t memory; // of the fullest class
} totals;

static totals totals_of(const sn_simulation *simulation) {
    totals t = {0};
    size_t classes = simulation->schedules->classes.count;
    for (size_t c = 0; c < classes; c++) {
        int64_t first, bytes = simulation->schedules->classes.items[c].arena_bytes;
        sn_replay_rank mean = mean_of(simulation, c, &first);
        t.bubble += mean.waiting / (double)classes;
        t.communication += mean.communication / (double)classes;
        if (bytes > t.memory) t.memory = bytes;
    }
    double step = simulation->replay.seconds;
    if (step > 0) t.bubble /= step, t.communication /= step;
    return t;
}

json_t *sn_simulation_to_json(const sn_simulation *simulation) {
    totals t = totals_of(simulation);
    const sn_schedule *s = &simulation->schedules->classes.items[0];
    json_t *classes = json_array();
    for (size_t c = 0; c < simulation->schedules->classes.count; c++)
        json_array_append_new(classes, class_to_json(simulation, c));
    return json_pack("{s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:o}", "step_seconds",
                     simulation->replay.seconds + simulation->outside, "bubble_share", t.bubble,
                     "exposed_communication_share", t.communication, "peak_memory_bytes", (json_int_t)t.memory, "ranks",
                     (json_int_t)s->ranks, "replayed_ranks", (json_int_t)simulation->replay.n_ranks, "tasks",
                     (json_int_t)sn_sim_count(simulation->replay.sim), "classes", classes);
}

static void print_seconds(sn_str *out, int width, double seconds) {
    size_t from = out->length;
    sn_str_seconds(out, seconds);
    sn_str_align(out, from, width);
}

static void print_class(const sn_simulation *simulation, size_t rank_class, sn_str *out) {
    int64_t first = 0;
    const sn_schedule *s = &simulation->schedules->classes.items[rank_class];
    sn_replay_rank mean = mean_of(simulation, rank_class, &first);
    sn_str_printf(out, "  %5zu %6" PRId64 " ", rank_class, s->ranks / (int64_t)simulation->schedules->classes.count);
    print_seconds(out, 12, mean.compute);
    print_seconds(out, 14, mean.communication);
    print_seconds(out, 12, mean.waiting);
    for (int p = 0; p < SN_PHASE_COUNT; p++) print_seconds(out, 12, mean.phase[p][0] + mean.phase[p][1]);
    size_t from = out->length;
    sn_str_bytes(out, (double)s->arena_bytes);
    sn_str_align(out, from, 14);
    sn_str_putc(out, '\n');
}

void sn_simulation_print(const sn_simulation *simulation, sn_str *out) {
    totals t = totals_of(simulation);
    const sn_replay *replay = &simulation->replay;
    int64_t ranks = simulation->schedules->classes.items[0].ranks;
    sn_str_puts(out, "step ");
    print_seconds(out, 0, replay->seconds + simulation->outside);
    sn_str_printf(out, " on %" PRId64 " rank%s: %.1f %% bubble, %.1f %% exposed communication, at most ", ranks,
                  ranks == 1 ? "" : "s", 100 * t.bubble, 100 * t.communication);
    sn_str_bytes(out, (double)t.memory);
    sn_str_puts(out, " a rank\n");
    if (!replay->whole) sn_str_puts(out, "replayed: one rank of each class, the others do the same\n");
    sn_str_printf(out, "  %5s %6s %12s%14s%12s%12s%12s%12s %13s\n", "class", "ranks", "compute", "communication",
                  "waiting", "forward", "backward", "update", "memory");
    for (size_t c = 0; c < simulation->schedules->classes.count; c++) print_class(simulation, c, out);
}
