// Chains as nnScaler's SPMD solver states them (Lin et al., OSDI 2024): one partition for each operator under a memory
// bound.
#include "format.h"

#include "base/alloc.h"
#include "base/vec.h"
#include "passes/partition/inter/chain.h"

#include <math.h>

typedef struct instance {
    const char *file;
    const json_t *ops; // [operators][partitions] objects
    SN_VEC(int) first_way;
    SN_VEC(sn_chain_way) ways;
    SN_VEC(double *) moves;
} instance;

static double *read_moves(instance *x, const json_t *way, size_t before) {
    const json_t *list = json_array_get(json_object_get(way, "comm"), 0);
    if (json_array_size(list) != before) bad_file(x->file, "comm does not list the %zu partitions before it", before);
    double *moves = sn_alloc(sizeof(double) * before);
    for (size_t i = 0; i < before; ++i) moves[i] = json_number_value(json_array_get(list, i));
    sn_vec_push(&x->moves, moves);
    return moves;
}

static void read_operator(instance *x, size_t at) {
    const json_t *op = json_array_get(x->ops, at);
    size_t i;
    json_t *json;
    if (json_array_size(op) == 0) bad_file(x->file, "operator %zu has no partition", at);
    json_array_foreach((json_t *)op, i, json) {
        double activations = json_number_at(json, "act_mem");
        sn_chain_way way = {.time = json_number_at(json, "time"),
                            .resident = json_number_at(json, "comp_mem") - activations,
                            .activations = activations,
                            .optimizer = json_number_at(json, "opt_mem"),
                            .buffer = json_number_at(json, "buf_mem")};
        if (at > 0) way.move = read_moves(x, json, json_array_size(json_array_get(x->ops, at - 1)));
        sn_vec_push(&x->ways, way);
    }
    sn_vec_push(&x->first_way, (int)x->ways.count);
}

// From the file's numbers: the time of the chosen partitions, which must fit.
static double evaluate(const instance *x, const int *way, double bound, sn_str *text) {
    double time = 0, total = 0, activations = 0, optimizer = 0, largest = 0, second = 0;
    for (size_t i = 0; i < json_array_size(x->ops); ++i) {
        const json_t *op = json_array_get(json_array_get(x->ops, i), (size_t)way[i]);
        double buffer = json_number_at(op, "buf_mem");
        time += json_number_at(op, "time");
        if (i > 0)
            time +=
                json_number_value(json_array_get(json_array_get(json_object_get(op, "comm"), 0), (size_t)way[i - 1]));
        total += json_number_at(op, "comp_mem") - json_number_at(op, "act_mem");
        activations += json_number_at(op, "act_mem");
        optimizer += json_number_at(op, "opt_mem");
        second = fmax(second, fmin(buffer, largest));
        largest = fmax(largest, buffer);
        sn_str_printf(text, "%d ", way[i]);
    }
    total += fmax(activations, optimizer) + largest + second;
    if (total > bound) bad_file(x->file, "the plan takes %g of %g bytes", total, bound);
    sn_str_printf(text, ": %.9g, memory %g of %g\n", time, total, bound);
    return time;
}

// Adds the instance to the answer. False when no plan fits.
static bool solve_instance(const char *file, const json_t *entry, double memory, answer *out, sn_str *text) {
    instance x = {.file = file, .ops = json_object_get(entry, "ops")};
    sn_vec_push(&x.first_way, 0);
    for (size_t i = 0; i < json_array_size(x.ops); ++i) read_operator(&x, i);
    if (x.ways.count == 0) bad_file(file, "no operators");
    sn_chain_problem p = {(int)json_array_size(x.ops), x.first_way.data, x.ways.data, 0};
    p.bound = memory > 0 ? memory : json_number_at(entry, "mem_bound");
    sn_chain_plan plan = sn_chain_solve(&p);
    bool feasible = plan.feasible;
    if (feasible) out->objective += evaluate(&x, plan.way, p.bound, text);
    out->planned += plan.time;
    out->lower_bound += plan.lower_bound;
    sn_chain_plan_free(&plan);
    for (size_t i = 0; i < x.moves.count; ++i) sn_free(x.moves.data[i]);
    sn_vec_free(&x.moves);
    sn_vec_free(&x.ways);
    sn_vec_free(&x.first_way);
    return feasible;
}

static void solve(const char *file, arguments *a, answer *out) {
    const char *seed = argument_text(a, "--seed", NULL);
    double wanted = argument_number(a, "--seed", 0), memory = argument_positive(a, "--memory", 0);
    arguments_end(a);
    json_t *json = read_json(file), *list = json_is_array(json) ? json : json_pack("[O]", json), *entry;
    sn_str text = {0}, parts = {0};
    int found = 0;
    size_t i;
    *out = (answer){.feasible = true};
    json_array_foreach(list, i, entry) {
        if (seed && json_number_at(entry, "seed") != wanted) continue;
        double before = out->objective;
        out->feasible &= solve_instance(file, entry, memory, out, &text);
        sn_str_printf(&parts, "%s%.17g", found++ ? ", " : "[", out->objective - before);
    }
    sn_str_putc(&parts, ']');
    if (found == 0) bad_file(file, "no such instance");
    out->plan = text.data;
    if (found > 1)
        out->parts = parts.data;
    else
        sn_str_free(&parts);
    if (list != json) json_decref(list);
    json_decref(json);
}

const format format_nnscaler = {
    .name = "nnscaler",
    .help = "  --seed S           one instance of the file (default: all, whose sum is the objective)\n"
            "  --memory BYTES     bound (default: the file's)\n"
            "  objective: time of the chain, in the file's unit\n",
    .solve = solve,
};
