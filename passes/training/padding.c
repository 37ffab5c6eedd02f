#include "passes/training/padding.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

static const char *const subject = "--padding-index";

static bool parse(const char *rule, sn_diags *diags, regex_t *pattern, int64_t *row) {
    char *text = sn_arena_strdup(&diags->arena, rule), *equals = strrchr(text, '='), *end = NULL;
    errno = 0;
    *row = equals ? strtoll(equals + 1, &end, 10) : -1;
    bool is_number = equals && end != equals + 1 && *end == '\0' && *row >= 0 && !errno;
    if (is_number) *equals = '\0';
    if (is_number && *text && regcomp(pattern, text, REG_EXTENDED | REG_NOSUB) == 0) return true;
    sn_error(diags, "E0308", subject, "write --padding-index REGEX=N, N a row of the table", "\"%s\" is no rule", rule);
    return false;
}

static bool mark(sn_func *func, const char *rule, sn_diags *diags) {
    regex_t pattern;
    int64_t row;
    if (!parse(rule, diags, &pattern, &row)) return false;
    bool any = false, fine = true;
    SN_FOR_OPS(op, func) {
        if (op->kind != SN_OP_GATHER || op->operands[0]->kind != SN_VALUE_GLOBAL) continue;
        const sn_value *table = op->operands[0];
        if (regexec(&pattern, table->name, 0, NULL, 0) != 0) continue;
        any = true;
        fine = row < table->type.dim[sn_op_int(op, "axis")];
        if (!fine) break;
        sn_op_set_attr(op, sn_attr_int("padding", row));
    }
    regfree(&pattern);
    if (any && fine) return true;
    sn_error(diags, "E0308", subject, "`sennit info MODEL.onnx` lists the weights",
             any ? "the row of \"%s\" is beyond the table's end" : "\"%s\" matches no embedding table", rule);
    return false;
}

bool sn_padding_mark(sn_func *func, int n_rules, const char *const *rules, sn_diags *diags) {
    bool fine = true;
    for (int i = 0; i < n_rules; i++) fine &= mark(func, rules[i], diags);
    return fine;
}
