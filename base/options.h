// Command lines: long options (--name VALUE, --name=VALUE), letters (-o VALUE) and positional arguments, checked
// against a table. The `sennit` command and the train executable share this; each has its table (tools/options.def,
// runtime/options.h).
#pragma once
#include "base/str.h"
#include "base/vec.h"

#include <stdint.h>
#include <stdio.h>

typedef enum sn_option_type {
    SN_OPTION_FLAG,    // no value
    SN_OPTION_TEXT,    // anything; the last one given counts
    SN_OPTION_LIST,    // anything; may be repeated
    SN_OPTION_COUNT,   // a whole number >= 1
    SN_OPTION_SIZE,    // a whole number from 1 to SN_OPTION_LARGEST_SIZE
    SN_OPTION_NATURAL, // a whole number >= 0
    SN_OPTION_INT,     // a whole number
    SN_OPTION_NUMBER,  // a finite decimal number
    SN_OPTION_CHOICE,  // one of the words of `value`, which are separated by |
} sn_option_type;

// Sizes are multiplied with each other; larger ones are slips of the keyboard, which would show as shapes that
// overflow.
enum { SN_OPTION_LARGEST_SIZE = 1 << 24 };

typedef struct sn_option_spec {
    const char *name; // without the dashes
    char letter;      // 0: none
    sn_option_type type;
    const char *value; // shown in the help: "N", "FILE"; NULL for a flag
    uint32_t commands; // bit set of the commands that take it; one bit per command
    const char *help;
} sn_option_spec;

typedef struct sn_options {
    const char *program; // "sennit train", in messages
    const char *usage;   // the positional arguments: "MODEL.onnx"
    const char *summary;
    const sn_option_spec *specs;
    size_t n_specs;
    uint32_t command; // one bit; options of other commands are unknown
    int min_arguments, max_arguments;
    bool help; // --help was given: the rest has not been checked
    SN_VEC(const char *) arguments;
    SN_VEC(struct sn_option_given {
        const sn_option_spec *spec;
        const char *text;
    })
    given;
} sn_options;

// Parses argv[1..]; the fields up to max_arguments are the caller's. Texts point into argv. False for a wrong command
// line, after one message on `err` that says the way out; the exit status is then 2.
bool sn_options_parse(sn_options *options, int argc, char **argv, FILE *err);
void sn_options_free(sn_options *options);
void sn_options_print_help(const sn_options *options, FILE *out);

// A name that is not in the table is a bug of the caller's; one that the command does not take was not given.
bool sn_options_has(const sn_options *options, const char *name);
const char *sn_options_text(const sn_options *options, const char *name, const char *otherwise);
int64_t sn_options_int(const sn_options *options, const char *name, int64_t otherwise);
double sn_options_number(const sn_options *options, const char *name, double otherwise);
// The i-th value of a repeated option; NULL past the last.
const char *sn_options_item(const sn_options *options, const char *name, size_t index);

// The candidate closest to `word` by edits, for "did you mean"; NULL when none is close.
typedef struct sn_suggestion {
    const char *best;
    size_t distance;
} sn_suggestion;
void sn_suggest(sn_suggestion *suggestion, const char *word, const char *candidate);
