// `sennit profile`: measures this machine's CPU for the cost model (passes/cost/profile.h).
#include "passes/cost/profile.h"
#include "base/alloc.h"
#include "base/file.h"
#include "tools/passes.h"
#include "tools/plan_step.h"
#include "tools/profile_plan.h"
#include "tools/profile_ranks.h"
#include "tools/profile_work.h"
#include "tools/workplace.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 3 }; // in which plans are measured

static void show(const char *what, size_t done, size_t all) {
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K%s %zu of %zu", what, done + 1, all);
}

static void show_nothing_more(void) {
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The median over its rounds of what an instruction took in a plan: plans[round * n + plan]. False where it was never
// measured. A run's step is compared by its median too: the least would promise what a machine that others also use
// does not keep.
static bool median_of(const json_t *plans, size_t n, size_t plan, const char *name, int crowded, double *median) {
    double values[ROUNDS];
    size_t count = 0;
    for (size_t k = plan; k < json_array_size(plans); k += n) {
        const json_t *value = json_array_get(json_object_get(json_array_get(plans, k), name), (size_t)crowded);
        if (json_is_real(value)) values[count++] = json_real_value(value);
    }
    qsort(values, count, sizeof *values, ascending);
    if (count) *median = values[count / 2];
    return count > 0;
}

// The mean over the plans that have an instruction: what it finds in the caches differs from one to another.
static void merge(const json_t *plans, size_t n, json_t *instructions) {
    for (size_t k = 0; k < json_array_size(plans); k++) {
        const char *name;
        json_t *pair;
        json_object_foreach(json_array_get(plans, k), name, pair) {
            if (json_object_get(instructions, name)) continue;
            json_t *mean = json_array();
            for (int c = 0; c < 2; c++) {
                double sum = 0, value;
                int have = 0;
                for (size_t plan = 0; plan < n; plan++)
                    if (median_of(plans, n, plan, name, c, &value)) sum += value, have++;
                json_array_append_new(mean, have ? json_real(sum / have) : json_null());
            }
            json_object_set_new(instructions, name, mean);
        }
    }
}

static bool measure_plan(const sn_plan_step *plan, const char *path, double sharing, sn_diags *diags,
                         json_t *instructions) {
    sn_status status = sn_profile_measure_plan(&plan->schedules, &plan->kernels, sharing, 0.1, instructions);
    bool good = !status;
    if (status)
        sn_error(diags, "E0831", path, "the step must run here: `sennit train` with the same options says more",
                 "its step cannot be measured: %s", sn_status_message(status));
    sn_status_free(status);
    return good;
}

// Each plan in several rounds, apart in time: other work comes in bursts.
static bool measure_plans(const sn_options *options, double sharing, sn_diags *diags, json_t *instructions) {
    bool quick = sn_options_has(options, "quick"), good = true;
    size_t n = options->arguments.count, rounds = quick ? 1 : ROUNDS, made = 0;
    sn_plan_step *steps = sn_alloc((n + 1) * sizeof *steps);
    json_t *plans = json_array();
    for (; made < n && good; made++)
        good = sn_plan_step_make(options->arguments.data[made], NULL, options, diags, &steps[made]);
    for (size_t k = 0; k < rounds * n && good; k++) {
        show("plan", k, rounds * n);
        json_array_append_new(plans, json_object());
        good = measure_plan(&steps[k % n], options->arguments.data[k % n], sharing, diags, json_array_get(plans, k)) &&
               !sn_workplace_stopped();
    }
    for (size_t i = 0; i < made; i++) sn_plan_step_free(&steps[i]);
    sn_free(steps);
    if (good) merge(plans, n, instructions);
    json_decref(plans);
    return good;
}

// What does not depend on plans.
static bool measure_machine(const sn_options *options, sn_diags *diags, const char *folder, json_t *profile) {
    bool quick = sn_options_has(options, "quick");
    static const int ranks[] = {2, 3, 4};
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    json_object_set_new(profile, "cores", json_real(cores));
    json_object_set_new(profile, "turn", json_real(sn_profile_measure_turn()));
    json_object_set_new(profile, "sharing", json_real(sn_profile_measure_sharing()));
    json_object_set_new(profile, "collectives", json_object());
    json_object_set_new(profile, "step", json_object());
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        show("ranks", i, sizeof ranks / sizeof *ranks);
        if (quick && ranks[i] == 3) continue;
        if (!sn_profile_measure_ranks(ranks[i], cores, quick, folder, diags, profile)) return false;
    }
    sn_status status = sn_profile_measure_kinds(quick, show, profile);
    if (status)
        sn_error(diags, "E0831", NULL, "free some memory and the temporary folder, then measure again",
                 "this machine cannot be measured: %s", sn_status_message(status));
    bool good = !status;
    sn_status_free(status);
    return good;
}

// The machine's part of an earlier profile.
static bool take_machine(const char *path, sn_diags *diags, json_t *profile) {
    sn_arena arena = {0};
    sn_profile earlier;
    bool good = sn_profile_load(path, &arena, diags, &earlier);
    if (good) {
        json_object_update(profile, earlier.json);
        sn_profile_free(&earlier);
    }
    sn_arena_free(&arena);
    return good;
}

static bool measure(const sn_options *options, sn_diags *diags, const char *folder, json_t *profile) {
    const char *earlier = sn_options_text(options, "reuse", NULL);
    if (!(earlier ? take_machine(earlier, diags, profile) : measure_machine(options, diags, folder, profile)))
        return false;
    json_t *instructions = json_object();
    json_object_set_new(profile, "instructions", instructions);
    return measure_plans(options, json_number_value(json_object_get(profile, "sharing")), diags, instructions);
}

// A line for each entry of the profile, and of the objects in it.
static void print_object(const json_t *object, int depth, sn_str *out) {
    const char *name;
    json_t *value;
    bool first = true;
    sn_str_puts(out, "{");
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        sn_str_printf(out, "%s\n%*s", first ? "" : ",", depth, "");
        sn_str_quote(out, name);
        sn_str_puts(out, ": ");
        first = false;
        if (json_is_object(value)) {
            print_object(value, depth + 1, out);
            continue;
        }
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        sn_str_puts(out, text);
        free(text);
    }
    sn_str_puts(out, "}");
}

static bool write_profile(const char *path, const json_t *profile, sn_diags *diags) {
    sn_str text = {0};
    print_object(profile, 1, &text);
    sn_str_putc(&text, '\n');
    sn_status status = sn_file_write(path, sn_str_text(&text), text.length);
    sn_str_free(&text);
    if (!status) return true;
    sn_error(diags, "E0830", path, "check the path, its permissions and the free space", "%s",
             sn_status_message(status));
    sn_status_free(status);
    return false;
}

int sn_cmd_profile(const sn_options *options, sn_diags *diags) {
    const char *path = sn_options_text(options, "output", NULL), *folder = NULL;
    json_t *profile = json_pack("{s:i, s:s}", "version", SN_PROFILE_VERSION, "device", "cpu");
    if (!path)
        sn_error(diags, "E0831", "-o", "sennit profile -o profile.json", "a profile needs a file to go to");
    else if ((folder = sn_workplace_make(diags)) && measure(options, diags, folder, profile))
        write_profile(path, profile, diags);
    show_nothing_more();
    json_decref(profile);
    sn_workplace_remove(folder);
    return 0;
}
