// Aceso (Liu et al., EuroSys 2024): stages of operators with data and tensor parallelism and recomputation of single
// operators, on profiled times. Planned here: every cut between operators where little is sent, one data and tensor
// degree for all operators of a stage (algorithm 0), any set of recomputed operators. A stage's memory and time depend
// on whether its ends are on another node, so a cut is a place in the model together with the devices used of the node.
#include "format.h"

#include "aceso_mixed.h"
#include "aceso_profile.h"
#include "aceso_recompute.h"

#include "base/alloc.h"
#include "base/vec.h"
#include "passes/partition/inter/stages.h"

#include <math.h>
#include <string.h>

enum { PLACES_MAX = 600, REFINED = 6 };

// What lies between two places; operators of the same kinds in the same order.
typedef struct segment {
    int first, count; // operators
} segment;

typedef struct planning {
    const aceso_profile *profile;
    aceso_limits limits;
    int devices, per_node, batch; // `batch` samples a micro-batch
    int place_count;
    int place[PLACES_MAX + 1]; // operators before a place
    SN_VEC(segment) segments;
    int *segment_of; // [places][places]
    SN_VEC(sn_stage_shape) shapes;
    double *recompute; // [segments][shapes][in flight] seconds, NAN: not known yet
    int held_max;
    double *plain; // [segments][shapes] seconds without transfers, NAN: not known yet
    aceso_options options;
    // Stages whose operators differ (mixed.gather is set): a shape is a number of devices.
    aceso_mixed mixed, *mixed_of;      // mixed_of: [shapes] prepared
    double *mixed_time, *mixed_output; // [operators][shapes][in flight][2: input crosses nodes][operators + 1]
    bool *mixed_known;                 // [operators][shapes][in flight][2]
} planning;

static int row_of(const planning *x, int operator) { return x->profile->row[operator];
}

static int find_segment(planning *x, int first, int count) {
    for (size_t i = 0; i < x->segments.count; ++i) {
        const segment *s = &x->segments.data[i];
        bool same = s->count == count;
        for (int k = 0; k < count && same; ++k) same = row_of(x, s->first + k) == row_of(x, first + k);
        if (same) return (int)i;
    }
    sn_vec_push(&x->segments, (segment){first, count});
    return (int)x->segments.count - 1;
}

static bool near(const planning *x, const bool *cut, int place, int distance) {
    for (int k = place - distance; k <= place + distance; ++k) {
        if (k > 0 && k < x->profile->operators && cut[k]) return true;
    }
    return false;
}

// No neighbouring cut sends noticeably less.
static bool sends_little(const planning *x, int place) {
    double sent = aceso_operator(x->profile, place - 1, 0, 0)->output, least = sent;
    for (int k = place - 7; k <= place + 7; ++k) {
        if (k > 0 && k < x->profile->operators) least = fmin(least, aceso_operator(x->profile, k - 1, 0, 0)->output);
    }
    return sent <= 1.01 * least;
}

// distance 0: all cuts; -1: where little is sent; else so near to one of `cut`.
static void choose_places(planning *x, int distance, const bool *cut) {
    int n = x->profile->operators;
    x->place_count = 0;
    for (int i = 0; i <= n; ++i) {
        bool end = i == 0 || i == n;
        if (!end && distance < 0 && !sends_little(x, i)) continue;
        if (!end && distance > 0 && !near(x, cut, i, distance)) continue;
        if (x->place_count > PLACES_MAX) bad_file(x->profile->folder, "more than %d places to cut at", PLACES_MAX);
        x->place[x->place_count++] = i;
    }
    sn_free(x->segment_of);
    x->segments.count = 0;
    x->segment_of = sn_alloc(sizeof(int) * (size_t)x->place_count * (size_t)x->place_count);
    for (int from = 0; from < x->place_count; ++from) {
        for (int to = from + 1; to < x->place_count; ++to) {
            x->segment_of[from * x->place_count + to] = find_segment(x, x->place[from], x->place[to] - x->place[from]);
        }
    }
}

// Cuts: the start, each inner place with each number of devices used of a node, the end.
static int cut_of(const planning *x, int place, int used) {
    return place == 0 ? 0 : 1 + (place - 1) * x->per_node + used;
}
static int cut_count(const planning *x) {
    return cut_of(x, x->place_count - 1, 0) + 1;
}

// A kind: segment, devices used before it, and after it (per_node: it is the last stage, which may end anywhere).
static int kind_of(const planning *x, int segment, int used_before, int used_after) {
    return (segment * x->per_node + used_before) * (x->per_node + 1) + used_after;
}

static int *make_kinds(const planning *x) {
    int cuts = cut_count(x), *kind = sn_alloc(sizeof(int) * (size_t)cuts * (size_t)cuts), n = x->place_count;
    for (int i = 0; i < cuts * cuts; ++i) kind[i] = -1;
    for (int from = 0; from < n - 1; ++from) {
        for (int to = from + 1; to < n; ++to) {
            int segment = x->segment_of[from * n + to];
            for (int before = 0; before < (from == 0 ? 1 : x->per_node); ++before) {
                for (int after = 0; after < (to == n - 1 ? 1 : x->per_node); ++after) {
                    int cell = cut_of(x, from, before) * cuts + cut_of(x, to, after);
                    kind[cell] = kind_of(x, segment, before, to == n - 1 ? x->per_node : after);
                }
            }
        }
    }
    return kind;
}

static double recompute_time(planning *x, int segment_index, int shape, int in_flight) {
    double *known =
        &x->recompute[((long)segment_index * (long)x->shapes.count + shape) * (x->held_max + 1) + in_flight];
    if (isnan(*known)) {
        const segment *s = &x->segments.data[segment_index];
        const sn_stage_shape *sh = &x->shapes.data[shape];
        aceso_stage stage = {s->first, s->count, x->batch / sh->data, sh->tensor};
        *known = aceso_least_recompute(x->profile, &x->limits, &stage, in_flight, &x->options, NULL);
    }
    return *known;
}

// Milliseconds of a stage whose operators differ.
static double mixed_stage_time(planning *x, const segment *s, int shape, int in_flight, bool in_cross, bool out_cross) {
    long row = (((long)s->first * (long)x->shapes.count + shape) * (x->held_max + 1) + in_flight) * 2 + in_cross;
    int operators = x->profile->operators;
    double *time = x->mixed_time + row * (operators + 1), *output = x->mixed_output + row * (operators + 1);
    x->mixed_of[shape].in_cross = in_cross;
    if (!x->mixed_known[row]) aceso_mixed_times(&x->mixed_of[shape], s->first, in_flight, time, output);
    x->mixed_known[row] = true;
    int end = s->first + s->count;
    return time[end] + aceso_transfer(x->profile, output[end], out_cross) / 1000;
}

static double stage_time(void *context, int kind, int shape, int in_flight, int *same_until) {
    planning *x = context;
    (void)same_until;
    int after = kind % (x->per_node + 1), rest = kind / (x->per_node + 1), before = rest % x->per_node;
    const segment *s = &x->segments.data[rest / x->per_node];
    const sn_stage_shape *sh = &x->shapes.data[shape];
    int used = (before + sh->data * sh->tensor) % x->per_node;
    if (after < x->per_node && used != after) return INFINITY;
    bool in_cross = before == 0 && s->first > 0;
    if (x->mixed.gather) return mixed_stage_time(x, s, shape, in_flight, in_cross, used == 0);
    double again = recompute_time(x, rest / x->per_node, shape, in_flight);
    if (isinf(again)) return INFINITY;
    aceso_stage stage = {s->first, s->count, x->batch / sh->data, sh->tensor};
    double *plain = &x->plain[(long)(rest / x->per_node) * (long)x->shapes.count + shape];
    if (isnan(*plain)) *plain = aceso_stage_compute(x->profile, &stage);
    return again + *plain + aceso_stage_transfers(x->profile, &stage, in_cross, used == 0);
}

static void make_shapes(planning *x) {
    x->shapes.count = 0;
    for (int devices = 1; x->mixed.gather && devices <= x->devices; devices *= 2) {
        sn_vec_push(&x->shapes, (sn_stage_shape){devices, 1});
    }
    if (x->mixed.gather) return;
    for (int t = 1; t <= x->per_node && t <= 8; t *= 2) {
        for (int d = 1; d * t <= x->devices && d <= x->batch; ++d) {
            if (x->batch % d == 0 && aceso_batch_index(x->profile, x->batch / d) >= 0)
                sn_vec_push(&x->shapes, (sn_stage_shape){d, t});
        }
    }
}

static double *unknown(size_t count) {
    double *values = sn_alloc(sizeof(double) * count);
    for (size_t i = 0; i < count; ++i) values[i] = NAN;
    return values;
}

static void make_tables(planning *x) {
    x->held_max = x->place_count < x->devices ? x->place_count : x->devices;
    size_t shapes = x->shapes.count, held = (size_t)x->held_max + 1, operators = (size_t)x->profile->operators;
    x->recompute = unknown(x->segments.count * shapes * held);
    x->plain = unknown(x->segments.count * shapes);
    if (!x->mixed.gather) return;
    x->mixed_of = sn_alloc(sizeof *x->mixed_of * shapes);
    for (size_t i = 0; i < shapes; ++i) {
        x->mixed_of[i] = x->mixed;
        x->mixed_of[i].batch = x->batch;
        x->mixed_of[i].devices = x->shapes.data[i].data;
        aceso_mixed_prepare(&x->mixed_of[i]);
    }
    x->mixed_time = sn_alloc(sizeof(double) * operators * shapes * held * 2 * (operators + 1));
    x->mixed_output = sn_alloc(sizeof(double) * operators * shapes * held * 2 * (operators + 1));
    x->mixed_known = sn_alloc(operators * shapes * held * 2);
}

static void free_tables(planning *x) {
    sn_free(x->recompute);
    sn_free(x->plain);
    for (size_t i = 0; x->mixed.gather && i < x->shapes.count; ++i) aceso_mixed_release(&x->mixed_of[i]);
    sn_free(x->mixed_of);
    sn_free(x->mixed_time);
    sn_free(x->mixed_output);
    sn_free(x->mixed_known);
    x->mixed_of = NULL;
    x->mixed_time = x->mixed_output = NULL;
    x->mixed_known = NULL;
}

static sn_stage_plan plan_batch(planning *x, int global_batch, int batch) {
    x->batch = batch;
    make_shapes(x);
    sn_stage_plan none = {.objective = INFINITY, .lower_bound = INFINITY};
    if (x->shapes.count == 0) return none;
    make_tables(x);
    int *kind = make_kinds(x);
    sn_stage_problem p = {.cuts = cut_count(x),
                          .kind = kind,
                          .kinds = kind_of(x, (int)x->segments.count, 0, 0),
                          .shapes = x->shapes.data,
                          .shape_count = (int)x->shapes.count,
                          .devices = x->devices,
                          .microbatches = global_batch / batch,
                          .objective = SN_STAGE_SYNCHRONOUS,
                          .stash = SN_STAGE_STASH_STAGES,
                          .time = stage_time,
                          .context = x};
    sn_stage_plan plan = sn_stages_solve(&p);
    sn_free(kind);
    free_tables(x);
    return plan;
}

// Milliseconds and MB of a stage, from the profile's numbers operator by operator.
static double evaluate_stage(planning *x, const aceso_stage *stage, int devices, int stages_behind, bool in_cross,
                             bool out_cross, double *memory, sn_str *text) {
    int recomputed = 0, first_tensor = stage->tensor, last_tensor = stage->tensor;
    double time;
    if (x->mixed.gather) {
        aceso_choice *choice = sn_alloc(sizeof *choice * (size_t)stage->count);
        x->mixed.batch = x->batch;
        x->mixed.devices = devices;
        x->mixed.in_cross = in_cross;
        aceso_mixed_prepare(&x->mixed);
        aceso_mixed_choices(&x->mixed, stage->first, stage->count, stages_behind + 1, choice);
        time = aceso_mixed_evaluate(&x->mixed, stage->first, stage->count, choice, out_cross, stages_behind, memory);
        for (int k = 0; k < stage->count; ++k) recomputed += choice[k].again;
        first_tensor = choice[0].tensor;
        last_tensor = choice[stage->count - 1].tensor;
        aceso_mixed_release(&x->mixed);
        sn_free(choice);
    } else {
        bool *again = sn_alloc((size_t)stage->count + 1);
        aceso_least_recompute(x->profile, &x->limits, stage, stages_behind + 1, &x->options, again);
        *memory = aceso_evaluate_memory(x->profile, &x->limits, stage, again, stages_behind);
        time = aceso_evaluate_time(x->profile, stage, again, in_cross, out_cross);
        for (int k = 0; k < stage->count; ++k) recomputed += again[k];
        sn_free(again);
    }
    sn_str_printf(text, "%d operators (%d recomputed) on %d devices, tensor %d", stage->count, recomputed, devices,
                  first_tensor);
    sn_str_printf(text, last_tensor != first_tensor ? " to %d" : "", last_tensor);
    sn_str_printf(text, ", %.3f ms, %.0f MB\n", time, *memory);
    return time;
}

// Milliseconds of an iteration.
static double evaluate(planning *x, const sn_stage_plan *plan, int global_batch, sn_str *text) {
    double sum = 0, longest = 0;
    int used = 0, operator= 0;
    for (int i = 0; i < plan->stage_count; ++i) {
        const sn_stage *s = &plan->stages[i];
        const sn_stage_shape *sh = &x->shapes.data[s->shape];
        int end = s->to == cut_count(x) - 1 ? x->profile->operators : x->place[1 + (s->to - 1) / x->per_node];
        aceso_stage stage = {operator, end - operator, x->batch / sh->data, sh->tensor};
        bool in_cross = used > 0 && used % x->per_node == 0;
        int devices = sh->data * sh->tensor;
        double memory;
        used += devices;
        sn_str_printf(text, "stage %d: ", i);
        double time = evaluate_stage(x, &stage, devices, plan->stage_count - 1 - i, in_cross, used % x->per_node == 0,
                                     &memory, text);
        if (memory > x->limits.memory * (1 + 1e-12)) bad_file(x->profile->folder, "stage %d takes %g MB", i, memory);
        sum += time;
        longest = fmax(longest, time);
        operator= end;
    }
    sn_str_printf(text, "%d samples a micro-batch\n", x->batch);
    return sum + longest * (global_batch / x->batch - 1);
}

// Milliseconds that no plan undercuts: all devices always busy, each operator on the shape that suits it best.
static double ideal_time(const planning *x, int global_batch, int batch) {
    double work = 0;
    for (int i = 0; i < x->profile->operators; ++i) {
        double least = INFINITY;
        for (int k = 0; k < ACESO_ALGORITHMS * x->profile->batch_count * ACESO_DEGREES; ++k) {
            int degree = k % ACESO_DEGREES, at = k / ACESO_DEGREES % x->profile->batch_count;
            const aceso_profile *p = x->mixed.profiles[k / ACESO_DEGREES / x->profile->batch_count];
            const aceso_operation *op = aceso_operator(p, i, at, degree);
            if (!op->measured || batch % p->batches[at] != 0) continue;
            least = fmin(least, (op->forward + op->backward) * (1 << degree) * (batch / p->batches[at]));
        }
        work += least / 1000;
    }
    return work * (global_batch / batch) / x->devices;
}

// Plans one micro-batch size; the better of this and the answer so far stays. Where the plan is cut goes to `cut`.
static void try_batch(planning *x, int global_batch, int batch, bool *cut, answer *out) {
    sn_stage_plan plan = plan_batch(x, global_batch, batch);
    if (plan.feasible && plan.objective / 1000 < out->planned) {
        sn_str text = {0};
        out->feasible = true;
        out->planned = plan.objective / 1000;
        out->objective = evaluate(x, &plan, global_batch, &text) / 1000;
        sn_free(out->plan);
        out->plan = text.data;
        memset(cut, 0, (size_t)x->profile->operators + 1);
        for (int i = 0; i + 1 < plan.stage_count; ++i) cut[x->place[1 + (plan.stages[i].to - 1) / x->per_node]] = true;
    }
    sn_stage_plan_free(&plan);
}

// All micro-batch sizes, the most promising ones first, with the cuts where little is sent; then, unless all cuts were
// open, again around the best plan's cuts.
static void plan_all_batches(planning *x, int global_batch, bool all, answer *out) {
    bool *cut = sn_alloc((size_t)x->profile->operators + 1), *tried = sn_alloc((size_t)global_batch + 1);
    int best_batch = 0;
    *out = (answer){.objective = INFINITY, .planned = INFINITY, .lower_bound = INFINITY};
    choose_places(x, all ? 0 : -1, cut);
    while (true) {
        int next = 0;
        double least = INFINITY;
        for (int batch = 1; batch <= global_batch; ++batch) {
            double ideal = global_batch % batch || tried[batch] ? INFINITY : ideal_time(x, global_batch, batch) / 1000;
            if (ideal < least) next = batch;
            least = fmin(least, ideal);
        }
        out->lower_bound = fmin(out->lower_bound, least);
        if (next == 0 || least >= out->planned) break;
        tried[next] = true;
        double before = out->planned;
        try_batch(x, global_batch, next, cut, out);
        if (out->planned < before) best_batch = next;
    }
    if (out->feasible && !all) {
        choose_places(x, REFINED, cut);
        try_batch(x, global_batch, best_batch, cut, out);
    }
    sn_free(cut);
    sn_free(tried);
}

static void solve(const char *folder, arguments *a, answer *out) {
    double batches[ACESO_BATCHES_MAX] = {1, 2, 4, 8};
    const char *model = argument_text(a, "--model", "gpt"), *size = argument_text(a, "--size", "1_3B");
    bool residual = strcmp(model, "resnet") == 0;
    if (residual) memcpy(batches, (double[]){16, 32, 48, 64}, sizeof(double) * 4);
    int count = argument_numbers(a, "--micro-batch-size", batches, ACESO_BATCHES_MAX);
    for (int i = 0; i < count; ++i) {
        if (!(batches[i] >= 1 && batches[i] <= 1 << 20)) bad_file(folder, "no micro-batch has %g samples", batches[i]);
    }
    int layers = argument_count(a, "--layers", 1, 4096, 0);
    int global_batch = argument_count(a, "--global-batch", 1, 1 << 20, residual ? 1536 : 1024);
    double memory = argument_positive(a, "--memory", 28000);
    int per_node = argument_count(a, "--gpus-per-node", 1, 128, 4);
    int nodes = argument_count(a, "--nodes", 1, SN_STAGE_MAX_DEVICES / per_node, 1);
    bool all_cuts = argument_flag(a, "--all-cuts");
    arguments_end(a);
    aceso_profile profile = aceso_profile_read(folder, model, size, 0, layers, count ? count : 4, batches);
    aceso_profile row_wise = aceso_profile_read(folder, model, size, 1, layers, count ? count : 4, batches);
    planning x = {.profile = &profile};
    // Master copy and optimizer per byte of weights; the gradients take as much as the weights.
    x.limits = (aceso_limits){memory, residual ? 0 : 2, residual ? 2 : 4};
    x.mixed = (aceso_mixed){.profiles = {&profile, &row_wise}, .limits = &x.limits};
    if (residual) x.mixed.gather = aceso_gather_read(folder, model, size);
    x.per_node = per_node;
    x.devices = per_node * nodes;
    plan_all_batches(&x, global_batch, all_cuts, out);
    sn_free(x.segment_of);
    sn_vec_free(&x.segments);
    sn_vec_free(&x.shapes);
    aceso_options_free(&x.options);
    if (residual) aceso_gather_free(x.mixed.gather);
    aceso_profile_free(&row_wise);
    aceso_profile_free(&profile);
}

const format format_aceso = {
    .name = "aceso",
    .help = "  FILE is the folder of profiles\n"
            "  --model gpt|resnet --size 13B [--layers L]\n"
            "  --nodes N --gpus-per-node G --memory MB --global-batch B\n"
            "  --micro-batch-size B...   sizes that were profiled\n"
            "  --all-cuts         cut between any two operators, not only where little is sent\n"
            "  objective: seconds of an iteration\n",
    .solve = solve,
};
