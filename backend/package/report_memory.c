// Memory over time: what of the arena is in use, by class, while a step runs on one rank of each rank class. A value of
// one program lives from its first to its last use in a run; one that is kept for another program of its micro-batch
// lives until that has used it.
#include "backend/package/report_page.h"
#include "base/alloc.h"
#include "base/vec.h"
#include "runtime/operands.h"

#include <stdlib.h>
#include <string.h>

enum { HEIGHT = 150, COLUMNS = 300 };

// Layers of the drawing, from the ground up.
typedef enum layer { PARAMETERS, OPTIMIZER, SUMS, KEPT, WORKING, LAYER_COUNT } layer;
static const char *const layer_names[LAYER_COUNT] = {"parameters", "optimizer state", "gradient sums",
                                                     "kept for the backward pass", "working values"};

static layer layer_of_role(sn_resident_role role) {
    return role == SN_RESIDENT_MOMENT ? OPTIMIZER : role == SN_RESIDENT_SUM ? SUMS : PARAMETERS;
}

// Bytes that hold something from `first` to `last`.
typedef struct life {
    double first, last;
    int64_t offset, bytes;
    layer layer;
} life;

typedef struct usage {
    const sn_report *report;
    const sn_schedule *schedule;
    size_t rank_index;
    double step;
    layer *layer; // by buffer
    bool *kept;   // by buffer: from one program to another
    size_t *open; // [buffer][instance]: its life that goes on, + 1. Kept ones have one for each micro-batch
    size_t instances;
    SN_VEC(life) lives;
    SN_VEC(double) instants; // the middles of the tasks, at which every operand is in use
    double bytes[COLUMNS][LAYER_COUNT], total[COLUMNS];
} usage;

static bool is_of_step(const sn_program *program) {
    return !sn_ends_with(program->name, "eval") && !sn_ends_with(program->name, "predict") &&
           !sn_ends_with(program->name, "gradients");
}

static void find_kept(usage *u, sn_arena *arena) {
    const sn_schedule *s = u->schedule;
    size_t *program_of = SN_NEW_N(arena, size_t, s->buffers.count + 1);
    sn_operands operands = {0};
    for (size_t p = 0; p < s->programs.count; p++) {
        const sn_program *program = &s->programs.items[p];
        for (size_t i = 0; is_of_step(program) && i < program->instrs.count; i++) {
            operands.count = 0;
            sn_instr_operands(s, &program->instrs.items[i], &operands);
            for (size_t k = 0; k < operands.count; k++) {
                size_t b = (size_t)operands.data[k].view.buffer;
                u->kept[b] |= program_of[b] && program_of[b] != p + 1;
                program_of[b] = p + 1;
            }
        }
    }
    sn_vec_free(&operands);
    for (size_t b = 0; b < s->buffers.count; b++) u->layer[b] = u->kept[b] ? KEPT : WORKING;
    for (size_t g = 0; g < s->globals.count; g++)
        u->layer[s->globals.items[g].buffer] = layer_of_role(s->globals.items[g].role);
}

static void add_residents(usage *u) {
    for (size_t g = 0; g < u->schedule->globals.count; g++) {
        size_t index = (size_t)u->schedule->globals.items[g].buffer;
        const sn_buffer *b = &u->schedule->buffers.items[index];
        sn_vec_push(&u->lives, (life){0, u->step, b->offset, b->bytes, u->layer[index]});
    }
}

static void use(usage *u, size_t index, int micro_batch, const sn_sim_task *task) {
    const sn_buffer *b = &u->schedule->buffers.items[index];
    if (u->layer[index] < KEPT) return;
    size_t *open = &u->open[index * u->instances + (u->layer[index] == KEPT && micro_batch > 0 ? micro_batch : 0)];
    if (!*open) {
        sn_vec_push(&u->lives,
                    (life){task->start, task->end, sn_buffer_offset(b, micro_batch), b->bytes, u->layer[index]});
        *open = u->lives.count;
    }
    life *l = &u->lives.data[*open - 1];
    if (task->end > l->last) l->last = task->end;
}

// What is of one run alone ends with it.
static void end_run(usage *u) {
    for (size_t b = 0; b < u->schedule->buffers.count; b++)
        if (u->layer[b] == WORKING) u->open[b * u->instances] = 0;
}

static void follow(usage *u) {
    const sn_replay *replay = &u->report->simulation->replay;
    sn_operands operands = {0};
    int program = -1, micro_batch = -1;
    for (size_t t = 0; t < sn_sim_count(replay->sim); t++) {
        const sn_replay_task *what = &replay->tasks[t];
        if (what->rank != (int)u->rank_index || what->instr < 0) continue;
        if (what->program != program || what->micro_batch != micro_batch) end_run(u);
        program = what->program, micro_batch = what->micro_batch;
        const sn_sim_task *task = sn_sim_task_at(replay->sim, (int)t);
        operands.count = 0;
        sn_instr_operands(u->schedule, &u->schedule->programs.items[program].instrs.items[what->instr], &operands);
        for (size_t k = 0; k < operands.count; k++) use(u, (size_t)operands.data[k].view.buffer, micro_batch, task);
        sn_vec_push(&u->instants, (task->start + task->end) / 2);
    }
    sn_vec_free(&operands);
}

static int by_first(const void *a, const void *b) {
    const life *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static int by_offset(const void *a, const void *b) {
    const life *x = *(const life *const *)a, *y = *(const life *const *)b;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : (x->layer > y->layer) - (x->layer < y->layer);
}

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Bytes by layer at one moment: values that share bytes (views, results written in place) count once.
static void count_bytes(usage *u, double at, const life **alive, size_t n) {
    double bytes[LAYER_COUNT] = {0}, total = 0;
    int64_t reached = 0;
    qsort(alive, n, sizeof *alive, by_offset);
    for (size_t i = 0; i < n; i++) {
        int64_t end = alive[i]->offset + alive[i]->bytes;
        if (end <= reached) continue;
        int64_t from = alive[i]->offset > reached ? alive[i]->offset : reached;
        bytes[alive[i]->layer] += (double)(end - from);
        total += (double)(end - from);
        reached = end;
    }
    int column = (int)(at / u->step * COLUMNS);
    if (column >= COLUMNS) column = COLUMNS - 1;
    if (total <= u->total[column]) return;
    u->total[column] = total;
    memcpy(u->bytes[column], bytes, sizeof bytes);
}

// The fullest moment of each column; its middle where the rank waits all the time.
static void sweep(usage *u) {
    const life **alive = sn_alloc((u->lives.count + 1) * sizeof *alive);
    size_t n = 0, next = 0;
    qsort(u->lives.data, u->lives.count, sizeof(life), by_first);
    qsort(u->instants.data, u->instants.count, sizeof(double), by_time);
    for (size_t i = 0; i < u->instants.count; i++) {
        double at = u->instants.data[i];
        size_t left = 0;
        while (next < u->lives.count && u->lives.data[next].first <= at) alive[n++] = &u->lives.data[next++];
        for (size_t k = 0; k < n; k++)
            if (alive[k]->last >= at) alive[left++] = alive[k];
        n = left;
        count_bytes(u, at, alive, n);
    }
    for (int c = 0; c < COLUMNS; c++) {
        double middle = (c + 0.5) / COLUMNS * u->step;
        size_t left = 0;
        for (size_t k = 0; u->total[c] <= 0 && k < u->lives.count; k++)
            if (u->lives.data[k].first <= middle && u->lives.data[k].last >= middle) alive[left++] = &u->lives.data[k];
        if (left) count_bytes(u, middle, alive, left);
    }
    sn_free(alive);
}

static void draw_layer(const usage *u, int layer, double top, double *ground, sn_str *out) {
    double width = (double)(SN_REPORT_WIDTH - SN_REPORT_LEFT) / COLUMNS;
    sn_str_printf(out, "<path class=m%d d=\"M%d,%d", layer, SN_REPORT_LEFT, HEIGHT);
    for (int c = 0; c < COLUMNS; c++) {
        double y = HEIGHT - (ground[c] + u->bytes[c][layer]) / top * HEIGHT;
        sn_str_printf(out, "L%.1f,%.1fH%.1f", SN_REPORT_LEFT + width * c, y, SN_REPORT_LEFT + width * (c + 1));
    }
    for (int c = COLUMNS - 1; c >= 0; c--) {
        double y = HEIGHT - ground[c] / top * HEIGHT;
        sn_str_printf(out, "L%.1f,%.1fH%.1f", SN_REPORT_LEFT + width * (c + 1), y, SN_REPORT_LEFT + width * c);
    }
    sn_str_printf(out, "Z\"><title>%s</title></path>\n", layer_names[layer]);
    for (int c = 0; c < COLUMNS; c++) ground[c] += u->bytes[c][layer];
}

static void draw(const usage *u, size_t rank_class, sn_str *out) {
    double ground[COLUMNS] = {0}, top = (double)u->schedule->arena_bytes, peak = 0;
    for (int c = 0; c < COLUMNS; c++)
        if (u->total[c] > peak) peak = u->total[c];
    sn_str_printf(out, "<p>Rank class %zu: in use at most ", rank_class);
    sn_str_bytes(out, peak);
    sn_str_puts(out, " of an arena of ");
    sn_str_bytes(out, (double)u->schedule->arena_bytes);
    sn_str_printf(out, "</p><svg viewBox=\"0 -8 %d %d\">\n", SN_REPORT_WIDTH, HEIGHT + 32);
    for (int l = 0; l < LAYER_COUNT; l++) draw_layer(u, l, top, ground, out);
    sn_str_puts(out, "<text x=0 y=6>");
    sn_str_bytes(out, top);
    sn_str_printf(out, "</text><text x=0 y=%d>0</text>", HEIGHT);
    sn_report_axis(out, HEIGHT, u->step);
    sn_str_puts(out, "</svg>\n");
}

static void write_class(const sn_report *report, size_t rank_index, sn_str *out) {
    const sn_replay *replay = &report->simulation->replay;
    int64_t rank_class = replay->ranks[rank_index].rank_class;
    const sn_schedule *s = &report->schedules->classes.items[rank_class];
    sn_arena arena = {0};
    usage *u = SN_NEW(&arena, usage);
    *u = (usage){.report = report, .schedule = s, .rank_index = rank_index};
    u->step = replay->seconds > 0 ? replay->seconds : 1;
    u->instances = (size_t)(s->micro_batches > 0 ? s->micro_batches : 1);
    u->layer = SN_NEW_N(&arena, layer, s->buffers.count + 1);
    u->kept = SN_NEW_N(&arena, bool, s->buffers.count + 1);
    u->open = SN_NEW_N(&arena, size_t, (s->buffers.count + 1) * u->instances);
    find_kept(u, &arena);
    add_residents(u);
    follow(u);
    sweep(u);
    draw(u, (size_t)rank_class, out);
    sn_vec_free(&u->lives);
    sn_vec_free(&u->instants);
    sn_arena_free(&arena);
}

void sn_report_memory(const sn_report *report, sn_str *out) {
    enum { MOST_CLASSES = 8 };
    size_t classes = report->schedules->classes.count;
    sn_str_puts(out, "<h2>Memory over a step</h2><p class=dim>Of one rank of each class, from the ground up:");
    for (int l = 0; l < LAYER_COUNT; l++)
        sn_str_printf(out, "<span class=nowrap><span class=key style=\"background:var(--m%d)\"></span>%s</span> ", l,
                      layer_names[l]);
    if (classes > MOST_CLASSES) sn_str_printf(out, ". The first %d of %zu classes.", MOST_CLASSES, classes);
    sn_str_puts(out, "</p>\n");
    for (size_t c = 0; c < classes && c < MOST_CLASSES; c++) {
        size_t r = 0;
        while (report->simulation->replay.ranks[r].rank_class != (int64_t)c) r++;
        write_class(report, r, out);
    }
}
