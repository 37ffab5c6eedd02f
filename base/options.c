#include "base/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Levenshtein's edit distance, cut off for words that are too long to be typos.
static size_t edit_distance(const char *a, const char *b) {
    enum { LIMIT = 128 }; // names of nodes, too
    size_t row[LIMIT + 1], n = strlen(a), m = strlen(b);
    if (n > LIMIT || m > LIMIT) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

void sn_suggest(sn_suggestion *suggestion, const char *word, const char *candidate) {
    size_t distance = edit_distance(word, candidate), limit = strlen(word) / 3 + 1;
    if (distance > limit || (suggestion->best && distance >= suggestion->distance)) return;
    suggestion->best = candidate;
    suggestion->distance = distance;
}

static const sn_option_spec *find(const sn_options *o, const char *name, size_t length) {
    for (size_t i = 0; i < o->n_specs; i++) {
        const sn_option_spec *spec = &o->specs[i];
        if (!(spec->commands & o->command)) continue;
        if (strlen(spec->name) == length && memcmp(spec->name, name, length) == 0) return spec;
    }
    return NULL;
}

static const sn_option_spec *find_letter(const sn_options *o, char letter) {
    for (size_t i = 0; i < o->n_specs; i++) {
        const sn_option_spec *spec = &o->specs[i];
        if ((spec->commands & o->command) && spec->letter == letter) return spec;
    }
    return NULL;
}

static bool refuse(const sn_options *o, FILE *err, const char *format, ...) SN_PRINTF(3, 4);
static bool refuse(const sn_options *o, FILE *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(err, "%s: ", o->program);
    vfprintf(err, format, args);
    fprintf(err, "\n  help: `%s --help` lists what it takes\n", o->program);
    va_end(args);
    return false;
}

static bool refuse_unknown(const sn_options *o, FILE *err, const char *name, size_t length) {
    sn_str word = {0};
    sn_str_append(&word, name, length);
    sn_suggestion close = {0};
    for (size_t i = 0; i < o->n_specs; i++)
        if (o->specs[i].commands & o->command) sn_suggest(&close, sn_str_text(&word), o->specs[i].name);
    if (close.best)
        refuse(o, err, "unknown option --%s; did you mean --%s?", sn_str_text(&word), close.best);
    else
        refuse(o, err, "unknown option --%s", sn_str_text(&word));
    sn_str_free(&word);
    return false;
}

static bool is_choice(const char *choices, const char *text) {
    size_t length = strlen(text);
    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (length && strncmp(at, text, length) == 0 && (at[length] == '|' || !at[length])) return true;
    return false;
}

static bool parse_int(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno) return false;
    *out = value;
    return true;
}

static bool parse_number(const char *text, double *out) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value)) return false;
    *out = value;
    return true;
}

static bool check_value(const sn_options *o, FILE *err, const sn_option_spec *spec, const char *text) {
    int64_t whole;
    double number;
    switch (spec->type) {
    case SN_OPTION_COUNT:
        if (parse_int(text, &whole) && whole >= 1) return true;
        return refuse(o, err, "--%s takes a whole number from 1 on, not '%s'", spec->name, text);
    case SN_OPTION_SIZE:
        if (parse_int(text, &whole) && whole >= 1 && whole <= SN_OPTION_LARGEST_SIZE) return true;
        return refuse(o, err, "--%s takes a whole number from 1 to %d, not '%s'", spec->name, SN_OPTION_LARGEST_SIZE,
                      text);
    case SN_OPTION_NATURAL:
        if (parse_int(text, &whole) && whole >= 0) return true;
        return refuse(o, err, "--%s takes a whole number from 0 on, not '%s'", spec->name, text);
    case SN_OPTION_INT:
        if (parse_int(text, &whole)) return true;
        return refuse(o, err, "--%s takes a whole number, not '%s'", spec->name, text);
    case SN_OPTION_NUMBER:
        if (parse_number(text, &number)) return true;
        return refuse(o, err, "--%s takes a number, not '%s'", spec->name, text);
    case SN_OPTION_CHOICE:
        if (is_choice(spec->value, text)) return true;
        return refuse(o, err, "--%s is one of %s, not '%s'", spec->name, spec->value, text);
    default:
        return true;
    }
}

static void give(sn_options *o, const sn_option_spec *spec, const char *text) {
    struct sn_option_given given = {spec, text};
    sn_vec_push(&o->given, given);
}

// One option at argv[*at], which starts with a dash; moves *at to the last word it used.
static bool parse_option(sn_options *o, int argc, char **argv, int *at, FILE *err) {
    const char *word = argv[*at], *value = NULL;
    const sn_option_spec *spec;
    if (word[1] == '-') {
        const char *name = word + 2;
        size_t length = strcspn(name, "=");
        spec = find(o, name, length);
        if (!spec) return refuse_unknown(o, err, name, length);
        if (name[length]) value = name + length + 1;
    } else {
        spec = find_letter(o, word[1]);
        if (!spec) return refuse(o, err, "unknown option -%c", word[1]);
        if (word[2]) value = word + 2;
    }
    if (spec->type == SN_OPTION_FLAG) {
        if (value) return refuse(o, err, "--%s takes no value", spec->name);
        give(o, spec, "");
        return true;
    }
    if (!value) {
        if (*at + 1 >= argc) return refuse(o, err, "--%s needs a value: %s", spec->name, spec->value);
        value = argv[++*at];
    }
    if (!check_value(o, err, spec, value)) return false;
    give(o, spec, value);
    return true;
}

bool sn_options_parse(sn_options *o, int argc, char **argv, FILE *err) {
    bool only_arguments = false;
    for (int i = 1; i < argc; i++) {
        if (only_arguments || argv[i][0] != '-' || !argv[i][1]) {
            sn_vec_push(&o->arguments, argv[i]);
        } else if (strcmp(argv[i], "--") == 0) {
            only_arguments = true;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            o->help = true;
            return true;
        } else if (!parse_option(o, argc, argv, &i, err)) {
            return false;
        }
    }
    if ((int)o->arguments.count < o->min_arguments) return refuse(o, err, "expected %s", o->usage);
    if ((int)o->arguments.count > o->max_arguments)
        return refuse(o, err, "unexpected argument '%s'", o->arguments.data[o->max_arguments]);
    return true;
}

void sn_options_free(sn_options *o) {
    sn_vec_free(&o->arguments);
    sn_vec_free(&o->given);
}

// What printf's padding has to be told for `text` to fill `columns`: it counts the bytes of UTF-8, not characters.
static int padding_for(const char *text, int columns) {
    for (; *text; text++)
        if (((unsigned char)*text & 0xc0) == 0x80) columns++;
    return columns;
}

void sn_options_print_help(const sn_options *o, FILE *out) {
    fprintf(out, "%s %s%s[options]\n  %s\n", o->program, o->usage, o->usage[0] ? " " : "", o->summary);
    for (size_t i = 0; i < o->n_specs; i++) {
        const sn_option_spec *spec = &o->specs[i];
        if (!(spec->commands & o->command)) continue;
        sn_str line = {0};
        if (spec->letter) sn_str_printf(&line, "-%c, ", spec->letter);
        sn_str_printf(&line, "--%s", spec->name);
        if (spec->value && spec->value[0]) sn_str_printf(&line, " %s", spec->value);
        int padding = padding_for(sn_str_text(&line), 30);
        if ((int)line.length > padding)
            fprintf(out, "  %s\n  %-30s  %s\n", sn_str_text(&line), "", spec->help);
        else
            fprintf(out, "  %-*s  %s\n", padding, sn_str_text(&line), spec->help);
        sn_str_free(&line);
    }
}

// Commands share code that asks for options which only some of them take.
static const sn_option_spec *known(const sn_options *o, const char *name) {
    for (size_t i = 0; i < o->n_specs; i++)
        if (strcmp(o->specs[i].name, name) == 0) return &o->specs[i];
    SN_BUG("there is no option --%s in the table", name);
}

const char *sn_options_text(const sn_options *o, const char *name, const char *otherwise) {
    (void)known(o, name);
    for (size_t i = o->given.count; i-- > 0;)
        if (strcmp(o->given.data[i].spec->name, name) == 0) return o->given.data[i].text;
    return otherwise;
}

bool sn_options_has(const sn_options *o, const char *name) {
    return sn_options_text(o, name, NULL) != NULL;
}

int64_t sn_options_int(const sn_options *o, const char *name, int64_t otherwise) {
    const char *text = sn_options_text(o, name, NULL);
    int64_t value = otherwise;
    if (text) SN_CHECK(parse_int(text, &value));
    return value;
}

double sn_options_number(const sn_options *o, const char *name, double otherwise) {
    const char *text = sn_options_text(o, name, NULL);
    double value = otherwise;
    if (text) SN_CHECK(parse_number(text, &value));
    return value;
}

const char *sn_options_item(const sn_options *o, const char *name, size_t index) {
    (void)known(o, name);
    for (size_t i = 0; i < o->given.count; i++)
        if (strcmp(o->given.data[i].spec->name, name) == 0 && index-- == 0) return o->given.data[i].text;
    return NULL;
}
