// Parts of report.html. Private to the report's files.
#pragma once
#include "backend/package/report.h"

// Width of drawings in their own units; the page scales them.
enum { SN_REPORT_WIDTH = 1000, SN_REPORT_LEFT = 90 };

void sn_report_escape(sn_str *out, const char *text);
// A time axis under a drawing: a line at y and labels from 0 to `seconds`.
void sn_report_axis(sn_str *out, double y, double seconds);
double sn_report_x(double at, double seconds); // of a time in a drawing

void sn_report_timeline(const sn_report *report, sn_str *out);
void sn_report_memory(const sn_report *report, sn_str *out);
void sn_report_communication(const sn_report *report, sn_str *out);
