// Ranks on the mesh of a schedule: row-major, the last axis varies fastest. A group along the axes of a bit mask has
// the ranks that share the coordinates on all other axes.
#pragma once
#include "runtime/schedule.h"

int64_t sn_schedule_coordinate(const sn_schedule *schedule, int64_t rank, size_t axis);
int64_t sn_schedule_group_size(const sn_schedule *schedule, int64_t axes);
// The place of a rank in its group along `axes`, and the rank at a place.
int64_t sn_schedule_place(const sn_schedule *schedule, int64_t rank, int64_t axes);
int64_t sn_schedule_member(const sn_schedule *schedule, int64_t rank, int64_t axes, int64_t place);
// A number that the members of a group share, below ranks / group size.
int64_t sn_schedule_color(const sn_schedule *schedule, int64_t rank, int64_t axes);
// The rank at another coordinate of the pipeline axis.
int64_t sn_schedule_peer(const sn_schedule *schedule, int64_t rank, int64_t coordinate);
// The lowest rank of a class; the others follow where it has coordinate 0.
int64_t sn_schedule_first_rank(const sn_schedule *schedule, int64_t rank_class);
// "pp=1, dp=0"
void sn_schedule_describe_rank(const sn_schedule *schedule, int64_t rank, sn_str *out);
