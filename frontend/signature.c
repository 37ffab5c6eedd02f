#include "frontend/signature.h"

#include "frontend/import.h"

#include <stdlib.h>
#include <string.h>

bool sn_signature_next(const char **text, sn_input_spec *out) {
    const char *at = *text;
    while (*at == ' ') at++;
    const char *colon = strchr(at, ':');
    if (!colon) return false;
    *out = (sn_input_spec){.name = at, .name_length = (int)(colon - at), .class = colon[1], .max_rank = SN_MAX_RANK};
    at = colon + 2;
    if (*at >= '0' && *at <= '9') {
        out->min_rank = out->max_rank = *at++ - '0';
        if (*at == '+')
            out->max_rank = SN_MAX_RANK, at++;
        else if (*at == '-')
            out->max_rank = at[1] - '0', at += 2;
    }
    out->optional = *at == '?';
    out->variadic = *at == '*';
    *text = at + (out->optional || out->variadic);
    return true;
}

static bool has_class(sn_dtype dtype, char class) {
    char own = sn_dtype_class(dtype);
    switch (class) {
    case 'f':
    case 'b':
        return own == class;
    case 'i':
        return own == 'i' || own == 'u';
    case 'n':
        return own != 'b';
    default:
        return true;
    }
}

static const char *class_name(char class) {
    switch (class) {
    case 'f':
        return "floats";
    case 'i':
        return "integers";
    case 'b':
        return "bools";
    default:
        return "numbers";
    }
}

static void check_rank(sn_node *n, int input, const sn_input_spec *spec, int rank) {
    if (rank >= spec->min_rank && rank <= spec->max_rank) return;
    sn_str expected = {0};
    sn_str_printf(&expected, "%d", spec->min_rank);
    if (spec->max_rank == SN_MAX_RANK)
        sn_str_puts(&expected, " or more");
    else if (spec->max_rank > spec->min_rank)
        sn_str_printf(&expected, " to %d", spec->max_rank);
    const char *text = sn_arena_strdup(sn_node_arena(n), sn_str_text(&expected));
    sn_str_free(&expected);
    sn_node_fail(n, NULL, "input %d (%.*s) has rank %d, where %s is expected", input, spec->name_length, spec->name,
                 rank, text);
}

static void check_input(sn_node *n, int input, const sn_input_spec *spec) {
    if (!sn_node_has(n, input)) {
        if (spec->optional || spec->variadic) return;
        sn_node_fail(n, NULL, "input %d (%.*s) is missing", input, spec->name_length, spec->name);
    }
    bool is_sequence = sn_node_is_sequence(n, input);
    if (spec->class == 'x' && is_sequence) return;
    if (is_sequence != (spec->class == 's'))
        sn_node_fail(n, NULL, "input %d (%.*s) is a %s where a %s is expected", input, spec->name_length, spec->name,
                     is_sequence ? "sequence" : "tensor", is_sequence ? "tensor" : "sequence");
    if (is_sequence) return;
    sn_type type = sn_node_in(n, input)->type;
    if (!has_class(type.dtype, spec->class))
        sn_node_fail(n, NULL, "input %d (%.*s) is %s, where %s are expected", input, spec->name_length, spec->name,
                     sn_dtype_name(type.dtype), class_name(spec->class));
    check_rank(n, input, spec, type.rank);
}

void sn_node_check_inputs(sn_node *n) {
    const char *text = n->op->inputs;
    sn_input_spec spec;
    int input = 0, given = sn_node_inputs(n);
    for (; sn_signature_next(&text, &spec); input++) {
        check_input(n, input, &spec);
        while (spec.variadic && ++input < given) check_input(n, input, &spec);
    }
    for (; input < given; input++)
        if (sn_node_has(n, input)) sn_node_fail(n, NULL, "it has an input %d, which the operator does not take", input);
}
