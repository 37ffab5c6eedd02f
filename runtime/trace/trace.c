#include "runtime/trace/trace.h"

#include "base/file.h"
#include "runtime/mesh.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_EVENTS = 4 << 20 }; // per stream: 200 MB, more than the viewers open

void sn_trace_add(sn_trace *t, sn_stream stream, const sn_trace_event *event) {
    if (t->events[stream].count < MOST_EVENTS) {
        sn_vec_push(&t->events[stream], *event);
    } else if (stream == SN_STREAM_COMPUTE) { // counted by one thread
        t->dropped++;
    }
}

void sn_trace_free(sn_trace *t) {
    for (int i = 0; i < SN_STREAM_COUNT; i++) sn_vec_free(&t->events[i]);
}

static void begin(sn_str *out) {
    sn_str_puts(out, out->length ? ",\n" : "");
}

static void name_thread(sn_str *out, int64_t pid, int tid, const char *what, const char *name) {
    begin(out);
    sn_str_printf(out,
                  "{\"ph\": \"M\", \"pid\": %" PRId64 ", \"tid\": %d, \"name\": \"%s\", \"args\": {\"name\": ", pid,
                  tid, what);
    sn_str_quote(out, name);
    sn_str_puts(out, "}}");
}

// "/h.0/mlp/c_fc/MatMul" of an origin like "\"/h.0/mlp/c_fc/MatMul\" <- autodiff"; else all of it.
static void put_node(const char *origin, sn_str *out) {
    const char *from = strchr(origin, '"'), *to = from ? strchr(from + 1, '"') : NULL;
    if (to) {
        sn_str_append(out, from + 1, (size_t)(to - from - 1));
    } else {
        sn_str_append(out, origin, strcspn(origin, "<"));
        while (out->length && out->data[out->length - 1] == ' ') out->data[--out->length] = 0;
    }
}

static void print_event(const sn_trace_event *e, const sn_schedule *s, int64_t pid, int stream, sn_str *name,
                        sn_str *out) {
    static const char *const phases[SN_PHASE_COUNT] = {"forward", "backward", "update"};
    const sn_program *program = &s->programs.items[e->program];
    const sn_instr *in = &program->instrs.items[e->instr];
    const char *origin = in->origin >= 0 ? s->origins.items[in->origin] : "";
    sn_str_clear(name);
    sn_str_printf(name, "%s%s", sn_instr_name(in->kind), *origin ? " " : "");
    put_node(origin, name);
    begin(out);
    sn_str_puts(out, "{\"ph\": \"X\", \"name\": ");
    sn_str_quote(out, sn_str_text(name));
    sn_str_printf(out,
                  ", \"cat\": \"%s\", \"pid\": %" PRId64 ", \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": "
                  "{\"step\": %" PRId64 ", \"micro_batch\": %d, \"program\": ",
                  phases[in->phase], pid, stream, 1e6 * e->start, 1e6 * e->seconds, e->step, (int)e->micro_batch);
    sn_str_quote(out, program->name);
    sn_str_printf(out, ", \"instruction\": %d, \"origin\": ", (int)e->instr);
    sn_str_quote(out, origin);
    sn_str_puts(out, "}}");
}

void sn_trace_print(const sn_trace *t, const sn_schedule *s, int64_t rank, int64_t pid, const char *label,
                    sn_str *out) {
    static const char *const streams[SN_STREAM_COUNT] = {"compute", "communication"};
    sn_str name = {0};
    sn_str_printf(&name, "rank %" PRId64 "%s", rank, s->mesh.count ? " (" : "");
    sn_schedule_describe_rank(s, rank, &name);
    if (s->mesh.count) sn_str_putc(&name, ')');
    if (label) sn_str_printf(&name, " %s", label);
    name_thread(out, pid, 0, "process_name", sn_str_text(&name));
    for (int i = 0; i < SN_STREAM_COUNT; i++) {
        if (t->events[i].count) name_thread(out, pid, i, "thread_name", streams[i]);
        for (size_t k = 0; k < t->events[i].count; k++) print_event(&t->events[i].data[k], s, pid, i, &name, out);
    }
    sn_str_free(&name);
}

sn_status sn_trace_write(const char *path, const char *items, size_t bytes) {
    sn_atomic_file file;
    SN_TRY(sn_atomic_open(path, &file));
    fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", file.stream);
    if (bytes) fwrite(items, 1, bytes, file.stream);
    fputs("\n]}\n", file.stream);
    return sn_atomic_commit(&file);
}
