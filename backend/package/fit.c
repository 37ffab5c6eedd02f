#include "backend/package/fit.h"

#include "runtime/mesh.h"

#include <inttypes.h>

enum { MEMORY_SLACK = 1 << 18 };

void sn_fit_check_promise(const sn_schedules *schedules, const sn_plan *plan, const char *subject, sn_diags *diags) {
    const sn_schedule *fullest = &schedules->classes.items[0];
    for (size_t c = 1; c < schedules->classes.count; c++)
        if (schedules->classes.items[c].arena_bytes > fullest->arena_bytes) fullest = &schedules->classes.items[c];
    double held = (double)fullest->arena_bytes, promised = plan->predicted_memory_bytes;
    // The search does not see alignment, scalars and what one kernel keeps beside another's results.
    if (!(promised > 0) || held <= 1.05 * promised + MEMORY_SLACK) return;
    sn_str rank = {0}, holds = {0}, promise = {0};
    int64_t first = sn_schedule_first_rank(fullest, fullest - schedules->classes.items);
    sn_schedule_describe_rank(fullest, first, &rank);
    sn_str_bytes(&holds, held);
    sn_str_bytes(&promise, promised);
    sn_warning(diags, "W0512", subject,
               "a plan that was edited promises what it did before; else plan with less memory per device, more ranks, "
               "or rematerialisation",
               "rank %" PRId64 " (%s) holds %s, but the plan promises %s", first, sn_str_text(&rank),
               sn_str_text(&holds), sn_str_text(&promise));
    sn_str_free(&rank);
    sn_str_free(&holds);
    sn_str_free(&promise);
}

static void report_device(const sn_schedules *schedules, const sn_cluster *cluster, int64_t rank, const char *subject,
                          bool warn, sn_diags *diags) {
    int64_t rank_class = sn_schedules_class(schedules, rank);
    const sn_nodes *nodes = sn_cluster_nodes_of(cluster, rank);
    sn_str needs = {0}, has = {0};
    sn_str_bytes(&needs, (double)schedules->classes.items[rank_class].arena_bytes);
    sn_str_bytes(&has, nodes->memory);
    sn_diags_add(diags, warn ? SN_WARNING : SN_ERROR, warn ? "W0517" : "E0517", subject,
                 "more ranks for parameters or micro-batches, ZeRO, or remat=full; "
                 "`sennit plan` finds a plan that fits",
                 "rank %" PRId64 " (class %" PRId64 ") needs %s, and its device %s of '%s' has %s", rank, rank_class,
                 sn_str_text(&needs), nodes->device->name, cluster->name, sn_str_text(&has));
    sn_str_free(&needs);
    sn_str_free(&has);
}

void sn_fit_check_devices(const sn_schedules *schedules, const sn_cluster *cluster, const char *subject, bool warn,
                          sn_diags *diags) {
    for (int64_t rank = 0; rank < schedules->classes.items[0].ranks && rank < sn_cluster_devices(cluster); rank++) {
        const sn_schedule *schedule = &schedules->classes.items[sn_schedules_class(schedules, rank)];
        if ((double)schedule->arena_bytes <= sn_cluster_nodes_of(cluster, rank)->memory) continue;
        report_device(schedules, cluster, rank, subject, warn, diags);
        return; // one is enough
    }
}
