//! Values at past positions in GDB: arguments, locals, the registers and memory that are recovered;
//! watchpoints; and a comparison with the emulator stopped at the same places.

use crate::support::gdb::{armsnap, run, session, shared, text};
use crate::support::record::{Guest, build, forget_start, live, record};
use std::process::Command;

/// A list whose third node is spoiled long before the crash.
pub(super) const PROGRAM: &str = r#"
struct node { struct node *next; long value; };
static struct node nodes[6];
static long total;
__attribute__((noinline)) static long sum(struct node *list, int limit)
{
    long out = 0;
    for (struct node *node = list; node && limit > 0; node = node->next, limit--)
        out += node->value;
    return out;
}
__attribute__((noinline)) static void spoil(struct node *node, int depth)
{
    char text[8] = "spoiled";
    if (depth > 0)
        spoil(node->next, depth - 1);
    else
        node->next = (struct node *)0x10;
    total += text[0];
}
void _start(void)
{
    for (int i = 0; i < 6; i++) {
        nodes[i].next = i < 5 ? &nodes[i + 1] : 0;
        nodes[i].value = i * 3;
    }
    total = sum(nodes, 3);
    spoil(nodes, 2);
    for (int i = 0; i < 40; i++)
        total += sum(nodes, 2);
    total += sum(nodes, 100);
    for (;;)
        ;
}
"#;

/// The instruction sets: the compiler's target, and its option.
pub(super) const SETS: [(&str, &str); 3] = [
    ("aarch64", "-march=armv8-a"),
    ("arm", "-marm"),
    ("arm", "-mthumb"),
];

/// Builds and records a program that ends in a fault; `None` if the tools are not there.
pub(super) fn recorded(source: &str, level: &str) -> Option<Guest> {
    recorded_for(SETS[0], source, level)
}

pub(super) fn recorded_for(set: (&'static str, &str), source: &str, level: &str) -> Option<Guest> {
    recorded_with(set, source, level, &[])
}

/// The same, with options of `armsnap record`.
pub(super) fn recorded_with(
    (architecture, set): (&'static str, &str),
    source: &str,
    level: &str,
    recording: &[&str],
) -> Option<Guest> {
    let options = [
        set,
        level,
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
    ];
    let guest = build(architecture, "program.c", source, &options)?;
    let run = record(&guest, "recorded", recording, &[]);
    assert!(run.status.success(), "{run:?}");
    Some(guest)
}

pub(super) fn past(guest: &Guest, commands: &[&str]) -> String {
    session(&guest.directory.path().join("recorded"), &[], commands)
}

/// Checks that the text contains all of `wanted`, in order.
pub(super) fn in_order(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for wanted in wanted {
        let Some((_, after)) = rest.split_once(wanted) else {
            panic!("{wanted:?} is not in {rest}\n--- of\n{text}");
        };
        rest = after;
    }
}

#[test]
fn arguments_and_locals_of_all_frames_are_shown() {
    for set in SETS {
        let Some(guest) = recorded_for(set, PROGRAM, "-O0") else {
            return;
        };
        shows_arguments_and_locals(&guest);
    }
}

fn shows_arguments_and_locals(guest: &Guest) {
    let text = past(
        guest,
        &[
            "tbreak 18",
            "reverse-continue",
            "backtrace",
            "info locals",
            "print node->value",
            "up",
            "print depth",
            "print nodes[1]",
            "print total",
        ],
    );
    in_order(
        &text,
        &[
            "Temporary breakpoint 1, spoil (node=0x",
            ", depth=0) at ",
            "#0  spoil (node=0x",
            ", depth=0)",
            "#1  0x",
            " in spoil (node=0x",
            ", depth=1)",
            "#2  0x",
            ", depth=2)",
            "#3  0x",
            " in _start ()",
            "text = \"spoiled\"",
            "$1 = 6\n",
            "$2 = 1\n",
            "$3 = {next = 0x",
            ", value = 3}",
            "$4 = 9\n",
        ],
    );
}

#[test]
fn a_watchpoint_stops_at_the_store() {
    for (set, store) in SETS
        .into_iter()
        .zip(["str\tx1, [x0]", "str\tr2, [r3]", "str\tr2, [r3"])
    {
        let Some(guest) = recorded_for(set, PROGRAM, "-O0") else {
            return;
        };
        stops_at_the_store(&guest, store);
    }
}

fn stops_at_the_store(guest: &Guest, store: &str) {
    let text = past(
        guest,
        &[
            "print nodes[2].next",
            "watch nodes[2].next",
            "reverse-continue",
            "backtrace 1",
            "x/i $pc",
            "delete",
            "rwatch nodes[1].value",
            "tbreak spoil",
            "continue",
            "print node",
            "info watchpoints",
        ],
    );
    in_order(
        &text,
        &[
            "= (struct node *) 0x10",
            "Hardware watchpoint 1: nodes[2].next",
            "Old value = (struct node *) 0x10",
            "New value = ",
            "spoil (node=0x",
            ", depth=0)",
            "node->next = (struct node *)0x10",
            store,
        ],
    );
    assert!(
        text.contains("Hardware read watchpoint 2: nodes[1].value"),
        "{text}"
    );
    assert!(text.contains("Value = 3"), "{text}");
}

/// What the first stop in the past reports.
pub(super) const FIRST_STOP: &str =
    "values shown at past positions include inferred ones: `monitor recover proved`";

/// Stores through pointers that nothing reveals at the end.
pub(super) const MARKS: &str = r#"
static long a, b, c, d;
static long *table[4] = { &a, &b, &c, &d };
static unsigned seed = 12345;
__attribute__((noinline)) static void mark(void)
{
    seed = seed * seed + 3;
    *table[seed >> 4 & 3] = 0;
}
__attribute__((noinline)) static long marks(long count)
{
    for (long i = 0; i < count; i++)
        mark();
    return count;
}
void _start(void)
{
    long all = marks(40);
    seed = 0;
    for (int i = 0; i < 4; i++)
        table[i] = 0;
    *(volatile long *)8 = all;
}
"#;

#[test]
fn the_user_chooses_which_values_are_shown() {
    let Some(guest) = recorded(MARKS, "-O0") else {
        return;
    };
    forget_start(&guest.directory.path().join("recorded"));
    let text = past(
        &guest,
        &[
            "reverse-stepi 300",
            "reverse-stepi",
            "armsnap where",
            "armsnap registers sp",
            "armsnap recover off",
            "print $sp",
            "armsnap recover proved",
            "print $sp",
            "armsnap recover some",
        ],
    );
    in_order(
        &text,
        &[
            "values of the past are shown where they are proved or inferred",
            "sp                   0x",
            "proved",
            "are not recovered",
            "$1 = <unavailable>",
            "where they are proved\n",
            "$2 = (void *) 0x",
            "expected proved, inferred or off, found \"some\"",
        ],
    );
    assert_eq!(text.matches(FIRST_STOP).count(), 1, "{text}");
    let proved = past(&guest, &["armsnap recover proved", "reverse-stepi"]);
    assert!(!proved.contains(FIRST_STOP), "{proved}");
}

#[test]
fn steps_request_no_registers() {
    let Some(guest) = recorded(PROGRAM, "-O0") else {
        return;
    };
    let commands = [
        "set debug remote 1",
        "reverse-stepi 50",
        "set debug remote 0",
    ];
    let text = past(&guest, &commands);
    let sent = |packet: &str| text.matches(&format!("Sending packet: {packet}")).count();
    assert_eq!(sent("$bs"), 50, "{text}");
    // Only the registers of the first and the last place are requested.
    assert!(sent("$g") + sent("$p") <= 4, "{text}");
}

/// What is saved at a past position is what is known there, and nothing else.
#[test]
fn a_snapshot_of_the_past_contains_what_is_known() {
    let Some(guest) = recorded(PROGRAM, "-O0") else {
        return;
    };
    let saved = guest.directory.path().join("saved");
    let looks = [
        "echo <state>\\n",
        "backtrace",
        "info registers",
        "print nodes",
        "x/4xg $sp",
        "x/4xg $sp-32",
        "print total",
    ];
    let save = format!("armsnap save {}", saved.display());
    let before = ["tbreak 18", "reverse-continue"];
    let shown = past(&guest, &[&before, &looks[..], &[&save]].concat());
    let again = session(&saved, &[], &looks);
    let state = |text: &str| -> Vec<String> {
        let state = text.split("<state>\n").nth(1).unwrap();
        let lines = state.lines().take_while(|line| !line.contains("left out"));
        // The end of the back trace is the unwinder's, the position the server's.
        let other = ["<unavailable>", "Backtrace stopped", "position"];
        let known = |line: &&str| !other.iter().any(|other| line.contains(other));
        lines.filter(known).map(str::to_owned).collect()
    };
    let (shown, again) = (state(&shown), state(&again));
    assert!(shown.len() > 35, "{shown:#?}");
    assert_eq!(shown[..35], again[..35]);
    let core = std::fs::read_to_string(saved.join("cpu_0.ini")).unwrap();
    assert!(
        core.contains("\nX29(size:64)=0x") && !core.contains("CPSR"),
        "{core}"
    );
    assert!(!core.contains("position"), "{core}");
}

/// Numbers that look random (xorshift64*, Vigna).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }
}

/// The commands that are run at each position.
fn looks(architecture: &str) -> Vec<String> {
    let (prefix, count, word) = match architecture {
        "aarch64" => ('x', 31, 'g'),
        _ => ('r', 13, 'w'),
    };
    let registers = (0..count)
        .map(|number| format!(" {prefix}{number}"))
        .collect::<String>();
    [
        "backtrace -full".to_owned(),
        format!(
            "info registers{registers} sp {} pc",
            if prefix == 'x' { "x30" } else { "lr" }
        ),
        "printf \"total %ld\\n\", total".to_owned(),
        "printf \"next %p\\n\", nodes[1].next".to_owned(),
        format!("x/x{word} $sp"),
        format!("x/x{word} $sp+8"),
        format!("x/x{word} $sp+24"),
    ]
    .into()
}

/// The output at each place, by the number of instructions executed before.
fn sections(text: &str) -> Vec<(u64, Vec<String>)> {
    let mut out: Vec<(u64, Vec<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("<at ") {
            let number = number.trim_end_matches('>').parse().unwrap();
            out.push((number, Vec::new()));
        } else if let Some((_, lines)) = out.last_mut() {
            lines.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    out
}

/// Whether a line of the past agrees with the true one: what it does not know may be anything.
fn agrees(past: &str, truth: &str) -> bool {
    let mut rest = truth;
    let mut first = true;
    for piece in past.split("<unavailable>") {
        let found = if first {
            rest.starts_with(piece).then_some(0)
        } else {
            rest.find(piece)
        };
        let Some(at) = found else { return false };
        rest = &rest[at + piece.len()..];
        first = false;
    }
    past.ends_with("<unavailable>") || rest.is_empty()
}

/// Compares what GDB shows at random places with GDB on the emulator stopped at the same places.
/// Returns how many lines were the same, and how many were not wholly known.
fn compare(guest: &Guest, instructions: u64, seed: u64) -> (usize, usize) {
    let mut dice = Dice(seed);
    let mut places: Vec<u64> = (0..25).map(|_| 1 + dice.below(instructions - 1)).collect();
    places.sort_unstable();
    places.dedup();
    let mut commands: Vec<String> = vec!["set width 0".to_owned()];
    let mut live_commands = commands.clone();
    let mut before = 0;
    for place in &places {
        commands.push(format!("monitor goto 0+{place}"));
        commands.push("maintenance flush register-cache".to_owned());
        commands.push("maintenance flush dcache".to_owned());
        live_commands.push(format!("stepi {}", place - before));
        before = *place;
        let look = looks(guest.architecture);
        for all in [&mut commands, &mut live_commands] {
            all.push(format!("echo \\n<at {place}>\\n"));
            for look in &look {
                all.push(look.clone());
                all.push("echo \\n".to_owned());
            }
            all.push("echo \\n<at 0>\\n".to_owned());
        }
    }
    let shown = past(
        guest,
        &commands.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let truth = live(guest, &[], &[], |socket| {
        let mut gdb = Command::new("gdb-multiarch");
        gdb.args(["-nx", "-batch"]).arg(&guest.program);
        gdb.args(["-ex", &format!("target remote {}", socket.display())]);
        for command in &live_commands {
            gdb.args(["-ex", command]);
        }
        text(&run(&mut gdb))
    });
    let (shown, truth) = (sections(&shown), sections(&truth));
    assert_eq!(shown.len(), 2 * places.len());
    assert_eq!(truth.len(), 2 * places.len());
    let (mut same, mut partly) = (0, 0);
    for ((place, shown), (_, truth)) in shown.iter().zip(&truth).filter(|pair| pair.0.0 != 0) {
        let mut rest = truth.iter();
        for line in shown {
            // What cannot be read has another text.
            let unknown = [
                "Cannot access memory",
                "previous frame identical",
                "not available",
            ];
            if line.is_empty() {
                continue;
            }
            if unknown.iter().any(|text| line.contains(text))
                || line.ends_with(':')
                || ["total", "next"].contains(&&**line)
            {
                partly += 1;
                continue;
            }
            let found = rest.any(|truth| agrees(line, truth));
            assert!(
                found,
                "{place}: {line:?} is not true: {truth:#?}\nof {shown:#?}"
            );
            let whole = !line.contains("<unavailable>");
            same += usize::from(whole);
            partly += usize::from(!whole);
        }
    }
    (same, partly)
}

/// Frames of a trace file contain what is known there: the same as in the emulator.
#[test]
fn frames_of_a_trace_file_have_values() {
    let Some(guest) = recorded(PROGRAM, "-O0") else {
        return;
    };
    const LAST: u64 = 300;
    let file = guest.directory.path().join("values.tf");
    let mut convert = armsnap();
    convert.args(["convert", "--values", "--frames", "instructions", "--last"]);
    convert.arg(LAST.to_string());
    let output = run(convert
        .arg(guest.directory.path().join("recorded"))
        .arg(&file));
    let notes = text(&output);
    assert!(output.status.success(), "{notes}");
    assert!(
        notes.contains("300 trace frames have values; inferred ones"),
        "{notes}"
    );
    let where_ = past(&guest, &["monitor where"]);
    let end = where_.split("history is from 0+0 to 0+").nth(1).unwrap();
    let end: u64 = end.split_whitespace().next().unwrap().parse().unwrap();
    let looks = [
        "info registers x0 x1 x2 x3 x19 x29 x30 sp pc",
        "x/xg $sp",
        "x/xg $sp+8",
        "x/xg $sp+40",
    ];
    let (mut shown, mut truth, mut before) = (Vec::new(), Vec::new(), 0);
    for frame in [1, 2, 57, 100, 101, 150, 222, 299, 300] {
        let place = end - LAST + frame - 1;
        shown.push(format!("tfind {frame}"));
        truth.push(format!("stepi {}", place - before));
        before = place;
        for all in [&mut shown, &mut truth] {
            all.push(format!("echo \\n<at {frame}>\\n"));
            all.extend(
                looks
                    .iter()
                    .flat_map(|look| [(*look).to_owned(), "echo \\n".to_owned()]),
            );
            all.push("echo \\n<at 0>\\n".to_owned());
        }
    }
    shown.extend(["backtrace".to_owned(), "tdump".to_owned()]);
    let gdb = |target: &str, commands: &[String]| {
        let mut gdb = Command::new("gdb-multiarch");
        gdb.args(["-nx", "-batch"]).arg(&guest.program);
        gdb.args(["-ex", "set width 0", "-ex", target]);
        for command in commands {
            gdb.args(["-ex", command]);
        }
        text(&run(&mut gdb))
    };
    let shown = gdb(&format!("target tfile {}", file.display()), &shown);
    in_order(
        &shown,
        &[
            "#0  ",
            "sum (list=0x",
            "#1  ",
            " _start ()",
            "x29  ",
            "pc  ",
        ],
    );
    let truth = live(&guest, &[], &[], |socket| {
        gdb(&format!("target remote {}", socket.display()), &truth)
    });
    let (shown, truth) = (sections(&shown), sections(&truth));
    assert_eq!(shown.len(), truth.len());
    let mut same = 0;
    for ((frame, shown), (_, truth)) in shown.iter().zip(&truth).filter(|pair| pair.0.0 != 0) {
        for line in shown.iter().filter(|line| !line.is_empty()) {
            let found = truth.iter().any(|truth| agrees(line, truth));
            assert!(found, "{frame}: {line} is not in {truth:#?}");
            same += usize::from(!line.contains("<unavailable>"));
        }
    }
    assert!(same > 90, "{same}");
}

/// Compares at random places of the program, which was compiled with these options.
fn agrees_with_the_emulator(set: (&'static str, &str), level: &str, seeds: &[u64]) {
    let Some(guest) = recorded_for(set, PROGRAM, level) else {
        return;
    };
    let text = past(&guest, &["monitor where"]);
    let end = text.split("history is from 0+0 to 0+").nth(1).unwrap();
    let end: u64 = end.split_whitespace().next().unwrap().parse().unwrap();
    for seed in seeds {
        let (same, partly) = compare(&guest, end, *seed);
        assert!(
            same > 2 * partly && same > 500,
            "{set:?}, {level}: {same} and {partly}"
        );
    }
}

#[test]
fn what_is_shown_is_what_the_emulator_shows() {
    agrees_with_the_emulator(SETS[0], "-O0", &[11, 29]);
}

#[test]
fn what_is_shown_of_optimised_code_is_what_the_emulator_shows() {
    agrees_with_the_emulator(SETS[0], "-O2", &[13]);
}

#[test]
fn what_is_shown_of_aarch32_is_what_the_emulator_shows() {
    agrees_with_the_emulator(SETS[1], "-O0", &[5]);
    agrees_with_the_emulator(SETS[2], "-O0", &[6]);
}

/// Where no accesses are known at all, a move says that it passes accesses.
#[test]
fn a_watchpoint_that_cannot_be_hit_says_why() {
    let Some(recorded) = shared("recorded/etmv3") else {
        return;
    };
    // A core that is not modelled.
    let directory = tempfile::tempdir().unwrap();
    let snapshot = directory.path().to_owned();
    for file in std::fs::read_dir(&recorded).unwrap() {
        let file = file.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        let text = String::from_utf8(bytes.clone()).ok();
        let text = text.map(|text| text.replace("type=Cortex-M4", "type=Cortex-M55"));
        let bytes = text.map_or(bytes, String::into_bytes);
        std::fs::write(snapshot.join(file.file_name().unwrap()), bytes).unwrap();
    }
    let text = session(
        &snapshot,
        &[],
        &[
            "watch *(int *) 0x20000fd0",
            "reverse-continue",
            "armsnap recover",
        ],
    );
    let limit = "nothing is known: of M-profile cores only";
    for wanted in [
        "Hardware watchpoint 1: ",
        &format!("watchpoints do not stop at past accesses of this core: {limit}"),
        &format!("note: {limit}"),
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// The value of x20 follows from where it was set, further back than the first search goes.
const FAR: &str = r#"
long cell;
void _start(void)
{
    __asm__ volatile("mov x20, #0x1234\n mov x9, #0x30000\n 0: subs x9, x9, #1\n b.ne 0b\n"
                     "mov x9, #1\n mov x9, #2\n adrp x10, cell\n str x20, [x10, #:lo12:cell]\n"
                     "mov x20, xzr\n str x20, [x10, #:lo12:cell]\n str x20, [x20]\n"
                     ::: "x9", "x10", "x20", "memory", "cc");
}
"#;

#[test]
fn values_are_shown_once_more_history_was_looked_at() {
    let Some(guest) = recorded(FAR, "-O0") else {
        return;
    };
    forget_start(&guest.directory.path().join("recorded"));
    let text = past(
        &guest,
        &[
            "reverse-stepi 5",
            "echo <first>\\n",
            "info registers x9 x20",
            "armsnap why $x20",
            "echo <again>\\n",
            "armsnap registers x20",
            "echo <end>\\n",
        ],
    );
    in_order(
        &text,
        &[
            "<first>",
            "x9 ",
            "x20 ",
            "<unavailable>",
            "mov x20, #0x1234",
            "<again>",
        ],
    );
    in_order(&text, &["<again>", "x20 ", "0x0000000000001234", "<end>"]);
}
