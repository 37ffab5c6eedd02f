// Every sample model through the command, as a user trains it, against PyTorch: output, loss, every gradient, 20 steps.
// Writes the table BUILD/parity-compiled.md.
#include "reference.h"

#include "frontend/onnx.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

enum { MOST_WORDS = 40 };

typedef struct command {
    const char *words[MOST_WORDS];
    int n;
} command;

static void add(command *c, const char *word) {
    assert_true(c->n + 1 < MOST_WORDS);
    c->words[c->n++] = word;
}

static void add_option(command *c, const char *option, const char *value) {
    add(c, option);
    add(c, value);
}

// Runs the command; what it prints goes to `log`.
static bool run(command *c, const char *log) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    int code = posix_spawn(&child, c->words[0], &actions, NULL, (char **)c->words, environ), status = 0;
    posix_spawn_file_actions_destroy(&actions);
    if (code) fail_msg("%s: %s", c->words[0], strerror(code));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static command sennit(const char *verb, const reference *r, const char *name) {
    static char data[4096];
    snprintf(data, sizeof data, "%s/data", r->folder);
    command c = {0};
    add(&c, SENNIT_BINARY_DIR "/tools/sennit");
    add(&c, verb);
    add(&c, path_in(r->folder, name));
    add_option(&c, "--data", data);
    add_option(&c, "--batch", "4");
    return c;
}

static void stop(const char *what, const char *log) {
    sn_mapped_file file;
    must(sn_file_map(log, &file));
    fail_msg("%s failed: %.*s", what, (int)file.bytes, (const char *)file.data);
}

static const char *output_name(const char *path) {
    sn_diags diags = {0};
    sn_onnx_model *model = sn_onnx_open(path, &diags);
    if (!model) fail_msg("%s does not open", path);
    static char name[256];
    snprintf(name, sizeof name, "%s", sn_onnx_info_of(model)->outputs[0].name);
    sn_onnx_close(model);
    sn_diags_free(&diags);
    return name;
}

static const char *optimizer_text(const reference *r) {
    static char buffer[256];
    const json_t *o = json_object_get(r->json, "optimizer");
    snprintf(buffer, sizeof buffer, "adamw,lr=%.17g,beta1=%.17g,beta2=%.17g,eps=%.17g,weight_decay=%.17g",
             json_real_value(json_object_get(o, "lr")), json_real_value(json_object_get(o, "beta1")),
             json_real_value(json_object_get(o, "beta2")), json_real_value(json_object_get(o, "eps")),
             json_real_value(json_object_get(o, "weight_decay")));
    return buffer;
}

static char scratch[4096]; // a folder

static const char *in_scratch(const char *file) {
    return path_in(scratch, file);
}

static void train(const reference *r, const char *name, const json_t *file, const char *output) {
    command c = sennit("train", r, name);
    char gradients[4352];
    snprintf(gradients, sizeof gradients, "1:%s/gradients.safetensors", scratch);
    add(&c, "--no-shuffle");
    add_option(&c, "--steps", "20");
    const char *loss = loss_spec(r, file, output);
    if (loss) add_option(&c, "--loss", loss);
    if (padding_rule(r)) add_option(&c, "--padding-index", padding_rule(r));
    add_option(&c, "--optimizer", optimizer_text(r));
    add_option(&c, "--log", in_scratch("run.jsonl"));
    add_option(&c, "--save-gradients", gradients);
    remove(in_scratch("run.jsonl")); // runs append
    if (!run(&c, in_scratch("train.txt"))) stop("training", in_scratch("train.txt"));
}

// The losses of steps 1 to STEPS, in order.
static void read_losses(double *losses) {
    FILE *stream = fopen(in_scratch("run.jsonl"), "r");
    if (!stream) fail_msg("there is no log");
    int n = 0;
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, stream) > 0) {
        json_t *json = json_loads(line, 0, NULL);
        if (!json) fail_msg("not JSON: %s", line);
        if (json_object_get(json, "loss") && n < STEPS) {
            assert_int_equal(json_integer_value(json_object_get(json, "step")), n + 1);
            losses[n++] = json_number_value(json_object_get(json, "loss"));
        }
        json_decref(json);
    }
    free(line);
    fclose(stream);
    assert_int_equal(n, STEPS);
}

static double *find_gradient(void *user, const char *initializer, int64_t count) {
    const sn_tensor_entry *entry = sn_safetensors_find(user, initializer);
    if (!entry) return NULL;
    if (entry_count(entry) != count) fail_msg("%s has another size than its parameter", initializer);
    return load(entry);
}

// The first batch of what `sennit eval` says of all data.
static double output_error(const reference *r, const char *name, const json_t *file, const char *output) {
    command c = sennit("eval", r, name);
    add_option(&c, "--output", in_scratch("output.safetensors"));
    if (!run(&c, in_scratch("eval.txt"))) stop("eval", in_scratch("eval.txt"));
    sn_safetensors outputs;
    must(sn_safetensors_open(in_scratch("output.safetensors"), &outputs));
    const sn_tensor_entry *entry = sn_safetensors_find(&outputs, output);
    if (!entry) fail_msg("eval gives no %s", output);
    assert_int_equal(entry->shape.items[0], BATCH * STEPS);
    double *data = load(entry), error = compare_output(r, file, data, entry_count(entry) / STEPS);
    sn_free(data);
    sn_safetensors_close(&outputs);
    return error;
}

static int check(const reference *r, const char *model, const char *name, const json_t *file, FILE *table) {
    outcome out = {.output = -1, .curve = -1, .gradient = -1};
    const char *output = output_name(path_in(r->folder, name));
    double losses[STEPS];
    train(r, name, file, output);
    read_losses(losses);
    out.loss = relative(losses[0], wanted_loss(r, file, 0));
    bool folded = json_is_true(json_object_get(file, "batch_norm_folded")), one_each = false;
    if (!folded) {
        sn_safetensors gradients;
        must(sn_safetensors_open(in_scratch("gradients.safetensors"), &gradients));
        one_each = compare_gradients(r, file, find_gradient, &gradients, &out);
        sn_safetensors_close(&gradients);
    }
    bool in_training = strcmp(text(file, "mode"), "train") == 0; // eval is in inference mode
    if (!in_training && !json_is_true(json_object_get(file, "loss_in_graph")))
        out.output = output_error(r, name, file, output);
    describe(file, one_each, &out);
    for (int i = 0; i < STEPS && one_each; i++) {
        double error = relative(losses[i], wanted_loss(r, file, i));
        if (!(error <= out.curve)) out.curve = error;
    }
    return report(table, model, name, &out);
}

int main(int argc, char **argv) {
    snprintf(scratch, sizeof scratch, "%s/parity-XXXXXX", SENNIT_BINARY_DIR);
    if (!mkdtemp(scratch)) return 1;
    int status = run_models(argc, argv, "Relative errors against PyTorch, compiled",
                            SENNIT_BINARY_DIR "/parity-compiled.md", check);
    static const char *const files[] = {"run.jsonl", "gradients.safetensors", "output.safetensors", "train.txt",
                                        "eval.txt"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) remove(in_scratch(files[i]));
    rmdir(scratch);
    return status;
}
