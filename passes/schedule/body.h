// Kernel ops from groups: a body function per group, shared by groups that compute the same.
#pragma once
#include "passes/pass.h"
#include "passes/schedule/group.h"

typedef struct sn_bodies {
    sn_module *module;
    const sn_grouping *grouping;
    sn_map by_text;     // what a body computes, as text -> its function
    sn_value **copy_of; // by op mark: the first result's copy in body number made_in
    int *made_in;
    int n_made;
} sn_bodies;

// The value that a member's result may be written over, or NULL.
typedef sn_value *(*sn_tie)(void *user, const sn_unit *unit, const sn_value *result);

// Replaces the members of the unit by one kernel op before `before`; NULL when nobody reads them. Ops that consumers
// compute again, and the members, stay where they are, without readers outside the unit.
sn_op *sn_body_make_kernel(sn_bodies *bodies, sn_unit *unit, sn_op *before, const sn_origin *origin, sn_tie tie,
                           void *user);
