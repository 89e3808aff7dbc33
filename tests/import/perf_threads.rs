//! Whose trace it is: contexts in the trace, switches, timestamps.

use crate::perf_builder::{At, EXEC, FORK, PerfData, SWITCH_CPU_WIDE, framed, words};
use crate::perf_generated::{
    ETMV4, PROGRAM, at, etmv4, executed, expected, frames, process, recorded,
};
use crate::support::gdb::testdata;
use armsnap::arch::Architecture;
use armsnap::import::{Options, perf};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::program::Program;
use std::path::Path;

/// ETMv4 trace of a start at an address in a context, and one E atom (IHI 0064: Trace Info, Trace
/// On, Address with Context, Atom).
fn run_of(address: u64, context: Option<u32>) -> Vec<u8> {
    let mut out = vec![
        0x04,
        0x85,
        (address >> 2 & 0x7F) as u8,
        (address >> 9 & 0x7F) as u8,
    ];
    out.extend(&address.to_le_bytes()[2..]);
    // EL0, 64 bits, non-secure, with a context ID or without.
    out.push(if context.is_some() { 0xB0 } else { 0x30 });
    out.extend(context.map_or(Vec::new(), |context| context.to_le_bytes().to_vec()));
    out.push(0xF7);
    out
}

const SYNC: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0];

/// The name of a mapped file contains commands: debuggers get the name that `import` would write.
#[test]
#[cfg(unix)]
fn names_of_mapped_files_are_harmless() {
    let symfs = tempfile::tempdir().unwrap();
    let name = "x\nshell true\necho .so";
    let program = testdata("recorded/etmv4/program.elf");
    std::fs::copy(program, symfs.path().join(name)).unwrap();
    let mut file = PerfData::default();
    file.comm("prog", true, at(100, 1, 0));
    let (address, length, offset) = PROGRAM;
    let path = format!("/{name}");
    file.map(&path, address, length, offset, &[], at(100, 2, 0));
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
    file.trace(0, 0, 0, &trace);
    file.aux(0, trace.len() as u64, 0, at(100, 5, 0));
    let options = Options {
        symfs: vec![symfs.path().to_owned()],
        ..Options::default()
    };
    let input = Path::new("perf.data");
    let imported = perf::import_bytes(input, file.file().into(), &options).unwrap();
    let loaded = imported.open(input, &OpenOptions::default()).unwrap();
    let program = Program::of_snapshot(&loaded, Architecture::AArch64, &[]).unwrap();
    assert_eq!(program.elf.path, Path::new("images/x_shell_true_echo_.so"));
}

#[test]
fn contexts_tell_the_threads_of_a_cpu_apart() {
    // Two processes have different programs at the same addresses, and take turns.
    let mut trace = SYNC.to_vec();
    for (address, context) in [
        (0x4010_0000, 100),
        (0x4010_0700, 200),
        (0x4010_0014, 100),
        (0x4010_0760, 201),
    ] {
        trace.extend(run_of(address, Some(context)));
    }
    let trace = frames(&[(0x10, &trace)]);
    let mut unit = etmv4(0x10);
    unit[0] = 0x40;
    let mut file = process();
    file.info(1, &[(ETMV4, 0, unit.clone())]);
    let other = |tid, time| At {
        pid: 200,
        ..at(tid, time, 0)
    };
    file.comm("other", true, other(200, 3));
    file.map(
        "/bin/program.elf",
        PROGRAM.0,
        PROGRAM.1,
        PROGRAM.2,
        &[],
        other(200, 3),
    );
    file.fork(200, 200, 201, other(200, 4));
    // Whole CPUs were recorded: whoever ran at the end is in the record.
    file.event(SWITCH_CPU_WIDE, 0, &words(&[0]), at(0, 5, 0));
    file.trace(0, 0, 0, &trace);
    file.aux(0, trace.len() as u64, 0, at(0, 6, 0));
    let bytes = file.file();
    let starts = |core: &str, options: &[&str]| -> Vec<String> {
        let (found, _) = executed(&bytes, core, options);
        let starts = found
            .iter()
            .map(|range| range["start"].as_str().unwrap().to_owned());
        starts.collect()
    };
    assert_eq!(starts("prog-100", &[]), ["0x40100000", "0x40100014"]);
    assert_eq!(starts("other-200", &[]), ["0x40100700"]);
    assert_eq!(starts("other-201", &[]), ["0x40100760"]);
    assert_eq!(
        starts("other-201", &["--pid", "200", "--tid", "201"]),
        ["0x40100760"]
    );
    let all = ["0x40100000", "0x40100700", "0x40100014", "0x40100760"];
    assert_eq!(starts("cpu0", &["--by", "cpu"]), all);
    // Without the record of a switch, the trace contradicts the thread in the AUX record.
    let mut file = process();
    file.info(1, &[(ETMV4, 0, unit)]);
    file.comm("other", true, other(200, 3));
    file.map(
        "/bin/program.elf",
        PROGRAM.0,
        PROGRAM.1,
        PROGRAM.2,
        &[],
        other(200, 3),
    );
    file.trace(0, 0, 0, &trace);
    file.aux(0, trace.len() as u64, 0, other(200, 6));
    let (found, _) = executed(&file.file(), "prog-100", &[]);
    assert_eq!(found.len(), 2);
}

#[test]
fn processes_that_ran_before_have_only_their_own_mappings() {
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    let child = At {
        pid: 200,
        ..at(200, 4, 0)
    };
    let parent = at(100, 3, 0);
    // PERF_RECORD_MISC_FORK_EXEC has the bit of PERF_RECORD_MISC_COMM_EXEC.
    for (misc, dumps) in [(0, 1), (EXEC, 0)] {
        let mut file = process();
        file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
        let ids = [200_u32, 100, 200, 100].map(u32::to_le_bytes).concat();
        file.event(FORK, misc, &[ids, words(&[3])].concat(), parent);
        file.comm("other", false, child);
        file.trace(0, 0, 0, &trace);
        file.aux(0, trace.len() as u64, 0, child);
        let options = Options {
            symfs: vec![testdata("recorded/etmv4")],
            ..Options::default()
        };
        let imported = perf::import_bytes(Path::new("perf.data"), file.file().into(), &options);
        let devices = imported.unwrap().snapshot.devices;
        let core = devices.iter().find(|device| device.name == "other-200");
        assert_eq!(core.unwrap().dumps.len(), dumps, "flags {misc:#x}");
    }
}

/// A switch from a thread of process 100 to another.
fn switch(file: &mut PerfData, from: u32, to: u32, time: u64) {
    // PERF_RECORD_MISC_SWITCH_OUT.
    file.event(
        SWITCH_CPU_WIDE,
        1 << 13,
        &words(&[u64::from(to) << 32 | 100]),
        at(from, time, 0),
    );
}

#[test]
fn switches_tell_whose_a_record_is() {
    let (first, second) = (expected("etmv4", 0x10), expected("etmv4", 0x11));
    let mut file = process();
    file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
    file.fork(100, 100, 101, at(100, 4, 0));
    file.comm("worker", false, at(101, 5, 0));
    switch(&mut file, 100, 101, 20);
    switch(&mut file, 101, 100, 40);
    let mut offset = 0;
    // The record of whole CPUs names whoever ran at its end: here perf itself.
    for (own, time) in [(0x10, 10), (0x11, 20), (0x11, 30), (0x10, 50)] {
        let trace = frames(&[(0x10, &recorded("etmv4", own))]);
        file.trace(offset, 0, 0, &trace);
        file.aux(offset, trace.len() as u64, 0, at(7, time, 0));
        offset += trace.len() as u64;
    }
    let file = file.file();
    let (found, said) = executed(&file, "prog-100", &[]);
    // Thread 100 ran in the records that end at times 10 and 20.
    assert_eq!(found, [first.clone(), second.clone()].concat());
    assert_eq!(executed(&file, "worker-101", &[]).0, second);
    // Both ran in the one that ends at time 50.
    assert_eq!(executed(&file, "cpu0", &[]).0, first);
    assert!(
        said.contains("several threads may have run in the time of an AUX record"),
        "{said}"
    );
}

/// A process 100 with the recorded program, and one 200 with the same.
fn two_processes() -> PerfData {
    let mut file = process();
    let other = |time| At {
        pid: 200,
        ..at(200, time, 0)
    };
    file.comm("other", true, other(3));
    let (address, length, offset) = PROGRAM;
    file.map("/bin/program.elf", address, length, offset, &[], other(3));
    file
}

/// Where the straight lines of a core start.
fn starts(file: &PerfData, core: &str) -> (Vec<String>, String) {
    let (found, said) = executed(&file.file(), core, &[]);
    let starts = found
        .iter()
        .map(|range| range["start"].as_str().unwrap().to_owned());
    (starts.collect(), said)
}

#[test]
fn timestamps_divide_a_record_at_the_switches() {
    let mut trace = SYNC.to_vec();
    // A timestamp packet without a cycle count replaces the low 7 bits.
    let time = |time: u8| [0x02, time];
    for (tick, address) in [
        (10, 0x4010_0000),
        (20, 0x4010_0700),
        (30, 0x4010_0014),
        (40, 0x4010_0760),
    ] {
        trace.extend(time(tick));
        trace.extend(run_of(address, None));
    }
    trace.extend(time(50));
    // After the last timestamp any thread may run.
    trace.extend(run_of(0x4010_0700, None));
    let trace = frames(&[(0x10, &trace)]);
    let recording = |clock: u64| {
        let mut file = two_processes();
        let mut unit = etmv4(0x10);
        unit[0] = 0x800;
        unit.push(clock);
        file.info(1, &[(ETMV4, 0, unit)]);
        // A nanosecond a tick from 1000 on.
        file.records.extend(framed(79, 0, &words(&[0, 1, 1000])));
        switch(&mut file, 100, 200, 1015);
        switch(&mut file, 200, 100, 1032);
        file.trace(0, 0, 0, &trace);
        file.aux(0, trace.len() as u64, 0, at(7, 1060, 0));
        file
    };
    let file = recording(1);
    // The first and the third line may be of both: a switch was between the timestamps.
    assert_eq!(starts(&file, "other-200").0, ["0x40100700"]);
    let (found, said) = starts(&file, "prog-100");
    assert_eq!(found, ["0x40100760"]);
    assert!(
        said.contains("trace of CPU 0 is divided by timestamps"),
        "{said}"
    );
    // Timestamps of another clock cannot be compared with those of switches.
    let (found, said) = starts(&recording(0), "cpu0");
    assert_eq!(found.len(), 5);
    assert!(
        said.contains("there its history is that of the CPU"),
        "{said}"
    );
}

#[test]
fn numbers_that_are_not_in_the_trace_do_not_hide_it() {
    // A kernel without CONFIG_PID_IN_CONTEXTIDR: 0; a container: none, though the settings say so.
    for context in [Some(0), None] {
        let of = |addresses: &[u64]| {
            let mut trace = SYNC.to_vec();
            for address in addresses {
                trace.extend(run_of(*address, context));
            }
            trace
        };
        let (own, other) = (of(&[0x4010_0000, 0x4010_0014]), of(&[0x4010_0700]));
        let trace = frames(&[(0x10, &own), (0x12, &other)]);
        let units: Vec<_> = [(0, 0x10), (1, 0x12)]
            .into_iter()
            .map(|(cpu, id)| {
                let mut unit = etmv4(id);
                unit[0] = 0x40;
                (ETMV4, cpu, unit)
            })
            .collect();
        // If a program was recorded, the record names the thread on its CPU.
        let mut file = two_processes();
        file.info(1, &units);
        file.trace(0, 0, 0, &trace);
        file.aux(0, trace.len() as u64, 0, at(100, 6, 0));
        let (found, said) = starts(&file, "prog-100");
        assert_eq!(found, ["0x40100000", "0x40100014"], "{context:?}");
        assert!(
            said.contains("does not contain the numbers of threads"),
            "{said}"
        );
        assert_eq!(starts(&file, "cpu1").0, ["0x40100700"], "{context:?}");
        // If whole CPUs were recorded, the records of switches name it.
        let trace = frames(&[(0x10, &own)]);
        let mut file = two_processes();
        file.info(1, &units[..1]);
        switch(&mut file, 200, 100, 4);
        file.trace(0, 0, 0, &trace);
        file.aux(0, trace.len() as u64, 0, at(7, 4, 0));
        file.aux(trace.len() as u64, trace.len() as u64, 0, at(7, 6, 0));
        file.trace(trace.len() as u64, 0, 0, &trace);
        assert_eq!(starts(&file, "other-200").0, found, "{context:?}");
        assert_eq!(starts(&file, "prog-100").0, found, "{context:?}");
    }
}

#[test]
fn programs_of_32_bits_have_cores_of_32_bits() {
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    let (address, length, offset) = PROGRAM;
    // An ETMv4 traces both execution states; a process has code of only one.
    for (directory, name, wanted) in [
        ("recorded/ptm", "cores-a15-bare-a15.elf", "ARM-AA32"),
        ("recorded/etmv4", "program.elf", "ARMv8-A"),
        ("recorded/ptm", "missing.elf", "ARMv8-A"),
    ] {
        let mut file = PerfData::default();
        let path = format!("/bin/{name}");
        file.map(&path, address, length, offset, &[], at(100, 2, 0));
        file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
        file.trace(0, 0, 0, &trace);
        file.aux(0, trace.len() as u64, 0, at(100, 5, 0));
        let options = Options {
            symfs: vec![testdata(directory)],
            ..Options::default()
        };
        let read = perf::import_bytes(Path::new("perf.data"), file.file().into(), &options);
        assert_eq!(read.unwrap().snapshot.devices[0].kind, wanted, "{name}");
    }
}
