#include "passes/partition/explain.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void set_real(json_t *json, const char *key, double value) {
    json_object_set_new(json, key, isfinite(value) ? json_real(value) : json_null());
}

// A part of a byte is rounding.
static void set_bytes(json_t *json, const char *key, double value) {
    json_object_set_new(json, key, isfinite(value) ? json_integer((json_int_t)ceil(value)) : json_null());
}

// ", remat=full", or of how many stages; of what has stages.
static void put_remat(const sn_candidate *c, sn_str *out) {
    int again = 0;
    bool alike = true;
    for (int i = 0; c->stages && i < c->n_stages; i++) {
        again += c->stages[i].remat != SN_REMAT_NONE;
        alike &= c->stages[i].remat == c->stages[0].remat;
    }
    if (again && alike)
        sn_str_printf(out, ", remat=%s", sn_remat_name(c->stages[0].remat));
    else if (again)
        sn_str_printf(out, ", remat in %d of %d stages", again, c->n_stages);
}

// "pp=8 dp=16 tp=8, 12 micro-batches of 2, interleaved in 2 chunks, zero=1": a candidate in one line.
static char *outline_of(const sn_candidate *c) {
    const struct {
        const char *name;
        int size;
    } axes[] = {{"pp", c->pp}, {"dp", c->dp}, {"tp", c->setting.tp}, {"cp", c->setting.cp}, {"ep", c->setting.ep}};
    sn_str text = {0};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (axes[i].size > 1) sn_str_printf(&text, "%s%s=%d", text.length ? " " : "", axes[i].name, axes[i].size);
    if (!text.length) sn_str_puts(&text, "one device");
    sn_str_printf(&text, ", %d micro-batch%s of %" PRId64, c->microbatches, c->microbatches == 1 ? "" : "es",
                  c->setting.micro);
    if (c->pp > 1) sn_str_printf(&text, ", %s", sn_pipeline_name(c->schedule));
    if (c->chunks > 1) sn_str_printf(&text, " in %d chunks", c->chunks);
    if (sn_candidate_shares(c) > 1) sn_str_printf(&text, ", zero=%d", c->zero);
    put_remat(c, &text);
    if (c->setting.tp > 1) sn_str_puts(&text, c->setting.boundary ? ", sequence cut" : ", sequence whole");
    if (c->data_outside) sn_str_puts(&text, ", dp outermost");
    return text.data;
}

static json_t *memory_to_json(const sn_memory *m) {
    json_t *json = json_object();
    set_bytes(json, "parameters", m->parameters);
    set_bytes(json, "gradients", m->gradients);
    set_bytes(json, "optimizer", m->optimizer);
    set_bytes(json, "activations", m->activations);
    set_bytes(json, "working", m->working);
    set_bytes(json, "buffers", m->buffers);
    return json;
}

static json_t *candidate_to_json(const sn_candidate *c) {
    json_t *json = json_object();
    char *outline = outline_of(c);
    json_object_set_new(json, "outline", json_string(outline));
    sn_free(outline);
    set_real(json, "step_seconds", c->step);
    if (c->replayed > 0) set_real(json, "replayed_seconds", c->replayed);
    set_real(json, "pipeline_seconds", c->pipeline);
    set_real(json, "sync_seconds", c->sync);
    if (c->messages > 0) set_real(json, "message_seconds", c->messages);
    if (c->moved > 0) set_real(json, "moved_seconds", c->moved);
    set_real(json, "update_seconds", c->update);
    if (c->crowded > 0) set_real(json, "shared_cores_seconds", c->crowded);
    json_object_set_new(json, "pipeline_ranks", json_integer(c->pp));
    set_bytes(json, "memory_bytes", c->memory);
    if (c->excess > 0) set_bytes(json, "excess_bytes", c->excess);
    if (!c->n_stages) json_object_set_new(json, "at_least", json_true()); // ruled out by a bound
    return json;
}

static json_t *stage_to_json(const sn_candidate *c, int index, int64_t devices) {
    const sn_stage_report *stage = &c->stages[index];
    json_t *json = json_object();
    json_object_set_new(json, "blocks", json_pack("[i, i]", stage->first, stage->end));
    int64_t each = devices / c->pp;
    if (!c->data_outside)
        json_object_set_new(
            json, "devices",
            json_pack("[I, I]", (json_int_t)(index % c->pp * each), (json_int_t)((index % c->pp + 1) * each - 1)));
    json_object_set_new(json, "remat", json_string(sn_remat_name(stage->remat)));
    set_real(json, "forward_seconds", stage->forward);
    set_real(json, "backward_seconds", stage->backward_input + stage->backward_weight);
    set_real(json, "communication_seconds", stage->communication);
    set_real(json, "rematerialisation_seconds", stage->again);
    set_real(json, "in_flight", stage->in_flight);
    set_bytes(json, "saved_bytes", stage->saved);
    json_object_set_new(json, "memory", memory_to_json(&stage->memory));
    return json;
}

static json_t *alternatives_to_json(const sn_search_result *r) {
    json_t *list = json_array();
    for (int i = 0; i < r->n_alternatives; i++) {
        const sn_alternative *a = &r->alternatives[i];
        json_t *json = candidate_to_json(&a->candidate);
        json_object_set_new(json, "axis", json_string(a->axis));
        json_object_set_new(json, "value", json_string(a->value));
        json_array_append_new(list, json);
    }
    return list;
}

static json_t *classes_to_json(sn_search *search, const sn_blocks *blocks, const sn_candidate *c) {
    json_t *list = json_array();
    sn_arena arena = {0};
    for (int k = 0; k < blocks->n_classes; k++) {
        int representative = blocks->classes[k].representative;
        const sn_block *block = &blocks->blocks[representative];
        json_t *json = json_pack("{s:i, s:s}", "count", blocks->classes[k].count, "first", block->first);
        json_t *groups = json_array();
        bool cut = c->setting.tp > 1 || c->setting.ep > 1; // else there is nothing to tell of a group
        for (int g = 0; cut && g < block->n_groups; g++)
            json_array_append_new(groups, json_string(sn_evaluator_choice(sn_search_evaluator(search), c->setting,
                                                                          representative, g, &arena)));
        json_object_set_new(json, "groups", groups);
        sn_evaluator *e = sn_search_evaluator(search);
        const sn_block_cost *cost = sn_evaluator_costs(e, c->setting, sn_evaluator_site(e));
        if (cost) {
            set_real(json, "forward_seconds", cost[k].forward);
            set_real(json, "backward_seconds", cost[k].backward_input + cost[k].backward_weight);
            set_real(json, "communication_seconds", cost[k].communication);
        }
        json_array_append_new(list, json);
    }
    sn_arena_free(&arena);
    return list;
}

static json_t *blocks_to_json(const sn_blocks *blocks) {
    json_t *list = json_array();
    for (int b = 0; b < blocks->n_blocks; b++) {
        const sn_block *block = &blocks->blocks[b];
        json_t *nodes = json_array(), *parameters = json_array();
        for (int g = 0; g < block->n_groups; g++) json_array_append_new(nodes, json_string(block->groups[g].node));
        for (int p = 0; p < block->n_parameters; p++)
            json_array_append_new(parameters, json_string(block->parameters[p]->name));
        json_array_append_new(
            list, json_pack("{s:i, s:o, s:o}", "class", block->kind, "nodes", nodes, "parameters", parameters));
    }
    return list;
}

static int by_figure(const void *left, const void *right) {
    const sn_candidate *a = left, *b = right;
    bool replayed = a->replayed > 0;
    if (replayed != (b->replayed > 0)) return replayed ? -1 : 1;
    double x = replayed ? a->replayed : a->step, y = replayed ? b->replayed : b->step;
    return (x > y) - (x < y);
}

// In the order of what is told of them: replays compare with replays, then closed forms with each other.
static json_t *runners_to_json(const sn_search_result *result) {
    json_t *list = json_array();
    size_t n = (size_t)result->n_runners;
    sn_candidate *sorted = sn_alloc((n + 1) * sizeof *sorted);
    if (n) memcpy(sorted, result->runners, n * sizeof *sorted);
    if (n) qsort(sorted, n, sizeof *sorted, by_figure);
    for (size_t i = 0; i < n; i++) json_array_append_new(list, candidate_to_json(&sorted[i]));
    sn_free(sorted);
    return list;
}

json_t *sn_explanation(sn_search *search, const sn_search_request *request, const sn_search_result *result, int n,
                       const sn_what_if *what_ifs) {
    const sn_candidate *best = &result->best;
    json_t *json = candidate_to_json(best), *stages = json_array(), *more = json_array();
    json_object_set_new(json, "objective", json_string(sn_objective_name(request->objective)));
    set_real(json, "lower_bound", result->lower_bound);
    set_real(json, "least_step_seconds", result->least_step);
    json_object_set_new(json, "candidates", json_integer(result->candidates));
    json_object_set_new(json, "solved_exactly", json_integer(result->solved));
    json_object_set_new(json, "cluster", json_string(request->cluster->name));
    json_object_set_new(json, "devices", json_integer(sn_cluster_devices(request->cluster)));
    set_bytes(json, "device_bytes", best->memory_limit);
    json_object_set_new(json, "binding_stage", json_integer(best->binding));
    json_object_set_new(json, "fullest_rank", json_integer(best->fullest));
    for (int i = 0; i < best->n_stages; i++)
        json_array_append_new(stages, stage_to_json(best, i, sn_cluster_devices(request->cluster)));
    for (int i = 0; i < n; i++) {
        json_t *answer = what_ifs[i].feasible ? candidate_to_json(&what_ifs[i].best) : json_object();
        json_object_set_new(answer, "what", json_string(what_ifs[i].what));
        json_array_append_new(more, answer);
    }
    json_object_set_new(json, "stages", stages);
    json_object_set_new(json, "runners_up", runners_to_json(result));
    json_object_set_new(json, "alternatives", alternatives_to_json(result));
    json_object_set_new(json, "more", more);
    json_object_set_new(json, "classes", classes_to_json(search, request->blocks, best));
    json_object_set_new(json, "blocks", blocks_to_json(request->blocks));
    return json;
}

// What the fullest device holds: of several chunks everything adds up but the working memory (sn_price).
static sn_stage_report fullest_of(const sn_candidate *c) {
    sn_stage_report rank = c->stages[c->fullest];
    for (int i = c->fullest + c->pp; i < c->n_stages; i += c->pp) {
        const sn_memory *m = &c->stages[i].memory;
        rank.memory.parameters += m->parameters;
        rank.memory.gradients += m->gradients;
        rank.memory.optimizer += m->optimizer;
        rank.memory.activations += m->activations;
        rank.memory.buffers += m->buffers;
        rank.memory.working = fmax(rank.memory.working, m->working);
        rank.saved += c->stages[i].saved;
        rank.could_save += c->stages[i].could_save;
    }
    return rank;
}

// One lever of the certificate: "; remat saves 6.2 GiB there already", "; --mesh keeps zero=0, zero=3 would save 50
// GiB".
static void put_lever(sn_str *out, const char *name, const char *kept, const char *most, double saved, double more) {
    if (kept && more > 0) {
        sn_str_printf(out, "; --mesh keeps %s, %s would save ", kept, most);
        sn_str_bytes(out, more);
    }
    if (!kept && saved > 0) {
        sn_str_printf(out, "; %s saves ", name);
        sn_str_bytes(out, saved);
        sn_str_puts(out, " there already");
    }
}

// ZeRO-3 leaves of each class one part in dp * cp; `saved` is what the candidate's stage leaves out already.
static void put_zero(sn_str *out, const sn_candidate *c, const sn_memory *m, const char *kept) {
    double bytes[] = {m->optimizer, m->gradients, m->parameters}, saved = 0, more = 0;
    int shares = sn_candidate_shares(c);
    for (int i = 0; i < 3; i++)
        *(i < c->zero ? &saved : &more) += bytes[i] * (i < c->zero ? shares - 1 : 1 - 1.0 / shares);
    if (shares > 1) put_lever(out, "ZeRO", kept, "zero=3", saved, more);
}

static void put_levers(sn_str *out, const sn_plan *fixed, const sn_candidate *c, const sn_stage_report *rank) {
    unsigned named = fixed ? fixed->named : 0;
    char remat[32], zero[32];
    snprintf(remat, sizeof remat, "remat=%s", sn_remat_name(named & SN_PLAN_REMAT ? fixed->remat : SN_REMAT_NONE));
    snprintf(zero, sizeof zero, "zero=%d", c->zero);
    put_lever(out, "remat", named & SN_PLAN_REMAT ? remat : NULL, "another", rank->saved, rank->could_save);
    put_zero(out, c, &rank->memory, named & SN_PLAN_ZERO ? zero : NULL);
}

// "parameters 14.3 GiB, gradients 28.6 GiB, …"
static void put_classes(sn_str *out, const sn_memory *m) {
    const struct {
        const char *name;
        double bytes;
    } classes[] = {{"parameters", m->parameters},   {"gradients", m->gradients},    {"optimizer state", m->optimizer},
                   {"activations", m->activations}, {"working memory", m->working}, {"buffers", m->buffers}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        sn_str_printf(out, "%s%s ", i ? ", " : "", classes[i].name);
        sn_str_bytes(out, classes[i].bytes);
    }
}

void sn_report_infeasible(const sn_search_request *request, const sn_search_result *result, sn_diags *diags) {
    const sn_candidate *c = &result->best;
    sn_stage_report rank = fullest_of(c);
    char *outline = outline_of(c);
    sn_str help = {0}, missing = {0}, levers = {0};
    sn_str_puts(&help, "more devices, devices with at least ");
    sn_str_bytes(&help, c->memory);
    sn_str_puts(&help,
                request->fixed ? ", a smaller batch, or less in --mesh; there: " : ", or a smaller batch; there: ");
    put_classes(&help, &rank.memory);
    sn_str_bytes(&missing, c->excess);
    put_levers(&levers, request->fixed, c, &rank);
    sn_error(diags, "E0441", request->cluster->name, sn_arena_strdup(&diags->arena, sn_str_text(&help)),
             "no plan fits: the closest (%s) needs %s more per device%s", outline, sn_str_text(&missing),
             sn_str_text(&levers));
    sn_str_free(&help);
    sn_str_free(&missing);
    sn_str_free(&levers);
    sn_free(outline);
}
