// The pages docs/operators.md and docs/passes.md are what the tables in the source say. After a change to a table:
//
//     SENNIT_UPDATE=1 build/tests/docs_test_reference        writes the pages again
//
// A lost cell of the table of operators (a gradient, a kernel) shows as a difference here.
#include "backend/lower/element.h"
#include "passes/autodiff/differentiate.h"
#include "passes/pass.h"
#include "passes/schedule/op_class.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char generated[] = "<!-- Generated from the tables in the source by tests/docs/test_reference.c. -->\n";

static void expect_page(const char *name, const sn_str *text) {
    char path[512];
    snprintf(path, sizeof path, SENNIT_SOURCE_DIR "/docs/%s", name);
    if (getenv("SENNIT_UPDATE")) {
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        assert_int_equal(fwrite(text->data, 1, text->length, out), text->length);
        assert_int_equal(fclose(out), 0);
    }
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s is missing: run with SENNIT_UPDATE=1", path);
    sn_str found = {0};
    for (int c; (c = fgetc(file)) != EOF;) sn_str_putc(&found, (char)c);
    fclose(file);
    if (strcmp(sn_str_text(&found), text->data) != 0)
        fail_msg("docs/%s is stale: run SENNIT_UPDATE=1 build/tests/docs_test_reference and look at the difference",
                 name);
    sn_str_free(&found);
}

static void print_count(sn_str *out, int min, int max) {
    if (max < 0)
        sn_str_printf(out, "%d…", min);
    else if (min == max)
        sn_str_printf(out, "%d", min);
    else
        sn_str_printf(out, "%d–%d", min, max);
}

// Text of a table cell: | would end it.
static void print_cell(sn_str *out, const char *text) {
    for (; *text; text++) {
        if (*text == '|') sn_str_putc(out, '\\');
        sn_str_putc(out, *text);
    }
}

static const char *gradient_of(sn_op_kind kind) {
    static const char *const names[] = {
        [SN_GRADIENT_NONE] = "–", [SN_GRADIENT_RULE] = "yes", [SN_GRADIENT_ZERO] = "zero"};
    return names[sn_gradient_kind_of(kind)];
}

static const char *execution_of(sn_op_kind kind) {
    static const char *const names[] = {[SN_CLASS_INDEX] = "index arithmetic",
                                        [SN_CLASS_POINTWISE] = "fused pointwise",
                                        [SN_CLASS_REDUCTION] = "fused reduction",
                                        [SN_CLASS_LOOP] = "kernel of its own",
                                        [SN_CLASS_OUTSIDE] = "by the schedule"};
    if (sn_op_has(kind, SN_TRAIT_LIBRARY)) return sn_lower_rules[kind] ? "library, or a kernel" : "library";
    if (sn_op_has(kind, SN_TRAIT_COMPOSITE)) return "decomposed";
    if (sn_op_class_of(kind) == SN_CLASS_OUTSIDE) return names[SN_CLASS_OUTSIDE];
    if (sn_op_has(kind, SN_TRAIT_VIEW)) return "view";
    return sn_lower_rules[kind] || sn_op_class_of(kind) == SN_CLASS_REDUCTION ? names[sn_op_class_of(kind)] : "–";
}

static void test_operators(void **state) {
    (void)state;
    sn_str text = {0};
    sn_str_puts(&text, generated);
    sn_str_puts(
        &text,
        "# Operators of the IR\n\nAttributes are `name:type=default` (i integer, f float, I integers, s string, "
        "@ function); one without a default must be\ngiven. *Gradient*: \"zero\" where the derivative is 0 or "
        "the values are no floats; – where a path to the loss through it is an\nerror. *Runs as*: what `fuse` and "
        "the backend make of it. Every operator has a shape rule and a reference kernel.\n\n"
        "| operator | operands | results | attributes | meaning | gradient | runs as "
        "|\n|---|---|---|---|---|---|---|\n");
    for (int kind = 0; kind < SN_OP_COUNT; kind++) {
        const sn_op_info *info = sn_op_info_of((sn_op_kind)kind);
        sn_str_printf(&text, "| `%s` | ", info->mnemonic);
        print_count(&text, info->min_operands, info->max_operands);
        sn_str_puts(&text, " | ");
        print_count(&text, info->results < 0 ? 0 : info->results, info->results);
        sn_str_puts(&text, info->attributes[0] ? " | `" : " | ");
        print_cell(&text, info->attributes);
        sn_str_puts(&text, info->attributes[0] ? "` | " : " | ");
        print_cell(&text, info->doc);
        sn_str_printf(&text, " | %s | %s |\n", gradient_of((sn_op_kind)kind), execution_of((sn_op_kind)kind));
    }
    expect_page("operators.md", &text);
    sn_str_free(&text);
}

static void test_passes(void **state) {
    (void)state;
    static const char *const forms[] = {"graph", "dist", "sched"};
    sn_str text = {0};
    sn_str_puts(&text, generated);
    sn_str_puts(&text, "# Passes\n\nThe default pipeline (`sennit opt --print-pipeline`):\n\n```\n");
    size_t column = 0;
    for (const char *at = sn_default_pipeline(); *at;) {
        size_t length = strcspn(at, ",");
        if (column + length > 100) {
            sn_str_putc(&text, '\n');
            column = 0;
        }
        sn_str_append(&text, at, length + (at[length] == ','));
        column += length + 1;
        at += length + (at[length] == ',');
    }
    sn_str_puts(&text, "\n```\n\n| pass | forms | what it does | arguments |\n|---|---|---|---|\n");
    for (int i = 0; i < sn_pass_count; i++) {
        const sn_pass *pass = sn_pass_table[i];
        sn_str_printf(&text, "| `%s` | ", pass->name);
        const char *separator = "";
        for (int form = 0; form < 3; form++) {
            if (!(pass->forms >> form & 1)) continue;
            sn_str_printf(&text, "%s%s", separator, forms[form]);
            separator = ", ";
        }
        bool single = (pass->forms & (pass->forms - 1)) == 0;
        if (single && !(pass->forms >> pass->result & 1)) sn_str_printf(&text, " → %s", forms[pass->result]);
        sn_str_puts(&text, " | ");
        print_cell(&text, pass->summary);
        sn_str_puts(&text, " | ");
        print_cell(&text, pass->arguments ? pass->arguments : "");
        sn_str_puts(&text, " |\n");
    }
    expect_page("passes.md", &text);
    sn_str_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_operators), cmocka_unit_test(test_passes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
