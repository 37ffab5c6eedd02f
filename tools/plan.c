// `sennit plan`: the best way to split the training of a model over a cluster, as plan.json and one screen of text.
#include "base/clock.h"
#include "base/file.h"
#include "passes/cost/profile.h"
#include "passes/partition/explain.h"
#include "tools/passes.h"
#include "tools/planning.h"

#include <stdlib.h>
#include <string.h>

static sn_what_if ask_memory(sn_search *search, double scale, const sn_candidate *best, const char *what) {
    sn_search_result result;
    bool found = sn_search_run(search, scale, best, &result) && result.feasible;
    return (sn_what_if){what, found, result.best};
}

static sn_what_if ask_links(const sn_planning *p, const sn_candidate *best) {
    sn_cluster faster = p->cluster;
    for (int i = 0; i < faster.n_levels; i++) faster.level[i].beta *= 2;
    sn_search_result result;
    sn_search *search = sn_search_behind(p->search, &faster);
    bool found = sn_search_run(search, 1, best, &result) && result.feasible;
    sn_search_free(search);
    return (sn_what_if){"links of twice the bandwidth", found, result.best};
}

static bool write_plan(sn_planning *p, const json_t *json) {
    const char *path = sn_options_text(p->options, "output", NULL);
    char *text = path ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) : NULL;
    sn_status status = text ? sn_file_write(path, text, strlen(text)) : SN_OK;
    free(text);
    if (!status) return true;
    sn_error(p->diags, "E0445", path, "check the path, its permissions and the free space", "%s",
             sn_status_message(status));
    sn_status_free(status);
    return false;
}

static bool print_plan(sn_planning *p, json_t *json) {
    if (!write_plan(p, json)) return false;
    sn_str text = {0};
    if (sn_options_has(p->options, "json")) {
        json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
        putchar('\n');
    } else {
        sn_plan_summary(json, &text);
        fputs(sn_str_text(&text), stdout);
    }
    sn_str_free(&text);
    return true;
}

// What the plan was made from, so that `sennit simulate` builds the same step: paths do not depend on where it is run.
static json_t *made_from(const sn_planning *p) {
    static const char *const left_out[] = {"output", "json", "batch", "mesh", "objective", "profile"};
    json_t *options = json_array();
    for (size_t i = 0; i < p->options->given.count; i++) {
        const struct sn_option_given *given = &p->options->given.data[i];
        bool skip = false;
        for (size_t k = 0; k < sizeof left_out / sizeof *left_out; k++)
            skip |= strcmp(given->spec->name, left_out[k]) == 0;
        if (skip) continue;
        bool is_file = strcmp(given->spec->name, "cluster") == 0 || strcmp(given->spec->name, "plugin") == 0;
        char *path = is_file ? realpath(given->text, NULL) : NULL;
        json_array_append_new(options, json_sprintf("--%s=%s", given->spec->name, path ? path : given->text));
        free(path);
    }
    const char *model = p->options->arguments.data[0];
    char *path = realpath(model, NULL);
    json_t *json = json_pack("{s:s, s:o}", "model", path ? path : model, "options", options);
    free(path);
    return json;
}

static void search_and_print(sn_planning *p) {
    double start = sn_seconds();
    sn_search_result result;
    bool good = sn_search_run(p->search, 1, NULL, &result) && !p->diags->errors;
    if (good && !result.feasible) sn_report_infeasible(&p->request, &result, p->diags);
    if (!good || !result.feasible) return;
    double seconds = sn_seconds() - start;
    sn_plan plan = sn_search_plan(p->search, &result.best, &p->arena);
    sn_what_if more[] = {ask_memory(p->search, 1.25, &result.best, "a quarter more memory"),
                         ask_memory(p->search, 2, &result.best, "twice the memory"), ask_links(p, &result.best)};
    json_t *json = sn_plan_to_json(&plan);
    json_t *explanation = sn_explanation(p->search, &p->request, &result, sizeof more / sizeof *more, more);
    json_object_set_new(explanation, "search_seconds", json_real(seconds));
    json_object_set_new(explanation, "decisions", sn_plan_decisions(&plan));
    json_object_set_new(json, "explanation", explanation);
    json_object_set_new(json, "made_from", made_from(p));
    (void)print_plan(p, json);
    json_decref(json);
}

int sn_cmd_plan(const sn_options *options, sn_diags *diags) {
    sn_planning planning;
    if (sn_planning_open(&planning, options, diags)) search_and_print(&planning);
    sn_planning_close(&planning);
    return 0;
}
