#include "backend/package/fit.h"

#include <inttypes.h>

enum { MEMORY_SLACK = 1 << 18 };

void sn_fit_check_promise(const sn_schedules *schedules, const sn_plan *plan, const char *subject, sn_diags *diags) {
    for (size_t c = 0; plan->predicted_memory_bytes > 0 && c < schedules->classes.count; c++) {
        double held = (double)schedules->classes.items[c].arena_bytes;
        // The search does not see alignment, scalars and what one kernel keeps beside another's results.
        if (held <= 1.05 * plan->predicted_memory_bytes + MEMORY_SLACK) continue;
        sn_warning(diags, "W0512", subject, "plan with less memory per device, more ranks, or rematerialisation",
                   "ranks of class %zu hold %.1f MiB, but the plan promises %.1f MiB", c, held / 1048576,
                   plan->predicted_memory_bytes / 1048576);
    }
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
