// Where a value stands in JSON text: jansson keeps no lines of what it parsed, and an error should have one.
#pragma once
#include <stddef.h>

// The line (from 1) of the value at `path`, as "nodes[1].memory", in valid JSON; 1 when there is none.
int sn_json_line(const char *text, size_t length, const char *path);
