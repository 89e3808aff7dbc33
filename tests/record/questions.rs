//! `armsnap ask`: answers compared with what the program computed and with the emulator's log.

use crate::support::record::{Guest, build, record};
use armsnap::record::register_log::Reader;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Output};

/// Arguments in registers and on the stack, of several sizes; recursion; globals; a tail call.
const PROGRAM: &str = r#"
struct point { int x; long y; unsigned char tag; };
struct point origin = {1, 2, 3};
struct { struct point *at; int rows[4][2]; } grid;
long total;
int table[8];
volatile int which = -1;
int *volatile middle = table + 4;
__attribute__((noinline)) long fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__attribute__((noinline)) int mix(char c, short s, unsigned long big, int d, int e, int f, int g, int h,
                                  int ninth, signed char tenth) {
  return c + s + (int)big + d + e + f + g + h + ninth + tenth;
}
__attribute__((noinline)) int last(int a) { total ^= a; return a + 1; }
__attribute__((noinline)) int tail(int a) { return last(a * 2); }
__attribute__((noinline)) double half(double d, int i, float f) { return d / 2 + i + f; }
__attribute__((noinline)) void nothing(struct point *p) { p->y += 3; }
void work(void) {
  for (int i = 0; i < 8; i++) table[i] = i * i;
  which = 2;
  total = fib(5);
  total += mix('a', -2, 0x123456789abcul, 4, 5, 6, 7, 8, 9, -10);
  total += (long)half(3.0, 4, 0.5f);
  total += tail(20);
  grid.at = &origin;
  for (int i = 0; i < 4; i++) { nothing(grid.at); grid.rows[i][1] = (int)total + i; }
}
__asm__(".global _start\n_start: mov x29, #0\n mov x30, #0\n bl work\n mov x8, #93\n mov x0, #0\n svc #0");
"#;

struct Recorded {
    guest: Guest,
}

impl Recorded {
    fn new(optimisation: &str) -> Option<Self> {
        let flags = ["-static", "-nostdlib", "-ffreestanding", optimisation];
        let guest = build("aarch64", "program.c", PROGRAM, &flags)?;
        let file = guest.directory.path().join("registers");
        let options = ["--witness-registers", file.to_str().unwrap()];
        let run = record(&guest, "snapshot", &options, &[]);
        assert!(run.status.success(), "{run:?}");
        Some(Self { guest })
    }

    fn ask(&self, question: &[&str]) -> Output {
        let run = Command::new(crate::support::armsnap())
            .arg("ask")
            .arg(self.guest.directory.path().join("snapshot"))
            .args(question)
            .output();
        run.unwrap()
    }

    /// The answers to a question that has some.
    fn lines(&self, question: &[&str]) -> Vec<Value> {
        let run = self.ask(&[question, &["--format", "jsonl"]].concat());
        assert_eq!(run.status.code(), Some(0), "{question:?}: {run:?}");
        let text = String::from_utf8(run.stdout).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for line in &lines {
            check(question[0], line);
        }
        lines
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.guest.directory.path().join(name)
    }
}

/// Checks a line against ../shared/contracts/ask.md: its keys and their types.
fn check(question: &str, line: &Value) {
    let (needed, others): (&[&str], &[&str]) = match question {
        "calls" => (
            &["position", "thread", "function", "arguments"],
            &["caller", "end", "returns"],
        ),
        "accesses" => (
            &["position", "thread", "kind", "address", "bytes", "status"],
            &["value", "pc", "function", "file", "line"],
        ),
        "variable" => (&["position", "status"], &["value", "file", "line"]),
        "where" => (&["position", "thread"], &["pc", "function", "file", "line"]),
        "values" => (&["registers"], &[]),
        "memory" => (&["bytes", "status"], &[]),
        "why" | "uses" => (
            &["position", "what", "status"],
            &["pc", "function", "file", "line", "value"],
        ),
        other => panic!("{other}"),
    };
    let fields = line.as_object().unwrap();
    assert!(needed.iter().all(|key| fields.contains_key(*key)), "{line}");
    assert!(
        fields
            .keys()
            .all(|key| needed.contains(&key.as_str()) || others.contains(&key.as_str())),
        "{line}"
    );
    is_sound(line);
}

/// No value is null, each with a status is a number in hexadecimal, and it is absent if it is unknown.
fn is_sound(value: &Value) {
    match value {
        Value::Object(fields) => {
            if let Some(status) = fields.get("status") {
                let status = status.as_str().unwrap();
                assert!(
                    ["proved", "inferred", "unknown"].contains(&status),
                    "{value}"
                );
                match fields.get("value") {
                    Some(number) => {
                        assert!(number.as_str().unwrap().starts_with("0x"), "{value}");
                        assert_ne!(status, "unknown", "{value}");
                    }
                    None => assert!(status == "unknown" || fields.contains_key("bytes")),
                }
            }
            fields.values().for_each(is_sound);
        }
        Value::Array(all) => all.iter().for_each(is_sound),
        Value::Null => panic!("null"),
        _ => {}
    }
}

fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_else(|| panic!("{value}"));
    u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap()
}

/// The number of a position in a recording without gaps.
fn index(position: &Value) -> usize {
    let text = position.as_str().unwrap();
    text.strip_prefix("0+").unwrap().parse().unwrap()
}

/// The values of the arguments of a call, by name.
fn arguments(call: &Value) -> Vec<(String, Option<u64>)> {
    let all = call["arguments"].as_array().unwrap().iter();
    all.map(|argument| {
        let name = argument["name"].as_str().unwrap().to_owned();
        (name, argument.get("value").map(number))
    })
    .collect()
}

fn fib(n: u64, all: &mut Vec<(u64, u64)>) -> u64 {
    let at = all.len();
    all.push((n, 0));
    let result = match n {
        0 | 1 => n,
        _ => fib(n - 1, all) + fib(n - 2, all),
    };
    all[at].1 = result;
    result
}

/// The registers before each instruction, and the stores since the one before, from the emulator.
type Witnessed = (HashMap<String, u64>, Vec<(u64, Vec<u8>)>);

fn witness(path: &Path) -> Vec<Witnessed> {
    let mut reader = Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let names: Vec<String> = reader.names().to_vec();
    let mut all = Vec::new();
    while reader.step().unwrap() {
        let values = reader.values().iter().copied();
        let registers = names.iter().cloned().zip(values).collect();
        all.push((registers, reader.stores().to_vec()));
    }
    all
}

#[test]
fn calls_have_the_arguments_and_results_of_the_program() {
    for optimisation in ["-O0", "-O1", "-O2"] {
        let Some(recorded) = Recorded::new(optimisation) else {
            return;
        };
        let mut wanted = Vec::new();
        fib(5, &mut wanted);
        let calls = recorded.lines(&["calls", "fib"]);
        // From -O2 on, the compiler unrolls the recursion.
        if optimisation != "-O2" {
            assert_eq!(calls.len(), wanted.len());
        }
        for (number, (call, (n, result))) in calls.iter().zip(wanted).enumerate() {
            let caller = if number == 0 { "work" } else { "fib" };
            assert_eq!(call["caller"], caller, "{call}");
            if optimisation != "-O2" || number == 0 {
                assert_eq!(arguments(call), [("n".to_owned(), Some(n))], "{call}");
                assert_eq!(self::number(&call["returns"]["value"]), result, "{call}");
            }
            assert!(index(&call["position"]) < index(&call["end"]), "{call}");
        }
        let mix = recorded.lines(&["calls", "mix"]);
        let found = arguments(&mix[0]);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        let all = ["c", "s", "big", "d", "e", "f", "g", "h", "ninth", "tenth"];
        assert_eq!(names, all);
        let values = [0x61, 0xfffe, 0x1234_5678_9abc, 4, 5, 6, 7, 8, 9, 0xf6];
        let values = values.map(Some);
        let found: Vec<Option<u64>> = found.iter().map(|(_, value)| *value).collect();
        assert_eq!(found, values);
        assert_eq!(
            number(&mix[0]["returns"]["value"]),
            0x5678_9abc + 0x61 - 2 + 39 - 10
        );
        let half = recorded.lines(&["calls", "half"]);
        let values: Vec<_> = arguments(&half[0])
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        let bits = [3.0_f64.to_bits(), 4, 0.5_f32.to_bits().into()];
        assert_eq!(values, bits.map(Some));
        assert_eq!(number(&half[0]["returns"]["value"]), 6.0_f64.to_bits());
        let nothing = recorded.lines(&["calls", "nothing"]);
        assert_eq!(nothing.len(), 4);
        let point = recorded.guest.symbol("origin");
        for call in &nothing {
            assert_eq!(arguments(call), [("p".to_owned(), Some(point))]);
            assert_eq!(call.get("returns"), None, "it returns nothing");
        }
        // With optimisation, a jump: both end with the same return.
        let (tail, last) = (
            recorded.lines(&["calls", "tail"]),
            recorded.lines(&["calls", "last"]),
        );
        assert_eq!(last[0]["caller"], "tail");
        assert_eq!(arguments(&last[0])[0].1, Some(40));
        assert_eq!(number(&tail[0]["returns"]["value"]), 41);
        if optimisation == "-O2" {
            assert_eq!(tail[0]["end"], last[0]["end"]);
        }
        // A part of the history.
        let from = nothing[1]["position"].as_str().unwrap();
        let to = nothing[3]["position"].as_str().unwrap();
        let some = recorded.lines(&["calls", "nothing", "--from", from, "--to", to]);
        assert_eq!(some, nothing[1..3]);
    }
}

#[test]
fn values_and_memory_are_those_of_the_emulator() {
    let Some(recorded) = Recorded::new("-O1") else {
        return;
    };
    let states = witness(&recorded.path("registers"));
    let every = states.len() / 12;
    let mut known = 0;
    for at in (0..states.len() - 1).step_by(every) {
        let answer = recorded.lines(&["values", &format!("0+{at}")]);
        for (name, worth) in answer[0]["registers"].as_object().unwrap() {
            if let (Some(value), Some(truth)) = (worth.get("value"), states[at].0.get(name)) {
                assert_eq!(number(value), *truth, "{name} at {at}");
                known += 1;
            }
        }
    }
    assert!(known > 12 * 16, "{known}");
    let last = format!("0+{}", states.len() - 1);
    let table = format!("{:#x}", recorded.guest.symbol("table"));
    let memory = recorded.lines(&["memory", &last, &table, "32"]);
    let wanted: String = (0..8_u32)
        .flat_map(|i| (i * i).to_le_bytes())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(memory[0]["bytes"], wanted);
}

#[test]
fn accesses_are_the_stores_of_the_emulator() {
    let Some(recorded) = Recorded::new("-O1") else {
        return;
    };
    let states = witness(&recorded.path("registers"));
    for (name, length) in [("table", 32), ("total", 8), ("grid", 40)] {
        let start = recorded.guest.symbol(name);
        let range = format!("{start:#x}+{length}");
        let lines = recorded.lines(&["accesses", &range]);
        assert!(lines.is_sorted_by_key(|line| index(&line["position"])));
        let found: Vec<(usize, u64, u64)> = lines
            .iter()
            .filter(|line| line["kind"] == "write")
            .map(|line| {
                assert!(
                    line["file"].as_str().unwrap().ends_with("program.c"),
                    "{line}"
                );
                assert!(line["line"].as_u64().is_some(), "{line}");
                let at = index(&line["position"]);
                assert_eq!(number(&line["pc"]), states[at].0["pc"]);
                (
                    at,
                    number(&line["address"]),
                    line["bytes"].as_u64().unwrap(),
                )
            })
            .collect();
        let stores = states
            .iter()
            .enumerate()
            .skip(1)
            .flat_map(|(at, (_, stores))| {
                let stores = stores.iter();
                stores.map(move |(address, bytes)| (at - 1, *address, bytes.len() as u64))
            });
        let is_within =
            |(_, address, _): &(usize, u64, u64)| (start..start + length).contains(address);
        let wanted: Vec<_> = stores.filter(is_within).collect();
        assert_eq!(found, wanted, "{name}");
        for line in &lines {
            let at = index(&line["position"]);
            let Some(value) = line.get("value").filter(|_| line["kind"] == "write") else {
                continue;
            };
            let (_, bytes) = states[at + 1]
                .1
                .iter()
                .find(|(address, _)| *address == number(&line["address"]))
                .unwrap();
            let truth = bytes
                .iter()
                .rev()
                .fold(0, |all, byte| all << 8 | u64::from(*byte));
            assert_eq!(number(value), truth, "{line}");
        }
    }
}

#[test]
fn the_cause_of_a_value_is_the_instruction_that_stored_it() {
    let Some(recorded) = Recorded::new("-O1") else {
        return;
    };
    let table = recorded.guest.symbol("table");
    let writes = recorded.lines(&["accesses", &format!("{:#x}+4", table + 12)]);
    let call = &recorded.lines(&["calls", "fib"])[0];
    let at = call["position"].as_str().unwrap();
    let way = recorded.lines(&["why", at, &format!("{:#x}", table + 12)]);
    let store = way.last().unwrap();
    assert_eq!(store["position"], writes[0]["position"]);
    assert_eq!(number(&store["value"]) & 0xffff_ffff, 9);
    let way = recorded.lines(&["why", at, "x0"]);
    assert_eq!(number(&way.last().unwrap()["value"]), 5, "{way:?}");
}

#[test]
fn the_uses_of_a_value_are_the_loads_before_it_is_replaced() {
    let Some(recorded) = Recorded::new("-O1") else {
        return;
    };
    let all = recorded.lines(&["accesses", "origin.y"]);
    let first = all.iter().position(|line| line["kind"] == "write").unwrap();
    let next = first
        + 1
        + all[first + 1..]
            .iter()
            .position(|line| line["kind"] == "write")
            .unwrap();
    let after = format!("0+{}", index(&all[first]["position"]) + 1);
    let uses = recorded.lines(&["uses", &after, "origin.y"]);
    let positions = |lines: &[Value]| -> Vec<Value> {
        lines.iter().map(|line| line["position"].clone()).collect()
    };
    assert_eq!(positions(&uses), positions(&all[first + 1..next]));
    assert!(
        uses.iter().all(|line| line["value"] == all[first]["value"]),
        "{uses:?}"
    );
    // The argument of the first call decides which branch is taken, and is passed on less 1.
    let call = &recorded.lines(&["calls", "fib"])[0];
    let at = call["position"].as_str().unwrap();
    let uses = recorded.lines(&["uses", at, "x0"]);
    assert!(uses.is_sorted_by_key(|line| index(&line["position"])));
    assert!(uses.iter().any(|line| line["value"] == "0x4"), "{uses:?}");
    let run = recorded.ask(&["uses", at, "x0", "--most", "1"]);
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(
        said.contains("there are more instructions than the 1 that are listed"),
        "{said}"
    );
    let run = recorded.ask(&["uses", at, "0x10"]);
    let said = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no instruction is known that used 0x10+1"),
        "{said}"
    );
}

/// The values of an expression, without those before its first store.
fn changes(recorded: &Recorded, question: &[&str]) -> Vec<u64> {
    let lines = recorded.lines(&[&["variable"], question].concat());
    assert!(lines.is_sorted_by_key(|line| index(&line["position"])));
    let values = lines.iter().filter(|line| line.get("line").is_some());
    values
        .filter_map(|line| line.get("value").map(number))
        .collect()
}

#[test]
fn changes_of_variables_are_those_of_the_program() {
    for optimisation in ["-O0", "-O1", "-O2"] {
        let Some(recorded) = Recorded::new(optimisation) else {
            return;
        };
        if optimisation != "-O2" {
            assert_eq!(changes(&recorded, &["table[3]"]), [9], "{optimisation}");
            // The index is negative at first, and changes.
            let picked = changes(&recorded, &["middle[which]"]);
            assert_eq!(picked, [9, 36], "{optimisation}");
        }
        let point = recorded.guest.symbol("origin");
        assert_eq!(changes(&recorded, &["grid.at"]), [point]);
        assert_eq!(changes(&recorded, &["origin.y"]), [5, 8, 11, 14]);
        // The pointer changes first.
        let through = changes(&recorded, &["grid.at->y"]);
        assert!(through.ends_with(&[5, 8, 11, 14]), "{through:?}");
        let last = changes(&recorded, &["grid.rows[3][1]"]);
        let total = changes(&recorded, &["total"]);
        assert_eq!(last.last(), total.last().map(|total| total + 3).as_ref());
        // A parameter, in the function at that position.
        let call = &recorded.lines(&["calls", "nothing"])[0];
        let (from, to) = (
            call["position"].as_str().unwrap(),
            call["end"].as_str().unwrap(),
        );
        let found = recorded.lines(&["variable", "p->y", "--from", from, "--to", to]);
        assert!(found.iter().any(|line| line["value"] == "0x2"), "{found:?}");
        // Recursive calls have a parameter of their own.
        if optimisation == "-O0" {
            let call = &recorded.lines(&["calls", "fib"])[0];
            let (from, to) = (
                call["position"].as_str().unwrap(),
                call["end"].as_str().unwrap(),
            );
            let found = changes(&recorded, &["n", "--from", from, "--to", to]);
            assert_eq!(found, [5]);
        }
        let end = recorded.lines(&["accesses", "origin.y"]);
        let start = recorded.guest.symbol("origin") + 8;
        assert_eq!(end, recorded.lines(&["accesses", &format!("{start:#x}+8")]));
        let to = call["end"].as_str().unwrap();
        let named = recorded.lines(&["why", to, "origin.y"]);
        assert_eq!(named, recorded.lines(&["why", to, &format!("{start:#x}")]));
    }
}

/// Variables of the same name, defined within and outside their namespaces.
const NAMESPACES: &str = r#"
namespace first { int count = 1; namespace inner { int count = 2; } }
namespace second { extern int count; }
int second::count = 3;
struct Holder { static int count; };
int Holder::count = 4;
asm(".global _start\n_start: mov x8, #93\n mov x0, #0\n svc #0");
"#;

#[test]
fn namespaces_tell_variables_of_the_same_name_apart() {
    let flags = ["-static", "-nostdlib", "-ffreestanding", "-O1"];
    let Some(guest) = build("aarch64", "program.cpp", NAMESPACES, &flags) else {
        return;
    };
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let recorded = Recorded { guest };
    for (name, value) in [
        ("first::count", 1),
        ("first::inner::count", 2),
        ("inner::count", 2),
        ("::second::count", 3),
        ("Holder::count", 4),
    ] {
        let lines = recorded.lines(&["variable", name]);
        assert_eq!(number(&lines[0]["value"]), value, "{name}");
    }
    let run = recorded.ask(&["variable", "third::count"]);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
}

#[test]
fn questions_without_answers_say_why() {
    let Some(recorded) = Recorded::new("-O1") else {
        return;
    };
    for (question, status, wanted) in [
        (
            &["calls", "absent"][..],
            2,
            "there is no function \"absent\"",
        ),
        (&["values", "9+9"], 2, "there is no position 9+9"),
        (&["values", "nine"], 2, "expects a position"),
        (&["guess"], 2, "expected a question"),
        (&["variable", "total+"], 2, "expected an expression"),
        (&["variable", "origin"], 2, "is a structure or an array"),
        (&["variable", "origin.z"], 2, "no field \"z\""),
        (&["variable", "*total"], 2, "no meaning"),
        (&["why", "0+1", "$nothing"], 2, "no variable or register"),
        (
            &["accesses", "0x10+4"],
            1,
            "no load or store of 0x10+4 is known",
        ),
        (
            &["memory", "0+5", "0x10", "4"],
            1,
            "the memory from 0x10 on is not known",
        ),
    ] {
        let run = recorded.ask(question);
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(status), "{question:?}: {said}");
        assert!(said.contains(wanted), "{question:?}: {said}");
        assert!(run.stdout.is_empty(), "{question:?}");
    }
    let run = recorded.ask(&["calls", "nothing", "--most", "0"]);
    let said = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains("expected 1 or more"), "{said}");
    let absent = recorded.path("absent");
    let run = Command::new(crate::support::armsnap())
        .arg("ask")
        .arg(absent)
        .args(["calls", "nothing"])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    let run = recorded.ask(&["calls", "nothing", "--most", "1"]);
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.contains("more than 1 answers: --from 0+"), "{said}");
    let text = String::from_utf8(run.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("nothing(p=0x"), "{text}");
    let run = recorded.ask(&["calls", "nothing", "--format", "csv"]);
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(text.starts_with("position,thread,function,caller,arguments,end,returns\n"));
    assert_eq!(text.lines().count(), 5, "{text}");
}

#[test]
fn gdb_answers_as_the_command_line_does() {
    let Some(recorded) = Recorded::new("-O1") else {
        return;
    };
    if !crate::support::record::installed(&["gdb-multiarch"]) {
        return;
    }
    let told = |commands: &[&str]| {
        let snapshot = recorded.path("snapshot");
        crate::process_stack::told(&snapshot, &[], commands)
    };
    let asked = |question: &[&str]| String::from_utf8(recorded.ask(question).stdout).unwrap();
    let call = &recorded.lines(&["calls", "nothing"])[1];
    let (at, end) = (
        call["position"].as_str().unwrap(),
        call["end"].as_str().unwrap(),
    );
    let goto = format!("armsnap goto {at}");
    for (command, question) in [
        ("ask calls fib", &["calls", "fib"][..]),
        ("ask variable origin.y", &["variable", "origin.y"]),
        ("ask values here", &["values", at]),
        ("ask why here x0", &["why", at, "x0"]),
        ("ask accesses total", &["accesses", "total"]),
        (
            "ask variable p->y --from here",
            &["variable", "p->y", "--from", at],
        ),
    ] {
        let wanted = asked(question);
        assert!(!wanted.is_empty(), "{question:?}");
        for prefix in ["armsnap", "monitor"] {
            let command = command.strip_prefix("ask ").unwrap();
            let told = told(&[&goto, &format!("{prefix} ask {command}")]);
            assert!(told.contains(&wanted), "{command}: {wanted}\n{told}");
        }
    }
    let to = format!("armsnap ask calls nothing --from {at} --to {end}");
    for (command, wanted) in [
        ("armsnap ask calls nothing --most 1", "more than 1 answers"),
        (&to, "nothing(p=0x"),
        ("armsnap ask", "expected a question"),
        (
            "armsnap ask calls absent",
            "there is no function \"absent\"",
        ),
        ("armsnap ask calls nothing --most 0", "expected 1 or more"),
        (
            "armsnap ask calls nothing --from x",
            "expected a position or here",
        ),
        (
            "armsnap ask calls nothing --to",
            "expected a position or here",
        ),
        ("monitor help", "monitor ask QUESTION"),
        ("help armsnap ask", "accesses ADDRESS"),
    ] {
        let told = told(&[command]);
        assert!(told.contains(wanted), "{command}: {told}");
    }
    let off = told(&["armsnap recover off", "armsnap ask calls fib"]);
    assert!(
        off.contains("values of the past are not recovered"),
        "{off}"
    );
}
