#include "backend/simulate/trace.h"

#include "runtime/mesh.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINK_THREAD = SN_STREAM_COUNT };

static const char *const thread_names[] = {
    [SN_STREAM_COMPUTE] = "compute", [SN_STREAM_COMM] = "communication", [LINK_THREAD] = "link"};
static const char *const phase_names[SN_PHASE_COUNT] = {
    [SN_PHASE_FORWARD] = "forward", [SN_PHASE_BACKWARD] = "backward", [SN_PHASE_UPDATE] = "update"};

static void add_name(json_t *events, const char *what, int64_t pid, int tid, const char *name) {
    json_array_append_new(events, json_pack("{s:s, s:s, s:I, s:i, s:{s:s}}", "ph", "M", "name", what, "pid",
                                            (json_int_t)pid, "tid", tid, "args", "name", name));
}

// "/h.0/mlp/c_fc/MatMul" of an origin like "\"/h.0/mlp/c_fc/MatMul\" <- autodiff".
static void put_node(const char *origin, sn_str *out) {
    const char *from = strchr(origin, '"'), *to = from ? strchr(from + 1, '"') : NULL;
    if (to) sn_str_append(out, from + 1, (size_t)(to - from - 1));
}

static void add_event(const sn_simulation *simulation, size_t index, json_t *events) {
    const sn_replay_task *what = &simulation->replay.tasks[index];
    const sn_replay_rank *rank = &simulation->replay.ranks[what->rank];
    const sn_schedule *s = &simulation->schedules->classes.items[rank->rank_class];
    const sn_sim_task *task = sn_sim_task_at(simulation->replay.sim, (int)index);
    const sn_program *program = &s->programs.items[what->program];
    const sn_instr *in = what->instr >= 0 ? &program->instrs.items[what->instr] : NULL;
    if (in && (in->kind == SN_INSTR_RECORD || in->kind == SN_INSTR_WAIT)) return;
    const char *origin = in && in->origin >= 0 ? s->origins.items[in->origin] : "";
    sn_str name = {0};
    sn_str_printf(&name, "%s%s", in ? sn_instr_name(in->kind) : "message", *origin ? " " : "");
    put_node(origin, &name);
    json_array_append_new(
        events, json_pack("{s:s, s:s, s:s, s:I, s:i, s:f, s:f, s:{s:s, s:i, s:i, s:s}}", "ph", "X", "name",
                          sn_str_text(&name), "cat", in ? phase_names[in->phase] : "message", "pid",
                          (json_int_t)(2 * rank->rank), "tid", in ? (int)in->stream : LINK_THREAD, "ts",
                          1e6 * task->start, "dur", 1e6 * (task->end - task->start), "args", "program", program->name,
                          "instruction", what->instr, "micro_batch", what->micro_batch, "origin", origin));
    sn_str_free(&name);
}

json_t *sn_simulation_trace(const sn_simulation *simulation) {
    json_t *events = json_array();
    const sn_schedule *s = &simulation->schedules->classes.items[0];
    for (size_t r = 0; r < simulation->replay.n_ranks; r++) {
        int64_t rank = simulation->replay.ranks[r].rank;
        sn_str name = {0};
        sn_str_printf(&name, "predicted rank %" PRId64 " (", rank);
        sn_schedule_describe_rank(s, rank, &name);
        sn_str_puts(&name, ")");
        add_name(events, "process_name", 2 * rank, 0, sn_str_text(&name));
        for (int t = 0; t <= LINK_THREAD; t++) add_name(events, "thread_name", 2 * rank, t, thread_names[t]);
        sn_str_free(&name);
    }
    for (size_t t = 0; t < sn_sim_count(simulation->replay.sim); t++) add_event(simulation, t, events);
    return events;
}

typedef struct step_span {
    int64_t step;
    double begin, end;
} step_span;

static int by_length(const void *a, const void *b) {
    const step_span *x = a, *y = b;
    double s = x->end - x->begin, t = y->end - y->begin;
    return (s > t) - (s < t);
}

typedef SN_VEC(step_span) step_spans;

static const json_t *step_of(const json_t *event) {
    return json_object_get(json_object_get(event, "args"), "step");
}

static bool is_complete(const json_t *event) {
    const char *ph = json_string_value(json_object_get(event, "ph"));
    return ph && strcmp(ph, "X") == 0 && json_is_number(json_object_get(event, "ts")) &&
           json_is_number(json_object_get(event, "dur")) && json_is_integer(json_object_get(event, "pid")) &&
           json_is_integer(step_of(event));
}

static void find_steps(const json_t *list, step_spans *spans) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        if (!is_complete(event)) continue;
        int64_t step = json_integer_value(step_of(event));
        double begin = json_number_value(json_object_get(event, "ts"));
        double end = begin + json_number_value(json_object_get(event, "dur"));
        size_t k = spans->count;
        while (k > 0 && spans->data[k - 1].step != step) k--; // the latest ones are near
        if (k == 0) {
            sn_vec_push(spans, (step_span){step, begin, end});
            continue;
        }
        spans->data[k - 1].begin = fmin(spans->data[k - 1].begin, begin);
        spans->data[k - 1].end = fmax(spans->data[k - 1].end, end);
    }
}

// A measured event as one of the step that begins at `begin`, or a name of its process.
static void add_measured(json_t *events, const json_t *event, const step_span *span) {
    const char *ph = json_string_value(json_object_get(event, "ph"));
    int64_t pid = 2 * json_integer_value(json_object_get(event, "pid")) + 1;
    bool complete = is_complete(event);
    if (complete ? json_integer_value(step_of(event)) != span->step : !ph || strcmp(ph, "M") != 0) return;
    json_t *copy = json_deep_copy(event);
    json_object_set_new(copy, "pid", json_integer(pid));
    if (complete) {
        json_object_set_new(copy, "ts", json_real(json_number_value(json_object_get(event, "ts")) - span->begin));
    } else if (strcmp(json_string_value(json_object_get(event, "name")), "process_name") == 0) {
        json_t *args = json_object_get(copy, "args");
        const char *name = json_string_value(json_object_get(args, "name"));
        json_object_set_new(args, "name", json_sprintf("measured %s", name ? name : ""));
    }
    json_array_append_new(events, copy);
}

bool sn_trace_add_measured(json_t *events, const json_t *measured, const char *subject, sn_diags *diags) {
    const json_t *list = json_is_array(measured) ? measured : json_object_get(measured, "traceEvents");
    step_spans spans = {0};
    find_steps(list, &spans);
    if (!spans.count) {
        sn_error(diags, "E0829", subject, "`--trace FILE` of a run writes one", "the file is no trace of a run");
        return false;
    }
    qsort(spans.data, spans.count, sizeof *spans.data, by_length);
    for (size_t i = 0; i < json_array_size(list); i++)
        add_measured(events, json_array_get(list, i), &spans.data[spans.count / 2]);
    sn_vec_free(&spans);
    return true;
}
