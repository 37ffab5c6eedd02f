#include "passes/training/loss.h"

#include <string.h>

static const char *const subject = "--loss";

static sn_value *find_arg(const sn_func *func, const char *name) {
    for (size_t i = 0; i < func->args.count; i++)
        if (strcmp(func->args.data[i]->name, name) == 0) return func->args.data[i];
    return NULL;
}

// An output, or else any value of the model that carries the name.
static sn_value *find_value(const sn_func *func, const char *name) {
    for (size_t i = 0; i < func->results.count; i++)
        if (strcmp(func->result_names.data[i], name) == 0) return func->results.data[i];
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_results; i++)
            if (op->results[i]->name && strcmp(op->results[i]->name, name) == 0) return op->results[i];
    }
    return NULL;
}

static char *list_outputs(const sn_func *func, sn_diags *diags) {
    sn_str text = {0};
    for (size_t i = 0; i < func->results.count; i++) {
        sn_str_printf(&text, "%s%s: ", i ? ", " : "", func->result_names.data[i]);
        sn_type_print(&text, func->results.data[i]->type);
    }
    char *copy = sn_arena_strdup(&diags->arena, sn_str_text(&text));
    sn_str_free(&text);
    return copy;
}

// Scalars of at least 32 bits: a mean over many labels does not fit 16.
static sn_value *scalar(sn_builder *b, sn_value *x) {
    x = sn_build_reshape(b, x, 0, NULL);
    return sn_dtype_bytes(x->type.dtype) < 4 ? sn_build_cast(b, x, SN_F32) : x;
}

static sn_value *sum_all(sn_builder *b, sn_value *x) {
    int64_t axes[SN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) axes[i] = i;
    return sn_build_reduce(b, SN_OP_REDUCE_SUM, x, x->type.rank, axes, false);
}

static sn_loss mean_of(sn_builder *b, sn_value *sum, sn_value *count) {
    return (sn_loss){.value = sn_build_binary(b, SN_OP_DIV, sum, count), .sum = sum, .count = count};
}

// Whether a scalar is a number, or a sum over the batch of something: then micro-batches' values add up.
static bool adds_up(const sn_value *value, bool number_too) {
    while (value->kind == SN_VALUE_RESULT) {
        const sn_op *op = value->def;
        double number;
        if (op->kind == SN_OP_RESHAPE || op->kind == SN_OP_CAST || op->kind == SN_OP_NEG)
            value = op->operands[0];
        else if (op->kind == SN_OP_MAX && sn_value_number(op->operands[1], &number)) // a guard against 0 / 0
            value = op->operands[0];
        else
            return op->kind == SN_OP_REDUCE_SUM || (number_too && op->kind == SN_OP_CONSTANT);
    }
    return false;
}

// The model's own loss. Means are written sum / count; the two are taken apart so that accumulation is exact.
static sn_loss split(sn_builder *b, sn_value *value) {
    sn_value *inner = value;
    while (inner->kind == SN_VALUE_RESULT && (inner->def->kind == SN_OP_RESHAPE || inner->def->kind == SN_OP_CAST) &&
           sn_dtype_is_float(inner->def->operands[0]->type.dtype))
        inner = inner->def->operands[0];
    sn_op *op = inner->kind == SN_VALUE_RESULT ? inner->def : NULL;
    if (op && op->kind == SN_OP_DIV && sn_type_count(op->operands[0]->type) == 1 && adds_up(op->operands[0], false) &&
        adds_up(op->operands[1], true))
        return mean_of(b, scalar(b, op->operands[0]), scalar(b, op->operands[1]));
    value = scalar(b, value);
    return (sn_loss){.value = value, .sum = value, .count = sn_build_number_like(b, value, 1)};
}

static bool is_scalar_float(const sn_value *value) {
    return sn_dtype_is_float(value->type.dtype) && sn_type_count(value->type) == 1 && value->type.rank <= 1;
}

static bool own_loss(sn_builder *b, sn_diags *diags, sn_loss *out) {
    sn_value *found = NULL;
    int n = 0;
    for (size_t i = 0; i < b->func->results.count; i++) {
        if (!is_scalar_float(b->func->results.data[i])) continue;
        found = b->func->results.data[i];
        n++;
    }
    if (n != 1) {
        char *help = sn_arena_printf(&diags->arena,
                                     "say what to minimise with --loss softmax_cross_entropy:LOGITS,LABELS, --loss "
                                     "mse:OUTPUT,TARGET or --loss OUTPUT; the model's outputs are %s",
                                     list_outputs(b->func, diags));
        sn_error(diags, n ? "E0302" : "E0301", NULL, help,
                 n ? "the model has several scalar outputs, and no one says which is the loss"
                   : "the model has no scalar output that could be its loss");
        return false;
    }
    *out = split(b, found);
    return true;
}

// Splits "A,B" at the last comma, so that output names may hold commas.
static bool split_names(const char *text, sn_diags *diags, char **left, char **right) {
    *left = sn_arena_strdup(&diags->arena, text);
    char *comma = strrchr(*left, ',');
    if (comma) *comma = '\0';
    *right = comma ? comma + 1 : NULL;
    if (comma && **left && **right) return true;
    sn_error(diags, "E0303", subject, "write softmax_cross_entropy:LOGITS,LABELS or mse:OUTPUT,TARGET",
             "\"%s\" does not name an output and a target", text);
    return false;
}

static sn_value *find_output(sn_builder *b, const char *name, sn_diags *diags) {
    sn_value *value = find_value(b->func, name);
    if (value && sn_dtype_is_float(value->type.dtype)) return value;
    char *help = sn_arena_printf(&diags->arena,
                                 "write softmax_cross_entropy:LOGITS,LABELS, mse:OUTPUT,TARGET or OUTPUT; the model's "
                                 "outputs are %s",
                                 list_outputs(b->func, diags));
    sn_error(diags, "E0303", subject, help, value ? "\"%s\" is not a float tensor" : "there is no output \"%s\"", name);
    return NULL;
}

static void shape_error(sn_diags *diags, const sn_value *target, sn_type wanted) {
    sn_str has = {0}, wants = {0};
    sn_type_print(&has, target->type);
    sn_type_print(&wants, wanted);
    sn_error(diags, "E0304", target->name, "export the model with such an input, or choose another --loss",
             "the loss needs %s here, but the model's input is %s", sn_str_text(&wants), sn_str_text(&has));
    sn_str_free(&has);
    sn_str_free(&wants);
}

static sn_type without_axis(sn_type type, int axis, sn_dtype dtype) {
    sn_type result = {.dtype = dtype};
    for (int i = 0; i < type.rank; i++)
        if (i != axis) result.dim[result.rank++] = type.dim[i];
    return result;
}

static bool cross_entropy(sn_builder *b, const char *names, int64_t ignore_index, sn_diags *diags, sn_loss *out) {
    char *left, *right;
    if (!split_names(names, diags, &left, &right)) return false;
    sn_value *logits = find_output(b, left, diags), *labels = find_arg(b->func, right);
    if (!logits) return false;
    if (logits->type.rank < 1) {
        sn_error(diags, "E0304", left, "choose another output or loss with --loss",
                 "logits need a dim of classes, but this is a scalar");
        return false;
    }
    int axis = logits->type.rank - 1;
    sn_type wanted = without_axis(logits->type, axis, SN_I64);
    if (!labels) labels = sn_func_add_arg(b->func, right, wanted);
    if (!sn_shape_equal(labels->type, wanted) && axis > 1 &&
        sn_shape_equal(labels->type, without_axis(logits->type, 1, SN_I64)))
        axis = 1;
    else if (!sn_shape_equal(labels->type, wanted) || sn_dtype_class(labels->type.dtype) != 'i') {
        shape_error(diags, labels, wanted);
        return false;
    }
    if (labels->type.dtype != SN_I64 && labels->type.dtype != SN_I32) labels = sn_build_cast(b, labels, SN_I64);
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_int("ignore_index", ignore_index)};
    sn_op *losses = sn_build(b, SN_OP_CROSS_ENTROPY, 2, (sn_value *[]){logits, labels}, 2, attrs, NULL);
    sn_value *counts =
        sn_build_unary(b, SN_OP_NOT, sn_build_binary_number(b, SN_OP_EQUAL, labels, (double)ignore_index));
    counts = sn_build_cast(b, counts, losses->results[0]->type.dtype);
    *out = mean_of(b, sum_all(b, losses->results[0]), sum_all(b, counts));
    return true;
}

static bool mean_squares(sn_builder *b, const char *names, sn_diags *diags, sn_loss *out) {
    char *left, *right;
    if (!split_names(names, diags, &left, &right)) return false;
    sn_value *output = find_output(b, left, diags), *target = find_arg(b->func, right);
    if (!output) return false;
    if (!target) target = sn_func_add_arg(b->func, right, output->type);
    if (!sn_type_equal(target->type, output->type)) {
        shape_error(diags, target, output->type);
        return false;
    }
    sn_value *difference = sn_build_binary(b, SN_OP_SUB, output, target);
    if (sn_dtype_bytes(output->type.dtype) < 4) difference = sn_build_cast(b, difference, SN_F32);
    sn_value *sum = sum_all(b, sn_build_binary(b, SN_OP_MUL, difference, difference));
    *out = mean_of(b, sum, sn_build_number_like(b, sum, (double)sn_type_count(output->type)));
    return true;
}

bool sn_loss_build(sn_builder *b, const char *spec, int64_t ignore_index, sn_diags *diags, sn_loss *out) {
    static const char sce[] = "softmax_cross_entropy:", mse[] = "mse:";
    if (!spec) return own_loss(b, diags, out);
    if (sn_starts_with(spec, sce)) return cross_entropy(b, spec + strlen(sce), ignore_index, diags, out);
    if (sn_starts_with(spec, mse)) return mean_squares(b, spec + strlen(mse), diags, out);
    sn_value *value = find_output(b, spec, diags);
    if (!value) return false;
    if (!is_scalar_float(value)) {
        sn_error(diags, "E0304", spec, "write softmax_cross_entropy:LOGITS,LABELS or mse:OUTPUT,TARGET",
                 "a loss is one number, but this output is a tensor");
        return false;
    }
    *out = split(b, value);
    return true;
}
