// planner_peers PLANNER DATA... -o TABLE.md: runs the planner on every problem that a DATA folder has and that another
// planner has solved, compares the objectives, and writes the comparison as a table. The answers are
// DATA/peer_answers.json and the reference figures below. Exits 1 when an exact answer is not reproduced to its printed
// digits, or a heuristic one not reached; 77 when no folder has any problem.
#include "base/alloc.h"
#include "base/str.h"
#include "base/vec.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct row {
    char *problem, *command; // the arguments behind --format NAME
    const char *format;
    double peer; // its objective; NAN when it found no plan
    int digits;  // of it that are known
    bool exact;  // the peer's answer is an optimum
    double peer_seconds;
} row;

typedef struct total {
    const char *format;
    double seconds, megabytes; // over its optima
    int rows;
} total;

typedef struct comparison {
    const char *planner, *data;
    SN_VEC(total) totals;
    SN_VEC(row) rows;
    sn_str table;
    int failures, ran;
} comparison;

typedef struct outcome {
    double objective, lower_bound, seconds, megabytes;
    bool fine;
} outcome;

static char *printed(const char *format, ...) SN_PRINTF(1, 2);
static char *printed(const char *format, ...) {
    sn_str text = {0};
    va_list list;
    va_start(list, format);
    sn_str_vprintf(&text, format, list);
    va_end(list);
    return text.data;
}

static double number(const json_t *json, const char *key) {
    return json_number_value(json_object_get(json, key));
}
static const char *string(const json_t *json, const char *key) {
    return json_string_value(json_object_get(json, key));
}

static void add_piper(comparison *c, const json_t *answer) {
    const char *model = string(answer, "model"), *mode = string(answer, "mode");
    const char *file = strcmp(model, "bert") == 0 ? "bert32a100" : model;
    bool equal = strcmp(mode, "equi") == 0; // a baseline that gives each stage the same devices
    const char *flag = strcmp(mode, "nodp") == 0   ? " --no-data"
                       : strcmp(mode, "notp") == 0 ? " --no-tensor"
                       : strcmp(mode, "noar") == 0 ? " --no-recompute"
                                                   : "";
    double memory = number(answer, "memGiB"), layers = number(answer, "bert_layers"), tps = number(answer, "tps");
    char *command =
        printed("%s/piper/%s.json --devices %g --bandwidth %g --batch %g%s%s%s", c->data, file,
                number(answer, "maxDevices"), number(answer, "bandwidthGiB"), number(answer, "mbsInBatch"), flag,
                memory > 0 ? printed(" --memory %g", memory) : "", layers > 32 ? printed(" --layers %g", layers) : "");
    char *problem = printed("%s k=%g%s%s%s", layers > 0 ? printed("BERT-%g", layers) : model,
                            number(answer, "maxDevices"), memory > 0 ? printed(", %g GiB", memory) : "",
                            *flag ? printed(", %s", flag + 3) : "", equal ? ", equal stages" : "");
    sn_vec_push(&c->rows, (row){problem, command, "piper", tps < 0 ? NAN : tps, 9, !equal, number(answer, "cpu_s")});
}

static void add_dnn_partitioning(comparison *c, const json_t *answer) {
    const char *input = string(answer, "input"), *mode = string(answer, "mode");
    bool exact = strcmp(mode, "dp") == 0;
    const char *name = strchr(input, '_');
    if (!name || (!exact && strcmp(mode, "-linearize") != 0 && strcmp(mode, "-pipeDream") != 0)) return;
    char *command =
        printed("%s/dnn-partitioning/throughput-inputs/%.*s/%s.json", c->data, (int)(name - input), input, name + 1);
    char *problem = printed("%.*s %s%s", (int)(name - input), input, name + 1, exact ? "" : printed(", %s", mode + 1));
    sn_vec_push(&c->rows, (row){problem, command, "dnn-partitioning", number(answer, "max_load"), 6, exact,
                                number(answer, "cpu_s")});
}

static void add_pipedream(comparison *c, const json_t *answer) {
    static const char *const options[][2] = {
        {"n4_b1", "-n 4 -b 1e9"},
        {"n16_b1.25", "-n 16 -b 1.25e9"},
        {"n4x4", "-n 4 4 -b 12e9 1.25e9"},
        {"n4x4_act1", "-n 4 4 -b 12e9 1.25e9 --activation_compression_ratio 1"},
        {"n4x4_mem16", "-n 4 4 -b 12e9 1.25e9 --use_memory_constraint -s 16e9"},
        {"n8x8", "-n 8 8 -b 30e9 3.125e9"},
    };
    const char *model = string(answer, "model"), *configuration = string(answer, "config");
    for (size_t i = 0; i < sizeof options / sizeof *options; ++i) {
        if (strcmp(options[i][0], configuration) != 0) continue;
        char *command = printed("%s/pipedream/%s.graph.txt %s", c->data, model, options[i][1]);
        row r = {printed("%s %s", model, configuration),
                 command,
                 "pipedream",
                 number(answer, "stage_time_s"),
                 12,
                 true,
                 number(answer, "cpu_s")};
        sn_vec_push(&c->rows, r);
    }
}

static void add_answers(comparison *c) {
    json_t *answers = json_load_file(printed("%s/peer_answers.json", c->data), 0, NULL), *answer;
    size_t i;
    json_array_foreach(json_object_get(answers, "piper"), i, answer) add_piper(c, answer);
    json_array_foreach(json_object_get(answers, "dnn_partitioning"), i, answer) add_dnn_partitioning(c, answer);
    json_array_foreach(json_object_get(answers, "pipedream"), i, answer) add_pipedream(c, answer);
}

static void add_nnscaler(comparison *c) {
    char *file = printed("%s/nnscaler_style/chain7x3_10.json", c->data);
    json_t *chains = json_load_file(file, 0, NULL), *chain;
    size_t i;
    json_array_foreach(chains, i, chain) {
        double seed = number(chain, "seed");
        row exact = {printed("chain %g", seed),
                     printed("%s --seed %g", file, seed),
                     "nnscaler",
                     number(chain, "exact_time"),
                     12,
                     true,
                     0};
        row peer = exact;
        peer.problem = printed("chain %g, nnScaler's plan", seed);
        peer.peer = number(chain, "nnscaler_time");
        peer.exact = false;
        sn_vec_push(&c->rows, exact);
        sn_vec_push(&c->rows, peer);
    }
}

// What other planners reached, where their answers are no optima. Files are relative to the data folder.
static const struct {
    const char *format, *problem, *file, *options;
    double peer;
    int digits;
    double peer_seconds;
} references[] = {
    {"dnn-partitioning", "inceptionv3_inference, linearize",
     "dnn-partitioning/throughput-inputs/LayerGraphs/inceptionv3_inference.json", "", 51.5519, 6, 0.42},
    {"aceso", "GPT 1.3B 1x4, 12 GB", "aceso/profiled-time-miniset", "--size 1_3B --memory 12000 --global-batch 512",
     58.76, 4, 29},
    {"aceso", "GPT 1.3B 1x4", "aceso/profiled-time-eurosys", "--size 1_3B", 101.18, 5, 29},
    {"aceso", "GPT 2.6B 1x8", "aceso/profiled-time-eurosys", "--size 2_6B --gpus-per-node 8", 87.13, 4, 131},
    {"aceso", "GPT 6.7B 2x8", "aceso/profiled-time-eurosys", "--size 6_7B --gpus-per-node 8 --nodes 2", 87.32, 4, 91},
    {"aceso", "GPT 13B 4x8", "aceso/profiled-time-eurosys", "--size 13B --gpus-per-node 8 --nodes 4", 84.61, 4, 85},
    {"aceso", "W-ResNet 2B 1x4", "aceso/profiled-time-eurosys", "--model resnet --size 2B", 49.32, 4, 69},
    {"aceso", "GPT 350M 1x1, reference", "aceso/profiled-time-eurosys", "--size 350M --gpus-per-node 1", 200.71, 5, 0},
    {"aceso", "W-ResNet 500M 1x1, reference", "aceso/profiled-time-eurosys",
     "--model resnet --size 500M --gpus-per-node 1", 67.13, 4, 0},
    {"aceso", "W-ResNet 4B 1x8, reference", "aceso/profiled-time-eurosys", "--model resnet --size 4B --gpus-per-node 8",
     56.52, 4, 206},
    {"galvatron", "llama2-7b 36 GB, 16 in 1, even", "galvatron/main", "--memory 36 --global-batch 16 --chunks 1 --even",
     1.08605, 6, 37},
    {"galvatron", "llama2-7b 36 GB, 64 in 8, even", "galvatron/main", "--memory 36 --global-batch 64 --chunks 8 --even",
     4.55761, 6, 50},
    {"galvatron", "llama2-7b 24 GB, 64 in 8, even", "galvatron/main", "--memory 24 --global-batch 64 --chunks 8 --even",
     5.28900, 6, 26},
    {"galvatron", "llama2-7b 16 GB, 64 in 8, even", "galvatron/main", "--memory 16 --global-batch 64 --chunks 8 --even",
     6.40563, 6, 25},
    {"galvatron", "llama2-7b 12 GB, 64 in 8, even", "galvatron/main", "--memory 12 --global-batch 64 --chunks 8 --even",
     NAN, 6, 17},
    {"galvatron", "llama2-7b 36 GB, 64 in 8", "galvatron/main", "--memory 36 --global-batch 64 --chunks 8", 4.55761, 6,
     50},
    {"galvatron", "llama2-7b 24 GB, 64 in 8", "galvatron/main", "--memory 24 --global-batch 64 --chunks 8", 5.28900, 6,
     26},
    {"galvatron", "llama2-7b 16 GB, 64 in 8", "galvatron/main", "--memory 16 --global-batch 64 --chunks 8", 6.40563, 6,
     25},
};

static void add_references(comparison *c) {
    for (size_t i = 0; i < sizeof references / sizeof *references; ++i) {
        row r = {printed("%s", references[i].problem),
                 printed("%s/%s %s", c->data, references[i].file, references[i].options),
                 references[i].format,
                 references[i].peer,
                 references[i].digits,
                 false,
                 references[i].peer_seconds};
        sn_vec_push(&c->rows, r);
    }
}

static outcome run(const comparison *c, const row *r) {
    outcome result = {NAN, NAN, NAN, NAN, false};
    char *command = printed("%s --format %s %s", c->planner, r->format, r->command);
    FILE *pipe = popen(command, "r");
    char *line = NULL, *last = NULL;
    size_t room = 0;
    while (pipe && getline(&line, &room, pipe) >= 0) last = printed("%s", line);
    if (!pipe || pclose(pipe) != 0 || !last) return result;
    json_t *json = json_loads(last, 0, NULL);
    const json_t *objective = json_object_get(json, "objective");
    result.fine = objective != NULL;
    if (json_is_number(objective)) result.objective = json_number_value(objective);
    result.lower_bound = number(json, "lower_bound");
    result.seconds = number(json, "seconds");
    result.megabytes = number(json, "peak_mb");
    return result;
}

static bool agrees(const row *r, const outcome *o) {
    if (!o->fine) return false;
    if (isnan(r->peer)) return !r->exact || isnan(o->objective);
    // Half a unit of the last printed digit.
    double unit = pow(10, floor(log10(r->peer)) + 1 - r->digits),
           tolerance = fmax(0.5 * unit, 1e-9 * r->peer) * 1.000001;
    return r->exact ? fabs(o->objective - r->peer) <= tolerance : o->objective <= r->peer + tolerance;
}

static void append_number(sn_str *out, const char *format, double value) {
    char text[64];
    snprintf(text, sizeof text, format, value);
    sn_str_puts(out, isnan(value) ? "none" : text);
}

static void add_total(comparison *c, const row *r, const outcome *o) {
    size_t at = 0;
    while (at < c->totals.count && strcmp(c->totals.data[at].format, r->format) != 0) ++at;
    if (at == c->totals.count) sn_vec_push(&c->totals, (total){.format = r->format});
    total *t = &c->totals.data[at];
    t->seconds += r->exact && o->fine ? o->seconds : 0;
    if (r->exact && o->fine) t->megabytes = fmax(t->megabytes, o->megabytes);
    t->rows += r->exact;
}

static void compare(comparison *c, const row *r) {
    outcome o = run(c, r);
    add_total(c, r, &o);
    bool fine = agrees(r, &o);
    ++c->ran;
    c->failures += !fine;
    if (!fine)
        fprintf(stderr, "planner --format %s %s: %.12g, the peer has %.12g\n", r->format, r->command, o.objective,
                r->peer);
    sn_str_printf(&c->table, "| %s | %s | %s | ", r->format, r->problem, r->exact ? "optimum" : "heuristic");
    append_number(&c->table, "%.9g", r->peer);
    sn_str_puts(&c->table, " | ");
    append_number(&c->table, "%.9g", o.objective);
    sn_str_puts(&c->table, " | ");
    double gap = (o.objective - o.lower_bound) / o.objective;
    append_number(&c->table, "%.2g %%", gap < 1e-12 ? 0 : 100 * gap);
    sn_str_puts(&c->table, r->peer_seconds > 0 ? printed(" | %.2f", r->peer_seconds) : " | ");
    sn_str_printf(&c->table, " | %.3f | %.1f | %s |\n", o.seconds, o.megabytes, fine ? "yes" : "**no**");
}

static bool readable(const row *r) {
    char *path = printed("%.*s", (int)strcspn(r->command, " "), r->command);
    return access(path, R_OK) == 0;
}

static bool write_table(const comparison *c, const char *path) {
    char *temporary = printed("%s.new", path);
    FILE *out = fopen(temporary, "w");
    if (!out) return false;
    fprintf(out,
            "# The planner against other planners\n\n"
            "Objectives in each system's own unit, of plans evaluated from its files. An optimum must be reproduced to "
            "its\n"
            "printed digits, a heuristic answer reached. The gap is to the planner's own lower bound; seconds are of "
            "one core.\n\n"
            "| format | problem | the peer's answer is | peer | sennit | gap | peer's s | s | MB | holds |\n"
            "|---|---|---|---|---|---|---|---|---|---|\n%s",
            sn_str_text(&c->table));
    fprintf(out, "\n| format | optima | seconds in all | most MB |\n|---|---|---|---|\n");
    for (size_t i = 0; i < c->totals.count; ++i) {
        const total *t = &c->totals.data[i];
        if (t->rows > 0) fprintf(out, "| %s | %d | %.3f | %.1f |\n", t->format, t->rows, t->seconds, t->megabytes);
    }
    return fclose(out) == 0 && rename(temporary, path) == 0;
}

int main(int argc, char **argv) {
    comparison c = {.planner = argc > 1 ? argv[1] : ""};
    const char *output = NULL;
    for (int i = 2; i < argc; ++i) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc) {
            output = argv[++i];
            continue;
        }
        c.data = argv[i];
        c.rows.count = 0;
        add_answers(&c);
        add_nnscaler(&c);
        add_references(&c);
        int before = c.ran;
        for (size_t k = 0; k < c.rows.count; ++k) {
            if (readable(&c.rows.data[k])) compare(&c, &c.rows.data[k]);
        }
        if (c.ran == before) printf("%s: no problems there\n", c.data);
    }
    if (c.ran == 0) return 77;
    if (output && !write_table(&c, output)) return 1;
    printf("%d answers compared, %d not reached\n", c.ran, c.failures);
    return c.failures > 0;
}
