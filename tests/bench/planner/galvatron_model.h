// Galvatron's cost model (Miao et al., VLDB 2023; the 2025 sources) for one type of layer: seconds and MB of a layer
// and of the embedding with the head, by strategy, from its profiles of a model and of a node.
#pragma once
#include <stdbool.h>

enum { GALVATRON_DEGREES = 4, GALVATRON_SIZES = 11 }; // degrees 1, 2, 4, 8; messages of 1 MB to 1 GB

typedef struct galvatron_line { // value = slope x + offset
    double slope, offset;
} galvatron_line;

typedef struct galvatron_model {
    const char *folder;
    int layers, hidden, sequence, devices;
    galvatron_line layer_time, other_time;                           // ms forward by samples
    double parameters;                                               // MB of a layer
    double activation[GALVATRON_DEGREES], checkpoint;                // MB per sample
    double other_states[3][GALVATRON_DEGREES];                       // MB: without pipeline, first stage, last stage
    double other_activation[3][GALVATRON_DEGREES];                   // MB per sample
    double neighbour[GALVATRON_DEGREES], strided[GALVATRON_DEGREES]; // all-reduce GB/s
    double pipeline[GALVATRON_DEGREES];                              // point to point GB/s
    double reduce_time[GALVATRON_DEGREES][GALVATRON_SIZES], exchange_time[GALVATRON_DEGREES][GALVATRON_SIZES]; // ms
    double overlap; // slowdown of compute and communication beside each other
} galvatron_model;

galvatron_model galvatron_read(const char *folder, const char *model, int layers, int hidden, int sequence, int nodes,
                               int per_node);

// How a layer, or the embedding with the head, is spread over the devices of a stage.
typedef struct galvatron_strategy {
    int tensor, sequence; // one of them is 1
    bool sharded;         // ZeRO-3; else ZeRO-2, or nothing where there is one replica
    bool checkpoint;
} galvatron_strategy;

typedef struct galvatron_batch {
    int samples, chunks, stages;
} galvatron_batch;

int galvatron_replicas(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s);
// Seconds of a layer and a micro-batch, with or without the exchange of gradients.
double galvatron_layer_time(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s,
                            bool exchange);
double galvatron_layer_memory(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s,
                              int stage); // whole MB
// Of the embedding and the head, on one stage.
double galvatron_other_time(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s, int stage);
double galvatron_other_memory(const galvatron_model *m, const galvatron_batch *b, const galvatron_strategy *s,
                              int stage);
// Galvatron assumes that no stage between the first and the last is the longest, which holds for its even divisions;
// here each stage counts as its last one does: what comes before its first micro-batch, and its time for all of them.
// Seconds of a step from the stages' seconds without (`compute`) and with the exchange of gradients.
double galvatron_step_time(const galvatron_batch *b, const double *compute, const double *exchanged);
