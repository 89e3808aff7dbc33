//! Histories of recorded programs, compared with the witness: every step, every visit of a breakpoint,
//! several cores, and the calls.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::gdb::{Server, session};
use crate::support::history::in_gdb::{self, Shown, to_the_end, walk as walk_in_gdb, walks};
use crate::support::history::{Client, Step, Stop, same};
use crate::support::program::record::{executed, executed_in_order, record};
use crate::support::program::{Program, program};
use armsnap::remote_protocol::framing::write_packet;
use armsnap::server::Options;
use object::{Object, ObjectSymbol};

/// A recorded program.
struct Recorded {
    program: &'static Program,
    directory: tempfile::TempDir,
    /// The executed instructions by core number.
    cores: BTreeMap<u32, Vec<u64>>,
}

impl Recorded {
    fn new(name: &str, options: &[&str]) -> Self {
        let program = program(name);
        let directory = tempfile::tempdir().unwrap();
        let witness = directory.path().join("witness");
        let snapshot = directory.path().join("snapshot");
        let output = record(program, &snapshot, &witness, options);
        assert!(
            output.status.success(),
            "{}",
            crate::support::gdb::text(&output)
        );
        Self {
            program,
            cores: executed(&witness),
            directory,
        }
    }

    fn snapshot(&self) -> PathBuf {
        self.directory.path().join("snapshot")
    }

    fn client(&self) -> Client {
        Client::new(&self.snapshot(), &Options::default())
    }

    fn elf(&self) -> Vec<u8> {
        std::fs::read(&self.program.elf).unwrap()
    }

    /// The start addresses of functions, without the Thumb bit, and their names.
    fn functions(&self) -> BTreeMap<u64, String> {
        let bytes = self.elf();
        let file = object::File::parse(&*bytes).unwrap();
        let thumb = u64::from(file.architecture() == object::Architecture::Arm);
        let functions = file
            .symbols()
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.is_definition());
        functions
            .map(|symbol| (symbol.address() & !thumb, symbol.name().unwrap().to_owned()))
            .collect()
    }

    /// The cores that executed an instruction, in the order of execution.
    fn in_order(&self, address: u64) -> Vec<u32> {
        let executed = executed_in_order(&self.directory.path().join("witness")).into_iter();
        let visits = executed.filter(|(_, pc)| *pc == address);
        visits.map(|(core, _)| core).collect()
    }

    fn function(&self, name: &str) -> u64 {
        let functions = self.functions();
        let found = functions.iter().find(|(_, n)| *n == name);
        *found.unwrap_or_else(|| panic!("no function {name}")).0
    }
}

/// Steps of the selected thread; the others do not move.
fn walk(client: &mut Client, packet: &str) -> Vec<u64> {
    let steps = client.walk(packet).into_iter();
    steps
        .map(|step| match step {
            Step::At(address) => address,
            Step::Gap => panic!("a recording has no gaps"),
        })
        .collect()
}

/// The whole history through packets, and 2,000 steps from the end in GDB.
fn steps_equal_the_witness(name: &str, protocol: &str) {
    let recorded = Recorded::new(name, &["--protocol", protocol]);
    let wanted = &recorded.cores[&0];
    let mut client = recorded.client();
    let mut back = walk(&mut client, "bs");
    back.reverse();
    assert_eq!(back.len(), wanted.len());
    assert!(back == *wanted, "{name}: steps back differ");
    let forward = walk(&mut client, "vCont;s:1;c");
    // From the second instruction to the end of the program.
    assert!(
        forward[..forward.len() - 1] == wanted[1..],
        "{name}: steps differ"
    );

    const STEPS: usize = 2000;
    let last: Vec<Step> = wanted[wanted.len() - STEPS..]
        .iter()
        .copied()
        .map(Step::At)
        .collect();
    let walks = walks(
        &recorded.snapshot(),
        &[],
        &[&walk_in_gdb("reverse-stepi", STEPS)],
    );
    let mut back = in_gdb::steps(&walks[0]);
    back.reverse();
    same(&back, &last, name);
}

#[test]
fn steps_of_a64_equal_the_witness() {
    steps_equal_the_witness("recursion-a64", "etmv4");
}

#[test]
fn steps_of_a32_equal_the_witness() {
    steps_equal_the_witness("recursion-a32", "ptm");
}

#[test]
fn steps_of_t32_equal_the_witness() {
    steps_equal_the_witness("recursion-t32", "etmv3");
}

fn breakpoint(client: &mut Client, address: u64) {
    assert_eq!(client.ask(&format!("Z0,{address:x},4")), ["OK"]);
}

/// The stops of moves up to an end of history.
fn stops(client: &mut Client, packet: &str) -> Vec<Stop> {
    let mut stops = Vec::new();
    loop {
        let stop = client.go(packet);
        if stop.is_end() {
            return stops;
        }
        assert_eq!((stop.signal, stop.why.as_str()), (5, "swbreak"), "{stop:?}");
        stops.push(stop);
    }
}

#[test]
fn each_visit_of_a_breakpoint_is_a_stop_in_both_directions() {
    for name in ["recursion-a64", "recursion-t32"] {
        let recorded = Recorded::new(name, &[]);
        for (function, in_gdb) in [("odd", true), ("hanoi", false), ("ackermann", false)] {
            let address = recorded.function(function);
            let visits = recorded.cores[&0]
                .iter()
                .filter(|pc| **pc == address)
                .count();
            assert!(visits > 10, "{function}: {visits} visits");
            let mut client = recorded.client();
            breakpoint(&mut client, address);
            for packet in ["bc", "vCont;c", "bc"] {
                let found = stops(&mut client, packet);
                assert_eq!(found.len(), visits, "{name}: {function}, {packet}");
                assert!(found.iter().all(|stop| stop.pc == Some(address)));
            }
            if in_gdb {
                let place = format!("break *{address:#x}");
                let mut commands = vec![place.as_str()];
                commands.extend(std::iter::repeat_n("reverse-continue", visits + 1));
                commands.extend(std::iter::repeat_n("continue", visits + 1));
                let text = session(&recorded.snapshot(), &[], &commands);
                assert_eq!(
                    text.matches("\nBreakpoint 1, ").count(),
                    2 * visits,
                    "{text}"
                );
                assert_eq!(crate::support::gdb::ends_of_history(&text), 2, "{text}");
            }
        }
    }
}

/// Threads are cores with timestamps: they move together, and no breakpoint of any core is skipped.
#[test]
fn cores_move_together_and_alone() {
    let recorded = Recorded::new("threads-a64", &["--timestamps"]);
    assert!(recorded.cores.len() > 2, "{} cores", recorded.cores.len());
    // An instruction that several of them executed.
    let visited = |address: u64| -> Vec<usize> {
        let cores = recorded.cores.values();
        cores
            .map(|pcs| pcs.iter().filter(|pc| **pc == address).count())
            .collect()
    };
    let address = recorded.function("work");
    let wanted = visited(address);
    assert!(
        wanted.iter().filter(|count| **count > 0).count() > 2,
        "{wanted:?}"
    );
    let mut client = recorded.client();
    breakpoint(&mut client, address);
    // Each core alone.
    for (core, visits) in wanted.iter().enumerate() {
        client.ask(&format!("Hc{:x}", core + 1));
        assert_eq!(stops(&mut client, "bc").len(), *visits, "core {core}");
        let alone = format!("vCont;c:{:x}", core + 1);
        assert_eq!(stops(&mut client, &alone).len(), *visits, "core {core}");
    }
    // All together; the user moves any of them.
    client.ask("Hc0");
    for first in ["Hg1", "Hg2"] {
        client.ask(first);
        for packet in ["bc", "vCont;c"] {
            let found = stops(&mut client, packet);
            let mut visits = vec![0; wanted.len()];
            for stop in &found {
                visits[stop.thread - 1] += 1;
            }
            assert_eq!(visits, wanted, "{first} {packet}");
        }
    }
}

/// The number of a core's position, `$position`.
fn position(client: &mut Client, core: usize) -> Vec<String> {
    client.ask(&format!("qArmsnap.position:{core:x}"))
}

/// Without timestamps no order is known, not even at the end of history.
#[test]
fn a_core_without_timestamps_keeps_its_position() {
    let recorded = Recorded::new("threads-a64", &["--no-timestamps"]);
    let mut client = recorded.client();
    client.ask("Hg1");
    client.go("bs");
    let stop = client.go("bs");
    assert!(!stop.is_end(), "{stop:?}");
    let before = position(&mut client, 1);
    client.ask("Hg2");
    assert!(client.go("bc").is_end());
    assert_eq!(position(&mut client, 1), before);
    assert!(client.go("vCont;c").is_end());
    assert_eq!(position(&mut client, 1), before);
    client.ask("Hg2");
    client.monitor("goto end");
    assert_eq!(position(&mut client, 1), before);
}

/// A place before the first timestamp of a core is before all times.
#[test]
fn breakpoints_before_the_first_timestamp_stop_the_move_of_another_core() {
    let recorded = Recorded::new("turns-a64-bare-a64", &["--timestamps"]);
    let mut client = recorded.client();
    client.ask("Hg2");
    assert!(client.go("bc").is_end());
    let executed = &recorded.cores[&1];
    // Executed only once, at the start.
    let once = |pc: &&u64| executed.iter().filter(|other| other == pc).count() == 1;
    let first = *executed[1..].iter().find(once).unwrap();
    let other = recorded.cores[&0].iter().filter(|pc| **pc == first).count();
    breakpoint(&mut client, first);
    for (moves, direction) in ["vCont;c", "bc"].into_iter().enumerate() {
        client.ask("Hg1");
        let found = stops(&mut client, direction);
        let of_other = found.iter().filter(|stop| stop.thread == 2).count();
        assert_eq!(
            (of_other, found.len()),
            (1, 1 + other),
            "{moves}: {found:?}"
        );
    }
}

/// Two cores of a bare-metal program that take turns, in GDB: each alone, by steps and by visits
/// of a breakpoint; and both together, in the order of execution.
fn two_cores_in_gdb(name: &str, protocol: &str) {
    let recorded = Recorded::new(name, &["--protocol", protocol, "--timestamps"]);
    let snapshot = recorded.snapshot();
    assert_eq!(recorded.cores.len(), 2);

    const STEPS: usize = 2000;
    let mut commands = vec!["set scheduler-locking on".to_owned()];
    for thread in ["thread 1", "thread 2"] {
        commands.push(thread.to_owned());
        commands.push(walk_in_gdb("reverse-stepi", STEPS));
        commands.push(walk_in_gdb("stepi", STEPS + 1));
    }
    let walks = in_gdb_of(&snapshot, &commands);
    for (core, executed) in &recorded.cores {
        let walks = &walks[2 * *core as usize..][..2];
        let thread = *core as usize + 1;
        assert!(walks.concat().iter().all(|shown| shown.thread == thread));
        let last = executed[executed.len() - STEPS..].iter();
        let last: Vec<Step> = last.copied().map(Step::At).collect();
        let mut back = in_gdb::steps(&walks[0]);
        back.reverse();
        same(&back, &last, &format!("{name}: core {core}, back"));
        // The last step leads to the halted state.
        let forward = to_the_end(&walks[1]);
        same(
            &forward[..STEPS - 1],
            &last[1..],
            &format!("{name}: core {core}, forward"),
        );
    }

    let address = recorded.function("add");
    let visits = recorded.in_order(address);
    let count = |core| visits.iter().filter(|visit| **visit == core).count();
    let turns = visits.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns > 150, "{turns} turns");
    let mut commands = vec![
        format!("break *{address:#x}"),
        "set scheduler-locking on".to_owned(),
    ];
    for core in [0, 1] {
        commands.push(format!("thread {}", core + 1));
        commands.push(walk_in_gdb("reverse-continue", count(core) + 1));
        commands.push(walk_in_gdb("continue", count(core) + 1));
    }
    // All are at the end again.
    commands.push("set scheduler-locking off".to_owned());
    commands.push(walk_in_gdb("reverse-continue", visits.len() + 1));
    commands.push(walk_in_gdb("continue", visits.len() + 1));
    let mut wanted: Vec<Vec<u32>> = [0, 0, 1, 1].map(|core| vec![core; count(core)]).into();
    wanted.push(visits.iter().rev().copied().collect());
    wanted.push(visits);
    for (number, (walk, wanted)) in in_gdb_of(&snapshot, &commands)
        .iter()
        .zip(&wanted)
        .enumerate()
    {
        let what = format!("{name}, {protocol}, walk {number}");
        assert_eq!(
            to_the_end(walk),
            vec![Step::At(address); wanted.len()],
            "{what}"
        );
        let stops = &walk[..wanted.len()];
        assert!(stops.iter().all(|shown| shown.breakpoint), "{what}");
        let cores: Vec<u32> = stops.iter().map(|shown| shown.thread as u32 - 1).collect();
        assert_eq!(cores, *wanted, "{what}");
    }
}

fn in_gdb_of(snapshot: &Path, commands: &[String]) -> Vec<Vec<Shown>> {
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    walks(snapshot, &[], &commands)
}

#[test]
fn two_cores_of_a64_in_gdb() {
    two_cores_in_gdb("turns-a64-bare-a64", "etmv4");
}

#[test]
fn two_cores_of_a32_and_t32_in_gdb() {
    two_cores_in_gdb("turns-a15-bare-a15", "ptm");
}

/// One core steps, and GDB shows the other at the same time: a core that waits for its
/// turn does not move.
#[test]
fn the_other_core_is_where_it_was_at_that_time() {
    let recorded = Recorded::new("turns-a64-bare-a64", &["--timestamps"]);
    let executed = executed_in_order(&recorded.directory.path().join("witness"));
    // Instructions of each core up to the tenth one of a turn of the first: a timestamp comes
    // with the first block.
    let mut counts = [0, 0];
    let mut ran = 0;
    let mut wanted = Vec::new();
    for (core, _) in executed {
        ran = if core == 0 { ran + 1 } else { 0 };
        if ran == 10 {
            wanted.push(counts);
        }
        counts[core as usize] += 1;
    }
    // The order after the last timestamps is unknown.
    wanted.pop();
    assert!(wanted.len() > 80, "{} turns", wanted.len());
    wanted.reverse();
    let mut commands = vec!["set scheduler-locking off".to_owned()];
    let mut at = counts[0];
    for [first, _] in &wanted {
        commands.push("thread 1".to_owned());
        commands.push(format!("reverse-stepi {}", at - first));
        commands.push("thread 2".to_owned());
        commands.push("armsnap where".to_owned());
        at = *first;
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let text = session(&recorded.snapshot(), &[], &commands);
    let places = text
        .lines()
        .filter_map(|line| line.strip_prefix("Cortex-A57_1 at 0+"));
    let places: Vec<usize> = places.map(|place| place.parse().unwrap()).collect();
    // The last instruction that it had executed at that time.
    let wanted: Vec<usize> = wanted.iter().map(|[_, second]| *second - 1).collect();
    assert_eq!(places, wanted, "{text}");
}

/// Calls by the instructions: A64, where `BL` and `BLR` call and `RET` returns.
fn calls_of(recorded: &Recorded) -> Vec<(usize, String)> {
    let functions = recorded.functions();
    let bytes = recorded.elf();
    let elf = armsnap::program::elf::Elf::open(&recorded.program.elf).unwrap();
    let word = |pc: u64| {
        let inside = |segment: &&armsnap::program::elf::Segment| {
            (segment.address..segment.end()).contains(&pc)
        };
        let segment = elf.segments.iter().find(inside).unwrap();
        let at = segment.file.start + (pc - segment.address) as usize;
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    };
    let mut calls = Vec::new();
    let mut open: Vec<u64> = Vec::new();
    for pair in recorded.cores[&0].windows(2) {
        let (pc, next) = (pair[0], pair[1]);
        let instruction = word(pc);
        let call = instruction >> 26 == 0b100101 || instruction & 0xffff_fc1f == 0xd63f_0000;
        if call {
            calls.push((open.len(), functions[&next].clone()));
            open.push(pc + 4);
        } else if instruction == 0xd65f_03c0 {
            assert_eq!(open.pop(), Some(next));
        }
    }
    calls
}

#[test]
fn calls_of_a_recursive_program_match_its_instructions() {
    let recorded = Recorded::new("recursion-a64", &[]);
    let wanted = calls_of(&recorded);
    assert!(wanted.len() > 1000, "{} calls", wanted.len());
    let deepest = wanted.iter().map(|(depth, _)| *depth).max().unwrap();
    assert!(deepest > 10, "{deepest} levels");
    let mut client = recorded.client();
    let text = client.monitor("calls 10000");
    let lines: Vec<&str> = text.lines().collect();
    let (first, rest) = lines.split_first().unwrap();
    assert!(first.contains("start of history"), "{first}");
    let (last, rest) = rest.split_last().unwrap();
    assert!(last.starts_with("> "), "{last}");
    let found: Vec<(usize, String)> = rest
        .iter()
        .map(|line| {
            let call = &line[17..];
            let name = call.trim_start();
            ((call.len() - name.len()) / 2, name.to_owned())
        })
        .collect();
    assert_eq!(found.len(), wanted.len());
    for (number, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        assert_eq!(found, wanted, "call {number}");
    }
    // Only the last calls, and the open ones around them.
    let text = client.monitor("calls 5");
    assert!(text.contains("lines left out"), "{text}");
}

/// The byte after the packet is there when the search first checks for Ctrl-C.
#[test]
fn ctrl_c_ends_a_search() {
    let directory = tempfile::tempdir().unwrap();
    let (snapshot, witness) = (directory.path().join("s"), directory.path().join("w"));
    let options = ["--instructions", "10000000"];
    let output = record(program("sieve-a64"), &snapshot, &witness, &options);
    assert!(
        output.status.success(),
        "{}",
        crate::support::gdb::text(&output)
    );
    let server = Server::start(&snapshot, &[], 1);
    let mut stream = TcpStream::connect(&server.addresses[0]).unwrap();
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).unwrap();
    let mut ask = |payload: &str, after: &[u8]| {
        let mut bytes = Vec::new();
        write_packet(payload.as_bytes(), &mut bytes);
        bytes.extend_from_slice(after);
        stream.write_all(&bytes).unwrap();
        loop {
            let mut reply = Vec::new();
            while reply.iter().rev().nth(2) != Some(&b'#') {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                reply.push(byte[0]);
            }
            let reply = String::from_utf8(reply).unwrap();
            // Console output comes before the reply.
            if !reply.trim_start_matches('+').starts_with("$O") {
                return reply;
            }
        }
    };
    let stopped = ask("bc", &[3]);
    assert!(stopped.contains("$T02thread:01;"), "{stopped}");
    // The position is unchanged, and the session continues.
    assert!(ask("qC", &[]).contains("$QC1#"));
    let begin = ask("bc", &[]);
    assert!(begin.contains("replaylog:begin;"), "{begin}");
}
