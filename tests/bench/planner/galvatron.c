// Galvatron (Miao et al., VLDB 2023): pipelines of transformer layers, each layer with its own mix of sharding and
// checkpointing. Layers are alike, so a stage is how many of them take each strategy. Planned here: one tensor or
// sequence degree a stage, any counts of strategies, any division of the layers, in memory counted in whole MB as
// Galvatron does. Its step is no sum over stages, so the search is a branch and bound of its own over the stages'
// options, complete over this space.
#include "format.h"

#include "galvatron_model.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 4, STAGES_MAX = 8 }; // kinds of layers in a stage: sharded or not, checkpointed or not

typedef struct option { // one way to run a number of layers on a stage
    double compute, exchanged;
    int tensor, sequence, count[KINDS];
} option;

typedef SN_VEC(option) options;

typedef struct search {
    const galvatron_model *m;
    galvatron_batch batch;
    galvatron_strategy other; // of the embedding and the head
    int widest;               // largest tensor degree in use: sizes a buffer
    double memory;
    bool even;
    options *stage_options; // [stages][layers + 1]
    double least;           // compute of a layer, at the least
    // Of the plan under construction and of the best one.
    option chosen[STAGES_MAX], best[STAGES_MAX];
    double best_time;
    galvatron_batch best_batch;
    galvatron_strategy best_other;
} search;

static galvatron_strategy kind_of(int tensor, int sequence, int kind) {
    return (galvatron_strategy){tensor, sequence, kind & 1, kind & 2};
}

static options *options_of(const search *x, int stage, int layers) {
    return &x->stage_options[stage * (x->m->layers + 1) + layers];
}

static int by_compute(const void *left, const void *right) {
    const option *a = left, *b = right;
    if (a->compute != b->compute) return a->compute < b->compute ? -1 : 1;
    return a->exchanged < b->exchanged ? -1 : a->exchanged > b->exchanged;
}

// Keeps the options that no other one beats in both times.
static void prune(options *list) {
    size_t kept = 0;
    if (list->count > 0) qsort(list->data, list->count, sizeof *list->data, by_compute);
    for (size_t i = 0; i < list->count; ++i) {
        if (kept == 0 || list->data[i].exchanged < list->data[kept - 1].exchanged) list->data[kept++] = list->data[i];
    }
    list->count = kept;
}

typedef struct kinds {
    double memory[KINDS], compute[KINDS], exchanged[KINDS];
    int count;
} kinds;

static double buffer_memory(const search *x) {
    double replicas = (double)x->m->devices / x->batch.stages / x->widest;
    double samples = (double)x->batch.samples / x->batch.chunks / replicas;
    return floor(samples * x->m->hidden * x->m->sequence * 4 / 1024 / 1024 / 2);
}

// All counts of the kinds that use `left` more layers and fit into `room` MB.
static void add_counts(search *x, int stage, int layers, const kinds *k, option *o, int kind, int left, double room) {
    if (kind == k->count - 1) {
        if (left * k->memory[kind] > room) return;
        option full = *o;
        full.count[kind] = left;
        full.compute += left * k->compute[kind];
        full.exchanged += left * k->exchanged[kind];
        sn_vec_push(options_of(x, stage, layers), full);
        return;
    }
    for (int count = 0; count <= left && count * k->memory[kind] <= room; ++count) {
        option more = *o;
        more.count[kind] = count;
        more.compute += count * k->compute[kind];
        more.exchanged += count * k->exchanged[kind];
        add_counts(x, stage, layers, k, &more, kind + 1, left - count, room - count * k->memory[kind]);
    }
}

static void add_degree(search *x, int stage, int tensor, int sequence) {
    galvatron_strategy plain = {tensor, sequence, false, false};
    int replicas = galvatron_replicas(x->m, &x->batch, &plain);
    if (replicas < 1 || tensor > x->widest || x->batch.samples / x->batch.chunks < replicas) return;
    kinds k = {.count = 0};
    for (int kind = 0; kind < KINDS; ++kind) {
        galvatron_strategy s = kind_of(tensor, sequence, kind);
        if (s.sharded && replicas == 1) continue;
        k.memory[k.count] = galvatron_layer_memory(x->m, &x->batch, &s, stage);
        k.compute[k.count] = galvatron_layer_time(x->m, &x->batch, &s, false);
        k.exchanged[k.count] = galvatron_layer_time(x->m, &x->batch, &s, true);
        x->least = fmin(x->least, k.compute[k.count++]);
    }
    double room = x->memory - buffer_memory(x) - galvatron_other_memory(x->m, &x->batch, &x->other, stage);
    int most = x->m->layers - (x->batch.stages - 1);
    for (int layers = 1; layers <= most; ++layers) {
        if (x->even && layers * x->batch.stages != x->m->layers) continue;
        option o = {
            .compute = galvatron_other_time(x->m, &x->batch, &x->other, stage), .tensor = tensor, .sequence = sequence};
        add_counts(x, stage, layers, &k, &o, 0, layers, room);
        prune(options_of(x, stage, layers));
    }
}

// What a step takes at the least when these stages are chosen and `left` layers are not.
static double step_bound(const search *x, const double *compute, int stages, int left) {
    const galvatron_batch *b = &x->batch;
    double sum = 0;
    for (int i = 0; i < stages; ++i) sum += compute[i];
    double rest = left * x->least, behind = sum + rest - compute[0];
    int fill = b->stages - 1 < b->chunks - 1 ? b->stages - 1 : b->chunks - 1;
    int steady = b->chunks + 1 > b->stages ? b->chunks + 1 - b->stages : 0;
    return fmax(sum + rest, fmax(fill * compute[0], behind) + compute[0] * steady);
}

static void choose_stages(search *x, int stage, int left, double *compute, double *exchanged) {
    if (stage == x->batch.stages) {
        double time = galvatron_step_time(&x->batch, compute, exchanged);
        if (left > 0 || time >= x->best_time) return;
        x->best_time = time;
        x->best_batch = x->batch;
        x->best_other = x->other;
        memcpy(x->best, x->chosen, sizeof x->best);
        return;
    }
    bool last = stage == x->batch.stages - 1;
    for (int layers = last ? left : 1; layers <= left - (x->batch.stages - 1 - stage); ++layers) {
        const options *list = options_of(x, stage, layers);
        for (size_t i = 0; i < list->count; ++i) {
            compute[stage] = list->data[i].compute;
            exchanged[stage] = list->data[i].exchanged;
            if (step_bound(x, compute, stage + 1, left - layers) >= x->best_time) break; // more compute follows
            x->chosen[stage] = list->data[i];
            choose_stages(x, stage + 1, left - layers, compute, exchanged);
        }
    }
}

static void try_other(search *x) {
    size_t lists = (size_t)x->batch.stages * (size_t)(x->m->layers + 1);
    double compute[STAGES_MAX] = {0}, exchanged[STAGES_MAX] = {0};
    x->stage_options = sn_alloc(sizeof *x->stage_options * lists);
    x->least = INFINITY;
    for (int stage = 0; stage < x->batch.stages; ++stage) {
        for (int degree = 1; degree <= 8; degree *= 2) {
            add_degree(x, stage, degree, 1);
            if (degree > 1) add_degree(x, stage, 1, degree);
        }
    }
    choose_stages(x, 0, x->m->layers, compute, exchanged);
    for (size_t i = 0; i < lists; ++i) sn_vec_free(&x->stage_options[i]);
    sn_free(x->stage_options);
}

// Embedding and head on every degree.
static void try_stages(search *x) {
    for (int degree = 1; degree <= 8 && degree * x->batch.stages <= x->m->devices; degree *= 2) {
        for (int kind = 0; kind < 4; ++kind) {
            bool sequence = kind & 2, sharded = kind & 1;
            x->other = (galvatron_strategy){sequence ? 1 : degree, sequence ? degree : 1, sharded, false};
            int replicas = galvatron_replicas(x->m, &x->batch, &x->other);
            if ((sequence && degree == 1) || (sharded && replicas == 1)) continue;
            if (x->batch.samples / x->batch.chunks < replicas || x->other.tensor > x->widest) continue;
            try_other(x);
        }
    }
}

static void try_chunks(search *x, int chunks) {
    for (int stages = 1; stages <= STAGES_MAX && stages <= chunks && stages <= x->m->devices; stages *= 2) {
        if (stages > x->m->layers || (x->even && x->m->layers % stages != 0)) continue;
        x->batch.chunks = chunks;
        x->batch.stages = stages;
        for (x->widest = 1; x->widest * stages <= x->m->devices && x->widest <= 8; x->widest *= 2) try_stages(x);
    }
}

// Layer by layer.
static double evaluate(const search *x, sn_str *text) {
    double compute[STAGES_MAX] = {0}, exchanged[STAGES_MAX] = {0};
    const galvatron_batch *b = &x->best_batch;
    sn_str_printf(text, "%d chunks, embedding and head: tensor %d, sequence %d, %s\n", b->chunks, x->best_other.tensor,
                  x->best_other.sequence, x->best_other.sharded ? "ZeRO-3" : "ZeRO-2");
    for (int stage = 0; stage < b->stages; ++stage) {
        const option *o = &x->best[stage];
        double memory = galvatron_other_memory(x->m, b, &x->best_other, stage);
        compute[stage] = galvatron_other_time(x->m, b, &x->best_other, stage);
        galvatron_strategy plain = {o->tensor, o->sequence, false, false};
        bool replicated = galvatron_replicas(x->m, b, &plain) > 1;
        sn_str_printf(text, "stage %d: tensor %d, sequence %d;", stage, o->tensor, o->sequence);
        for (int k = 0; k < KINDS; ++k) {
            galvatron_strategy s = kind_of(o->tensor, o->sequence, replicated ? k : 2 * k); // the kinds there were
            if (o->count[k] > 0) {
                sn_str_printf(text, " %d layers%s%s", o->count[k], s.sharded ? " ZeRO-3" : "",
                              s.checkpoint ? " checkpointed" : "");
            }
            for (int layer = 0; layer < o->count[k]; ++layer) {
                memory += galvatron_layer_memory(x->m, b, &s, stage);
                compute[stage] += galvatron_layer_time(x->m, b, &s, false);
                exchanged[stage] += galvatron_layer_time(x->m, b, &s, true);
            }
        }
        if (memory > x->memory) bad_file(x->m->folder, "stage %d takes %g MB", stage, memory);
        sn_str_printf(text, ", %.6g s, %.0f MB\n", compute[stage], memory);
    }
    return galvatron_step_time(b, compute, exchanged);
}

static void solve(const char *folder, arguments *a, answer *out) {
    const char *name = argument_text(a, "--model", "llama2-7b");
    int layers = argument_count(a, "--layers", 1, 1 << 16, 32),
        hidden = argument_count(a, "--hidden", 1, 1 << 20, 4096),
        sequence = argument_count(a, "--seq", 1, 1 << 20, 2048);
    int nodes = argument_count(a, "--nodes", 1, 8, 1), per_node = argument_count(a, "--gpus-per-node", 1, 8, 8);
    double gigabytes = argument_positive(a, "--memory", 36);
    int samples = argument_count(a, "--global-batch", 1, 1 << 20, 64),
        chunks = argument_count(a, "--chunks", 1, 1 << 20, 0);
    bool even = argument_flag(a, "--even");
    arguments_end(a);
    galvatron_model m = galvatron_read(folder, name, layers, hidden, sequence, nodes, per_node);
    search x = {.m = &m, .best_time = INFINITY, .even = even};
    x.memory = gigabytes * 1024;
    if (gigabytes > 20) x.memory -= floor(x.memory * 0.2); // left to the allocator's cache
    x.batch.samples = samples;
    if (m.devices > 8) bad_file(folder, "at most 8 devices");
    for (int i = 1; i <= x.batch.samples; ++i) {
        if ((chunks == 0 || chunks == i) && x.batch.samples % i == 0) try_chunks(&x, i);
    }
    sn_str text = {0};
    *out = (answer){.feasible = !isinf(x.best_time), .planned = x.best_time, .lower_bound = x.best_time};
    if (out->feasible) out->objective = evaluate(&x, &text);
    out->plan = text.data;
}

const format format_galvatron = {
    .name = "galvatron",
    .help = "  FILE is the folder with models/gpt/configs and profile_hardware/hardware_configs\n"
            "  --model llama2-7b --layers L --hidden H --seq S --nodes N --gpus-per-node G\n"
            "  --memory GB --global-batch B --chunks C (default: any)\n"
            "  --even             the same layers on every stage, as Galvatron divides them\n"
            "  objective: seconds of a step\n",
    .solve = solve,
};
