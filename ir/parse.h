// Reads a module from its text (ir/print.h). Made for hostile input: every mistake is a diagnostic, and limits bound
// what a file can ask for.
#pragma once
#include "base/diag.h"
#include "ir/graph.h"

// `name` is what the text is called in diagnostics ("in.sir:3:7"). NULL after errors in `diags` (E0801 to E0803): the
// text does not follow the grammar, or states a module that sn_verify refuses. Constants from files have no data yet.
sn_module *sn_parse(const char *text, size_t length, const char *name, sn_diags *diags);
// The same for a file; its constants are mapped from the files that it names, relative to its folder or else to the
// working directory. The mappings last as long as the process.
sn_module *sn_parse_file(const char *path, sn_diags *diags);
