#include "galvatron_model.h"

#include "format.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int degree_index(int degree) {
    return degree == 1 ? 0 : degree == 2 ? 1 : degree == 4 ? 2 : 3;
}

// Least squares.
static galvatron_line fit(int count, const double *x, const double *y) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < count; ++i) {
        sx += x[i];
        sy += y[i];
    }
    for (int i = 0; i < count; ++i) {
        sxx += (x[i] - sx / count) * (x[i] - sx / count);
        sxy += (x[i] - sx / count) * (y[i] - sy / count);
    }
    double slope = sxx > 0 ? sxy / sxx : 0;
    return (galvatron_line){slope, (sy - slope * sx) / count};
}

static double at_line(const galvatron_line *l, double x) {
    return l->slope * x + l->offset;
}

// Keys "<prefix>bsz<samples>_seq<sequence>": ms of a sample; the line is of the whole batch.
static galvatron_line fit_times(const json_t *times, const char *prefix, int sequence) {
    double x[256], y[256];
    int count = 0;
    for (int samples = 1; samples < 256; ++samples) {
        char key[128];
        snprintf(key, sizeof key, "%sbsz%d_seq%d", prefix, samples, sequence);
        const json_t *value = json_object_get(times, key);
        if (!value) continue;
        x[count] = samples;
        y[count++] = json_number_value(value) * samples;
    }
    return count > 0 ? fit(count, x, y) : (galvatron_line){NAN, NAN};
}

static void read_degrees(const json_t *object, double *out) {
    for (int i = 0; i < GALVATRON_DEGREES; ++i) {
        char key[8];
        snprintf(key, sizeof key, "%d", 1 << i);
        const json_t *value = json_object_get(object, key);
        out[i] = value ? json_number_value(value) : NAN;
    }
}

static json_t *read_file(const char *folder, const char *format, ...) SN_PRINTF(2, 3);
static json_t *read_file(const char *folder, const char *format, ...) {
    sn_str path = {0};
    va_list list;
    sn_str_printf(&path, "%s/", folder);
    va_start(list, format);
    sn_str_vprintf(&path, format, list);
    va_end(list);
    json_t *json = read_json(path.data);
    sn_str_free(&path);
    return json;
}

static void read_memory(galvatron_model *m, const json_t *memory) {
    static const char *const others[3] = {"other_memory_pp_off_sp", "other_memory_pp_on_first_sp",
                                          "other_memory_pp_on_last_sp"};
    char sequence[16];
    snprintf(sequence, sizeof sequence, "%d", m->sequence);
    const json_t *layer = json_object_get(json_object_get(memory, "layertype_0_sp"), sequence);
    const json_t *kept = json_object_get(layer, "tp_activation_per_bsz_dict");
    if (!kept) bad_file(m->folder, "no memory profile for sequences of %d", m->sequence);
    m->parameters = json_number_at(layer, "parameter_size");
    m->checkpoint = json_number_at(kept, "checkpoint");
    read_degrees(kept, m->activation);
    for (int i = 0; i < 3; ++i) {
        const json_t *other = json_object_get(json_object_get(memory, others[i]), sequence);
        read_degrees(json_object_get(other, "model_states"), m->other_states[i]);
        read_degrees(json_object_get(other, "activation"), m->other_activation[i]);
    }
}

static void read_hardware(galvatron_model *m, int nodes, int per_node) {
    json_t *reduce =
        read_file(m->folder, "profile_hardware/hardware_configs/allreduce_bandwidth_%dnodes_%dgpus_per_node.json",
                  nodes, per_node);
    json_t *pipeline = read_file(
        m->folder, "profile_hardware/hardware_configs/p2p_bandwidth_%dnodes_%dgpus_per_node.json", nodes, per_node);
    json_t *messages =
        read_file(m->folder, "profile_hardware/hardware_configs/sp_time_%dnodes_%dgpus_per_node.json", nodes, per_node);
    json_t *overlap = read_file(m->folder, "profile_hardware/hardware_configs/overlap_coefficient.json");
    for (int i = 0; i < GALVATRON_DEGREES; ++i) {
        char key[64];
        snprintf(key, sizeof key, "allreduce_size_%d_consec_1", 1 << i);
        m->neighbour[i] = i == 0 ? INFINITY : json_number_at(reduce, key);
        snprintf(key, sizeof key, "allreduce_size_%d_consec_0", 1 << i);
        m->strided[i] = json_object_get(reduce, key) ? json_number_at(reduce, key) : m->neighbour[i];
        snprintf(key, sizeof key, "pp_size_%d", 1 << i);
        m->pipeline[i] = json_number_at(pipeline, key);
        for (int size = 0; size < GALVATRON_SIZES && i > 0; ++size) {
            snprintf(key, sizeof key, "allreduce_size_%d_%dMB_time", 1 << i, 1 << size);
            m->reduce_time[i][size] = json_number_at(messages, key);
            snprintf(key, sizeof key, "all2all_size_%d_%dMB_time", 1 << i, 1 << size);
            m->exchange_time[i][size] = json_number_at(messages, key);
        }
    }
    m->overlap = json_number_at(overlap, "overlap_coe");
    json_decref(reduce);
    json_decref(pipeline);
    json_decref(messages);
    json_decref(overlap);
}

galvatron_model galvatron_read(const char *folder, const char *model, int layers, int hidden, int sequence, int nodes,
                               int per_node) {
    galvatron_model m = {
        .folder = folder, .layers = layers, .hidden = hidden, .sequence = sequence, .devices = nodes * per_node};
    json_t *times = read_file(folder, "models/gpt/configs/computation_profiling_bf16_%s_all.json", model);
    json_t *memory = read_file(folder, "models/gpt/configs/memory_profiling_bf16_%s_all.json", model);
    m.layer_time = fit_times(times, "layertype_0_", sequence);
    m.other_time = fit_times(times, "layertype_other_", sequence);
    if (isnan(m.layer_time.slope) || isnan(m.other_time.slope))
        bad_file(folder, "no times for sequences of %d", sequence);
    read_memory(&m, memory);
    read_hardware(&m, nodes, per_node);
    json_decref(times);
    json_decref(memory);
    return m;
}

int galvatron_replicas(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s) {
    return m->devices / b->stages / s->tensor / s->sequence;
}

static int samples_of(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s) {
    return b->samples / b->chunks / galvatron_replicas(m, b, s);
}

// Devices that share the states: replicas and, with sequence parallelism, its group.
static int sharers(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s) {
    return galvatron_replicas(m, b, s) * s->sequence;
}

// ms of a message: measured, or on the line through what was.
static double message_time(const double *times, double megabytes) {
    double x[GALVATRON_SIZES];
    for (int i = 0; i < GALVATRON_SIZES; ++i) {
        x[i] = 1 << i;
        if (x[i] == megabytes) return times[i];
    }
    galvatron_line line = fit(GALVATRON_SIZES, x, times);
    return at_line(&line, megabytes);
}

static double hidden_states(const galvatron_model *m, int samples) { // MB in 16 bits
    return (double)samples * m->sequence * m->hidden * 2 / 1024 / 1024;
}

// An all-gather takes half an all-reduce.
static double tensor_time(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s) {
    double megabytes = hidden_states(m, samples_of(m, b, s)), again = s->checkpoint ? 1.5 : 1;
    if (s->tensor > 1) return 6 * again * message_time(m->reduce_time[degree_index(s->tensor)], megabytes) / 2;
    if (s->sequence > 1) return 4 * again * message_time(m->exchange_time[degree_index(s->sequence)], megabytes);
    return 0;
}

static double ms_per_megabyte(const galvatron_model *m, int tensor, int group) {
    return 1 / (tensor != 1 ? m->strided : m->neighbour)[degree_index(group)];
}

// The exchange of gradients beside the backward pass, both slowed by the overlap.
static double overlapped(double megabytes, double cost, double backward, double slowdown) {
    double exchange = megabytes * cost * slowdown, compute = backward * slowdown;
    if (exchange > compute) return compute + (megabytes - compute / (cost * slowdown)) * cost;
    return exchange + (backward - exchange / slowdown);
}

double galvatron_layer_time(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s,
                            bool exchange) {
    int samples = samples_of(m, b, s), group = sharers(m, b, s);
    double forward = at_line(&m->layer_time, (double)samples / (s->tensor * s->sequence));
    double backward = forward * (s->checkpoint ? 3 : 2);
    double gradients = 2.0 * (group - 1) * (m->parameters / s->tensor / group) / 2; // MB in 16 bits
    double cost = ms_per_megabyte(m, s->tensor, group);
    double time = forward + tensor_time(m, b, s);
    time +=
        galvatron_replicas(m, b, s) > 1 ? overlapped(exchange ? gradients : 0, cost, backward, m->overlap) : backward;
    if (s->sharded) time += gradients * 0.5 * cost;
    if (b->stages > 1) {
        double sent = b->stages * 2.0 * hidden_states(m, samples);
        time += sent / m->pipeline[degree_index(b->stages)] / m->layers;
    }
    return time * 0.001;
}

// The share of the optimizer's states and the weights that a device keeps, with gradients reduced as they come.
static double kept_share(const galvatron_batch *b, bool sharded, int group) {
    double part = 1.0 / group + 0.003;
    if (b->chunks == 1) return sharded ? part : 7.0 / 8 * part + 1.0 / 8;
    return sharded ? 7.0 / 8 * part + 1.0 / 8 : 6.0 / 8 * part + 2.0 / 8;
}

static int held_chunks(const galvatron_batch *b, int stage) {
    return b->stages == 1 ? 1 : b->stages - stage;
}

double galvatron_layer_memory(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s,
                              int stage) {
    int samples = samples_of(m, b, s) * held_chunks(b, stage), shared = s->tensor * s->sequence;
    double states = 4 * m->parameters / s->tensor;
    if (galvatron_replicas(m, b, s) > 1) states *= kept_share(b, s->sharded, sharers(m, b, s));
    double activation = s->checkpoint ? m->checkpoint / shared : m->activation[degree_index(shared)];
    return ceil(states + activation * samples);
}

// 0: the only stage, 1: the first, 2: the last; -1: neither embedding nor head.
static int other_place(const galvatron_batch *b, int stage) {
    if (b->stages == 1) return 0;
    return stage == 0 ? 1 : stage == b->stages - 1 ? 2 : -1;
}

double galvatron_other_time(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s,
                            int stage) {
    int place = other_place(b, stage), samples = samples_of(m, b, s), group = sharers(m, b, s);
    if (place < 0) return 0;
    double forward = at_line(&m->other_time, (double)samples / (s->tensor * s->sequence)) / (place == 0 ? 1 : 2);
    double cost = ms_per_megabyte(m, s->tensor, group) * (group - 1) / group;
    double states = m->other_states[place][degree_index(s->tensor)] / 4 * 0.5;
    double gathered = s->sharded ? states * cost * 0.5 : 0; // before the forward and again before the backward pass
    double tensor =
        s->tensor > 1 ? message_time(m->reduce_time[degree_index(s->tensor)], hidden_states(m, samples)) / 2 : 0;
    double time = 0, compute[2] = {forward, 2 * forward};
    for (int i = 0; i < 2; ++i) {
        double slowed = compute[i] * m->overlap;
        time += slowed > gathered ? gathered + (slowed - gathered) / m->overlap : gathered;
    }
    return (time + tensor * (place == 0 ? 2 : 1)) * 0.001;
}

double galvatron_other_memory(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s,
                              int stage) {
    enum { CONTEXT = 1024 };
    int place = other_place(b, stage), shared = s->tensor * s->sequence;
    if (place < 0) return CONTEXT;
    double share = galvatron_replicas(m, b, s) > 1 ? kept_share(b, s->sharded, sharers(m, b, s)) : 1;
    double activation = m->other_activation[place][degree_index(shared)] * samples_of(m, b, s) * held_chunks(b, stage);
    return ceil(m->other_states[place][degree_index(s->tensor)] * share + activation + CONTEXT);
}

double galvatron_step_time(const galvatron_batch *b, const double *compute, const double *exchanged) {
    double sum = 0, unhidden = 0, longest = 0;
    for (int i = 0; i < b->stages; ++i) {
        sum += compute[i];
        longest = fmax(longest, sum + compute[i] * (b->chunks - 1));
        unhidden = fmax(unhidden, exchanged[i] - sum); // the stages before it have gone on by then
    }
    double behind = sum - compute[0];
    int fill = b->stages - 1 < b->chunks - 1 ? b->stages - 1 : b->chunks - 1;
    int steady = b->chunks + 1 > b->stages ? b->chunks + 1 - b->stages : 0;
    double first_bound = fmax(fill * compute[0], behind) + compute[0] * steady;
    return fmax(longest, first_bound) + unhidden;
}
