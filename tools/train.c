// `sennit train`: compiles a training executable and runs it on this machine.
#include "runtime/options.h"
#include "tools/launch.h"
#include "tools/passes.h"
#include "tools/plan_options.h"
#include "tools/training.h"
#include "tools/workplace.h"

#include <string.h>
#include <unistd.h>

// What is wrong with the run is said before anything is compiled for it. *is_lost: it leaves nothing, and no one
// watches.
static bool check_run(const sn_options *options, sn_diags *diags, bool *is_lost) {
    sn_run_options run;
    sn_run_options_init(&run);
    sn_status status = SN_OK;
    for (const char *const *a = sn_train_run_arguments(options, &diags->arena); !status && *a; a++) {
        bool has_value = a[1] && strncmp(a[1], "--", 2) != 0;
        status = sn_run_options_set(&run, *a + 2, has_value ? a[1] : NULL);
        a += has_value;
    }
    if (!status) status = sn_run_options_check(&run);
    if (status)
        fprintf(stderr, "sennit train: %s\n  help: `sennit train --help` lists what a run takes\n",
                sn_status_message(status));
    bool good = !status, looks = run.profile || run.trace;
    sn_status_free(status);
    *is_lost = !run.checkpoint && !run.log && !run.save_gradients && !looks && !isatty(STDOUT_FILENO);
    return good;
}

// Without -o the executable lives for the run alone.
int sn_cmd_train(const sn_options *options, sn_diags *diags) {
    if (!(options = sn_plan_options(options, false, diags))) return 1;
    int exit_status = 0, ranks = sn_train_ranks(options, diags);
    if (!ranks) return 1;
    bool is_lost;
    if (!check_run(options, diags, &is_lost)) return 2;
    const char *output = sn_options_text(options, "output", NULL), *folder = NULL;
    if (!output && !(folder = sn_workplace_make(diags))) return 1;
    sn_train_build build = {.output = output ? output : sn_arena_printf(&diags->arena, "%s/train", folder)};
    if (sn_train_compile(options, &build, diags)) {
        if (is_lost)
            sn_warning(diags, "W0704", NULL, "--checkpoint DIR keeps them, --log FILE keeps the losses",
                       "nothing of this run is kept: neither the trained weights nor the losses");
        sn_diags_print(diags, 0, sn_options_has(options, "remarks"), stderr);
        diags->count = 0; // what has been printed
        const char *const *arguments = sn_train_run_arguments(options, &diags->arena);
        exit_status = sn_launch_and_tell(build.output, ranks, arguments, diags);
    }
    sn_workplace_remove(folder);
    return exit_status;
}
