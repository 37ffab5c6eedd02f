// libFuzzer target of the IR's parser: any text is refused with a diagnostic, or becomes a module whose text is a fixed
// point of printing and parsing.
#include "ir/parse.h"
#include "ir/print.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_fixed_point(sn_module *module) {
    sn_str once = {0}, twice = {0};
    sn_diags diags = {0};
    sn_print(&once, module, NULL);
    sn_module *again = sn_parse(sn_str_text(&once), once.length, "again", &diags);
    if (!again) {
        sn_diags_print(&diags, 0, true, stderr);
        SN_BUG("what was printed does not parse:\n%s", sn_str_text(&once));
    }
    sn_print(&twice, again, NULL);
    if (strcmp(sn_str_text(&once), sn_str_text(&twice)) != 0)
        SN_BUG("the text changes:\n%s\n%s", sn_str_text(&once), sn_str_text(&twice));
    sn_module_free(again);
    sn_diags_free(&diags);
    sn_str_free(&once);
    sn_str_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    // an exact copy on the heap, so that a read behind the end is seen
    char *text = malloc(size + !size);
    if (size) memcpy(text, data, size);
    sn_diags diags = {0};
    sn_module *module = sn_parse(text, size, "fuzz", &diags);
    if (module)
        expect_fixed_point(module);
    else if (!diags.errors)
        SN_BUG("a text was refused without a diagnostic");
    sn_module_free(module);
    sn_diags_free(&diags);
    free(text);
    return 0;
}
