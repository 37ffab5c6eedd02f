#include "runtime/exec/run.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/diag.h"
#include "base/file.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/watch.h"
#include "runtime/data/dataset.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/initial.h"
#include "runtime/exec/log.h"
#include "runtime/exec/stop_signal.h"
#include "runtime/exec/tensors.h"
#include "runtime/lr_schedule.h"
#include "runtime/mesh.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

typedef struct run {
    const sn_run_setup *setup;
    const sn_schedules *schedules;
    int64_t class;
    const sn_schedule *schedule; // of this rank's class
    const sn_run_options *options;
    sn_comm *comm;
    sn_device *device;
    sn_executor *executor;
    sn_dataset *data, *eval_data;
    char *staging; // data of all micro-batches of a sequence
    sn_progress progress;
    sn_watch *watch;
    sn_trace trace;
    sn_lr_schedule lr;
    sn_run_position at;
    sn_run_log log; // rank 0
    sn_diags diags; // errors are those of this rank that the others have not heard of
    bool stop;      // asked to
    int signal;     // that asked this rank to, or 0
} run;

static bool is_main(const run *r) {
    return r->comm->rank == 0;
}

// What the environment may fail at.
typedef enum fault { FAULT_LOAD, FAULT_RESUME, FAULT_WRITE, FAULT_PROGRAM, FAULT_RANKS, FAULT_COUNT } fault;
static const struct {
    const char *code, *help;
} faults[FAULT_COUNT] = {
    [FAULT_LOAD] = {"E0716",
                    "is the model's file as it was when the program was compiled, and is there memory for it?"},
    [FAULT_RESUME] = {"E0712", "--resume takes the folder that --checkpoint of a run of this model wrote"},
    [FAULT_WRITE] = {"E0713", "check the path, its permissions and the free space"},
    [FAULT_PROGRAM] = {"E0714", "compile again for what this run is to do"},
    [FAULT_RANKS] = {"E0715", "start one program on as many ranks as it was compiled for: mpirun -n RANKS PROGRAM"},
};

// Keeps an error of this rank, the first one, until all ranks settle next.
static void note(run *r, fault what, sn_status status) {
    if (status && !r->diags.errors)
        sn_error(&r->diags, faults[what].code, NULL, faults[what].help, "%s", sn_status_message(status));
    sn_status_free(status);
}

// Ends all ranks: this one cannot go on, and the others would wait for it.
static void give_up(run *r, sn_status status) __attribute__((noreturn));
static void give_up(run *r, sn_status status) {
    sn_str text = {0};
    sn_str_printf(&text, "error[E0715]: %s\n  help: what the other ranks say, and their machines, tell more\n",
                  sn_status_message(status));
    sn_watch_stop(r->watch);
    r->comm->vtable->abort(r->comm, sn_str_text(&text));
}

// All ranks come here. True if all of them fared well; otherwise the first that did not has printed why.
static bool settle(run *r) {
    int first = -1;
    sn_progress_enter(&r->progress, SN_ACTIVITY_SETTLE);
    int signal = sn_stop_signal_take();
    if (signal) r->signal = signal;
    r->stop = r->stop || r->signal;
    sn_status lost = sn_comm_agree(r->comm, r->diags.errors, &r->stop, &first);
    if (lost) give_up(r, lost);
    if (first == r->comm->rank) {
        if (r->log.terminal) putchar('\n');
        fflush(stdout);
        sn_diags_print(&r->diags, 0, false, stderr);
    }
    return first < 0;
}

// Programs may use the memory of the special inputs once they have read them, so all are written before each run.
static void write_specials(run *r, int64_t step) {
    for (size_t i = 0; i < r->schedule->specials.count; i++) {
        const sn_special *special = &r->schedule->specials.items[i];
        const sn_buffer *buffer = &r->schedule->buffers.items[special->buffer];
        float lr = (float)sn_lr_at(&r->lr, r->at.step);
        int64_t integer = step;
        if (special->kind == SN_SPECIAL_SEED) integer = (int64_t)r->at.seed;
        if (special->kind == SN_SPECIAL_COORDINATE)
            integer = sn_schedule_coordinate(r->schedule, r->comm->rank, (size_t)special->axis);
        const void *from = special->kind == SN_SPECIAL_LR ? (const void *)&lr : &integer;
        sn_status status = r->device->vtable->write(r->device, buffer->offset, from, sn_dtype_bytes(buffer->dtype));
        if (status) SN_BUG("%s", sn_status_message(status)); // the arena is ours and checked
    }
}

static int64_t micro_samples(const run *r) {
    return r->schedule->step_samples / r->schedule->micro_batches;
}

static size_t input_bytes(const run *r, size_t input) {
    const sn_buffer *buffer = &r->schedule->buffers.items[r->schedule->inputs.items[input].buffer];
    size_t bytes = sn_dtype_bytes(buffer->dtype);
    for (size_t k = 0; k < buffer->shape.count; k++) bytes *= (size_t)buffer->shape.items[k];
    return bytes;
}

// Inputs lie one after the other in the staging memory, each with all its micro-batches.
static char *staged(const run *r, size_t input, int64_t micro_batch) {
    size_t at = 0;
    for (size_t i = 0; i < input; i++) at += input_bytes(r, i) * (size_t)r->schedule->micro_batches;
    return r->staging + at + input_bytes(r, input) * (size_t)micro_batch;
}

// Reads the data of all micro-batches that the sequence loads, the first of which starts at sample `first`. It is done
// before the sequence runs: ranks do not come to a micro-batch at the same time, so in between they cannot agree on
// what to do about bad data. All ranks call it.
static bool stage(run *r, const sn_dataset *data, const sn_sequence *sequence, int64_t first) {
    bool good = true;
    sn_progress_enter(&r->progress, SN_ACTIVITY_DATA);
    for (size_t k = 0; k < sequence->runs.count && good; k++) {
        const sn_sequence_run *run = &sequence->runs.items[k];
        for (size_t i = 0; run->load && i < r->schedule->inputs.count && good; i++)
            good = sn_dataset_fill(data, first + run->micro_batch * micro_samples(r), i, r->comm->rank,
                                   staged(r, i, run->micro_batch), &r->diags);
        sn_progress_done(&r->progress);
    }
    return settle(r);
}

static void load(run *r, int64_t micro_batch) {
    for (size_t i = 0; i < r->schedule->inputs.count; i++) {
        const sn_buffer *buffer = &r->schedule->buffers.items[r->schedule->inputs.items[i].buffer];
        sn_status status = r->device->vtable->write(r->device, sn_buffer_offset(buffer, micro_batch),
                                                    staged(r, i, micro_batch), input_bytes(r, i));
        if (status) SN_BUG("%s", sn_status_message(status));
    }
}

// An error in the middle of a program leaves the other ranks waiting for this one: it ends them too.
static void must_run(run *r, const sn_sequence *sequence, sn_activity activity, int64_t step) {
    sn_progress_enter(&r->progress, activity);
    atomic_store_explicit(&r->progress.step, step, memory_order_relaxed);
    for (size_t k = 0; k < sequence->runs.count; k++) {
        const sn_sequence_run *run = &sequence->runs.items[k];
        bool counts = activity == SN_ACTIVITY_STEP && run->micro_batch >= 0;
        if (run->load) load(r, run->micro_batch);
        write_specials(r, counts ? (step - 1) * r->schedule->micro_batches + run->micro_batch + 1 : step);
        sn_status status = sn_executor_run(r->executor, run->program, run->micro_batch);
        if (status) give_up(r, status);
    }
}

static int64_t loss_of(const sn_schedule *s) {
    return s->loss;
}
static int64_t eval_loss_of(const sn_schedule *s) {
    return s->eval_loss;
}
static int64_t grad_norm_of(const sn_schedule *s) {
    return s->grad_norm;
}

// Index of the lowest class that has the scalar; -1: none.
static int64_t class_with(const run *r, int64_t (*scalar)(const sn_schedule *)) {
    for (size_t c = 0; c < r->schedules->classes.count; c++) {
        if (scalar(&r->schedules->classes.items[c]) >= 0) return (int64_t)c;
    }
    return -1;
}

// The same on all ranks. Where not every class has it, a sum carries it from one rank of the class that does.
static double read_scalar(run *r, int64_t (*scalar)(const sn_schedule *)) {
    float value = 0;
    int64_t class = class_with(r, scalar), buffer = scalar(r->schedule);
    bool all = true;
    for (size_t c = 0; c < r->schedules->classes.count; c++) all = all && scalar(&r->schedules->classes.items[c]) >= 0;
    bool speaks = r->class == class;
    for (int rank = 0; speaks && !all && rank < r->comm->rank; rank++)
        speaks = sn_schedules_class(r->schedules, rank) != class;
    if (all || speaks) {
        sn_status status =
            r->device->vtable->read(r->device, r->schedule->buffers.items[buffer].offset, &value, sizeof value);
        if (status) SN_BUG("%s", sn_status_message(status));
    }
    if (all) return value;
    sn_progress_enter(&r->progress, SN_ACTIVITY_SETTLE);
    sn_collective c = {.kind = SN_INSTR_ALL_REDUCE, .dtype = SN_F32, .count = 1, .from = &value, .to = &value};
    sn_status status = r->comm->vtable->run_all(r->comm, &c);
    if (status) give_up(r, status);
    return value;
}

// Tokens (ids of the first integer input with a sequence) or samples that a step consumes.
static double step_tokens(const run *r) {
    for (size_t c = 0; c < r->schedules->classes.count; c++) {
        const sn_schedule *s = &r->schedules->classes.items[c];
        for (size_t i = 0; i < s->inputs.count; i++) {
            const sn_data_input *in = &s->inputs.items[i];
            bool integers = !sn_dtype_is_float(s->buffers.items[in->buffer].dtype);
            if (!integers || in->is_label || in->shape.count != 2 || in->batch_dim != 0) continue;
            return (double)(s->step_samples * in->shape.items[1]);
        }
    }
    return (double)r->schedule->step_samples;
}

// The loss and the gradient norm of a step are the same on all ranks, so all of them find what is wrong.
static void check_finite(run *r, const sn_step_report *report) {
    bool loss = isfinite(report->loss), norm = !report->has_grad_norm || isfinite(report->grad_norm);
    if (loss && norm) return;
    // before the first update the rate is not to blame
    const char *help = report->step == 1
                           ? "look for NaN or infinite values in the data and the weights, and for a batch without a "
                             "label that counts"
                           : "lower the learning rate, lengthen --warmup or clip gradients (--clip 1.0); --resume "
                             "continues from a checkpoint";
    sn_error(&r->diags, "E0701", NULL, help, "the %s is not finite at step %" PRId64, loss ? "gradient norm" : "loss",
             report->step);
}

typedef struct sequences { // of this class; NULL where there is none
    const sn_sequence *step, *gradients, *eval, *predict;
} sequences;

// Copies the running statistics out of the arena, or back; returns their bytes. With NULL it only counts.
static size_t move_states(run *r, char *copy, bool back) {
    size_t bytes = 0;
    for (size_t i = 0; i < r->schedule->globals.count; i++) {
        const sn_resident *global = &r->schedule->globals.items[i];
        const sn_buffer *buffer = &r->schedule->buffers.items[global->buffer];
        if (global->role != SN_RESIDENT_STATE) continue;
        if (copy && back)
            note(r, FAULT_LOAD,
                 r->device->vtable->write(r->device, buffer->offset, copy + bytes, (size_t)buffer->bytes));
        else if (copy)
            note(r, FAULT_LOAD,
                 r->device->vtable->read(r->device, buffer->offset, copy + bytes, (size_t)buffer->bytes));
        bytes += (size_t)buffer->bytes;
    }
    return bytes;
}

// Of the step that is about to be done, which then begins with the statistics as they were.
static bool save_gradients(run *r, const sequences *q) {
    int64_t step;
    const char *file;
    if (!r->options->save_gradients) return true;
    sn_run_options_gradients(r->options, &step, &file);
    if (step != r->at.step + 1) return true;
    if (!stage(r, r->data, q->gradients, r->at.samples)) return false;
    char *states = sn_alloc(move_states(r, NULL, false) + 1);
    move_states(r, states, false);
    must_run(r, q->gradients, SN_ACTIVITY_STEP, step);
    move_states(r, states, true);
    sn_free(states);
    sn_tensor_refs refs = {0};
    sn_tensors_gradients(r->schedules, &refs);
    sn_progress_enter(&r->progress, SN_ACTIVITY_CHECKPOINT);
    note(r, FAULT_WRITE, sn_tensors_write(&refs, NULL, 0, r->device, r->comm, file));
    sn_vec_free(&refs);
    return settle(r);
}

// One step; nothing happens when asked to stop. False after an error.
static bool train_step(run *r, const sequences *q, sn_step_report *report) {
    double start = sn_seconds(), lr = sn_lr_at(&r->lr, r->at.step);
    if (!stage(r, r->data, q->step, r->at.samples)) return false;
    if (r->stop) return true;
    if (!save_gradients(r, q)) return false;
    must_run(r, q->step, SN_ACTIVITY_STEP, r->at.step + 1);
    *report = (sn_step_report){.step = r->at.step + 1, .loss = read_scalar(r, loss_of), .lr = lr};
    report->has_grad_norm = class_with(r, grad_norm_of) >= 0;
    if (report->has_grad_norm) report->grad_norm = read_scalar(r, grad_norm_of);
    report->seconds = sn_seconds() - start;
    report->tokens_per_s = step_tokens(r) / report->seconds;
    check_finite(r, report);
    if (r->diags.errors) return settle(r);
    r->at.loss = report->loss;
    r->at.step++;
    r->at.samples += r->schedule->step_samples;
    if (is_main(r)) note(r, FAULT_WRITE, sn_run_log_step(&r->log, report));
    return true;
}

// Mean loss over all whole batches of the evaluation data, in file order.
static bool evaluate(run *r, const sequences *q) {
    int64_t batch = micro_samples(r), batches = batch ? sn_dataset_samples(r->eval_data) / batch : 1;
    double sum = 0;
    for (int64_t i = 0; i < batches; i++) {
        if (!stage(r, r->eval_data, q->eval, i * batch)) return false;
        must_run(r, q->eval, SN_ACTIVITY_EVAL, r->at.step + 1);
        sum += read_scalar(r, eval_loss_of);
    }
    if (is_main(r)) note(r, FAULT_WRITE, sn_run_log_eval(&r->log, r->at.step, sum / (double)batches));
    return settle(r);
}

static bool checkpoint(run *r) {
    sn_progress_enter(&r->progress, SN_ACTIVITY_CHECKPOINT);
    note(r, FAULT_WRITE, sn_checkpoint_write(r->options->checkpoint, r->schedules, r->device, r->comm, &r->at));
    return settle(r);
}

static bool is_due(int64_t every, int64_t step, bool last) {
    return every && (step % every == 0 || last);
}

static bool train(run *r, const sequences *q) {
    const sn_run_options *o = r->options;
    int64_t saved = -1;
    if (is_main(r) && r->at.step >= o->steps)
        sn_run_log_say(&r->log,
                       "nothing to train: the checkpoint is of step %" PRId64 ", --steps counts from the start",
                       r->at.step);
    while (r->at.step < o->steps && !r->stop) {
        sn_step_report report;
        if (!train_step(r, q, &report)) return false;
        bool last = r->at.step == o->steps;
        if (r->stop) break;
        if (r->eval_data && is_due(o->eval_every, r->at.step, last) && !evaluate(r, q)) return false;
        if (o->checkpoint && is_due(o->checkpoint_every, r->at.step, false)) {
            if (!checkpoint(r)) return false;
            saved = r->at.step;
        }
    }
    if (o->checkpoint && saved != r->at.step && !checkpoint(r)) return false;
    if (r->eval_data && !o->eval_every && !r->stop && !evaluate(r, q)) return false;
    if (is_main(r) && r->stop)
        sn_run_log_say(&r->log, "stopped after step %" PRId64 "%s%s", r->at.step,
                       o->checkpoint ? "; continue with --resume " : "", o->checkpoint ? o->checkpoint : "");
    return true;
}

// Forward over all samples; the last batch is filled up with the first rows, and cut off again.
static bool predict(run *r, const sequences *q) {
    int64_t batch = micro_samples(r), samples = sn_dataset_samples(r->data);
    int64_t batches = batch ? (samples + batch - 1) / batch : 1;
    sn_collected collected;
    sn_collected_init(r->schedules, batch, &collected);
    bool good = true;
    for (int64_t i = 0; i < batches && good; i++) {
        good = stage(r, r->data, q->predict, i * batch);
        if (!good) break;
        must_run(r, q->predict, SN_ACTIVITY_PREDICT, 1);
        note(r, FAULT_WRITE, sn_collected_add(&collected, r->device, r->comm));
        good = settle(r);
    }
    if (good && is_main(r)) note(r, FAULT_WRITE, sn_collected_write(&collected, samples, r->options->output));
    sn_collected_free(&collected);
    return good && settle(r);
}

// Ranks of different executables would wait for each other, or worse, go on.
static sn_status check_same_program(run *r) {
    int64_t mine = (int64_t)(r->setup->fingerprint >> 1), ends[2] = {mine, -mine};
    sn_collective c = {
        .kind = SN_INSTR_ALL_REDUCE, .dtype = SN_I64, .reduce = SN_REDUCE_MAX, .count = 2, .from = ends, .to = ends};
    SN_TRY(r->comm->vtable->run_all(r->comm, &c));
    if (ends[0] == -ends[1]) return SN_OK;
    return sn_status_make("the ranks were started from different programs, or from different versions of one");
}

static void open_device(run *r) {
    const sn_run_setup *setup = r->setup;
    sn_status status = sn_device_cpu_create(setup->threads, &r->device);
    if (!status) status = r->device->vtable->allocate(r->device, r->schedule->arena_bytes);
    if (!status) status = r->device->vtable->load(r->device, setup->kernels, &r->schedule->kernels);
    sn_executor_setup executor = {.schedule = r->schedule,
                                  .device = r->device,
                                  .comm = r->comm,
                                  .progress = &r->progress,
                                  .trace = r->options->trace ? &r->trace : NULL};
    if (!status) status = sn_executor_create(&executor, &r->executor);
    note(r, FAULT_LOAD, status);
}

static void load_state(run *r) {
    note(r, FAULT_LOAD, sn_initial_load(r->schedule, r->comm->rank, r->setup->constants, r->device));
    if (r->options->resume && !r->diags.errors)
        note(r, FAULT_RESUME, sn_checkpoint_read(r->options->resume, r->schedule, r->comm->rank, r->device, &r->at));
    sn_blob constants = r->setup->constants; // in the arena now: its pages need not stay
    if (constants.bytes) madvise((void *)(uintptr_t)constants.data, constants.bytes, MADV_DONTNEED);
}

static void open_data(run *r) {
    const sn_run_options *o = r->options;
    bool forward = o->output != NULL;
    sn_dataset_options data = {
        .path = o->data,
        .token_bytes = o->token_bytes,
        .seed = r->at.seed,
        .batch = forward ? micro_samples(r) > 0 : r->schedule->step_samples,
        .shuffle = !forward && !o->no_shuffle,
    };
    r->data = sn_dataset_open(r->schedules, r->class, &data, &r->diags);
    if (o->eval_data && !forward) {
        data.path = o->eval_data, data.batch = micro_samples(r), data.shuffle = false;
        r->eval_data = sn_dataset_open(r->schedules, r->class, &data, &r->diags);
    }
    size_t room = 1;
    for (size_t i = 0; i < r->schedule->inputs.count; i++)
        room += input_bytes(r, i) * (size_t)r->schedule->micro_batches;
    r->staging = sn_alloc(room);
}

// The sequences that this run needs must exist.
static sequences find_sequences(run *r) {
    const sn_schedule *s = r->schedule;
    sequences q = {
        .step = sn_schedule_sequence(s, "step"),
        .gradients = sn_schedule_sequence(s, "gradients"),
        .eval = sn_schedule_sequence(s, "eval"),
        .predict = sn_schedule_sequence(s, "predict"),
    };
    if (r->options->output) {
        if (!q.predict)
            note(r, FAULT_PROGRAM, sn_status_make("this executable only trains; `sennit eval` runs a model forward"));
    } else if (!q.step || class_with(r, loss_of) < 0) {
        note(r, FAULT_PROGRAM, sn_status_make("this executable does not train; it runs forward with --output FILE"));
    } else if (r->options->eval_data && (!q.eval || class_with(r, eval_loss_of) < 0)) {
        note(r, FAULT_PROGRAM, sn_status_make("this executable was compiled without an evaluation"));
    } else if (r->options->save_gradients && !q.gradients) {
        note(r, FAULT_PROGRAM, sn_status_make("this executable was compiled without --save-gradients"));
    }
    return q;
}

// A file that cannot be written is known now, not at the end.
static sn_status try_to_write(const char *path) {
    sn_atomic_file file;
    SN_TRY(sn_atomic_open(path, &file));
    sn_atomic_discard(&file);
    return SN_OK;
}

// The ranks' clocks are set to when they leave a barrier.
static void start_trace(run *r) {
    if (r->options->trace && is_main(r)) note(r, FAULT_WRITE, try_to_write(r->options->trace));
    if (r->options->trace) note(r, FAULT_RANKS, r->comm->vtable->barrier(r->comm));
    r->trace.origin = sn_seconds();
}

// Rank 0 takes the events of the others, one after the other.
static void write_trace(run *r) {
    sn_str items = {0};
    sn_trace_print(&r->trace, r->schedule, r->comm->rank, r->comm->rank, NULL, &items);
    uint64_t bytes = items.length;
    if (r->trace.dropped && is_main(r)) sn_run_log_say(&r->log, "the trace holds the first steps alone: it is full");
    if (!is_main(r)) {
        note(r, FAULT_RANKS, r->comm->vtable->give(r->comm, 0, &bytes, sizeof bytes));
        note(r, FAULT_RANKS, r->comm->vtable->give(r->comm, 0, items.data, bytes));
    }
    for (int rank = 1; is_main(r) && rank < r->comm->ranks; rank++) {
        note(r, FAULT_RANKS, r->comm->vtable->take(r->comm, rank, &bytes, sizeof bytes));
        char *text = sn_alloc(bytes + 1);
        note(r, FAULT_RANKS, r->comm->vtable->take(r->comm, rank, text, bytes));
        if (bytes && items.length) sn_str_puts(&items, ",\n");
        sn_str_append(&items, text, bytes);
        sn_free(text);
    }
    if (is_main(r)) note(r, FAULT_WRITE, sn_trace_write(r->options->trace, items.data, items.length));
    sn_str_free(&items);
}

static void open_log(run *r) {
    const sn_run_options *o = r->options;
    r->lr = (sn_lr_schedule){.shape = sn_lr_shape_from_name(o->schedule),
                             .lr = o->lr > 0 ? o->lr : r->schedule->lr,
                             .min_lr = o->min_lr,
                             .warmup = o->warmup,
                             .steps = o->steps};
    if (!is_main(r)) return;
    sn_diags_print(&r->diags, 0, false, stderr); // warnings
    r->diags.count = 0;
    note(r, FAULT_WRITE, sn_run_log_open(o->log, o->resume != NULL, !o->quiet, r->at.step, o->steps, &r->log));
}

static bool run_all(run *r) {
    note(r, FAULT_RANKS, check_same_program(r));
    if (!settle(r)) return false;
    note(r, FAULT_RANKS, r->comm->vtable->set_mesh(r->comm, r->schedules));
    sn_watch_setup watch = {r->comm, r->schedules, &r->progress, r->options->timeout};
    if (!settle(r)) return false;
    note(r, FAULT_RANKS, sn_watch_start(&watch, &r->watch));
    if (!settle(r)) return false;
    open_device(r);
    if (!settle(r)) return false;
    load_state(r);
    if (!settle(r)) return false;
    open_data(r);
    sequences q = find_sequences(r);
    if (!settle(r)) return false;
    open_log(r);
    if (!settle(r)) return false;
    start_trace(r);
    if (is_main(r) && r->options->checkpoint) sn_checkpoint_tidy(r->options->checkpoint);
    int64_t first = r->at.step;
    bool good = r->options->output ? predict(r, &q) : train(r, &q);
    if (good && r->options->trace) write_trace(r);
    if (r->options->output) return good && settle(r);
    if (good && is_main(r) && r->options->profile) {
        sn_str text = {0};
        sn_executor_profile(r->executor, 30, r->at.step - first, &text);
        sn_run_log_say(&r->log, "%s", sn_str_text(&text));
        sn_str_free(&text);
    }
    if (is_main(r)) note(r, FAULT_WRITE, sn_run_log_close(&r->log));
    return good && settle(r);
}

int sn_run(const sn_run_setup *setup) {
    int64_t class = sn_schedules_class(setup->schedules, setup->comm->rank);
    run r = {.setup = setup,
             .schedules = setup->schedules,
             .class = class,
             .schedule = &setup->schedules->classes.items[class],
             .options = setup->options,
             .comm = setup->comm,
             .at = {.seed = (uint64_t)setup->options->seed}};
    sn_progress_init(&r.progress);
    bool good = run_all(&r);
    sn_watch_stop(r.watch);
    sn_executor_destroy(r.executor);
    sn_dataset_close(r.data);
    sn_dataset_close(r.eval_data);
    sn_device_destroy(r.device);
    sn_free(r.staging);
    sn_trace_free(&r.trace);
    sn_diags_free(&r.diags);
    // SIGUSR1 is a request to end early, and that was done; the other two are told to whoever waits for us.
    if (good && (r.signal == SIGTERM || r.signal == SIGINT)) return 128 + r.signal;
    return good ? 0 : 1;
}
