//! Function names in armsnap's own output: C++ and Rust names as in the source, functions of saved
//! libraries, and no name outside of functions.

use crate::support::record::{Guest, build, compiler, installed, record};
use std::path::Path;
use std::process::{Command, Stdio};

/// The library is stripped: it has only its exported names.
const LIBRARY: &str = r#"
    long each(long (*visit)(long), long count) __asm__("_ZN5shelf4eachEPFllEl");
    long each(long (*visit)(long), long count)
    {
        long sum = 0;
        for (long at = 0; at < count; at++)
            sum += visit(at);
        return sum;
    }
"#;

/// The names that a C++ and a Rust compiler would give to these.
const PROGRAM: &str = r#"
    long each(long (*visit)(long), long count) __asm__("_ZN5shelf4eachEPFllEl");
    long price(long at) __asm__("_ZN4shop5priceEl");
    long price_of(long at, long more) __asm__("_ZN4shop5priceEll");
    long total(long count) __asm__("_RNvNtC4till4cash5total");
    long price_of(long at, long more) { return at * 3 + more; }
    long price(long at) { return price_of(at, 1); }
    long total(long count)
    {
        long sum = each(price, count);
        if (sum)
            *(volatile long *)8 = sum;
        return sum;
    }
    int main(void) { return total(4); }
"#;

/// The program and its library; `None` if the tools are not installed.
fn guest(architecture: &'static str) -> Option<Guest> {
    if !installed(&["gdb-multiarch", compiler(architecture)]) {
        return None;
    }
    let libraries = tempfile::tempdir().unwrap();
    let source = libraries.path().join("shelf.c");
    std::fs::write(&source, LIBRARY).unwrap();
    let library = libraries.path().join("libshelf.so");
    let built = Command::new(compiler(architecture))
        .args(["-s", "-O1", "-fPIC", "-shared", "-Wl,-soname,libshelf.so"])
        .arg("-o")
        .args([&library, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let options = [
        "-O1",
        "-fno-inline",
        "-fno-optimize-sibling-calls",
        "-fPIE",
        "-pie",
        &format!("-L{}", libraries.path().display()),
        "-lshelf",
        "-Wl,-rpath,$ORIGIN",
    ];
    let guest = build(architecture, "till.c", PROGRAM, &options)?;
    std::fs::copy(&library, guest.directory.path().join("libshelf.so")).unwrap();
    Some(guest)
}

/// The address of each instruction, with function and offset, in `armsnap decode`.
fn decoded(snapshot: &Path) -> Vec<(u64, Option<(String, u64)>)> {
    let mut command = Command::new(crate::support::armsnap());
    command.arg("decode").arg(snapshot);
    command.args(["--level", "instructions", "--format", "jsonl"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines = lines.filter(|line: &serde_json::Value| line["kind"] == "instruction");
    lines
        .map(|line| {
            let address = line["address"].as_str().unwrap().strip_prefix("0x");
            let address = u64::from_str_radix(address.unwrap(), 16).unwrap();
            let name = line["function"].as_str().map(str::to_owned);
            (
                address,
                name.map(|name| (name, line["offset_in_function"].as_u64().unwrap())),
            )
        })
        .collect()
}

/// The output of GDB on the snapshot.
fn gdb(snapshot: &Path, commands: &[String]) -> String {
    let mut gdb = Command::new("timeout");
    gdb.args(["-k", "5", "100", crate::support::armsnap(), "gdb"]);
    gdb.arg(snapshot);
    gdb.args(["--", "-batch", "-nx", "-ex", "set width 0"]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    let run = gdb.stdin(Stdio::null()).output().unwrap();
    // The output of `monitor` goes to standard error.
    let out = [run.stdout, run.stderr].concat();
    String::from_utf8_lossy(&out).into_owned()
}

/// Compares all names with GDB's for the same address, and tests the commands that take names.
fn names(architecture: &'static str) {
    let Some(guest) = guest(architecture) else {
        return;
    };
    let run = record(&guest, "crash", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let snapshot = guest.directory.path().join("crash");
    let mut decoded = decoded(&snapshot);
    decoded.sort();
    decoded.dedup();
    let is = |(_, found): &(u64, Option<(String, u64)>), wanted: &str| {
        found.as_ref().is_some_and(|(name, _)| name == wanted)
    };
    for wanted in [
        "shop::price(long)",
        "shop::price(long, long)",
        "till::cash::total",
        "shelf::each(long (*)(long), long)",
        "main",
    ] {
        let found = decoded.iter().any(|line| is(line, wanted));
        assert!(found, "{wanted}");
    }
    // GDB's own name for them, in all files.
    decoded.retain(|(_, found)| found.is_some());
    let commands = decoded.iter();
    let commands = commands.map(|(at, _)| format!("info symbol {at:#x}"));
    let mut commands: Vec<String> = commands.collect();
    commands.insert(0, "echo <<<\\n".to_owned());
    let text = gdb(&snapshot, &commands);
    let words = text.split("<<<\n").nth(1).unwrap().lines();
    let mut libraries = 0;
    for ((address, found), word) in decoded.iter().zip(words) {
        let (name, offset) = found.as_ref().unwrap();
        let (place, section) = word.split_once(" in section ").unwrap();
        // One address may have several names, but the same offset in all.
        let after = place.rsplit_once(" + ").map_or("0", |(_, after)| after);
        assert_eq!(after, offset.to_string(), "{address:#x} {name}: {word}");
        libraries += usize::from(section.contains("libraries/libc.so.6"));
    }
    assert!(libraries > 20, "{libraries} of {}", decoded.len());

    let commands = [
        "monitor calls 12",
        "monitor find shop::price(long, long) back",
        "monitor find shop::price(long) back",
        "monitor find shop::price back",
        "monitor find _ZN5shelf4eachEPFllEl back",
        "monitor find each back",
        "armsnap find till::cash::total back",
        "monitor where",
        "monitor history 1",
    ];
    let text = gdb(&snapshot, &commands.map(str::to_owned));
    for wanted in [
        " main\n",
        " till::cash::total\n",
        " shelf::each(long (*)(long), long) (jumped to)\n",
        " shop::price(long)\n",
        " shop::price(long, long)\n",
        " <shop::price(long, long)>; monitor goto ",
        " <shop::price(long)>; monitor goto ",
        " <shelf::each(long (*)(long), long)>; monitor goto ",
        " <till::cash::total>, A64\n",
        " <main+",
    ] {
        let wanted = match architecture {
            "arm" => wanted.replace("A64", "T32"),
            _ => wanted.to_owned(),
        };
        assert!(text.contains(&wanted), "{wanted}: {text}");
    }
}

#[test]
fn functions_of_an_aarch64_program_have_their_source_names() {
    names("aarch64");
}

#[test]
fn functions_of_an_arm_program_have_their_source_names() {
    names("arm");
}
