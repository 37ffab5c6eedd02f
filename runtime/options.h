// Options of a run: what a train executable takes on its command line, and `sennit train` passes on. One table serves
// parsing, --help and completion.
#pragma once
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

// member, spelling, type, the runs that it concerns (ANY, TRAINING, or FORWARD: outputs on data), default, what the
// value is called, help. Types: TEXT (const char *, NULL when absent), COUNT (int64_t >= 0), INTEGER (int64_t), REAL
// (double), FLAG (bool), CHOICE (const char *, one of the words in the value's name).
#define SN_RUN_OPTIONS(X)                                                                                              \
    X(data, "data", TEXT, ANY, NULL, "DIR|FILE", "folder with one .npy per graph input, or a file of token ids")       \
    X(eval_data, "eval-data", TEXT, TRAINING, NULL, "DIR|FILE", "the same, for evaluations")                           \
    X(token_bytes, "token-bytes", COUNT, ANY, 2, "2|4", "size of a token id in a token file")                          \
    X(steps, "steps", COUNT, TRAINING, 0, "N", "steps to train, counted from the start of the training")               \
    X(seed, "seed", INTEGER, TRAINING, 0, "S", "of the data order and of dropout")                                     \
    X(no_shuffle, "no-shuffle", FLAG, TRAINING, false, "", "take the data in file order")                              \
    X(threads, "threads", COUNT, ANY, 0, "T", "threads per rank (0: cores / ranks)")                                   \
    X(lr, "lr", REAL, TRAINING, 0, "X", "learning rate (0: the one compiled in)")                                      \
    X(schedule, "schedule", CHOICE, TRAINING, "constant", "constant|cosine|linear",                                    \
      "of the learning rate after the warm-up")                                                                        \
    X(warmup, "warmup", COUNT, TRAINING, 0, "N", "steps over which the learning rate rises")                           \
    X(min_lr, "min-lr", REAL, TRAINING, 0, "X", "learning rate at the last step (cosine, linear)")                     \
    X(log, "log", TEXT, TRAINING, NULL, "FILE", "one JSON object a step")                                              \
    X(save_gradients, "save-gradients", TEXT, TRAINING, NULL, "STEP:FILE",                                             \
      "write all gradients of a step (1 is the first)")                                                                \
    X(eval_every, "eval-every", COUNT, TRAINING, 0, "N", "evaluate every N steps and at the end")                      \
    X(checkpoint, "checkpoint", TEXT, TRAINING, NULL, "DIR", "where checkpoints go; the last two are kept")            \
    X(checkpoint_every, "checkpoint-every", COUNT, TRAINING, 0, "N", "checkpoint every N steps and at the end")        \
    X(resume, "resume", TEXT, TRAINING, NULL, "DIR", "continue from the latest checkpoint there")                      \
    X(output, "predictions", TEXT, FORWARD, NULL, "FILE", "run forward only and write the outputs (safetensors)")      \
    X(timeout, "timeout", REAL, ANY, 20, "SECONDS",                                                                    \
      "end the run when a rank shows no sign of life for so long (0: never)")                                          \
    X(trace, "trace", TEXT, ANY, NULL, "FILE", "write what ran when (Chrome trace JSON, for ui.perfetto.dev)")         \
    X(profile, "profile", FLAG, ANY, false, "", "say at the end where the time went")                                  \
    X(quiet, "quiet", FLAG, ANY, false, "", "no progress line")

#define SN_RUN_TYPE_TEXT    const char *
#define SN_RUN_TYPE_CHOICE  const char *
#define SN_RUN_TYPE_COUNT   int64_t
#define SN_RUN_TYPE_INTEGER int64_t
#define SN_RUN_TYPE_REAL    double
#define SN_RUN_TYPE_FLAG    bool

typedef struct sn_run_options {
#define X(member, spelling, type, ...) SN_RUN_TYPE_##type member;
    SN_RUN_OPTIONS(X)
#undef X
} sn_run_options;

typedef struct sn_option {
    const char *spelling, *value, *help; // value: "" for a flag
} sn_option;
extern const sn_option sn_run_option_table[];
extern const size_t sn_run_option_count;

void sn_run_options_init(sn_run_options *options); // the defaults
// Sets one by its spelling, without dashes; `value` is kept, not copied (NULL for a flag). An unknown name, a missing
// or a malformed value is an error.
SN_MUST_USE sn_status sn_run_options_set(sn_run_options *options, const char *spelling, const char *value);
// "--name value" and "--name=value". Everything must be an option.
SN_MUST_USE sn_status sn_run_options_parse(sn_run_options *options, int argc, char **argv);
// How they fit together: a step for save-gradients, eval-every with data, and so on.
SN_MUST_USE sn_status sn_run_options_check(const sn_run_options *options);
// STEP:FILE; `options` passed the check and has it.
void sn_run_options_gradients(const sn_run_options *options, int64_t *step, const char **file);
void sn_run_options_help(sn_str *out); // one line an option
