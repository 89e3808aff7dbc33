//! `armsnap record` stops a Linux program at the system call that exits it, in every way to exit,
//! and does not affect its child processes.

use crate::support::record::{Guest, build, decoded, logged, places, record};
use armsnap::encode::CodeAddress;
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::{Device, Snapshot};
use std::process::{Command, Output, Stdio};

/// As A32 and as T32 code, which cannot be distinguished without symbols.
const KINDS: [(&str, &[&str]); 3] = [
    ("aarch64", &["-static", "-s"]),
    ("arm", &["-static", "-s", "-marm"]),
    ("arm", &["-static", "-s", "-mthumb"]),
];

fn plain(guest: &Guest) -> Output {
    Command::new(guest.emulator())
        .arg(&guest.program)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stderr(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

/// Records a program: its output is the same as without recording, and the trace equals the witness.
/// Returns the messages.
fn recorded(guest: &Guest, name: &str, status: u32) -> String {
    let witness = guest.directory.path().join(format!("{name}.witness"));
    let options = ["--witness", witness.to_str().unwrap()];
    let run = record(guest, name, &options, &[]);
    let said = stderr(&run);
    assert!(run.status.success(), "{name}: {said}");
    let wanted = format!("stopped about to exit with status {status}, ");
    assert!(said.contains(&wanted), "{name}: {said}");
    assert_eq!(run.stdout, plain(guest).stdout, "{name}");
    let mut executed: Vec<_> = places(&witness).into_values().map(addresses).collect();
    let directory = guest.directory.path().join(name);
    let mut decoded: Vec<_> = decoded(&directory).into_values().map(addresses).collect();
    // The thread that ended it is the first core of the snapshot.
    executed.sort();
    decoded.sort();
    assert!(decoded == executed, "{name}");
    said
}

fn addresses(places: Vec<CodeAddress>) -> Vec<u64> {
    places.iter().map(|place| place.address.0).collect()
}

/// The name of a snapshot's directory.
fn name(number: usize, more: &str) -> String {
    format!("out{number}{more}")
}

#[test]
fn a_stripped_program_that_exits() {
    const SOURCE: &str = r#"
        #include <stdio.h>
        int main(int argc, char **argv) { printf("hello %d\n", argc); return 5; }
    "#;
    for (number, (architecture, options)) in KINDS.iter().enumerate() {
        let Some(guest) = build(architecture, "hello.c", SOURCE, options) else {
            return;
        };
        let name = name(number, "");
        recorded(&guest, &name, 5);
        // All logged instructions except the call that ends it.
        let executed = logged(&guest);
        let witness = guest.directory.path().join(format!("{name}.witness"));
        let told = addresses(places(&witness).remove(&0).unwrap());
        // The startup code of the C library depends on the addresses of the environment.
        let tail = |all: &[u64]| all[all.len() - 500..].to_vec();
        assert_eq!(tail(&told), tail(&executed[..executed.len() - 1]), "{name}");
    }
}

/// Signals that are blocked, and the system call that ends a thread.
#[test]
fn other_ways_to_exit() {
    const SOURCE: &str = r#"
        #include <signal.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int main(void)
        {
            sigset_t all;
            sigfillset(&all);
        #ifdef BLOCKED
            sigprocmask(SIG_BLOCK, &all, 0);
        #endif
            signal(SIGSEGV, SIG_IGN);
            write(1, "bye\n", 4);
            syscall(HOW, 6);
            abort();
        }
    "#;
    for (number, (architecture, options)) in KINDS.iter().enumerate().step_by(2) {
        for how in ["-DHOW=SYS_exit", "-DHOW=SYS_exit_group"] {
            for (blocked, more) in [("-DBLOCKED", "b"), ("-DOPEN", "o")] {
                let mut all = options.to_vec();
                all.extend([how, blocked]);
                let Some(guest) = build(architecture, "exits.c", SOURCE, &all) else {
                    return;
                };
                recorded(&guest, &name(number, more), 6);
            }
        }
    }
}

#[test]
fn threads_of_a_stripped_program() {
    const SOURCE: &str = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static int sum;
        static void *work(void *of)
        {
            for (int i = 0; i < 1000; i++) {
                pthread_mutex_lock(&lock);
                sum += i;
                pthread_mutex_unlock(&lock);
            }
            return of;
        }
        static void *wait_for_ever(void *of) { for (;;) pause(); return of; }
        int main(void)
        {
            pthread_t threads[4], other;
            for (int i = 0; i < 4; i++)
                pthread_create(&threads[i], 0, work, 0);
            for (int i = 0; i < 4; i++)
                pthread_join(threads[i], 0);
            pthread_create(&other, 0, wait_for_ever, 0);
            usleep(100000);
            printf("%d\n", sum);
            return 9;
        }
    "#;
    for (number, (architecture, options)) in KINDS.iter().enumerate() {
        let mut all = options.to_vec();
        all.push("-pthread");
        let Some(guest) = build(architecture, "threads.c", SOURCE, &all) else {
            return;
        };
        recorded(&guest, &name(number, ""), 9);
        let directory = guest.directory.path().join(name(number, ""));
        let loaded = Snapshot::open(&directory, &OpenOptions::default()).unwrap();
        // The thread that waits in a system call has all its registers.
        let full = |core: &&Device| core.registers.len() > 15;
        assert_eq!(loaded.snapshot.devices.iter().filter(full).count(), 2);
    }
}

/// A thread that computes while another exits is traced up to the exit, where it waits for its turn.
#[test]
fn a_thread_that_runs_while_another_exits() {
    const SOURCE: &str = r#"
        #include <pthread.h>
        #include <sched.h>
        #include <unistd.h>
        static volatile unsigned count;
        static void *work(void *of) { for (;;) { count++; sched_yield(); } return of; }
        int main(void)
        {
            pthread_t other;
            pthread_create(&other, 0, work, 0);
            while (count < 100)
                sched_yield();
            _exit(4);
        }
    "#;
    for (number, (architecture, options)) in KINDS.iter().enumerate() {
        let mut all = options.to_vec();
        all.push("-pthread");
        let Some(guest) = build(architecture, "runs.c", SOURCE, &all) else {
            return;
        };
        let said = recorded(&guest, &name(number, ""), 4);
        assert!(!said.contains("was running"), "{said}");
        let directory = guest.directory.path().join(name(number, ""));
        let loaded = Snapshot::open(&directory, &OpenOptions::default()).unwrap();
        let full = |core: &&Device| core.registers.len() > 15;
        assert_eq!(loaded.snapshot.devices.iter().filter(full).count(), 2);
    }
}

#[test]
fn child_processes_run_as_without_recording() {
    const SOURCE: &str = r#"
        #include <spawn.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        extern char **environ;
        __attribute__((noinline)) int marked(int value) { return value + 1; }
        static int status_of(pid_t child)
        {
            int status = 0;
            waitpid(child, &status, 0);
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        }
        int main(void)
        {
            pid_t child = fork();
            if (child == 0)
                exit(marked(marked(1)));
            printf("fork %d\n", status_of(child));
            child = vfork();
            if (child == 0)
                _exit(4);
            printf("vfork %d\n", status_of(child));
            fflush(stdout);
            printf("system %d\n", WEXITSTATUS(system("echo from a shell; exit 5")));
            char *arguments[] = { "sh", "-c", "exit 6", 0 };
            if (posix_spawn(&child, "/bin/sh", 0, 0, arguments, environ) != 0)
                return 1;
            printf("spawn %d\n", status_of(child));
            return marked(6);
        }
    "#;
    for (number, (architecture, options)) in KINDS.iter().enumerate() {
        let options: Vec<&str> = options.iter().filter(|o| **o != "-s").copied().collect();
        let Some(guest) = build(architecture, "forks.c", SOURCE, &options) else {
            return;
        };
        let told = String::from_utf8(plain(&guest).stdout).unwrap();
        assert!(told.contains("fork 3\nvfork 4\n"), "{told}");
        assert!(told.ends_with("system 5\nspawn 6\n"), "{told}");
        let said = recorded(&guest, &name(number, ""), 7);
        let note = "4 processes that the program started are not recorded\n";
        assert_eq!(said.matches(note).count(), 1, "{said}");
        // Traps of the recording are not in their memory.
        let run = record(&guest, &name(number, "u"), &["--until", "marked"], &[]);
        assert!(stderr(&run).contains("stopped at marked"), "{run:?}");
        let before = told.split("system").next().unwrap();
        assert_eq!(String::from_utf8_lossy(&run.stdout), before);
    }
}
