// The planning problems of other systems, read from their own files and solved with the project's planner. Each format
// reads a file, states the problem, and evaluates the plan it gets from the file alone, with none of the planner's
// arithmetic.
#pragma once
#include "base/str.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct arguments {
    int count;
    char **values;
    bool *used;
} arguments;

// The value behind an option, or the default. A malformed value ends the program with status 2.
double argument_number(arguments *a, const char *name, double otherwise);
// Likewise an integer from `least` to `most`, and a number above 0; the default may be anything.
int argument_count(arguments *a, const char *name, int least, int most, int otherwise);
double argument_positive(arguments *a, const char *name, double otherwise);
const char *argument_text(arguments *a, const char *name, const char *otherwise);
bool argument_flag(arguments *a, const char *name);
// The numbers behind an option, up to the next option; their count, 0 when the option is absent.
int argument_numbers(arguments *a, const char *name, double *out, int most);
// Ends the program with status 2 when an argument was not asked for: a format calls it before it searches.
void arguments_end(const arguments *a);

typedef struct answer {
    bool feasible;
    double objective;   // of the plan, evaluated from the file
    double planned;     // what the planner says of it
    double lower_bound; // what the planner says of every plan
    char *plan;         // for people; owned
    char *parts;        // "[a, b]": the objectives of a file with several instances, whose sum is `objective`; owned
} answer;

typedef struct format {
    const char *name, *help;
    void (*solve)(const char *file, arguments *a, answer *out);
} format;

extern const format format_piper, format_dnn_partitioning, format_pipedream, format_dapple, format_nnscaler,
    format_galvatron, format_aceso;

// Ends the program with status 1 and a message: the file is not what it should be.
_Noreturn void bad_file(const char *file, const char *format, ...) SN_PRINTF(2, 3);
json_t *read_json(const char *file);
double json_number_at(const json_t *object, const char *key); // 0 when absent
// An integer from `least` to `most`, or the program ends with status 1.
int json_count_at(const char *file, const json_t *object, const char *key, int least, int most);
