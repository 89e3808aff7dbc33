//! The programs that the tests record: each ends as described in its source.

use crate::support::program::{End, all, wait};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

#[test]
fn each_program_ends_as_its_source_describes() {
    for program in all() {
        let working = tempfile::tempdir().unwrap();
        // On a busy machine, real-time timers expire too early for a program.
        let options = match program.machine {
            Some(_) => &["-icount", "shift=4"][..],
            None => &[],
        };
        let mut command = program.emulator(options);
        // A crash writes a core file to the current directory.
        command.current_dir(&working).stderr(Stdio::null());
        let mut child = command.spawn().expect("the emulator starts");
        let status = wait(&mut child, &program.name);
        let end = match (status.code(), status.signal()) {
            (Some(code), _) => End::Exit(code),
            (_, signal) => End::Signal(signal.unwrap()),
        };
        assert_eq!(end, program.end, "{}", program.name);
    }
}
