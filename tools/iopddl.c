// `sennit iopddl`: solves a problem of the ASPLOS 2025 contest on intra-operator parallelism.
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "passes/partition/intra/contest.h"
#include "tools/options.h"

#include <inttypes.h>

static void print_numbers(const sn_network_answer *answer, bool feasible, double seconds) {
    printf("{\"cost\": ");
    if (feasible)
        printf("%" PRId64, answer->cost);
    else
        printf("null");
    printf(", \"lower_bound\": ");
    if (answer->lower_bound > INT64_MIN)
        printf("%" PRId64, answer->lower_bound);
    else
        printf("null");
    printf(", \"seconds\": %.3f}\n", seconds);
}

// False after a diagnostic.
static bool report(const sn_network *network, const sn_network_answer *answer, const char *path, sn_diags *diags) {
    if (answer->result == SN_NETWORK_INFEASIBLE)
        sn_error(diags, "E0493", path, "raise the usage limit of the problem, or check its usages",
                 "no choice of strategies is allowed and keeps the usage limit");
    else if (answer->result == SN_NETWORK_UNKNOWN)
        sn_error(diags, "E0494", path, "give it more --seconds",
                 "no choice within the usage limit of %" PRId64 " was found; the best has a peak of %" PRId64,
                 network->limit, answer->peak);
    return answer->result == SN_NETWORK_OPTIMAL || answer->result == SN_NETWORK_FEASIBLE;
}

// Before the search: no solution should be lost for want of a place to write it. False after a diagnostic.
static bool can_write(const char *output, sn_diags *diags) {
    sn_atomic_file file;
    sn_status status = sn_atomic_open(output, &file);
    if (status)
        sn_error(diags, "E0804", output, "check the path, its permissions and the free space", "%s",
                 sn_status_message(status));
    else
        sn_atomic_discard(&file);
    sn_status_free(status);
    return diags->errors == 0;
}

// Reading the file counts: --seconds is from the start of the command to its answer.
static void solve(const sn_options *options, const char *path, sn_network *network, double start, sn_diags *diags) {
    const char *output = sn_options_text(options, "output", NULL);
    double left = sn_options_number(options, "seconds", 10) - (sn_seconds() - start);
    bool timed = sn_options_has(options, "seconds") || !sn_options_has(options, "work");
    sn_network_budget budget = {.seconds = !timed ? 0 : (left > 1e-3 ? left : 1e-3),
                                .work = (uint64_t)sn_options_int(options, "work", 0),
                                .seed = (uint64_t)sn_options_int(options, "seed", 0)};
    sn_network_answer answer = sn_network_solve(network, &budget);
    bool feasible = report(network, &answer, path, diags);
    if (feasible)
        printf("%s: cost %" PRId64 "%s, peak %" PRId64 " of %" PRId64 "\n", path, answer.cost,
               answer.result == SN_NETWORK_OPTIMAL ? " (optimal)" : "", answer.peak, network->limit);
    if (feasible && output) {
        sn_status status = sn_contest_write(output, answer.choice, network->n_nodes);
        if (status)
            sn_error(diags, "E0804", output, "check the path, its permissions and the free space", "%s",
                     sn_status_message(status));
        sn_status_free(status);
    }
    print_numbers(&answer, feasible, sn_seconds() - start);
    sn_free(answer.choice);
}

int sn_cmd_iopddl(const sn_options *options, sn_diags *diags) {
    double start = sn_seconds();
    if (sn_options_number(options, "seconds", 10) <= 0) {
        fputs("sennit iopddl: --seconds must be positive\n", stderr);
        return 2;
    }
    const char *path = options->arguments.data[0], *output = sn_options_text(options, "output", NULL);
    sn_network network = {.limit = INT64_MAX};
    bool writable = !output || can_write(output, diags);
    if (writable && sn_contest_read(path, &network, diags)) solve(options, path, &network, start, diags);
    sn_network_free(&network);
    return 0;
}
