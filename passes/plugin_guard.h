// Stands around every call into a plug-in, which C lets end the process as it likes: by a signal, or by exit(), even
// with status 0 and nothing said. In between, such an end is a mistake of the plug-in like others: E0832 with its file,
// and exit status 1.
#pragma once

// `path` is the plug-in's file, `doing` completes "while it": "loads". Both are read until sn_plugin_leave.
void sn_plugin_enter(const char *path, const char *doing);
void sn_plugin_leave(void);
