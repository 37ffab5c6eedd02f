// The time that passes, for measuring.
#pragma once

double sn_seconds(void);     // monotonic, from some moment
double sn_cpu_seconds(void); // that a processor worked for the calling thread
