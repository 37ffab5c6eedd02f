// `sennit train`: compiles a training executable and runs it on this machine.
#include "tools/launch.h"
#include "tools/passes.h"
#include "tools/training.h"
#include "tools/workplace.h"

// Without -o the executable lives for the run alone.
static int train(const sn_options *options, sn_diags *diags) {
    int exit_status = 0, ranks = sn_train_ranks(options, diags);
    const char *output = sn_options_text(options, "output", NULL), *folder = NULL;
    if (!ranks || (!output && !(folder = sn_workplace_make(diags)))) return 1;
    sn_train_build build = {.output = output ? output : sn_arena_printf(&diags->arena, "%s/train", folder)};
    if (sn_train_compile(options, &build, diags)) {
        sn_diags_print(diags, 0, sn_options_has(options, "remarks"), stderr);
        diags->count = 0; // what has been printed
        const char *const *arguments = sn_train_run_arguments(options, &diags->arena);
        sn_status status = sn_launch(build.output, ranks, arguments, &exit_status);
        if (status) sn_error(diags, "E0702", NULL, NULL, "%s", sn_status_message(status));
        sn_status_free(status);
    }
    sn_workplace_remove(folder);
    return exit_status;
}

int sn_cmd_train(int argc, char **argv) {
    sn_options options;
    sn_diags diags = {0};
    int status = 0;
    if (sn_command_parse(SN_COMMAND_TRAIN, argc, argv, &options, &status)) {
        int run_status = train(&options, &diags);
        status = sn_command_end(&options, &diags);
        if (!status) status = run_status;
    }
    sn_options_free(&options);
    return status;
}
