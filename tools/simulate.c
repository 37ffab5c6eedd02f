// `sennit simulate`: what a step of a plan takes on its cluster, replayed from the programs that `compile` would make.
#include "backend/package/fit.h"
#include "backend/simulate/trace.h"
#include "base/file.h"
#include "passes/cost/profile.h"
#include "tools/passes.h"
#include "tools/plan_step.h"

#include <stdlib.h>
#include <string.h>

typedef struct simulating {
    const sn_options *options;
    sn_diags *diags;
    sn_plan_step plan;
    sn_profile profile;
    sn_simulation simulation;
} simulating;

static bool simulate(simulating *s) {
    const char *path = sn_options_text(s->options, "profile", NULL);
    sn_arena *arena = &s->plan.arena;
    if (path && !sn_profile_load(path, arena, s->diags, &s->profile)) return false;
    const sn_profile *profile = path ? &s->profile : NULL;
    sn_price_request prices = {.module = s->plan.step.module,
                               .schedules = &s->plan.schedules,
                               .kernels = &s->plan.kernels,
                               .cluster = &s->plan.cluster,
                               .profile = profile,
                               .plugins = s->plan.step.plugins,
                               .diags = s->diags};
    sn_fit_check_promise(&s->plan.schedules, &s->plan.step.plan, s->options->arguments.data[0], s->diags);
    sn_fit_check_devices(&s->plan.schedules, &s->plan.cluster, s->options->arguments.data[0], true, s->diags);
    return sn_simulate(&prices, sn_simulate_cores(&s->plan.cluster, profile), arena, &s->simulation) &&
           !s->diags->errors;
}

static bool add_measured(simulating *s, const char *path, json_t *events) {
    json_error_t error;
    json_t *measured = json_load_file(path, 0, &error);
    if (!measured)
        sn_error(s->diags, "E0829", path, "give a file that `--trace FILE` of a run wrote",
                 "the trace cannot be read: %s", error.text);
    bool good = measured && sn_trace_add_measured(events, measured, path, s->diags);
    json_decref(measured);
    return good;
}

static bool write_trace(simulating *s) {
    const char *path = sn_options_text(s->options, "trace", NULL);
    const char *measured = sn_options_text(s->options, "measured", NULL);
    if (!path && measured)
        sn_error(s->diags, "E0829", "--measured", "add --trace FILE", "a measured trace is merged into --trace");
    if (!path) return !measured;
    json_t *events = sn_simulation_trace(&s->simulation);
    json_t *all = json_pack("{s:s, s:o}", "displayTimeUnit", "ms", "traceEvents", events);
    bool good = !measured || add_measured(s, measured, events);
    char *text = good ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    sn_status status = text ? sn_file_write(path, text, strlen(text)) : SN_OK;
    if (status)
        sn_error(s->diags, "E0830", path, "check the path, its permissions and the free space", "%s",
                 sn_status_message(status));
    good = good && !status;
    sn_status_free(status);
    free(text);
    json_decref(all);
    return good;
}

static void print(simulating *s) {
    if (sn_options_has(s->options, "json")) {
        json_t *json = sn_simulation_to_json(&s->simulation);
        json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        putchar('\n');
        json_decref(json);
        return;
    }
    sn_str text = {0};
    sn_simulation_print(&s->simulation, &text);
    fputs(sn_str_text(&text), stdout);
    sn_str_free(&text);
}

int sn_cmd_simulate(const sn_options *options, sn_diags *diags) {
    simulating s = {.options = options, .diags = diags};
    const char *model = options->arguments.count > 1 ? options->arguments.data[1] : NULL;
    if (sn_plan_step_make(options->arguments.data[0], model, options, diags, &s.plan) && simulate(&s) &&
        write_trace(&s))
        print(&s);
    sn_simulation_free(&s.simulation);
    sn_profile_free(&s.profile);
    sn_plan_step_free(&s.plan);
    return 0;
}
