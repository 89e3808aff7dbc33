//! The trace frames that `armsnap convert` writes, held against what `armsnap decode` lists, and
//! GDB's view of them against both.

mod gdb;

use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{Loaded, OpenOptions, topology};
use armsnap::tfile::{Block, File};
use gdb::{armsnap, need_gdb, run, shared, testdata, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A trace frame, as the listing of instructions tells it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Visit {
    pc: u64,
    /// Code in hex, as the listing writes it.
    code: String,
    /// Trace state variables, those that are known.
    variables: BTreeMap<&'static str, i64>,
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => {
            let hex = text.strip_prefix("0x")?;
            Some(u64::from_str_radix(hex, 16).unwrap().cast_signed())
        }
        other => other.as_i64(),
    }
}

/// What `decode` lists of one source in one buffer.
#[derive(Default)]
struct Listing {
    visits: Vec<Visit>,
    /// Which of them end a straight line.
    ends: Vec<usize>,
    /// Instructions of ranges so far, and whether a straight line ends with the last one.
    ranges: usize,
    ended: bool,
    /// The core's state as told last.
    state: Vec<Value>,
    known: BTreeMap<&'static str, i64>,
    /// Cycles told next belong to the last instruction.
    counting: bool,
}

impl Listing {
    fn count(&mut self, cycles: i64) {
        *self.known.entry("cycles").or_default() += cycles;
    }

    /// What follows is not connected.
    fn cut(&mut self) {
        self.known.remove("exception");
        self.known.remove("exception_return");
        self.known.insert("gap", 1);
        self.counting = false;
    }

    fn line(&mut self, core: usize, line: &Value) {
        let set = |known: &mut BTreeMap<_, _>, name: &'static str, value: &Value| {
            match number(value) {
                Some(value) => known.insert(name, value),
                None => known.remove(name),
            };
        };
        match line["kind"].as_str().unwrap() {
            "instruction" => {
                if let Some(cycles) = number(&line["cycles"]) {
                    self.count(cycles);
                }
                let mut variables = self.known.clone();
                for once in ["exception", "exception_return", "gap"] {
                    self.known.remove(once);
                }
                variables.insert("core", core as i64);
                variables.insert("line", number(&line["address"]).unwrap());
                variables.insert("offset", line["offset"].as_i64().unwrap());
                match line["isa"].as_str().unwrap() {
                    "A64" => None,
                    isa => variables.insert("thumb", i64::from(isa == "T32")),
                };
                self.visits.push(Visit {
                    pc: number(&line["address"]).unwrap().cast_unsigned(),
                    code: line["bytes"].as_str().unwrap().to_owned(),
                    variables,
                });
                self.counting = true;
            }
            "cycles" => {
                self.count(number(&line["count"]).unwrap());
                let last = self.visits.last_mut().filter(|_| self.counting);
                if let Some(last) = last {
                    last.variables.insert("cycles", self.known["cycles"]);
                }
            }
            "timestamp" => set(&mut self.known, "timestamp", &line["value"]),
            "context" => {
                set(&mut self.known, "context_id", &line["context_id"]);
                set(&mut self.known, "vmid", &line["vmid"]);
                set(&mut self.known, "el", &line["el"]);
                let states = ["non-secure", "secure", "realm", "root"];
                let state = states.iter().position(|name| line["security"] == *name);
                set(&mut self.known, "security", &Value::from(state));
            }
            "exception" => {
                set(&mut self.known, "exception", &line["number"]);
                let known = &mut self.known;
                set(known, "exception_return", &line["return_address"]);
                self.counting = false;
            }
            "no_sync" | "trace_on" | "memory_missing" | "q_range" | "not_followed"
            | "return_stack_empty" | "not_reached" => {
                self.cut();
            }
            _ => {}
        }
    }
}

impl Listing {
    /// The straight line ends with the last instruction.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.ends.push(self.ranges - 1);
        }
    }

    /// A line of the listing of elements. `single`: atoms are instructions (ETMv3), of which a line
    /// has many.
    fn element(&mut self, line: &Value, single: bool) {
        match line["kind"].as_str().unwrap() {
            "range" => {
                self.ranges += line["instructions"].as_u64().unwrap() as usize;
                self.ended = false;
                if !single || line["last"]["kind"] != "other" {
                    self.end();
                }
            }
            "context" => {
                let state = ["el", "security", "vmid", "context_id"];
                let state: Vec<Value> = state.iter().map(|name| line[name].clone()).collect();
                if self.state != state && self.ranges > 0 {
                    self.end();
                }
                self.state = state;
            }
            "exception" | "no_sync" | "trace_on" | "memory_missing" | "not_followed"
                if self.ranges > 0 =>
            {
                self.end();
            }
            _ => {}
        }
    }
}

/// The lines of a listing.
fn lines(path: &Path, level: &str) -> Vec<Value> {
    let mut decode = armsnap();
    decode.arg("decode").arg(path);
    decode.args(["--level", level, "--format", "jsonl"]);
    let output = run(&mut decode);
    assert!(output.status.success(), "{}", text(&output));
    let listing = String::from_utf8(output.stdout).unwrap();
    let lines = listing.lines().map(serde_json::from_str);
    lines.map(Result::unwrap).collect()
}

/// The listings of each core, in the order of its buffers and sources.
fn listings(path: &Path, loaded: &Loaded, ends: bool) -> BTreeMap<usize, Vec<Listing>> {
    let sources = topology::sources(loaded);
    let trace = loaded.snapshot.trace.as_ref().unwrap();
    let mut listings: Vec<Listing> = sources.iter().map(|_| Listing::default()).collect();
    listings.iter_mut().for_each(Listing::cut);
    let place = |line: &Value| {
        let same = |s: &topology::TraceSource| {
            line["source"] == *s.name && line["buffer"] == *trace.buffers[s.buffer].name
        };
        sources.iter().position(same).unwrap()
    };
    for line in lines(path, "instructions") {
        let place = place(&line);
        let core = sources[place].core.unwrap_or(usize::MAX);
        listings[place].line(core, &line);
    }
    if ends {
        for line in lines(path, "elements") {
            let place = place(&line);
            let single = sources[place].protocol == topology::Protocol::Etmv3;
            listings[place].element(&line, single);
        }
        let told = listings.iter_mut().filter(|listing| listing.ranges > 0);
        told.for_each(Listing::end);
    }
    let mut sources: Vec<_> = sources.iter().zip(listings).collect();
    sources.sort_by_key(|(source, _)| trace.buffers[source.buffer].place.line);
    let mut cores: BTreeMap<usize, Vec<Listing>> = BTreeMap::new();
    for (source, listing) in sources {
        if let Some(core) = source.core {
            cores.entry(core).or_default().push(listing);
        }
    }
    cores
}

/// The instructions of each core.
fn listed(path: &Path, loaded: &Loaded) -> BTreeMap<usize, Vec<Visit>> {
    let cores = listings(path, loaded, false).into_iter();
    cores
        .map(|(core, listings)| {
            let visits = listings.into_iter().flat_map(|listing| listing.visits);
            (core, visits.collect())
        })
        .collect()
}

/// A trace file of one core of a snapshot, with all instructions as frames.
fn convert(path: &Path, core: &str, options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out.tf");
    let mut convert = armsnap();
    convert.arg("convert").arg(path).arg(&file);
    convert.args(["--core", core]).args(options);
    let output = run(&mut convert);
    assert!(output.status.success(), "{}", text(&output));
    (directory, file)
}

/// The frames behind that of the halted state.
fn frames(file: &File<'_>) -> Vec<Visit> {
    let description = file.description();
    let names: BTreeMap<i32, &'static str> = description
        .variables
        .iter()
        .map(|v| (v.number as i32, &*v.name.clone().leak()))
        .collect();
    let address = |number: u16| {
        let mut all = description.tracepoints.iter();
        all.find(|t| t.number == u32::from(number)).unwrap().address
    };
    let addresses: BTreeMap<u16, u64> = (1..=description.tracepoints.len() as u16)
        .map(|number| (number, address(number)))
        .collect();
    let name = topology::Protocol::Etmv3.name().bytes();
    let protocol: String = name.map(|byte| format!("{byte:02x}")).collect();
    let mut fields = description.status.iter().flat_map(|status| &status.other);
    let single = fields.any(|(_, value)| *value == protocol);
    let frames = file.frames().skip(1).map(|frame| {
        let frame = frame.unwrap();
        let mut visit = Visit {
            pc: addresses[&frame.tracepoint],
            ..Visit::default()
        };
        for block in frame.blocks() {
            match block {
                Block::Memory { address, bytes } => {
                    assert_eq!(address, visit.pc);
                    for byte in bytes {
                        write!(visit.code, "{byte:02x}").unwrap();
                    }
                }
                // The listing of instructions does not have it.
                Block::Variable { number, .. } if names[&number] == "taken" => {}
                Block::Variable { number, .. }
                    if single && names[&number] == "exception_return" => {}
                Block::Variable { number, value } => {
                    visit.variables.insert(names[&number], value);
                }
                Block::Registers(_) | Block::Unreadable { .. } => panic!("{block:?}"),
            }
        }
        visit
    });
    frames.collect()
}

/// Every frame of every core equals the listing.
#[test]
fn frames_are_the_instructions_that_decode_lists() {
    // The two of the largest listings are tried in GDB, below.
    let names = [
        "recorded/etmv4",
        "recorded/ptm",
        "recorded/etmv3",
        "TC2",
        "maxspec0_commopt1",
        "q_elem",
        "tme_simple",
        "trace_cov_a15",
        "trace_file_vmid",
        "ts_marker",
        "ete-ite-instr",
        "juno_r1_1",
    ];
    for name in names {
        let Some(path) = shared(name) else {
            return;
        };
        let loaded = Snapshot::open(&path, &OpenOptions::default()).unwrap();
        let mut all = 0;
        for (core, wanted) in listed(&path, &loaded) {
            let core = &loaded.snapshot.devices[core].name;
            let options = ["--frames", "instructions", "--last", "1000000"];
            let (_directory, file) = convert(&path, core, &options);
            let bytes = std::fs::read(file).unwrap();
            let found = frames(&File::open(&bytes, None).unwrap());
            // No path is known of a Q element, but its first instruction is.
            let q = name == "q_elem";
            let found: Vec<Visit> = if q {
                let mut wanted = wanted.iter().peekable();
                let same = |visit: &Visit| wanted.next_if(|w| *w == visit).is_some();
                found.into_iter().filter(same).collect()
            } else {
                found
            };
            assert_eq!(found.len(), wanted.len(), "{name} {core}");
            for (number, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                assert_eq!(found, wanted, "{name} {core} {number}");
            }
            all += found.len();
        }
        assert!(all > 0, "{name}");
    }
}

/// By default frames are the last instructions of the ranges that `decode` lists.
#[test]
fn waypoints_end_the_ranges_that_decode_lists() {
    for name in [
        "recorded/etmv4",
        "recorded/ptm",
        "recorded/etmv3",
        "trace_file_vmid",
        "TC2",
        "juno_r1_1",
        "maxspec0_commopt1",
        "ete_spec_1",
    ] {
        let Some(path) = shared(name) else {
            return;
        };
        let loaded = Snapshot::open(&path, &OpenOptions::default()).unwrap();
        let mut all = 0;
        for (core, listings) in listings(&path, &loaded, true) {
            let wanted = listings
                .iter()
                .flat_map(|listing| listing.ends.iter().map(|&end| &listing.visits[end]));
            let wanted: Vec<(u64, i64)> = wanted
                .map(|visit| (visit.pc, visit.variables["offset"]))
                .collect();
            let core = &loaded.snapshot.devices[core].name;
            let (_directory, file) = convert(&path, core, &[]);
            let bytes = std::fs::read(file).unwrap();
            let found = frames(&File::open(&bytes, None).unwrap());
            let found: Vec<(u64, i64)> = found
                .iter()
                .map(|visit| (visit.pc, visit.variables["offset"]))
                .collect();
            assert_eq!(found.len(), wanted.len(), "{name} {core}");
            assert!(found == wanted, "{name} {core}");
            all += found.len();
        }
        assert!(all > 0, "{name}");
    }
}

/// GDB with a trace file and a script: what it prints.
fn session(file: &Path, script: &str) -> String {
    need_gdb();
    let path = file.with_extension("gdb");
    std::fs::write(&path, script).unwrap();
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex", "set pagination off"]);
    gdb.arg("-ex")
        .arg(format!("target tfile {}", file.display()));
    gdb.arg("-ex").arg(format!("source {}", path.display()));
    let text = text(&run(&mut gdb));
    assert!(!text.contains("warning"), "{text}");
    assert!(!text.contains("Error"), "{text}");
    text
}

/// The first, the last and `count` others of `0..total`, the same in each run.
fn sample(total: usize, count: usize) -> Vec<usize> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut chosen = vec![0, total - 1];
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chosen.push((state % total as u64) as usize);
    }
    chosen
}

/// GDB shows in each of the frames what the listing says.
fn look(name: &str, core: &str) {
    let Some(path) = shared(name) else {
        return;
    };
    let loaded = Snapshot::open(&path, &OpenOptions::default()).unwrap();
    let listed = listed(&path, &loaded);
    let wanted = &listed[&loaded.snapshot.device_named(core).unwrap()];
    let all = ["--frames", "instructions", "--last", "1000000"];
    let (_whole, file) = convert(&path, core, &all);
    let bytes = std::fs::read(&file).unwrap();
    let found = frames(&File::open(&bytes, None).unwrap());
    assert!(
        found == *wanted,
        "{name}: the frames are not the instructions"
    );

    // GDB walks to each frame from the first one on.
    let wanted = &wanted[wanted.len().saturating_sub(10_000)..];
    let options = ["--frames", "instructions", "--last", "10000"];
    let (_directory, file) = convert(&path, core, &options);

    let chosen = sample(wanted.len(), 100);
    let mut script = String::new();
    for &number in &chosen {
        // From a frame of 32-bit Arm without sp GDB goes on only by leaving it.
        writeln!(script, "tfind end\ntfind {}\necho frame:", number + 1).unwrap();
        script += "output $trace_frame\necho \\npc:\noutput/x $pc\necho \\n\n";
        for variable in wanted[number].variables.keys() {
            writeln!(script, "echo {variable}:\noutput ${variable}\necho \\n\n").unwrap();
        }
        if wanted[number].variables.contains_key("thumb") {
            script += "if $thumb\nset arm fallback-mode thumb\nelse\n\
                       set arm fallback-mode arm\nend\n";
        }
        let bytes = wanted[number].code.len() / 2;
        writeln!(script, "x/{bytes}xb $pc\nx/i $pc\necho sp:\np $sp\ntdump").unwrap();
    }
    let shown = session(&file, &script);
    let mut sections = shown.split("\nframe:").skip(1);
    for &number in &chosen {
        let section = sections.next().unwrap();
        let visit = &wanted[number];
        let (frame, rest) = section.split_once('\n').unwrap();
        assert_eq!(frame, (number + 1).to_string());
        let line = |key: &str| {
            let found = rest.lines().find_map(|line| line.strip_prefix(key));
            found.unwrap_or_else(|| panic!("no {key} in {section}"))
        };
        assert_eq!(line("pc:"), format!("{:#x}", visit.pc));
        for (variable, value) in &visit.variables {
            assert_eq!(line(&format!("{variable}:")), value.to_string());
            let dumped = format!("${variable} = {value}");
            assert!(
                rest.lines().any(|line| line == dumped),
                "{dumped}: {section}"
            );
        }
        let code = rest.lines().find(|line| line.contains(":\t0x")).unwrap();
        let code: String = code.split("\t0x").skip(1).collect();
        assert_eq!(code, visit.code, "{section}");
        assert!(line("sp:").ends_with("<unavailable>"), "{section}");
        // The disassembly is there and that of the right instruction set.
        let arrow = format!("=> {:#x}:\t", visit.pc);
        let mnemonic = line(&arrow);
        assert!(!mnemonic.starts_with("Cannot"), "{section}");
    }
}

#[test]
fn gdb_shows_the_trace_of_tc2_ptm_rstk_t32() {
    look("tc2-ptm-rstk-t32", "Cortex-A15_0");
}

#[test]
fn gdb_shows_the_trace_of_a57_single_step() {
    look("a57_single_step", "Cortex-A57_0");
}

#[test]
fn gdb_shows_the_trace_of_001_ack_test() {
    look("001-ack_test", "cpu_0");
}

#[test]
fn gdb_shows_the_trace_of_recorded_etmv4() {
    look("recorded/etmv4", "Cortex-A57_1");
}

#[test]
fn gdb_shows_the_trace_of_recorded_ptm() {
    look("recorded/ptm", "Cortex-A15_0");
}

#[test]
fn gdb_shows_the_trace_of_recorded_etmv3() {
    look("recorded/etmv3", "Cortex-M4_0");
}

/// The frame of the halted state shows what a served snapshot shows.
fn halted(path: &Path, core: &str, program: Option<&Path>) {
    let (_directory, file) = convert(path, core, &["--state-only"]);
    let expressions = ["p $pc", "p $sp", "x/4i $pc", "info registers", "bt"];
    let mut commands = Vec::new();
    for expression in expressions {
        commands.push(format!("echo <\\n\n{expression}\necho >\\n\n"));
    }
    let load = program.map(|p| format!("file {}\n", p.display()));
    let load = load.unwrap_or_default();
    let shown = session(&file, &format!("{load}tfind 0\n{}", commands.concat()));
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(&script, commands.concat()).unwrap();
    let mut source = vec!["set pagination off".to_owned()];
    source.push(format!("source {}", script.display()));
    let source: Vec<&str> = source.iter().map(|line| &**line).collect();
    let mut options = vec!["--core", core];
    let program = program.map(|p| p.to_str().unwrap().to_owned());
    if let Some(program) = &program {
        options.extend(["--elf", program]);
    }
    let served = gdb::session(path, &options, &source);
    let pieces = |text: &str| -> Vec<String> {
        let pieces = text.split("<\n").skip(1);
        pieces
            .map(|piece| piece.split(">\n").next().unwrap().to_owned())
            .collect()
    };
    let (shown, served) = (pieces(&shown), pieces(&served));
    assert_eq!(shown.len(), expressions.len());
    for (number, expression) in expressions.iter().enumerate() {
        // What the server adds for sessions that go back in time is no register of the core.
        let lines = served[number].split_inclusive('\n');
        let served: String = lines.filter(|line| !line.starts_with("isa ")).collect();
        assert_eq!(shown[number], served, "{expression}");
    }
}

#[test]
fn the_halted_state_is_what_the_server_shows() {
    for name in ["virt-a57", "mps2-m4"] {
        let path = testdata(name);
        let loaded = Snapshot::open(&path, &OpenOptions::default()).unwrap();
        for device in &loaded.snapshot.devices {
            halted(&path, &device.name, Some(&path.join("program.elf")));
        }
    }
    if let Some(path) = shared("tc2-ptm-rstk-t32") {
        halted(&path, "Cortex-A15_0", None);
    }
}

#[test]
fn gdb_loads_every_file_in_silence() {
    let own = [
        "virt-a57",
        "mps2-m4",
        "recorded/etmv4",
        "recorded/ptm",
        "recorded/etmv3",
    ]
    .map(testdata);
    let real = [
        "juno_r1_1",
        "TC2",
        "stm_only",
        "itm_only_raw",
        "ts_marker",
        "event_test",
        "init-short-addr",
    ];
    let real = real.iter().filter_map(|name| shared(name));
    for path in own.into_iter().chain(real) {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("x.tf");
        let output = run(armsnap().arg("convert").arg(&path).arg(&out));
        assert!(output.status.success(), "{}", text(&output));
        let files = std::fs::read_dir(directory.path()).unwrap();
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|e| e == "tf"));
        assert!(!files.is_empty());
        for file in files {
            let shown = session(&file, "tstatus\ninfo tvariables\ntfind 0\ntfind end\n");
            assert!(shown.contains("Trace notes: "), "{shown}");
        }
    }
}

/// What `tsave` writes in a live session is read whole; its architecture is not ours.
#[test]
fn what_gdb_saves_of_a_live_session_is_read() {
    need_gdb();
    let directory = tempfile::tempdir().unwrap();
    let saved = directory.path().join("saved.tf");
    let script = directory.path().join("script");
    let lines = format!(
        "set confirm off\nset pagination off\nset sysroot /nowhere\n\
         target remote | gdbserver --once - /bin/true\n\
         tvariable $cycles = 7\ntrace *($pc + 3) if $cycles > 1\n\
         actions\ncollect $regs, $cycles, *(char (*)[64])$rsp\nend\n\
         tstart\nstepi 4\ntstop\ntsave {}\nkill\n",
        saved.display()
    );
    std::fs::write(&script, lines).unwrap();
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-x"]).arg(&script);
    let shown = text(&run(&mut gdb));
    if !saved.exists() {
        // Containers may forbid tracing; elsewhere gdbserver must be there.
        assert!(shown.contains("ptrace"), "{shown}");
        eprintln!("SKIPPED: no process can be debugged here");
        return;
    }
    let bytes = std::fs::read(&saved).unwrap();
    let file = File::open(&bytes, None).unwrap();
    let description = file.description();
    assert!(description.unknown.is_empty(), "{:?}", description.unknown);
    assert!(description.variables.iter().any(|v| v.name == "cycles"));
    assert_eq!(description.tracepoints.len(), 1);
    assert!(description.tracepoints[0].options[0].starts_with('X'));
    assert_eq!(
        file.count() as u64,
        description.status.as_ref().unwrap().frames.unwrap()
    );
    assert_eq!(file.count(), 1, "{shown}");
    let frame = file.frame(0).unwrap().unwrap();
    let kinds: Vec<u8> = frame
        .blocks()
        .map(|block| match block {
            Block::Registers(_) => b'R',
            Block::Memory { bytes, .. } => {
                assert_eq!(bytes.len(), 64);
                b'M'
            }
            Block::Variable { value, .. } => {
                assert_eq!(value, 7);
                b'V'
            }
            Block::Unreadable { .. } => b'?',
        })
        .collect();
    for kind in [b'R', b'M', b'V'] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    assert!(!kinds.contains(&b'?'));
    let out = directory.path().join("out");
    let output = run(armsnap().arg("convert").arg(&saved).arg(&out));
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output);
    assert!(
        told.contains("expected the architecture of an Arm core, found i386:x86-64"),
        "{told}"
    );
    assert!(!out.exists());
}

#[test]
fn nothing_is_overwritten_and_nothing_is_left_half_done() {
    let path = testdata("mps2-m4");
    let (directory, file) = convert(&path, "Cortex-M4_0", &[]);
    let status = |arguments: &[&Path], options: &[&str]| {
        let output = run(armsnap().arg("convert").args(arguments).args(options));
        (output.status.code().unwrap(), text(&output))
    };
    let back = directory.path().join("back");
    for (arguments, options, code, told) in [
        ([&*path, &*file], &[][..], 2, "--force"),
        ([&*path, &*file], &["--force"], 0, ""),
        (
            [&*path, &*file],
            &["--frame", "1", "--force"],
            2,
            "--frame: the input is a snapshot",
        ),
        (
            [&*file, &*back],
            &["--last", "1"],
            2,
            "--last: the input is a trace file",
        ),
        (
            [&*file, &*back],
            &["--frame", "7"],
            2,
            "from 0 to 0, found 7",
        ),
        ([&*file, &*back], &[], 0, ""),
        ([&*file, &*back], &[], 2, "--force"),
        ([&*file, &*back], &["--force", "--frame", "0"], 0, ""),
        (
            [&*file, &*file],
            &["--force"],
            2,
            "exists and is no snapshot",
        ),
        ([Path::new("no such"), &*back], &["--force"], 1, "no such: "),
        (
            [&*path, &*back.join("x.tf")],
            &["--core", "nobody"],
            2,
            "found \"nobody\": Cortex-M4_0",
        ),
        (
            [&*path, &*back.join("x.tf")],
            &["--from", "x"],
            2,
            "expected an address",
        ),
    ] {
        let (found, text) = status(&arguments, options);
        assert_eq!(found, code, "{options:?}: {text}");
        assert!(text.contains(told), "{told} not in {text}");
    }
    let entries = std::fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["back", "out.tf"]);
    let mut names: Vec<_> = std::fs::read_dir(&back).unwrap().collect();
    names.retain(|entry| entry.as_ref().unwrap().path().extension().unwrap() == "ini");
    assert_eq!(names.len(), 2);
}

#[test]
fn each_core_has_a_file_of_its_own() {
    let device = "class=core\ntype=ARM-AA64\n[regs]\nPC(size:64)=0x10\n";
    let directory = gdb::write_snapshot(&[("a", device), ("b", device)], &[]);
    let same = format!("[device]\nname=c/0\n{device}");
    for name in ["a.ini", "b.ini"] {
        std::fs::write(directory.path().join(name), &same).unwrap();
    }
    let out = directory.path().join("out.tf");
    let output = run(armsnap().arg("convert").arg(directory.path()).arg(&out));
    assert!(output.status.success(), "{}", text(&output));
    for name in ["out.c_0.tf", "out.c_0.1.tf"] {
        let bytes = std::fs::read(directory.path().join(name)).unwrap();
        assert_eq!(File::open(&bytes, None).unwrap().count(), 1);
    }
    assert!(!out.exists());
    let two = testdata("virt-a57");
    let output = run(armsnap().arg("convert").arg(&two).arg(&out));
    assert!(output.status.success(), "{}", text(&output));
    for name in ["out.Cortex-A57_0.tf", "out.Cortex-A57_1.tf"] {
        assert!(directory.path().join(name).is_file(), "{name}");
    }
}
