// The CUDA C of real models' training steps, as `sennit compile --target cuda:sm_90 --emit source` writes it, compiles
// with NVRTC. The models are those of the source tree, and one export of each in the folder SENNIT_MODELS (default
// ../shared/data/models).
#include "backend/cuda/cuda.h"
#include "base/file.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void compile_model(const char *model, const char *options) {
    char source[] = "/tmp/sennit-cuda-XXXXXX";
    int file = mkstemp(source);
    assert_true(file >= 0);
    close(file);
    sn_str command = {0}, log = {0}, text = {0};
    sn_str_printf(&command, "%s/tools/sennit compile '%s' %s --target cuda:sm_90 --emit source -o %s",
                  SENNIT_BINARY_DIR, model, options, source);
    if (system(sn_str_text(&command)) != 0) fail_msg("failed: %s", sn_str_text(&command));
    sn_mapped_file mapped;
    assert_null(sn_file_map(source, &mapped));
    sn_str_append(&text, (const char *)mapped.data, mapped.bytes);
    assert_non_null(strstr(sn_str_text(&text), "SN_KERNEL void"));
    sn_status status = sn_nvrtc_compile(sn_str_text(&text), "sm_90", &log, NULL);
    if (status) fail_msg("%s: %s\n%s", model, sn_status_message(status), sn_str_text(&log));
    sn_file_unmap(&mapped);
    unlink(source);
    sn_str_free(&command), sn_str_free(&log), sn_str_free(&text);
}

static void models_of_the_tree(void **state) {
    (void)state;
    static const char *const models[][2] = {
        {"samples/chargpt/model.onnx", "--batch 8 --dim seq=64 --loss softmax_cross_entropy:logits,labels"},
        {"tests/data/models/gpt2/legacy-17.onnx", "--loss softmax_cross_entropy:logits,labels"},
        {"tests/data/models/lenet/legacy-17.onnx", "--loss softmax_cross_entropy:logits,labels"},
        {"tests/data/models/mlp/legacy-17.onnx", "--loss softmax_cross_entropy:logits,labels"},
        {"tests/data/models/moe/legacy-17.onnx", "--loss mse:logits,target"},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", SENNIT_SOURCE_DIR, models[i][0]);
        compile_model(path, models[i][1]);
    }
}

static void other_models(void **state) {
    (void)state;
    const char *folder = getenv("SENNIT_MODELS");
    char pattern[1024];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*/dynamo-18-loss.onnx",
             folder ? folder : SENNIT_SOURCE_DIR "/../shared/data/models");
    if (glob(pattern, 0, NULL, &found) != 0) {
        print_message("skipped: no model at %s; SENNIT_MODELS names their folder\n", pattern);
        skip();
        return;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) compile_model(found.gl_pathv[i], "");
    globfree(&found);
}

int main(void) {
    if (!sn_nvrtc_available()) {
        printf("skipped: libnvrtc.so.13 is not here\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_of_the_tree),
        cmocka_unit_test(other_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
