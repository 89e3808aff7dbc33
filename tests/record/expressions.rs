//! Expressions of `armsnap ask`, compared with GDB's own `print` at the same positions.

use crate::support::record::{Guest, build, installed, record};
use std::path::Path;
use std::process::Command;

const FIRST: &str = include_str!("expressions/first.c");
const SECOND: &str = include_str!("expressions/second.c");
const CLASSES: &str = include_str!("expressions/classes.cpp");
const SCOPES: &str = include_str!("expressions/scopes.cpp");

/// Expressions over the C program; some have no value at most positions.
const OF_C: &[&str] = &[
    "count",
    "lonely",
    "packed.a",
    "packed.b",
    "packed.c",
    "packed.d",
    "packed.e",
    "packed.f",
    "packed.g",
    "both.low",
    "both.high",
    "*middle",
    "middle[-1]",
    "hidden->key",
    "hidden->next->key",
    "shared",
    "fixed",
    "sum",
    "x",
    "i",
    "n",
    "y",
    "a",
    "total",
    "by",
    "counter::total",
    "first.c:count",
    "second.c:count",
    "twice[2]",
    "one.key",
];
const OF_CLASSES: &[&str] = &[
    "both.id",
    "b->id",
    "b->left",
    "b->common",
    "both.right",
    "this->id",
    "id",
    "left",
    "m",
    "all",
    "more",
    "Both::made",
    "n",
    "m.b",
    "ref",
    "holder.r",
    "holder.x",
    "multi.a",
    "multi.v",
    "k",
    "count",
    "first::count",
    "hidden",
    "secret",
    "box.value",
    "value",
    "local",
    "x",
    "p->left",
];

/// One of the programs, recorded.
struct Compiled {
    guest: Guest,
    name: String,
}

/// The compilers that are installed, with the options that choose the target.
fn compilers() -> Vec<&'static [&'static str]> {
    let all: [&[&str]; 2] = [
        &["aarch64-linux-gnu-gcc"],
        &["clang", "--target=aarch64-linux-gnu"],
    ];
    let is_there = |compiler: &&&[&str]| installed(&compiler[..1]);
    all.iter().filter(is_there).copied().collect()
}

/// Builds and records the program of some files.
fn compiled(compiler: &[&str], options: &[&str], files: &[(&str, &str)]) -> Option<Compiled> {
    // The start also chooses the directory.
    let start = ".global _start\n_start: mov x29, #0\n mov x30, #0\n bl work\n mov x8, #93\n mov x0, #0\n svc #0\n\
                 .weak work\nwork: ret\n";
    let guest = build("aarch64", "start.s", start, &["-nostdlib", "-static"])?;
    let directory = guest.directory.path();
    let mut objects = Vec::new();
    for (name, text) in files {
        std::fs::write(directory.join(name), text).unwrap();
        let object = format!("{name}.o");
        let built = Command::new(compiler[0])
            .current_dir(directory)
            .args(&compiler[1..])
            .args(options)
            .args(name.ends_with(".cpp").then_some("-fno-rtti"))
            .args([
                "-fno-exceptions",
                "-ffreestanding",
                "-fno-stack-protector",
                "-fno-pic",
                "-c",
                "-o",
                &object,
                name,
            ])
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        objects.push(object);
    }
    std::fs::write(
        directory.join("start.s"),
        start.replace(".weak work\nwork: ret\n", ""),
    )
    .unwrap();
    let linked = Command::new("aarch64-linux-gnu-gcc")
        .current_dir(directory)
        .args(["-nostdlib", "-static", "-o", "program", "start.s"])
        .args(&objects)
        .output()
        .unwrap();
    assert!(linked.status.success(), "{linked:?}");
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let name = format!("{compiler:?} {options:?}");
    Some(Compiled { guest, name })
}

/// A number in hexadecimal at the start of a text, after what GDB prints before it.
fn number(text: &str) -> Option<u64> {
    let text = text.split_once("= ").map_or(text, |(_, value)| value);
    if text.contains('{') {
        return None;
    }
    let word = text
        .split_whitespace()
        .find(|word| word.starts_with("0x"))?;
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// Compares answers with those of GDB at every few positions: none may be another value. Returns how
/// many are the same, and how many only GDB knows.
fn compare(compiled: &Compiled, expressions: &[&str]) -> (usize, usize) {
    let snapshot = compiled.guest.directory.path().join("snapshot");
    let script = compiled.guest.directory.path().join("compare.py");
    let list: Vec<String> = expressions
        .iter()
        .map(|text| {
            let quoted = match text.split_once(".c:") {
                Some((file, name)) => format!("'{file}.c'::{name}"),
                None => (*text).to_owned(),
            };
            format!("({text:?}, {quoted:?})")
        })
        .collect();
    let end = end(&snapshot);
    std::fs::write(
        &script,
        format!(
            "import gdb\n\
             def told(command):\n\
             \x20   try: return gdb.execute(command, to_string=True).replace('\\n', ' ')\n\
             \x20   except gdb.error as error: return str(error).replace('\\n', ' ').replace('0x', '')\n\
             for at in range(1, {end}, {}):\n\
             \x20   told('armsnap goto 0+%d' % at)\n\
             \x20   for text, quoted in [{}]:\n\
             \x20       own = told('monitor ask variable %s --from here --to here' % text)\n\
             \x20       print('@@%d|%s|%s|%s' % (at, text, told('print/x ' + quoted), own))\n",
            end / 11 + 1,
            list.join(", ")
        ),
    )
    .unwrap();
    let run = Command::new(crate::support::armsnap())
        .arg("gdb")
        .arg(&snapshot)
        .args(["--", "-batch", "-x"])
        .arg(&script)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let (mut same, mut unknown) = (0, 0);
    for line in said.lines().filter_map(|line| line.strip_prefix("@@")) {
        let parts: Vec<&str> = line.splitn(4, '|').collect();
        let (theirs, own) = (
            number(parts[2]),
            number(parts[3]).filter(|_| parts[3].starts_with("0+")),
        );
        match (theirs, own) {
            (Some(theirs), Some(own)) => {
                assert_eq!(own, theirs, "{}: {line}", compiled.name);
                same += 1;
            }
            (Some(_), None) => unknown += 1,
            _ => {}
        }
    }
    (same, unknown)
}

/// The number of the last position.
fn end(snapshot: &Path) -> usize {
    let told = crate::process_stack::told(snapshot, &[], &["monitor where"]);
    let after = told.split("0+").nth(1).unwrap_or_else(|| panic!("{told}"));
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn check(files: &[(&str, &str)], expressions: &[&str], least: usize) {
    if !installed(&["gdb-multiarch"]) {
        return;
    }
    for compiler in compilers() {
        for (version, level) in [("2", "0"), ("4", "2"), ("5", "0")] {
            let options = [&format!("-gdwarf-{version}")[..], &format!("-O{level}")];
            let Some(compiled) = compiled(compiler, &options, files) else {
                return;
            };
            let (same, unknown) = compare(&compiled, expressions);
            let name = &compiled.name;
            assert!(
                same > least && unknown * 5 < same,
                "{name}: {same}, {unknown}"
            );
        }
    }
}

#[test]
fn expressions_of_c_mean_what_gdb_prints() {
    check(&[("first.c", FIRST), ("second.c", SECOND)], OF_C, 80);
}

#[test]
fn expressions_of_classes_mean_what_gdb_prints() {
    check(&[("classes.cpp", CLASSES)], OF_CLASSES, 40);
}

/// What `ask` answers, or says.
fn asked(compiled: &Compiled, question: &[&str]) -> String {
    let run = Command::new(crate::support::armsnap())
        .arg("ask")
        .arg(compiled.guest.directory.path().join("snapshot"))
        .args(question)
        .output()
        .unwrap();
    String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned()
}

/// The bytes of `packed`, and the bits of a field in them as its layout counts them.
fn bits(program: &Path, name: &str) -> u64 {
    use armsnap::program::symbols::Symbols;
    use armsnap::program::symbols::variables::Layout;
    use object::{Object, ObjectSection, ObjectSymbol};
    let bytes = std::fs::read(program).unwrap();
    let mut symbols = Symbols::default();
    symbols.add(&bytes).unwrap();
    let variable = symbols.global("packed", None).unwrap().unwrap();
    let Some(Layout::Record {
        fields,
        bytes: size,
    }) = symbols.layout(variable.kind.unwrap())
    else {
        panic!("not a structure");
    };
    let named =
        |field: &&armsnap::program::symbols::variables::Field| field.name.as_deref() == Some(name);
    let (first, length) = fields.iter().find(named).unwrap().bits.unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = file
        .symbols()
        .find(|symbol| symbol.name() == Ok("packed"))
        .unwrap();
    let section = file
        .section_by_index(symbol.section_index().unwrap())
        .unwrap();
    let data = section.data_range(symbol.address(), size).unwrap().unwrap();
    let bit = |number: u64| {
        let byte = u64::from(data[(number / 8) as usize]);
        match file.is_little_endian() {
            true => byte >> (number % 8) & 1,
            false => byte >> (7 - number % 8) & 1,
        }
    };
    let value = |all: u64, number| match file.is_little_endian() {
        true => all | bit(number) << (number - first),
        false => all << 1 | bit(number),
    };
    (first..first + length).fold(0, value)
}

#[test]
fn bit_fields_are_those_of_the_program_in_both_byte_orders() {
    for version in ["2", "3", "4", "5"] {
        for endian in ["-mlittle-endian", "-mbig-endian"] {
            let options = [
                &format!("-gdwarf-{version}")[..],
                "-O0",
                endian,
                "-nostdlib",
                "-static",
            ];
            let text = format!("{FIRST}\nint second(int n) {{ return n; }}");
            let Some(guest) = build("aarch64", "first.c", &text, &options) else {
                return;
            };
            for (field, value) in [
                ("a", 5),
                ("b", 0x19),
                ("c", 0x5a3),
                ("d", 2),
                ("e", 0x12_3456_789a),
                ("f", 0x7d),
            ] {
                assert_eq!(bits(&guest.program, field), value, "{options:?}: {field}");
            }
        }
    }
}

#[test]
fn names_of_several_variables_are_listed() {
    let files = [("first.c", FIRST), ("second.c", SECOND)];
    let Some(compiled) = compiled(&["aarch64-linux-gnu-gcc"], &["-g", "-O0"], &files) else {
        return;
    };
    let told = asked(&compiled, &["accesses", "count"]);
    assert!(told.contains("first.c:count, second.c:count"), "{told}");
    assert!(asked(&compiled, &["variable", "second.c:count"]).contains("0x16 "));
    // A parameter before it is stored, and a variable outside of its block, have no value.
    let call = asked(&compiled, &["calls", "inner"]);
    let at = call.split_whitespace().next().unwrap();
    let told = asked(&compiled, &["variable", "n", "--from", at, "--to", at]);
    assert!(told.contains("no value of \"n\" is known"), "{told}");
    let told = asked(&compiled, &["variable", "i", "--from", at, "--to", at]);
    assert!(
        told.contains("no variable or register \"i\""),
        "there are two: {told}"
    );
    let told = asked(&compiled, &["variable", "n", "--from", at]);
    assert!(told.contains(" 0x2 "), "{told}");
}

#[test]
fn members_are_reached_through_pointers_to_members() {
    let Some(compiled) = compiled(
        &["aarch64-linux-gnu-gcc"],
        &["-g", "-O0"],
        &[("classes.cpp", CLASSES)],
    ) else {
        return;
    };
    for (text, value) in [
        ("multi.*pm", "0x2"),
        ("pmulti->*pn", "0x3"),
        ("Both::made", "0x6"),
        ("first::inner::count", "0x2"),
    ] {
        let told = asked(&compiled, &["variable", text, "--most", "1"]);
        assert_eq!(
            told.split_whitespace().nth(1),
            Some(value),
            "{text}: {told}"
        );
    }
    let told = asked(&compiled, &["variable", "multi.v"]);
    assert!(
        told.contains("several base classes have a field \"v\""),
        "{told}"
    );
}

#[test]
fn names_mean_what_they_mean_in_the_function_that_halted() {
    let Some(compiled) = compiled(
        &["aarch64-linux-gnu-gcc"],
        &["-g", "-O0"],
        &[("scopes.cpp", SCOPES)],
    ) else {
        return;
    };
    let snapshot = compiled.guest.directory.path().join("snapshot");
    let end = format!("0+{}", end(&snapshot));
    // The parameter, the variable of the base class, and a signed bit field.
    for (text, value) in [("x", "0x29"), ("shared", "0x2"), ("made.small", "0xfd")] {
        let told = asked(&compiled, &["variable", text, "--from", &end]);
        assert_eq!(
            told.split_whitespace().nth(1),
            Some(value),
            "{text}: {told}"
        );
    }
    let told = asked(&compiled, &["why", &end, "x"]);
    assert!(told.contains(": 0x29 "), "{told}");
}

#[test]
fn blocks_of_inlined_functions_hide_names_only_in_themselves() {
    let text = "int x = 100; volatile int sink;\n\
        static inline __attribute__((always_inline)) void inner(int a) {\n\
            { static int x = 7; x++; sink = x + a; }\n\
            *(volatile int *)(long)(sink & 0) = 5;\n\
        }\n\
        void work(void) { inner(sink); }";
    for level in ["-O0", "-O2"] {
        let options = ["-g", level];
        let Some(compiled) = compiled(&["aarch64-linux-gnu-gcc"], &options, &[("inner.c", text)])
        else {
            return;
        };
        let end = format!(
            "0+{}",
            end(&compiled.guest.directory.path().join("snapshot"))
        );
        let told = asked(&compiled, &["variable", "x", "--from", &end]);
        assert_eq!(told.split_whitespace().nth(1), Some("0x64"), "{told}");
    }
}

#[test]
fn constants_of_several_files_are_listed() {
    let files = [
        (
            "one.c",
            "static const int limit = 1; volatile int sink; int get(void);\n\
             void work(void) { sink = limit + get(); }",
        ),
        (
            "two.c",
            "static const int limit = 2; int get(void) { return limit; }",
        ),
    ];
    let Some(compiled) = compiled(&["aarch64-linux-gnu-gcc"], &["-g", "-O2"], &files) else {
        return;
    };
    let told = asked(&compiled, &["variable", "limit", "--from", "0+0"]);
    assert!(told.contains("one.c:limit, two.c:limit"), "{told}");
}

#[test]
fn what_the_linker_has_removed_is_no_variable() {
    use armsnap::program::symbols::Symbols;
    let text = "int gone = 5; int kept = 6; void _start(void) { kept++; for (;;); }";
    let options = [
        "-g",
        "-fdata-sections",
        "-Wl,--gc-sections",
        "-nostdlib",
        "-static",
    ];
    let Some(guest) = build("aarch64", "gone.c", text, &options) else {
        return;
    };
    let mut symbols = Symbols::default();
    symbols
        .add(&std::fs::read(&guest.program).unwrap())
        .unwrap();
    assert_eq!(symbols.global("gone", None), Ok(None));
    assert!(symbols.global("kept", None).unwrap().is_some());
}
