#include "backend/package/package.h"

#include "backend/cuda/cuda.h"
#include "backend/package/fit.h"
#include "backend/package/link.h"
#include "backend/package/report.h"
#include "backend/verify/verify.h"
#include "base/file.h"
#include "runtime/package.h"

#include <stdlib.h>
#include <string.h>

static void report(sn_status status, const char *code, const char *subject, sn_diags *diags) {
    if (!status) return;
    sn_error(diags, code, subject, "check the path, its permissions and the free space", "%s",
             sn_status_message(status));
    sn_status_free(status);
}

static sn_status write_text(const char *folder, const char *name, const sn_str *text) {
    sn_str path = {0};
    sn_str_printf(&path, "%s/%s", folder, name);
    sn_status status = sn_file_write(sn_str_text(&path), sn_str_text(text), text->length);
    sn_str_free(&path);
    return status;
}

static sn_status write_plan(const sn_plan *plan, const char *folder) {
    json_t *json = sn_plan_to_json(plan);
    char *text = json_dumps(json, JSON_INDENT(2));
    sn_str line = {0};
    sn_str_printf(&line, "%s\n", text);
    sn_status status = write_text(folder, "plan.json", &line);
    sn_str_free(&line);
    free(text);
    json_decref(json);
    return status;
}

// The page about the schedules, with a simulated step where they train.
static void print_report(const sn_module *module, const sn_package_request *request, const sn_kernels *kernels,
                         const sn_schedules *schedules, sn_diags *diags, sn_str *out) {
    sn_arena arena = {0};
    sn_cluster local;
    const sn_cluster *cluster = request->cluster ? request->cluster : &local;
    int64_t ranks = schedules->classes.items[0].ranks;
    SN_CHECK(sn_cluster_preset("local", ranks, &local));
    sn_report report = {.plan = request->plan, .schedules = schedules, .cluster = cluster->name};
    sn_price_request prices = {.module = module,
                               .schedules = schedules,
                               .kernels = kernels,
                               .cluster = cluster,
                               .plugins = request->plugins,
                               .diags = diags};
    sn_simulation simulation = {0};
    bool trains = sn_schedule_sequence(&schedules->classes.items[0], "step") != NULL;
    if (trains && sn_simulate(&prices, sn_simulate_cores(cluster, NULL), &arena, &simulation))
        report.simulation = &simulation;
    sn_report_write(&report, out);
    sn_simulation_free(&simulation);
    sn_arena_free(&arena);
}

static sn_status write_all(const sn_package_request *request, const sn_package *package, const sn_str *page,
                           const sn_str *text) {
    sn_str folder = {0};
    sn_str_printf(&folder, "%s.d", request->path);
    sn_status status = sn_package_write(package, request->runner, request->path);
    if (!status) status = sn_make_directories(sn_str_text(&folder));
    if (!status) status = write_plan(request->plan, sn_str_text(&folder));
    if (!status) status = write_text(sn_str_text(&folder), "schedule.json", text);
    if (!status) status = write_text(sn_str_text(&folder), "report.html", page);
    sn_str_free(&folder);
    return status;
}

// A schedule that is not sound is a bug of ours, and no program is better than a wrong one.
static void verify(const sn_schedules *schedules, sn_arena *arena) {
    sn_findings findings = {0};
    sn_schedules_verify(schedules, 0, arena, &findings);
    if (!findings.count) return;
    sn_str text = {0};
    for (size_t i = 0; i < findings.count; i++)
        sn_str_printf(&text, "\n  %s: %s", sn_finding_name(findings.data[i].kind), findings.data[i].text);
    SN_BUG("verify-schedule:%s", sn_str_text(&text));
}

bool sn_package_build(sn_module *module, const sn_package_request *request, sn_diags *diags) {
    sn_kernels kernels;
    size_t errors = diags->errors;
    if (!sn_kernels_lower(module, diags, &kernels)) {
        sn_kernels_free(&kernels);
        return false;
    }
    sn_arena arena = {0};
    sn_str constants = {0}, text = {0};
    sn_schedules schedules;
    sn_schedules_build(module, &request->schedule, kernels.entries, kernels.n, &arena, &constants, &schedules);
    verify(&schedules, &arena);
    sn_fit_check_promise(&schedules, request->plan, request->schedule.model_path, diags);
    if (request->cluster)
        sn_fit_check_devices(&schedules, request->cluster, request->schedule.model_path, false, diags);
    sn_schedules_write(&schedules, &text);
    void *library = NULL;
    size_t bytes = 0;
    sn_status status = diags->errors == errors ? sn_kernels_link(&kernels, 2, &library, &bytes) : SN_OK;
    report(status, "E0502", request->path, diags);
    if (diags->errors == errors) {
        sn_package package = {.schedule = {text.data, text.length},
                              .kernels = {library, bytes},
                              .constants = {constants.data, constants.length}};
        sn_str page = {0};
        print_report(module, request, &kernels, &schedules, diags, &page);
        report(write_all(request, &package, &page, &text), "E0702", request->path, diags);
        sn_str_free(&page);
    }
    sn_free(library);
    sn_str_free(&constants);
    sn_str_free(&text);
    sn_kernels_free(&kernels);
    sn_arena_free(&arena);
    return diags->errors == errors;
}

bool sn_package_cuda_source(const sn_module *module, const char *path, sn_diags *diags) {
    sn_kernels kernels;
    size_t errors = diags->errors;
    if (sn_kernels_lower(module, diags, &kernels)) {
        sn_str text = {0};
        sn_cuda_print(kernels.kirs, kernels.n, &text);
        report(sn_file_write(path, text.data, text.length), "E0702", path, diags);
        sn_str_free(&text);
    }
    sn_kernels_free(&kernels);
    return diags->errors == errors;
}
