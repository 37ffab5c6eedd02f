// `sennit eval`: the model's outputs on data, forward only.
#include "base/vec.h"
#include "tools/launch.h"
#include "tools/passes.h"
#include "tools/training.h"
#include "tools/workplace.h"

enum { DEFAULT_BATCH = 32 };

int sn_cmd_eval(const sn_options *options, sn_diags *diags) {
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
        exit_status = sn_launch_and_tell(build.output, 1, line.data, diags);
        sn_vec_free(&line);
    }
    sn_workplace_remove(folder);
    return exit_status;
}
