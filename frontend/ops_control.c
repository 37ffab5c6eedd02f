// Control flow that the shapes decide is unrolled; a branch on data with plain tensors becomes a choice of results.
#include "frontend/handlers.h"

#include <string.h>

enum { MOST_ITERATIONS = 4096 };

static sn_value **run_graph(sn_node *n, const Onnx__GraphProto *graph, int n_inputs, sn_value *const *inputs) {
    sn_value **outputs = SN_NEW_N(sn_node_arena(n), sn_value *, graph->n_output + 1);
    sn_node_inline(n, graph, n_inputs, inputs, outputs);
    return outputs;
}

static void choose(sn_node *n, sn_value *condition) {
    const Onnx__GraphProto *yes = sn_node_graph(n, "then_branch"), *no = sn_node_graph(n, "else_branch");
    if (sn_type_count(condition->type) != 1) sn_node_fail(n, NULL, "the condition is not a single bool");
    sn_value **a = run_graph(n, yes, 0, NULL), **b = run_graph(n, no, 0, NULL);
    condition = sn_emit_reshape(n, condition, 0, NULL);
    for (int i = 0; i < sn_node_outputs(n) && i < (int)yes->n_output && i < (int)no->n_output; i++) {
        if (!sn_type_equal(a[i]->type, b[i]->type))
            sn_node_unsupported(n, "its branches have results of different shapes and its condition depends on data");
        sn_node_out(n, i, sn_emit_where(n, condition, a[i], b[i]));
    }
}

void sn_handle_if(sn_node *n) {
    sn_value *condition = sn_node_in(n, 0);
    const sn_tensor *known = sn_node_known(n, condition);
    if (!known || sn_type_count(known->type) != 1) {
        choose(n, condition);
        return;
    }
    bool holds = sn_load_i64(known->type.dtype, known->data, 0);
    const Onnx__GraphProto *graph = sn_node_graph(n, holds ? "then_branch" : "else_branch");
    sn_value **outputs = run_graph(n, graph, 0, NULL);
    for (int i = 0; i < sn_node_outputs(n) && i < (int)graph->n_output; i++) sn_node_out(n, i, outputs[i]);
}

static bool known_bool(sn_node *n, sn_value *value) {
    const sn_tensor *known = sn_node_known(n, value);
    if (!known || sn_type_count(known->type) != 1) sn_node_unsupported(n, "its condition depends on data");
    return sn_load_i64(known->type.dtype, known->data, 0);
}

// Items of all iterations, one after the other along a new axis.
static sn_value *stack(sn_node *n, int count, sn_value **items, int axis) {
    for (int i = 0; i < count; i++) {
        sn_type t = items[i]->type;
        if (t.rank + 1 > SN_MAX_RANK) sn_node_unsupported(n, "rank %d", t.rank + 1);
        int64_t dims[SN_MAX_RANK];
        for (int d = 0; d < t.rank + 1; d++) dims[d] = d == axis ? 1 : t.dim[d > axis ? d - 1 : d];
        items[i] = sn_emit_reshape(n, items[i], t.rank + 1, dims);
    }
    return sn_emit_concat(n, count, items, axis);
}

void sn_handle_loop(sn_node *n) {
    const Onnx__GraphProto *body = sn_node_graph(n, "body");
    int carried = sn_node_inputs(n) - 2, scans = (int)body->n_output - 1 - carried;
    if (carried < 0 || scans < 0) sn_node_fail(n, NULL, "the body's outputs do not fit");
    bool bounded = sn_node_has(n, 0);
    int64_t trips = sn_node_known_int(n, 0, MOST_ITERATIONS + 1), count = 0;
    bool going = !sn_node_has(n, 1) || known_bool(n, sn_node_in(n, 1));
    sn_value **inputs = SN_NEW_N(sn_node_arena(n), sn_value *, carried + 2);
    sn_value ***items = SN_NEW_N(sn_node_arena(n), sn_value **, scans + 1);
    for (int i = 0; i < carried; i++) {
        if (sn_node_is_sequence(n, 2 + i)) sn_node_unsupported(n, "a loop that carries a sequence");
        inputs[2 + i] = sn_node_in(n, 2 + i);
    }
    for (int i = 0; i < scans; i++) items[i] = SN_NEW_N(sn_node_arena(n), sn_value *, MOST_ITERATIONS);
    bool yes = true;
    inputs[1] = sn_node_constant(n, sn_type_scalar(SN_BOOL), &yes);
    while (going && (!bounded || count < trips)) {
        if (count == MOST_ITERATIONS) sn_node_unsupported(n, "more than %d iterations", MOST_ITERATIONS);
        inputs[0] = sn_node_constant_ints(n, 0, NULL, &count);
        sn_value **outputs = run_graph(n, body, carried + 2, inputs);
        for (int i = 0; i < carried; i++) inputs[2 + i] = outputs[1 + i];
        for (int i = 0; i < scans; i++) items[i][count] = outputs[1 + carried + i];
        count++;
        if (!bounded || count < trips) going = known_bool(n, outputs[0]);
    }
    for (int i = 0; i < carried; i++) sn_node_out(n, i, inputs[2 + i]);
    for (int i = 0; i < scans; i++) {
        if (!sn_node_wants(n, carried + i)) continue;
        if (!count) sn_node_unsupported(n, "a loop of no iterations whose outputs have no shape");
        sn_node_out(n, carried + i, stack(n, (int)count, items[i], 0));
    }
}

static int64_t listed(sn_node *n, const char *name, int index) {
    int count;
    const int64_t *list = sn_node_ints(n, name, &count);
    return list && index < count ? list[index] : 0;
}

void sn_handle_scan(sn_node *n) {
    const Onnx__GraphProto *body = sn_node_graph(n, "body");
    int scanned = (int)sn_node_int_within(n, "num_scan_inputs", 0, 1, sn_node_inputs(n));
    int states = sn_node_inputs(n) - scanned;
    int scans = (int)body->n_output - states;
    if (scans < 0) sn_node_fail(n, NULL, "the body does not fit its inputs");
    sn_value **inputs = SN_NEW_N(sn_node_arena(n), sn_value *, sn_node_inputs(n) + 1);
    sn_value ***items = SN_NEW_N(sn_node_arena(n), sn_value **, scans + 1);
    sn_value *first = sn_node_in(n, states);
    int axis = sn_node_axis(n, listed(n, "scan_input_axes", 0), first->type.rank);
    int64_t length = first->type.dim[axis];
    if (length < 1 || length > MOST_ITERATIONS) sn_node_unsupported(n, "%lld iterations", (long long)length);
    for (int i = 0; i < states; i++) inputs[i] = sn_node_in(n, i);
    for (int i = 0; i < scans; i++) items[i] = SN_NEW_N(sn_node_arena(n), sn_value *, length);
    for (int64_t t = 0; t < length; t++) {
        for (int i = 0; i < scanned; i++) {
            sn_value *x = sn_node_in(n, states + i);
            int along = sn_node_axis(n, listed(n, "scan_input_axes", i), x->type.rank);
            if (x->type.dim[along] != length) sn_node_fail(n, NULL, "its inputs have different lengths");
            int64_t at = listed(n, "scan_input_directions", i) ? length - 1 - t : t, dims[SN_MAX_RANK];
            int rank = 0;
            for (int d = 0; d < x->type.rank; d++)
                if (d != along) dims[rank++] = x->type.dim[d];
            inputs[states + i] = sn_emit_reshape(n, sn_emit_part(n, x, along, at, 1), rank, dims);
        }
        sn_value **outputs = run_graph(n, body, states + scanned, inputs);
        for (int i = 0; i < states; i++) inputs[i] = outputs[i];
        for (int i = 0; i < scans; i++)
            items[i][listed(n, "scan_output_directions", i) ? length - 1 - t : t] = outputs[states + i];
    }
    for (int i = 0; i < states; i++) sn_node_out(n, i, inputs[i]);
    for (int i = 0; i < scans; i++) {
        int rank = items[i][0]->type.rank + 1;
        int along = sn_node_axis(n, listed(n, "scan_output_axes", i), rank);
        sn_node_out(n, states + i, stack(n, (int)length, items[i], along));
    }
}
