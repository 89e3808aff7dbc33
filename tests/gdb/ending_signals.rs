//! The signal that ended a recorded program is in its snapshot.

use crate::support::gdb::{armsnap, run, session, text};
use crate::support::record::{build, record};

const PROGRAM: &str = r"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void *fault(void *unused) { *(volatile int *)8 = 1; return unused; }
int main(int argc, char **argv)
{
    pthread_t thread;
    switch (argv[1][0]) {
    case 'a': abort();
    case 'k': kill(getpid(), SIGTERM); break;
    case 'i': __asm__ volatile (UNDEFINED); break;
    case 'f': fault(0); break;
    case 't':
        pthread_create(&thread, 0, fault, 0);
        pthread_join(thread, 0);
    }
    return 0;
}
";

#[test]
fn the_signal_that_ended_a_recorded_program_is_shown() {
    for (architecture, set) in [("aarch64", "-march=armv8-a"), ("arm", "-marm")] {
        let undefined = r#"-DUNDEFINED=".inst 0xe7f000f0""#;
        let options = ["-static", "-pthread", set, undefined];
        let Some(guest) = build(architecture, "program.c", PROGRAM, &options) else {
            return;
        };
        for (how, name) in [
            ("a", "SIGABRT"),
            ("k", "SIGTERM"),
            ("i", "SIGILL"),
            ("f", "SIGSEGV"),
            ("t", "SIGSEGV"),
            ("e", ""),
        ] {
            let run_of = record(&guest, "recorded", &["--force"], &[how]);
            assert!(run_of.status.success(), "{run_of:?}");
            let snapshot = guest.directory.path().join("recorded");
            let told = text(&run(armsnap().arg("info").arg(&snapshot)));
            let told: Vec<&str> = told
                .lines()
                .filter_map(|line| line.trim().strip_prefix("stopped by "))
                .collect();
            let stop = session(&snapshot, &[], &["info program", "info threads"]);
            if name.is_empty() {
                assert!(told.is_empty(), "{told:?}");
                assert!(stop.contains("with signal SIGTRAP, "), "{stop}");
            } else {
                // Only the thread that the signal ended is named.
                let is_named = matches!(told[..], [one] if one.starts_with(name));
                assert!(is_named, "{architecture} {how}: {told:?}");
                let wanted = format!("stopped with signal {name}, ");
                assert!(stop.contains(&wanted), "{architecture} {how}: {stop}");
            }
        }
    }
}
