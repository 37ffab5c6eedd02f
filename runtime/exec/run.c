#include "runtime/exec/run.h"

#include "base/alloc.h"
#include "base/diag.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/dataset.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/initial.h"
#include "runtime/exec/log.h"
#include "runtime/exec/tensors.h"
#include "runtime/lr_schedule.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

typedef struct run {
    const sn_run_setup *setup;
    const sn_schedule *schedule;
    const sn_run_options *options;
    sn_comm *comm;
    sn_device *device;
    sn_executor *executor;
    sn_dataset *data, *eval_data;
    void *staging; // room for any input
    sn_lr_schedule lr;
    sn_run_position at;
    sn_run_log log; // rank 0
    sn_diags diags;
    sn_status failed; // the first error of this rank that the others have not heard of
    bool stop;        // asked to
} run;

static volatile sig_atomic_t signalled;
static void on_signal(int number) {
    signalled = number;
}

static bool is_main(const run *r) {
    return r->comm->rank == 0;
}

// Keeps an error of this rank until all ranks settle next.
static void note(run *r, sn_status status) {
    if (r->failed) {
        sn_status_free(status);
    } else {
        r->failed = status;
    }
}

// All ranks come here. True if all of them fared well; otherwise the first that did not has printed why.
static bool settle(run *r) {
    int first = -1;
    r->stop = r->stop || signalled;
    sn_status lost = sn_comm_agree(r->comm, r->failed || r->diags.errors, &r->stop, &first);
    if (lost) {
        sn_str text = {0};
        sn_str_printf(&text, "error: %s\n", sn_status_message(lost));
        r->comm->vtable->abort(r->comm, sn_str_text(&text));
    }
    if (first == r->comm->rank) {
        if (r->log.terminal) putchar('\n');
        fflush(stdout);
        sn_diags_print(&r->diags, 0, false, stderr);
        if (r->failed) fprintf(stderr, "error: %s\n", sn_status_message(r->failed));
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
            integer = sn_mesh_coordinate(r->schedule, r->comm->rank, (size_t)special->axis);
        const void *from = special->kind == SN_SPECIAL_LR ? (const void *)&lr : &integer;
        sn_status status = r->device->vtable->write(r->device, buffer->offset, from, sn_dtype_bytes(buffer->dtype));
        if (status) SN_BUG("%s", sn_status_message(status)); // the arena is ours and checked
    }
}

// An error in the middle of a program leaves the other ranks waiting for this one: it ends them too.
static void must_run(run *r, const sn_program *program, int64_t step) {
    write_specials(r, step);
    sn_status status = sn_executor_run(r->executor, program);
    if (!status) return;
    sn_str text = {0};
    sn_str_printf(&text, "error: %s\n", sn_status_message(status));
    r->comm->vtable->abort(r->comm, sn_str_text(&text));
}

static double read_scalar(run *r, int64_t buffer) {
    float value;
    sn_status status =
        r->device->vtable->read(r->device, r->schedule->buffers.items[buffer].offset, &value, sizeof value);
    if (status) SN_BUG("%s", sn_status_message(status));
    return value;
}

static int64_t micro_samples(const run *r) {
    return r->schedule->step_samples / r->schedule->micro_batches;
}

// Puts the micro-batch that starts at sample `first` into the inputs. All ranks call it.
static bool feed(run *r, const sn_dataset *data, int64_t first) {
    bool good = true;
    for (size_t i = 0; i < r->schedule->inputs.count && good; i++) {
        const sn_buffer *buffer = &r->schedule->buffers.items[r->schedule->inputs.items[i].buffer];
        good = sn_dataset_fill(data, first, i, r->comm->rank, r->staging, &r->diags);
        size_t bytes = sn_dtype_bytes(buffer->dtype);
        for (size_t k = 0; k < buffer->shape.count; k++) bytes *= (size_t)buffer->shape.items[k];
        if (good) note(r, r->device->vtable->write(r->device, buffer->offset, r->staging, bytes));
    }
    return settle(r);
}

// Tokens (ids of the first integer input with a sequence) or samples that a step consumes.
static double step_tokens(const run *r) {
    for (size_t i = 0; i < r->schedule->inputs.count; i++) {
        const sn_data_input *in = &r->schedule->inputs.items[i];
        bool integers = !sn_dtype_is_float(r->schedule->buffers.items[in->buffer].dtype);
        if (!integers || in->is_label || in->shape.count != 2 || in->batch_dim != 0) continue;
        return (double)(r->schedule->step_samples * in->shape.items[1]);
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

typedef struct programs { // "step", or "micro" and "update"
    const sn_program *step, *micro, *update, *gradients, *eval, *predict;
} programs;

// Of the step that is about to be done, on the inputs that are there.
static bool save_gradients(run *r, const programs *p) {
    int64_t step;
    const char *file;
    if (!r->options->save_gradients) return true;
    sn_run_options_gradients(r->options, &step, &file);
    if (step != r->at.step + 1) return true;
    must_run(r, p->gradients, step);
    note(r, sn_tensors_write(r->schedule, r->device, r->comm, r->schedule->gradients.items,
                             r->schedule->gradients.count, file));
    return settle(r);
}

// One step; nothing happens when asked to stop. False after an error.
static bool train_step(run *r, const programs *p, sn_step_report *report) {
    double start = sn_seconds(), lr = sn_lr_at(&r->lr, r->at.step);
    int64_t parts = r->schedule->micro_batches;
    for (int64_t m = 0; m < parts; m++) {
        if (!feed(r, r->data, r->at.samples + m * micro_samples(r))) return false;
        if (m == 0 && r->stop) return true;
        if (m == 0 && !save_gradients(r, p)) return false;
        must_run(r, p->micro ? p->micro : p->step, r->at.step * parts + m + 1);
    }
    if (p->micro) must_run(r, p->update, r->at.step + 1);
    *report = (sn_step_report){.step = r->at.step + 1, .loss = read_scalar(r, r->schedule->loss), .lr = lr};
    report->has_grad_norm = r->schedule->grad_norm >= 0;
    if (report->has_grad_norm) report->grad_norm = read_scalar(r, r->schedule->grad_norm);
    report->seconds = sn_seconds() - start;
    report->tokens_per_s = step_tokens(r) / report->seconds;
    check_finite(r, report);
    if (r->diags.errors) return settle(r);
    r->at.loss = report->loss;
    r->at.step++;
    r->at.samples += r->schedule->step_samples;
    if (is_main(r)) note(r, sn_run_log_step(&r->log, report));
    return true;
}

// Mean loss over all whole batches of the evaluation data, in file order.
static bool evaluate(run *r, const programs *p) {
    int64_t batch = micro_samples(r), batches = batch ? sn_dataset_samples(r->eval_data) / batch : 1;
    double sum = 0;
    for (int64_t i = 0; i < batches; i++) {
        if (!feed(r, r->eval_data, i * batch)) return false;
        must_run(r, p->eval, r->at.step + 1);
        sum += read_scalar(r, r->schedule->eval_loss);
    }
    if (is_main(r)) note(r, sn_run_log_eval(&r->log, r->at.step, sum / (double)batches));
    return settle(r);
}

static bool checkpoint(run *r) {
    note(r, sn_checkpoint_write(r->options->checkpoint, r->schedule, r->device, r->comm, &r->at));
    return settle(r);
}

static bool is_due(int64_t every, int64_t step, bool last) {
    return every && (step % every == 0 || last);
}

static bool train(run *r, const programs *p) {
    const sn_run_options *o = r->options;
    int64_t saved = -1;
    if (is_main(r) && r->at.step >= o->steps)
        sn_run_log_say(&r->log,
                       "nothing to train: the checkpoint is of step %" PRId64 ", --steps counts from the start",
                       r->at.step);
    while (r->at.step < o->steps && !r->stop) {
        sn_step_report report;
        if (!train_step(r, p, &report)) return false;
        bool last = r->at.step == o->steps;
        if (r->stop) break;
        if (r->eval_data && is_due(o->eval_every, r->at.step, last) && !evaluate(r, p)) return false;
        if (o->checkpoint && is_due(o->checkpoint_every, r->at.step, false)) {
            if (!checkpoint(r)) return false;
            saved = r->at.step;
        }
    }
    if (o->checkpoint && saved != r->at.step && !checkpoint(r)) return false;
    if (r->eval_data && !o->eval_every && !r->stop && !evaluate(r, p)) return false;
    if (is_main(r) && r->stop)
        sn_run_log_say(&r->log, "stopped after step %" PRId64 "%s%s", r->at.step,
                       o->checkpoint ? "; continue with --resume " : "", o->checkpoint ? o->checkpoint : "");
    return true;
}

// Forward over all samples; the last batch is filled up with the first rows, and cut off again.
static bool predict(run *r, const programs *p) {
    int64_t batch = micro_samples(r), samples = sn_dataset_samples(r->data);
    int64_t batches = batch ? (samples + batch - 1) / batch : 1;
    sn_collected collected;
    sn_collected_init(r->schedule, batch, &collected);
    bool good = true;
    for (int64_t i = 0; i < batches && good; i++) {
        good = feed(r, r->data, i * batch);
        if (!good) break;
        must_run(r, p->predict, 1);
        note(r, sn_collected_add(&collected, r->schedule, r->device, r->comm));
        good = settle(r);
    }
    if (good && is_main(r)) note(r, sn_collected_write(&collected, r->schedule, samples, r->options->output));
    sn_collected_free(&collected, r->schedule);
    return good && settle(r);
}

static void open_device(run *r) {
    const sn_run_setup *setup = r->setup;
    sn_status status = sn_device_cpu_create(setup->threads, &r->device);
    if (!status) status = r->device->vtable->allocate(r->device, r->schedule->arena_bytes);
    if (!status) status = r->device->vtable->load(r->device, setup->kernels, &r->schedule->kernels);
    if (!status) status = sn_executor_create(r->schedule, r->device, r->comm, &r->executor);
    note(r, status);
}

static void load_state(run *r) {
    sn_status status = sn_initial_load(r->schedule, r->comm->rank, r->setup->constants, r->device);
    if (!status && r->options->resume)
        status = sn_checkpoint_read(r->options->resume, r->schedule, r->comm->rank, r->device, &r->at);
    note(r, status);
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
    r->data = sn_dataset_open(r->schedule, &data, &r->diags);
    if (o->eval_data && !forward) {
        data.path = o->eval_data, data.batch = micro_samples(r), data.shuffle = false;
        r->eval_data = sn_dataset_open(r->schedule, &data, &r->diags);
    }
    size_t room = 1;
    for (size_t i = 0; i < r->schedule->inputs.count; i++) {
        const sn_buffer *buffer = &r->schedule->buffers.items[r->schedule->inputs.items[i].buffer];
        if ((size_t)buffer->bytes > room) room = (size_t)buffer->bytes;
    }
    r->staging = sn_alloc(room);
}

// The programs that this run needs must exist.
static programs find_programs(run *r) {
    const sn_schedule *s = r->schedule;
    programs p = {
        .step = sn_schedule_program(s, "step"),
        .micro = sn_schedule_program(s, "micro"),
        .update = sn_schedule_program(s, "update"),
        .gradients = sn_schedule_program(s, "gradients"),
        .eval = sn_schedule_program(s, "eval"),
        .predict = sn_schedule_program(s, "predict"),
    };
    bool trains = s->loss >= 0 && (s->micro_batches > 1 ? p.micro && p.update : p.step != NULL);
    if (s->micro_batches == 1) p.micro = NULL;
    if (r->options->output) {
        if (!p.predict) note(r, sn_status_make("this executable only trains; `sennit eval` runs a model forward"));
    } else if (!trains) {
        note(r, sn_status_make("this executable does not train; it runs forward with --output FILE"));
    } else if (r->options->eval_data && (!p.eval || s->eval_loss < 0)) {
        note(r, sn_status_make("this executable was compiled without an evaluation"));
    } else if (r->options->save_gradients && (!p.gradients || s->micro_batches > 1)) {
        note(r, sn_status_make("this executable was compiled without --save-gradients, or with --accumulate"));
    }
    return p;
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
    note(r, sn_run_log_open(o->log, o->resume != NULL, !o->quiet, r->at.step, o->steps, &r->log));
}

static bool run_all(run *r) {
    note(r, r->comm->vtable->set_mesh(r->comm, r->schedule));
    if (!settle(r)) return false;
    open_device(r);
    if (!settle(r)) return false;
    load_state(r);
    if (!settle(r)) return false;
    open_data(r);
    programs p = find_programs(r);
    if (!settle(r)) return false;
    open_log(r);
    if (!settle(r)) return false;
    if (r->options->output) return predict(r, &p);
    int64_t first = r->at.step;
    bool good = train(r, &p);
    if (good && is_main(r) && r->options->profile) {
        sn_str text = {0};
        sn_executor_profile(r->executor, 30, r->at.step - first, &text);
        sn_run_log_say(&r->log, "%s", sn_str_text(&text));
        sn_str_free(&text);
    }
    if (is_main(r)) note(r, sn_run_log_close(&r->log));
    return good && settle(r);
}

int sn_run(const sn_run_setup *setup) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL); // what mpirun passes on; it answers SIGTERM with an end after a second
    run r = {.setup = setup,
             .schedule = &setup->schedules->classes.items[sn_schedules_class(setup->schedules, setup->comm->rank)],
             .options = setup->options,
             .comm = setup->comm,
             .at = {.seed = (uint64_t)setup->options->seed}};
    bool good = run_all(&r);
    sn_executor_destroy(r.executor);
    sn_dataset_close(r.data);
    sn_dataset_close(r.eval_data);
    sn_device_destroy(r.device);
    sn_free(r.staging);
    sn_diags_free(&r.diags);
    sn_status_free(r.failed);
    return good ? 0 : 1;
}
