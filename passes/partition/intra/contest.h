// Problems of the ASPLOS 2025 contest on intra-operator parallelism, in its JSON format, plain or gzip-compressed:
//
//   {"problem": {"name": text, "usage_limit": bytes,
//                "nodes": {"intervals": [[begin, end], …], "costs": [[…], …], "usages": [[…], …]},
//                "edges": {"nodes": [[a, b], …], "costs": [[row-major over strategies of a, b], …]}}}
//
// Node i is the network's node i with one memory term. The reader is our own: these files hold tens of millions of
// numbers, which a general JSON library turns into as many objects.
#pragma once
#include "base/diag.h"
#include "base/status.h"
#include "passes/partition/intra/network.h"

#include <stdbool.h>
#include <stddef.h>

// Adds the problem to `network`, which must be empty. False after E0490 (no JSON of this format, with the line) or
// E0491 (numbers that make no problem); the network is then empty. `subject` names the text in messages.
bool sn_contest_parse(const char *text, size_t bytes, const char *subject, sn_network *network, sn_diags *diags);
// The same of a file. A file that cannot be read or decompressed is E0492.
bool sn_contest_read(const char *path, sn_network *network, sn_diags *diags);
// The contest's list of strategy indices, one per node, written whole or not at all.
SN_MUST_USE sn_status sn_contest_write(const char *path, const int *choice, size_t count);
