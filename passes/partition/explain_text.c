// The text of an explanation, from plan.json alone.
#include "passes/partition/explain.h"

#include "base/options.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const classes[] = {"parameters", "gradients", "optimizer", "activations", "working", "buffers"};
enum { CLASSES = sizeof classes / sizeof *classes, MOST_STAGES_SHOWN = 8 };

static double real(const json_t *json, const char *key) {
    return json_number_value(json_object_get(json, key));
}

static const char *text(const json_t *json, const char *key) {
    const char *value = json_string_value(json_object_get(json, key));
    return value ? value : "";
}

static json_t *explanation_of(const json_t *plan) {
    return json_object_get(plan, "explanation");
}

static double total_of(const json_t *memory) {
    double total = 0;
    for (int i = 0; i < CLASSES; i++) total += real(memory, classes[i]);
    return total;
}

static double stage_seconds(const json_t *stage) {
    return real(stage, "forward_seconds") + real(stage, "backward_seconds");
}

// The unit of the table: what the fullest stage is stated in.
static const struct unit {
    const char *name;
    double bytes;
} units[] = {{"GiB", 1073741824}, {"MiB", 1048576}, {"KiB", 1024}};

static const struct unit *table_unit(const json_t *stages) {
    double most = 0;
    size_t index, unit = 0;
    const json_t *stage;
    json_array_foreach(stages, index, stage) {
        most = fmax(most, total_of(json_object_get(stage, "memory")));
    }
    while (unit < 2 && most < units[unit].bytes) unit++;
    return &units[unit];
}

// Stages of a pipeline rank, one after the other on it: s, s + pp, … (chunks).
static size_t pipeline_ranks(const json_t *plan) {
    json_int_t pp = json_integer_value(json_object_get(json_object_get(plan, "mesh"), "pp"));
    return pp > 0 ? (size_t)pp : 1;
}

static size_t binding_rank(const json_t *plan) {
    return (size_t)json_integer_value(json_object_get(explanation_of(plan), "binding_stage")) % pipeline_ranks(plan);
}

static void put_stage(const json_t *plan, size_t index, const struct unit *unit, sn_str *out) {
    const json_t *x = explanation_of(plan);
    const json_t *stage = json_array_get(json_object_get(x, "stages"), index);
    const json_t *blocks = json_object_get(stage, "blocks"), *memory = json_object_get(stage, "memory");
    size_t pp = pipeline_ranks(plan);
    bool binding = index % pp == binding_rank(plan), chunked = json_array_size(json_object_get(x, "stages")) > pp;
    sn_str_printf(out, "  %4zu  %3lld-%-3lld  %-9s ", index, (long long)json_integer_value(json_array_get(blocks, 0)),
                  (long long)json_integer_value(json_array_get(blocks, 1)) - 1, text(stage, "remat"));
    size_t from = out->length;
    sn_str_seconds(out, stage_seconds(stage));
    sn_str_align(out, from, 13);
    for (int i = 0; i < CLASSES; i++) sn_str_printf(out, " %7.2f", real(memory, classes[i]) / unit->bytes);
    sn_str_printf(out, " %8.2f%s\n", total_of(memory) / unit->bytes,
                  !binding  ? ""
                  : chunked ? "  <- longest rank"
                            : "  <- longest");
}

static void put_stages(const json_t *plan, sn_str *out) {
    const json_t *x = explanation_of(plan);
    size_t count = json_array_size(json_object_get(x, "stages")), binding = 0;
    binding = (size_t)json_integer_value(json_object_get(x, "binding_stage"));
    const struct unit *unit = table_unit(json_object_get(x, "stages"));
    sn_str_printf(
        out, " stage  blocks   remat      micro-batch   params   grads   optim  activ.    work    bufs  %s total\n",
        unit->name);
    for (size_t i = 0; i < count; i++) {
        bool shown = count <= MOST_STAGES_SHOWN || i < 3 || i + 2 >= count || i == binding;
        if (shown)
            put_stage(plan, i, unit, out);
        else if (i == 3)
            sn_str_printf(out, "   ...  (%zu stages in all)\n", count);
    }
}

// Of a step without a pipeline too.
static const char *passes_word(const json_t *x) {
    const json_t *ranks = json_object_get(x, "pipeline_ranks");
    return ranks && json_integer_value(ranks) == 1 ? "forward and backward" : "pipeline";
}

static double parts_seconds(const json_t *x) {
    return real(x, "pipeline_seconds") + real(x, "sync_seconds") + real(x, "update_seconds");
}

// What the work of all ranks on the cores that they share takes beyond the longest rank's own (0: it is hidden).
static double crowded_seconds(const json_t *x) {
    return fmax(0, real(x, "shared_cores_seconds") - parts_seconds(x));
}

// What a pipeline waits for, beside its passes and within them: in seconds, or as a share of the step.
static void put_waits(const json_t *x, double step, sn_str *out) {
    static const struct {
        const char *key, *what;
    } parts[] = {{"message_seconds", "messages between stages"},
                 {"moved_seconds", "parameters and gradients over dp with each micro-batch"}};
    const char *before = " (of it ";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double seconds = real(x, parts[i].key);
        if (seconds <= 0) continue;
        sn_str_puts(out, before);
        if (step > 0)
            sn_str_printf(out, "%.1f %%", 100 * seconds / step);
        else
            sn_str_seconds(out, seconds);
        sn_str_printf(out, " %s", parts[i].what);
        before = ", ";
    }
    if (*before == ',') sn_str_puts(out, ")");
}

void sn_plan_summary(const json_t *plan, sn_str *out) {
    const json_t *x = explanation_of(plan);
    double step = real(x, "step_seconds"), bound = real(x, "lower_bound");
    long long devices = json_integer_value(json_object_get(x, "devices"));
    sn_str_printf(out, "%s: %lld device%s, batch %lld\n", text(x, "cluster"), devices, devices == 1 ? "" : "s",
                  (long long)json_integer_value(json_object_get(plan, "batch")));
    sn_str_printf(out, "  %s\n", text(x, "outline"));
    sn_str_puts(out, "  step ");
    sn_str_seconds(out, step);
    sn_str_printf(out, ": %s ", passes_word(x));
    sn_str_seconds(out, real(x, "pipeline_seconds"));
    put_waits(x, 0, out);
    sn_str_puts(out, ", gradients and parameters over dp once a step ");
    sn_str_seconds(out, real(x, "sync_seconds"));
    sn_str_puts(out, ", update ");
    sn_str_seconds(out, real(x, "update_seconds"));
    if (crowded_seconds(x) > 0) {
        sn_str_puts(out, ", waiting for cores that ranks share ");
        sn_str_seconds(out, crowded_seconds(x));
    }
    if (real(x, "replayed_seconds") > 0) {
        sn_str_puts(out, "; replayed pass by pass ");
        sn_str_seconds(out, real(x, "replayed_seconds"));
    }
    sn_str_printf(out, "\n  no plan is faster than ");
    sn_str_seconds(out, bound);
    sn_str_printf(out, " by the closed form (gap %.2f %%); %lld plans priced\n",
                  step > 0 ? 100 * (step - bound) / step : 0,
                  (long long)json_integer_value(json_object_get(x, "candidates")));
    sn_str_puts(out, "  fullest device ");
    sn_str_bytes(out, real(x, "memory_bytes"));
    sn_str_puts(out, " of ");
    sn_str_bytes(out, real(x, "device_bytes"));
    sn_str_puts(out, "\n");
    put_stages(plan, out);
}

static void put_binding(const json_t *plan, sn_str *out) {
    const json_t *x = explanation_of(plan), *stages = json_object_get(x, "stages"), *devices = NULL;
    size_t pp = pipeline_ranks(plan), count = json_array_size(stages);
    double seconds = 0, communication = 0, again = 0;
    sn_str_printf(out, "What binds\n  stage%s", count > pp ? "s" : "");
    for (size_t i = binding_rank(plan); i < count; i += pp) {
        const json_t *stage = json_array_get(stages, i);
        sn_str_printf(out, "%s %zu", i >= pp ? "," : "", i);
        seconds += stage_seconds(stage);
        communication += real(stage, "communication_seconds");
        again += real(stage, "rematerialisation_seconds");
        devices = json_object_get(stage, "devices");
    }
    if (devices)
        sn_str_printf(out, ", devices %lld to %lld", (long long)json_integer_value(json_array_get(devices, 0)),
                      (long long)json_integer_value(json_array_get(devices, 1)));
    sn_str_puts(out, ": ");
    sn_str_seconds(out, seconds);
    sn_str_printf(out, " a micro-batch, %.0f %% of it communication, %.0f %% computed again\n",
                  100 * communication / fmax(seconds, 1e-30), 100 * again / fmax(seconds, 1e-30));
    double step = fmax(parts_seconds(x) + crowded_seconds(x), 1e-30);
    sn_str_printf(out, "  the step: %.1f %% %s", 100 * real(x, "pipeline_seconds") / step, passes_word(x));
    put_waits(x, step, out);
    sn_str_printf(out, ", %.1f %% gradients and parameters over dp once a step, %.1f %% update",
                  100 * real(x, "sync_seconds") / step, 100 * real(x, "update_seconds") / step);
    if (crowded_seconds(x) > 0)
        sn_str_printf(out, ", %.1f %% waiting for cores that ranks share", 100 * crowded_seconds(x) / step);
    sn_str_puts(out, "\n");
}

static bool is_replayed(const json_t *x, const json_t *other) {
    return real(x, "replayed_seconds") > 0 && real(other, "replayed_seconds") > 0;
}

// Replays compare with the plan's replay, closed forms with the least of them.
static double base_of(const json_t *x, bool replayed) {
    double least = real(x, "least_step_seconds");
    return replayed ? real(x, "replayed_seconds") : least > 0 ? least : real(x, "step_seconds");
}

// "closed forms against the least, 13.35 ms; replays against the plan's, 14.71 ms"
static void put_bases(const json_t *x, sn_str *out) {
    sn_str_puts(out, "closed forms against the least, ");
    sn_str_seconds(out, base_of(x, false));
    if (real(x, "replayed_seconds") > 0) {
        sn_str_puts(out, "; replays against the plan's, ");
        sn_str_seconds(out, base_of(x, true));
    }
}

static void put_loss(const json_t *x, const json_t *other, sn_str *out) {
    double excess = real(other, "excess_bytes");
    bool replayed = is_replayed(x, other);
    const char *key = replayed ? "replayed_seconds" : "step_seconds";
    double base = base_of(x, replayed);
    if (excess > 0) {
        sn_str_puts(out, "needs ");
        sn_str_bytes(out, excess);
        sn_str_puts(out, " more per device");
        return;
    }
    sn_str_printf(out, "%s%+.1f %% (", json_is_true(json_object_get(other, "at_least")) ? "at least " : "",
                  100 * (real(other, key) / fmax(base, 1e-30) - 1));
    sn_str_seconds(out, real(other, key));
    sn_str_puts(out, replayed ? " replayed)" : ")");
}

static void put_runners(const json_t *x, sn_str *out) {
    size_t i;
    json_t *runner;
    sn_str_puts(out, "Runners-up (");
    put_bases(x, out);
    sn_str_puts(out, ")\n");
    json_array_foreach(json_object_get(x, "runners_up"), i, runner) {
        sn_str_puts(out, "  ");
        put_loss(x, runner, out);
        sn_str_printf(out, "  %s\n", text(runner, "outline"));
    }
}

// What grew most in the step, or the memory: the reason that an alternative loses.
static const char *reason(const json_t *x, const json_t *other) {
    static const char *const parts[] = {"pipeline_seconds", "sync_seconds", "update_seconds"};
    const char *words[] = {"forward and backward take longer", "more time for gradients and parameters over dp",
                           "a longer update"};
    double most = 0;
    const char *why = "";
    const json_t *ranks = json_object_get(other, "pipeline_ranks");
    if (!ranks || json_integer_value(ranks) > 1) words[0] = "the pipeline takes longer";
    if (real(other, "excess_bytes") > 0 || json_is_true(json_object_get(other, "at_least"))) return "";
    for (int i = 0; i < 3; i++) {
        double more = real(other, parts[i]) - real(x, parts[i]);
        if (more > most) most = more, why = words[i];
    }
    return why;
}

static void put_alternatives(const json_t *x, sn_str *out) {
    size_t i;
    json_t *other;
    sn_str_puts(out, "Why not (the best plan with that value; ");
    put_bases(x, out);
    sn_str_puts(out, ")\n");
    json_array_foreach(json_object_get(x, "alternatives"), i, other) {
        sn_str_printf(out, "  %s=%s: ", text(other, "axis"), text(other, "value"));
        put_loss(x, other, out);
        const char *why = reason(x, other);
        sn_str_printf(out, "%s%s: %s\n", *why ? ", " : "", why, text(other, "outline"));
    }
}

static void put_more(const json_t *x, sn_str *out) {
    size_t i;
    json_t *more;
    sn_str_puts(out, "What more would buy\n");
    json_array_foreach(json_object_get(x, "more"), i, more) {
        sn_str_printf(out, "  %s: ", text(more, "what"));
        if (real(more, "step_seconds") > 0)
            put_loss(x, more, out);
        else
            sn_str_puts(out, "no plan fits");
        sn_str_printf(out, "  %s\n", text(more, "outline"));
    }
}

bool sn_plan_explain(const json_t *plan, const char *subject, sn_diags *diags, sn_str *out) {
    const json_t *x = explanation_of(plan);
    if (!sn_explanation_check(plan, subject, diags)) return false;
    sn_plan_summary(plan, out);
    put_binding(plan, out);
    put_runners(x, out);
    put_alternatives(x, out);
    put_more(x, out);
    return true;
}

static int find_text(const json_t *list, const char *name) {
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)list, i, item) {
        if (strcmp(json_string_value(item) ? json_string_value(item) : "", name) == 0) return (int)i;
    }
    return -1;
}

static int stage_of(const json_t *x, int block) {
    size_t i;
    json_t *stage;
    json_array_foreach(json_object_get(x, "stages"), i, stage) {
        const json_t *blocks = json_object_get(stage, "blocks");
        if (block >= json_integer_value(json_array_get(blocks, 0)) &&
            block < json_integer_value(json_array_get(blocks, 1)))
            return (int)i;
    }
    return 0;
}

static json_t *describe_node(const json_t *plan, const char *name, size_t b, const json_t *block) {
    const json_t *x = explanation_of(plan);
    int node = find_text(json_object_get(block, "nodes"), name);
    int parameter = find_text(json_object_get(block, "parameters"), name);
    if (node < 0 && parameter < 0) return NULL;
    size_t kind = (size_t)json_integer_value(json_object_get(block, "class"));
    const json_t *class = json_array_get(json_object_get(x, "classes"), kind);
    const char *layout = json_string_value(json_object_get(json_object_get(plan, "layouts"), name));
    const char *cut =
        node < 0 ? NULL : json_string_value(json_array_get(json_object_get(class, "groups"), (size_t)node));
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:s?, s:s?, s:f, s:f, s:f}", "name", name, "kind",
                     parameter >= 0 ? "parameter" : "node", "stage", stage_of(x, (int)b), "block", (int)b, "zero",
                     (int)json_integer_value(json_object_get(plan, "zero")), "blocks_alike",
                     json_integer_value(json_object_get(class, "count")), "layout", layout, "cut", cut,
                     "block_forward_seconds", real(class, "forward_seconds"), "block_backward_seconds",
                     real(class, "backward_seconds"), "block_communication_seconds",
                     real(class, "communication_seconds"));
}

// The beginning of a name is as good as a slip in it.
static void suggest(const json_t *names, const char *name, sn_suggestion *close) {
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)names, i, item) {
        const char *candidate = json_string_value(item);
        if (!candidate) continue;
        sn_suggest(close, name, candidate);
        if (strncmp(name, candidate, strlen(name)) == 0 && !(close->best && close->distance == 0))
            *close = (sn_suggestion){candidate, 0};
    }
}

static void report_unknown(const json_t *blocks, const char *name, sn_diags *diags) {
    size_t b;
    json_t *block;
    sn_suggestion close = {0};
    json_array_foreach((json_t *)(uintptr_t)blocks, b, block) {
        suggest(json_object_get(block, "nodes"), name, &close);
        suggest(json_object_get(block, "parameters"), name, &close);
    }
    const char *help = "`sennit info` and the plan list the names";
    if (close.best) help = sn_arena_printf(&diags->arena, "did you mean '%s'? %s", close.best, help);
    sn_error(diags, "E0447", name, help, "the plan has no node or parameter '%s'", name);
}

json_t *sn_plan_find_node(const json_t *plan, const char *name, sn_diags *diags) {
    size_t b;
    json_t *block;
    if (!sn_explanation_check(plan, name, diags)) return NULL;
    json_array_foreach(json_object_get(explanation_of(plan), "blocks"), b, block) {
        json_t *found = describe_node(plan, name, b, block);
        if (found) return found;
    }
    report_unknown(json_object_get(explanation_of(plan), "blocks"), name, diags);
    return NULL;
}

void sn_plan_explain_node(const json_t *node, sn_str *out) {
    const char *layout = text(node, "layout"), *cut = text(node, "cut");
    bool parameter = strcmp(text(node, "kind"), "parameter") == 0;
    sn_str_printf(out, "%s\n  stage %lld, block %lld of the chain, one of %lld blocks of its structure\n",
                  text(node, "name"), (long long)json_integer_value(json_object_get(node, "stage")),
                  (long long)json_integer_value(json_object_get(node, "block")),
                  (long long)json_integer_value(json_object_get(node, "blocks_alike")));
    sn_str_printf(out, "  layout %s\n",
                  *layout     ? layout
                  : parameter ? json_integer_value(json_object_get(node, "zero")) == 3
                                    ? "shared out by ZeRO-3, gathered where it is used"
                                    : "whole on each rank"
                              : "as its operands and readers give it");
    if (*cut) sn_str_printf(out, "  %s\n", cut);
    sn_str_puts(out, "  its block takes ");
    sn_str_seconds(out, real(node, "block_forward_seconds"));
    sn_str_puts(out, " forwards and ");
    sn_str_seconds(out, real(node, "block_backward_seconds"));
    sn_str_puts(out, " backwards a micro-batch, of it ");
    sn_str_seconds(out, real(node, "block_communication_seconds"));
    sn_str_puts(out, " collectives\n");
}
