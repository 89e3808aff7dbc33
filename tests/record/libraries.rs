//! `armsnap record` of a position-independent program with shared libraries: the trace equals what
//! was executed, also in libraries, and GDB shows stack and heap data as on
//! the live emulator.

use crate::support::record::{Guest, build, compiler, decoded, installed, live, places, record};
use std::path::Path;
use std::process::{Command, Stdio};

const LIBRARY: &str = r#"
    struct part { struct part *next; char *name; int weight; };
    typedef int visit(struct part *, int);
    int each(struct part *part, visit *visit)
    {
        int sum = 0;
        for (; part; part = part->next)
            sum = visit(part, sum);
        return sum;
    }
"#;

const PROGRAM: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    struct part { struct part *next; char *name; int weight; };
    typedef int visit(struct part *, int);
    int each(struct part *part, visit *visit);
    struct part *parts;
    char *mapped;
    static void add(const char *name, int weight)
    {
        struct part *part = malloc(sizeof *part);
        *part = (struct part){ parts, strdup(name), weight };
        parts = part;
    }
    int weigh(struct part *part, int sum)
    {
        printf("%s\n", part->name);
        return sum + part->weight;
    }
    int heavier(const void *a, const void *b)
    {
        struct part *const *left = a, *const *right = b;
        if ((*left)->weight == 3)
            (*left)->next = *(struct part *volatile *)16;
        return (*left)->weight - (*right)->weight;
    }
    int main(int argc, char **argv)
    {
        struct part *sorted[4];
        mapped = malloc(argc > 1 ? 32 << 20 : 1 << 20);
        memset(mapped, 'm', 1 << 20);
        add("wheel", 12);
        add("spoke", 1);
        add("frame", 40);
        add("bell", 3);
        printf("%d\n", each(parts, weigh));
        int count = 0;
        for (struct part *part = parts; part; part = part->next)
            sorted[count++] = part;
        qsort(sorted, count, sizeof *sorted, heavier);
        return sorted[0]->weight;
    }
"#;

fn sysroot(architecture: &str) -> &'static Path {
    Path::new(match architecture {
        "aarch64" => "/usr/aarch64-linux-gnu",
        _ => "/usr/arm-linux-gnueabihf",
    })
}

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
        .args(["-g", "-O1", "-fPIC", "-shared", "-Wl,-soname,libshelf.so"])
        .arg("-o")
        .args([&library, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let path = libraries.path().to_str().unwrap();
    let options = [
        "-O1",
        "-fPIE",
        "-pie",
        "-fno-inline",
        &format!("-L{path}"),
        "-lshelf",
        "-Wl,-rpath,$ORIGIN",
    ];
    let guest = build(architecture, "stock.c", PROGRAM, &options)?;
    std::fs::copy(&library, guest.directory.path().join("libshelf.so")).unwrap();
    Some(guest)
}

/// GDB's options for finding the libraries.
fn paths(guest: &Guest) -> [String; 4] {
    [
        "-iex".to_owned(),
        format!("set sysroot {}", sysroot(guest.architecture).display()),
        "-iex".to_owned(),
        format!("set solib-search-path {}", guest.directory.path().display()),
    ]
}

/// GDB's output between two marks.
fn shown(gdb: &mut Command) -> Vec<String> {
    const COMMANDS: [&str; 12] = [
        "echo <<<\\n",
        "backtrace",
        "print *parts",
        "print *parts->next",
        "print *parts->next->next->next",
        "print main",
        "print each",
        "info symbol parts->next",
        "info registers pc sp",
        "x/2i $pc",
        "print *(char (*)[8])(mapped + (1 << 20) - 8)",
        "echo >>>\\n",
    ];
    for command in COMMANDS {
        gdb.args(["-ex", command]);
    }
    let run = gdb.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let inside = text.split("<<<\n").nth(1);
    let inside = inside.and_then(|text| text.split(">>>\n").next());
    let inside = inside.unwrap_or_else(|| panic!("{run:?}"));
    inside.lines().map(str::to_owned).collect()
}

fn gdb(program: &str) -> Command {
    let mut gdb = Command::new("timeout");
    gdb.args(["-k", "5", "60", program]);
    gdb
}

/// In `armsnap gdb`, which finds the libraries in the snapshot.
fn of_snapshot(guest: &Guest, name: &str) -> Vec<String> {
    let snapshot = guest.directory.path().join(name);
    let mut gdb = gdb(crate::support::armsnap());
    gdb.arg("gdb").arg(&snapshot);
    gdb.args(["--", "-batch", "-nx", "-ex", "set width 0"]);
    let libraries = format!("{}/libraries", snapshot.display());
    let shown = shown(&mut gdb).into_iter();
    // Only the location of the files differs from the live emulator.
    let root = sysroot(guest.architecture).join("lib");
    shown
        .map(|line| line.replace(&libraries, root.to_str().unwrap()))
        .collect()
}

/// On the live emulator, after these commands.
fn of_emulator(guest: &Guest, arguments: &[&str], commands: &[&str]) -> Vec<String> {
    let root = sysroot(guest.architecture).to_str().unwrap();
    live(guest, &["-L", root], arguments, |socket| {
        let mut gdb = gdb("gdb-multiarch");
        gdb.args(["-batch", "-nx", "-ex", "set width 0"]);
        gdb.args(paths(guest)).arg(&guest.program);
        gdb.args(["-ex", &format!("target remote {}", socket.display())]);
        for command in commands {
            gdb.args(["-ex", command]);
        }
        shown(&mut gdb)
    })
}

/// Lines of a back trace.
fn frames(shown: &[String]) -> Vec<&String> {
    shown.iter().filter(|line| line.starts_with('#')).collect()
}

/// Compares the snapshot of the crash with the executed instructions and with the live emulator.
fn crash(architecture: &'static str) {
    let Some(guest) = guest(architecture) else {
        return;
    };
    let witness = guest.directory.path().join("witness");
    let options = ["--witness", witness.to_str().unwrap()];
    let run = record(&guest, "crash", &options, &[]);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{told}");
    assert!(told.contains("stopped by SIGSEGV"), "{told}");
    assert!(!told.contains("left out"), "{told}");

    // Most of it was executed in libraries.
    let decoded = decoded(&guest.directory.path().join("crash"));
    let decoded = decoded.into_values().next().unwrap();
    let executed = places(&witness).remove(&0).unwrap();
    let same = decoded.iter().zip(&executed).take_while(|(a, b)| a == b);
    let same = same.count();
    assert!(decoded == executed, "{same} of {} agree", executed.len());
    assert!(executed.len() > 50_000, "{}", executed.len());

    let saved = of_snapshot(&guest, "crash");
    let live = of_emulator(&guest, &[], &["continue"]);
    assert_eq!(saved, live);
    let frames = frames(&saved);
    let [first, inside @ .., last] = &frames[..] else {
        panic!("{saved:?}");
    };
    assert!(first.contains("heavier (a="), "{first}");
    assert!(inside.iter().any(|f| f.contains("qsort")), "{inside:?}");
    assert!(last.contains(" main (argc="), "{last}");
    // On the heap, and in memory mapped by malloc.
    for end in [
        "\"bell\", weight = 3}",
        "\"frame\", weight = 40}",
        "\"wheel\", weight = 12}",
        "\"mmmmmmmm\"",
    ] {
        let found = saved.iter().any(|line| line.ends_with(end));
        assert!(found, "{end}: {saved:?}");
    }
}

#[test]
fn libraries_and_heap_of_an_aarch64_program_equal_the_live_emulator() {
    crash("aarch64");
}

#[test]
fn libraries_and_heap_of_an_arm_program_equal_the_live_emulator() {
    crash("arm");
}

#[test]
fn beyond_the_limit_only_the_largest_memory_is_left_out() {
    let Some(guest) = guest("aarch64") else {
        return;
    };
    let run = record(&guest, "large", &["--memory", "20000000"], &["large"]);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{told}");
    let (bytes, rest) = told
        .split_once(" bytes of memory are left out, at ")
        .unwrap();
    let bytes: u64 = bytes.parse().unwrap();
    assert!((32 << 20..33 << 20).contains(&bytes), "{told}");
    assert!(
        rest.contains(": all would be more than --memory 20000000"),
        "{told}"
    );
    let saved = of_snapshot(&guest, "large");
    let live = of_emulator(&guest, &["large"], &["continue"]);
    // Only the memory mapped by malloc exceeds the limit.
    let mapped = |line: &String| line.ends_with("\"mmmmmmmm\"");
    assert!(
        live.iter().any(mapped) && !saved.iter().any(mapped),
        "{saved:?}"
    );
    let kept = live.into_iter().filter(|line| !mapped(line));
    assert_eq!(saved, kept.collect::<Vec<_>>());
}

#[test]
fn a_function_that_a_library_calls_is_found_where_it_was_loaded() {
    let Some(guest) = guest("aarch64") else {
        return;
    };
    let root = sysroot(guest.architecture).to_str().unwrap();
    let options = ["--until", "weigh", "--sysroot", root];
    let run = record(&guest, "at", &options, &[]);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{told}");
    let pc = told.rsplit("PC 0x").next().unwrap().trim();
    let pc = u64::from_str_radix(pc, 16).unwrap();
    let moved = pc - guest.symbol("weigh");
    assert!(moved > 0 && moved.is_multiple_of(0x1000), "{told}");
    let saved = of_snapshot(&guest, "at");
    let live = of_emulator(&guest, &[], &["break *weigh", "continue"]);
    assert_eq!(saved, live);
    let frames = frames(&saved);
    assert_eq!(frames.len(), 3, "{saved:?}");
    for (frame, name) in
        frames
            .iter()
            .zip(["weigh (part=0x", " in each (part=0x", " in main (argc="])
    {
        assert!(frame.contains(name), "{saved:?}");
    }

    let run = record(&guest, "none", &["--sysroot", "/nowhere"], &[]);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(1), "{told}");
    assert!(told.contains("ld-linux-aarch64.so.1"), "{told}");
    assert!(!guest.directory.path().join("none").exists());
}

#[test]
fn a_recording_ends_in_a_library() {
    for architecture in ["aarch64", "arm"] {
        let Some(guest) = guest(architecture) else {
            return;
        };
        for (number, (until, count)) in [("each", "1"), ("shelf.c:8", "3")].iter().enumerate() {
            let name = format!("until{number}");
            let run = record(&guest, &name, &["--until", until, "--count", count], &[]);
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            assert!(said.contains(&format!("stopped at {until}")), "{said}");
            let lines = of_snapshot(&guest, &name);
            assert!(lines[0].contains("each ("), "{lines:?}");
        }
        // A library without mapping symbols: its functions determine the instruction set at an
        // address.
        let run = record(&guest, "named", &["--until", "qsort"], &[]);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        let place = said.rsplit("PC ").next().unwrap().trim();
        let run = record(&guest, "numbered", &["--until", place], &[]);
        let numbered = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(said.contains("stopped at qsort, "), "{said}");
        let ends = format!("stopped at {place}, PC {place}");
        assert!(numbered.contains(&ends), "{numbered}");
        // Its resolver ran before the program started, and the chosen function has another name.
        let run = record(&guest, "indirect", &["--until", "memcpy"], &[]);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        if architecture == "aarch64" {
            assert_eq!(run.status.code(), Some(2), "{said}");
            assert!(said.contains("(IFUNC)"), "{said}");
        }
    }
}
