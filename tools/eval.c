// `sennit eval`: the model's outputs on data, forward only.
#include "base/vec.h"
#include "tools/launch.h"
#include "tools/passes.h"
#include "tools/training.h"
#include "tools/workplace.h"

enum { DEFAULT_BATCH = 32 };

static int evaluate(const sn_options *options, sn_diags *diags) {
    int exit_status = 0;
    const char *output = sn_options_text(options, "output", NULL);
    if (!output || !sn_options_has(options, "data")) {
        sn_error(diags, "E0704", output ? "--data" : "--output",
                 "sennit eval MODEL.onnx --data DIR --output out.safetensors", "%s is missing",
                 output ? "the data" : "the file for the outputs");
        return 1;
    }
    const char *folder = sn_workplace_make(diags);
    if (!folder) return 1;
    sn_train_build build = {.output = sn_arena_printf(&diags->arena, "%s/eval", folder),
                            .ranks = 1,
                            .batch = DEFAULT_BATCH,
                            .inference = true};
    if (sn_train_compile(options, &build, diags)) {
        SN_VEC(const char *) line = {0};
        for (const char *const *given = sn_train_run_arguments(options, &diags->arena); *given; given++)
            sn_vec_push(&line, *given);
        sn_vec_push(&line, "--predictions");
        sn_vec_push(&line, output);
        sn_vec_push(&line, NULL);
        sn_status status = sn_launch(build.output, 1, line.data, &exit_status);
        sn_vec_free(&line);
        if (status)
            sn_error(diags, "E0702", NULL,
                     "is there memory for that many ranks, and does `mpirun -n 2 true` work here?", "%s",
                     sn_status_message(status));
        sn_status_free(status);
    }
    sn_workplace_remove(folder);
    return exit_status;
}

int sn_cmd_eval(int argc, char **argv) {
    sn_options options;
    sn_diags diags = {0};
    int status = 0;
    if (sn_command_parse(SN_COMMAND_EVAL, argc, argv, &options, &status)) {
        int run_status = evaluate(&options, &diags);
        status = sn_command_end(&options, &diags);
        if (!status) status = run_status;
    }
    sn_options_free(&options);
    return status;
}
