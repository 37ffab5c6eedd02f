#include "runtime/options.h"

#include "base/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const sn_option sn_run_option_table[] = {
#define X(member, spelling, type, runs, initial, value, help) {spelling, value, help},
    SN_RUN_OPTIONS(X)
#undef X
};
const size_t sn_run_option_count = sizeof sn_run_option_table / sizeof *sn_run_option_table;

void sn_run_options_init(sn_run_options *options) {
    *options = (sn_run_options){
#define X(member, spelling, type, runs, initial, ...) .member = initial,
        SN_RUN_OPTIONS(X)
#undef X
    };
}

typedef sn_status (*parse_value)(const sn_option *option, const char *text, void *out);

static sn_status parse_TEXT(const sn_option *option, const char *text, void *out) {
    if (!*text) return sn_status_make("--%s: %s must not be empty", option->spelling, option->value);
    *(const char **)out = text;
    return SN_OK;
}

static sn_status parse_CHOICE(const sn_option *option, const char *text, void *out) {
    size_t length = strlen(text);
    for (const char *word = strchr(text, '|') ? NULL : option->value; word; word = strchr(word, '|')) {
        word += *word == '|';
        if (length && !strncmp(word, text, length) && (word[length] == '|' || !word[length])) {
            *(const char **)out = text;
            return SN_OK;
        }
    }
    return sn_status_make("--%s: '%s' is not one of %s", option->spelling, text, option->value);
}

static sn_status parse_INTEGER(const sn_option *option, const char *text, void *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end) return sn_status_make("--%s: '%s' is not an integer", option->spelling, text);
    *(int64_t *)out = value;
    return SN_OK;
}

static sn_status parse_COUNT(const sn_option *option, const char *text, void *out) {
    int64_t value;
    SN_TRY(parse_INTEGER(option, text, &value));
    if (value < 0) return sn_status_make("--%s: %s is negative", option->spelling, text);
    *(int64_t *)out = value;
    return SN_OK;
}

static sn_status parse_REAL(const sn_option *option, const char *text, void *out) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0) || value > 1e30)
        return sn_status_make("--%s: '%s' is not a number >= 0", option->spelling, text);
    *(double *)out = value;
    return SN_OK;
}

static sn_status parse_FLAG(const sn_option *option, const char *text, void *out) {
    if (text && strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return sn_status_make("--%s takes no value", option->spelling);
    *(bool *)out = !text || !strcmp(text, "true");
    return SN_OK;
}

static const struct {
    parse_value parse;
    size_t offset;
} members[] = {
#define X(member, spelling, type, ...) {parse_##type, offsetof(sn_run_options, member)},
    SN_RUN_OPTIONS(X)
#undef X
};

static size_t find(const char *spelling, size_t length) {
    size_t i = 0;
    while (i < sn_run_option_count &&
           (strncmp(sn_run_option_table[i].spelling, spelling, length) != 0 || sn_run_option_table[i].spelling[length]))
        i++;
    return i;
}

static sn_status refuse(const char *word) {
    sn_suggestion close = {0};
    for (size_t i = 0; i < sn_run_option_count; i++) sn_suggest(&close, word, sn_run_option_table[i].spelling);
    if (close.best) return sn_status_make("there is no option --%s; did you mean --%s?", word, close.best);
    return sn_status_make("there is no option --%s", word);
}

sn_status sn_run_options_set(sn_run_options *options, const char *spelling, const char *value) {
    size_t i = find(spelling, strlen(spelling));
    if (i == sn_run_option_count) return refuse(spelling);
    const sn_option *option = &sn_run_option_table[i];
    if (!value && members[i].parse != parse_FLAG)
        return sn_status_make("--%s wants %s", option->spelling, option->value);
    return members[i].parse(option, value, (char *)options + members[i].offset);
}

sn_status sn_run_options_parse(sn_run_options *options, int argc, char **argv) {
    for (int a = 0; a < argc; a++) {
        const char *name = argv[a] + 2, *equals = strchr(argv[a], '=');
        if (strncmp(argv[a], "--", 2) != 0) return sn_status_make("'%s' is not an option", argv[a]);
        size_t i = find(name, equals ? (size_t)(equals - name) : strlen(name));
        if (i == sn_run_option_count) return refuse(name);
        const char *value = equals ? equals + 1 : NULL;
        if (!value && members[i].parse != parse_FLAG && a + 1 < argc) value = argv[++a];
        SN_TRY(sn_run_options_set(options, sn_run_option_table[i].spelling, value));
    }
    return SN_OK;
}

enum { MOST_THREADS = 4096 }; // of a rank: more than any machine has cores for

sn_status sn_run_options_check(const sn_run_options *options) {
    if (!options->data) return sn_status_make("--data is missing: a folder with one .npy per input, or a token file");
    if (!options->steps && !options->output) return sn_status_make("--steps is missing: the steps to train, 1 or more");
    if (options->token_bytes != 2 && options->token_bytes != 4) return sn_status_make("--token-bytes is 2 or 4");
    if (options->threads > MOST_THREADS) return sn_status_make("--threads is at most %d", MOST_THREADS);
    if (options->eval_every && !options->eval_data) return sn_status_make("--eval-every needs --eval-data");
    if (options->lr > 0 && options->min_lr > options->lr)
        return sn_status_make("--min-lr %g is above --lr %g: the rate falls from --lr to --min-lr", options->min_lr,
                              options->lr);
    if (options->checkpoint_every && !options->checkpoint)
        return sn_status_make("--checkpoint-every needs --checkpoint DIR");
    if (options->save_gradients) {
        char *end;
        errno = 0;
        long long step = strtoll(options->save_gradients, &end, 10);
        if (errno || end == options->save_gradients || *end != ':' || !end[1] || step < 1 || step > options->steps)
            return sn_status_make("--save-gradients wants STEP:FILE with a step from 1 to --steps");
    }
    return SN_OK;
}

void sn_run_options_gradients(const sn_run_options *options, int64_t *step, const char **file) {
    char *end;
    *step = strtoll(options->save_gradients, &end, 10);
    *file = end + 1;
}

void sn_run_options_help(sn_str *out) {
    for (size_t i = 0; i < sn_run_option_count; i++) {
        const sn_option *option = &sn_run_option_table[i];
        int width = (int)(strlen(option->spelling) + strlen(option->value));
        sn_str_printf(out, "  --%s %s%*s%s\n", option->spelling, option->value, width < 32 ? 32 - width : 1, "",
                      option->help);
    }
}
