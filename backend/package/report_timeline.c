// A row per rank, a box per run of a program; what waits is empty, what communicates is marked. Neighbouring
// instructions become one box, so that a page of a large schedule stays small.
#include "backend/package/report_page.h"
#include "runtime/mesh.h"

#include <inttypes.h>

enum { ROW = 30, GAP = 6, MOST_ROWS = 32, LEAST_WIDTH = 1 };

typedef struct box {
    const char *style;
    const char *program;
    int micro_batch, run; // run: index of the program
    double begin, end;
} box;

// The weights' part of a split backward pass looks different: it fills what would be waiting.
static const char *style_of(const sn_program *program, const sn_instr *in) {
    static const char *const styles[SN_PHASE_COUNT] = {
        [SN_PHASE_FORWARD] = "f", [SN_PHASE_BACKWARD] = "b", [SN_PHASE_UPDATE] = "u"};
    return sn_ends_with(program->name, "backward_weight") ? "w" : styles[in->phase];
}

static bool is_communication(const sn_instr *in) {
    return sn_instr_is_collective(in->kind) || in->kind == SN_INSTR_SEND || in->kind == SN_INSTR_RECV;
}

static void draw_box(const box *b, double y, double step, sn_str *out) {
    double x = sn_report_x(b->begin, step), width = sn_report_x(b->end, step) - x;
    if (!b->style || width <= 0) return;
    sn_str_printf(out, "<rect class=%s x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\"><title>", b->style, x, y,
                  width < 0.3 ? 0.3 : width, ROW);
    sn_report_escape(out, b->program);
    if (b->micro_batch >= 0) sn_str_printf(out, ", micro-batch %d", b->micro_batch);
    sn_str_puts(out, ": ");
    sn_str_seconds(out, b->end - b->begin);
    sn_str_puts(out, "</title></rect>");
}

static void draw_number(const box *b, double y, double step, sn_str *out) {
    double x = sn_report_x(b->begin, step), width = sn_report_x(b->end, step) - x;
    if (b->micro_batch < 0 || width < 14) return;
    sn_str_printf(out, "<text class=on x=\"%.1f\" y=\"%.1f\" text-anchor=middle>%d</text>", x + width / 2,
                  y + ROW * 0.68, b->micro_batch);
}

typedef struct row {
    const sn_report *report;
    double y, step;
    box box, run; // run: the whole of it, for its number
    sn_str *out;
} row;

static void end_boxes(row *r, bool run_ends) {
    draw_box(&r->box, r->y, r->step, r->out);
    r->box = (box){0};
    if (!run_ends) return;
    if (r->run.style) draw_number(&r->run, r->y, r->step, r->out);
    r->run = (box){0};
}

// Extends the box that is being drawn, or begins one where style, run or time do not fit.
static void take(row *r, const box *b) {
    bool same_run = r->run.style && r->run.run == b->run && r->run.micro_batch == b->micro_batch;
    double gap = sn_report_x(b->begin, r->step) - sn_report_x(r->box.end, r->step);
    bool short_one = sn_report_x(b->end, r->step) - sn_report_x(b->begin, r->step) < LEAST_WIDTH;
    bool fits = r->box.style && same_run && gap < 0.5 && (r->box.style == b->style || (short_one && gap < 0.1));
    if (!same_run) {
        end_boxes(r, true);
        r->run = *b;
    }
    r->run.end = b->end;
    if (fits) {
        r->box.end = b->end;
        return;
    }
    end_boxes(r, false);
    r->box = *b;
}

static void draw_rank(const sn_report *report, size_t index, double y, double step, sn_str *out) {
    const sn_replay *replay = &report->simulation->replay;
    const sn_replay_rank *rank = &replay->ranks[index];
    const sn_schedule *s = &report->schedules->classes.items[rank->rank_class];
    row r = {.report = report, .y = y, .step = step, .out = out};
    sn_str_printf(out, "<text x=0 y=\"%.1f\">rank %" PRId64 "</text>", y + ROW * 0.45, rank->rank);
    sn_str_printf(out, "<text class=small x=0 y=\"%.1f\">", y + ROW * 0.9);
    sn_schedule_describe_rank(s, rank->rank, out);
    sn_str_printf(out, "</text><rect class=wait x=%d y=\"%.1f\" width=%d height=%d />", SN_REPORT_LEFT, y,
                  SN_REPORT_WIDTH - SN_REPORT_LEFT, ROW);
    for (size_t t = 0; t < sn_sim_count(replay->sim); t++) {
        const sn_replay_task *what = &replay->tasks[t];
        const sn_sim_task *task = sn_sim_task_at(replay->sim, (int)t);
        if (what->rank != (int)index || what->instr < 0 || task->stream != rank->stream[SN_STREAM_COMPUTE]) continue;
        const sn_program *program = &s->programs.items[what->program];
        const sn_instr *in = &program->instrs.items[what->instr];
        if (in->kind == SN_INSTR_RECORD || in->kind == SN_INSTR_WAIT) continue;
        box b = {is_communication(in) ? "c" : style_of(program, in),
                 program->name,
                 what->micro_batch,
                 what->program,
                 task->start,
                 task->end};
        take(&r, &b);
    }
    end_boxes(&r, true);
    sn_str_putc(out, '\n');
}

void sn_report_timeline(const sn_report *report, sn_str *out) {
    const sn_replay *replay = &report->simulation->replay;
    size_t rows = replay->n_ranks < MOST_ROWS ? replay->n_ranks : MOST_ROWS;
    double height = (double)rows * (ROW + GAP);
    sn_str_puts(out, "<h2>Timeline of a step</h2><p class=dim>As predicted, a row per rank; numbers are micro-batches, "
                     "empty is waiting.");
    static const char *const keys[][2] = {
        {"f", "forward"}, {"b", "backward"}, {"w", "backward of weights"}, {"u", "update"}, {"c", "communication"}};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        if (*keys[k][0] == 'w' && report->plan->schedule != SN_PIPELINE_ZERO_BUBBLE) continue;
        sn_str_printf(out, "<span class=nowrap><span class=key style=\"background:var(--%s)\"></span>%s</span> ",
                      keys[k][0], keys[k][1]);
    }
    if (rows < replay->n_ranks) sn_str_printf(out, " The first %zu of %zu rows.", rows, replay->n_ranks);
    if (!replay->whole) sn_str_puts(out, " One rank of each class; the others do the same.");
    sn_str_printf(out, "</p><svg viewBox=\"0 0 %d %.0f\">\n", SN_REPORT_WIDTH, height + 24);
    for (size_t i = 0; i < rows; i++) draw_rank(report, i, (double)i * (ROW + GAP), replay->seconds, out);
    sn_report_axis(out, height, replay->seconds);
    sn_str_puts(out, "</svg>\n");
}
