#include "passes/plugin_guard.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { DEADLY_COUNT = sizeof deadly / sizeof *deadly };
static struct sigaction before[DEADLY_COUNT];
static const char *volatile running, *volatile doing_what; // NULL: no plug-in's code runs

// Diagnostics cannot be collected here, and after a crash only what is safe in a signal handler may be called.
static void say(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) _exit(1);
}

static void report(const char *what, const char *reason) {
    say("error[");
    say("E0832");
    say("]: the plug-in ");
    say(what);
    say(" while it ");
    say(doing_what);
    say(reason);
    say("\n  at: ");
    say(running);
    say("\n  help: report it to the plug-in's author\n");
    _exit(1);
}

static void on_exit_of_process(void) {
    if (running) report("ends the program", "");
}

static void on_signal(int number) {
    if (running) {
        static char reason[64] = ": ";
        const char *text = sigdescr_np(number);
        report("crashes", text ? strncat(reason, text, sizeof reason - sizeof ": ") : "");
    }
    for (int i = 0; i < DEADLY_COUNT; i++)
        if (deadly[i] == number) sigaction(number, &before[i], NULL); // what faulted does so again
}

static void install(void) {
    struct sigaction action = {.sa_handler = on_signal};
    for (int i = 0; i < DEADLY_COUNT; i++) sigaction(deadly[i], &action, &before[i]);
    atexit(on_exit_of_process);
    at_quick_exit(on_exit_of_process);
}

void sn_plugin_enter(const char *path, const char *doing) {
    static bool installed;
    if (!installed) install();
    installed = true;
    doing_what = doing;
    running = path;
}

void sn_plugin_leave(void) {
    running = NULL;
}
