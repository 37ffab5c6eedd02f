// What `sennit profile` measured on a machine whose CPU runs the ranks. Written as JSON:
//
//   {"version": 1, "device": "cpu", "cores": 2, "issue": 2.1e-7, "run": 1.5e-6, "turn": 1e-3, "sharing": 0.95,
//    "step": {"2": 8e-5},                       by ranks
//    "gemms": [[64, 512, 128, 4.4e-5], …],      m, n, k, seconds; any order
//    "attentions": [[2.1e6, 1e-4], …],          flops, seconds
//    "streams": [[4096, 1.2e-6], …],            bytes read and written, seconds
//    "collectives": {"all_reduce": {"2": [[4, 2e-6], …]}},  by kind and ranks: bytes of the tensor, seconds of a rank
//    "messages": [[4, 1e-7, 2e-6, 1e-7], …],    bytes; seconds of the sender, on the way, of the receiver
//    "instructions": {"gemm 64x512x128": [4.4e-5, 4.9e-5], …}}
//
// The instructions are those of plans: alone, and with all cores busy; null: not known.
//
// Seconds are those of a core that the rank has for itself. Tables rise in their first column and are interpolated.
#pragma once
#include "base/arena.h"
#include "base/diag.h"
#include "base/map.h"
#include "ir/graph.h"

#include <jansson.h>

enum { SN_PROFILE_VERSION = 1 };

typedef struct sn_profile_table { // rows of `columns` numbers
    int columns;
    size_t rows;
    double *data;
} sn_profile_table;

typedef struct sn_message_cost {
    double send, receive; // seconds that the two sides are busy
    double flight;        // from the end of the send until it can be received
} sn_message_cost;

typedef struct sn_profile {
    double cores;        // that the ranks share
    double issue, run;   // seconds: of an instruction beside its work, of a run of a program
    double sharing;      // share of the cores' speed that is left while two processes take turns on each
    double turn;         // seconds until a process that waited gets a core while others keep all of them busy
    sn_map instructions; // signature (backend/simulate/signature.h) -> double [2]
    sn_profile_table gemms, attentions, streams, messages;
    const json_t *collectives, *step;
    json_t *json; // owned: what it was read from
} sn_profile;

// What is wrong is an error (E0414). Lists go to `arena`; free it with sn_profile_free.
bool sn_profile_load(const char *path, sn_arena *arena, sn_diags *diags, sn_profile *out);
void sn_profile_free(sn_profile *profile);

// Each is false where nothing comparable was measured.
bool sn_profile_instruction(const sn_profile *profile, const char *signature, bool crowded, double *seconds);
bool sn_profile_op(const sn_profile *profile, const sn_op *op, double flops, double bytes, double *seconds);
bool sn_profile_collective(const sn_profile *profile, sn_op_kind kind, int64_t ranks, double bytes, double *seconds);
bool sn_profile_message(const sn_profile *profile, double bytes, sn_message_cost *out);
// Seconds of a step of so many ranks that no program takes: reading data, agreeing, the log.
double sn_profile_step(const sn_profile *profile, int64_t ranks);
