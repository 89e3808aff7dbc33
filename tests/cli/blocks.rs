//! The command blocks of the documentation: the program takes each command, and what makes files for
//! other programs runs.

use crate::support::gdb::{armsnap, need_gdb, run, run_within, testdata, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const TOP: &str = env!("CARGO_MANIFEST_DIR");

/// A command of a page.
struct Written {
    page: String,
    command: String,
    /// It follows `$`, in a transcript.
    typed: bool,
}

/// The commands of README.md and docs/ that start with `armsnap`, in indented and fenced blocks.
fn commands() -> Vec<Written> {
    let mut pages = vec![Path::new(TOP).join("README.md")];
    let docs = fs::read_dir(Path::new(TOP).join("docs")).unwrap();
    pages.extend(docs.map(|entry| entry.unwrap().path()));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut found = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let mut fenced = false;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            }
            let Some(code) = line.strip_prefix("    ").or_else(|| fenced.then_some(line)) else {
                continue;
            };
            let typed = code.starts_with("$ ");
            let mut command = code.trim_start_matches("$ ").trim().to_owned();
            // After `&&` and `\`, a command continues on the next line.
            while command.ends_with("&&") || command.ends_with('\\') {
                let more = lines.next().unwrap().trim();
                command = format!("{} {more}", command.trim_end_matches('\\').trim_end());
            }
            if command.starts_with("armsnap ") {
                let page = page.file_name().unwrap().to_string_lossy().into_owned();
                found.push(Written {
                    page,
                    command,
                    typed,
                });
            }
        }
    }
    found
}

/// A command without the remark after it, for a shell in which a variable names the program.
fn in_shell(command: &str) -> String {
    let command = command.split("  #").next().unwrap();
    command.replace("armsnap ", "\"$ARMSNAP\" ")
}

#[test]
fn commands_of_the_documentation_are_those_of_the_program() {
    let mut count = 0;
    for Written { page, command, .. } in commands() {
        let first = command.split([';', '|', '>', '&']).next().unwrap();
        // Skips forms, such as `armsnap COMMAND --help`, and commands that need no input, which
        // would run.
        let is_form = first.starts_with("armsnap = ")
            || first.contains("COMMAND")
            || first.contains('[')
            || first.contains('…');
        let runs = first.starts_with("armsnap demo") || first.starts_with("armsnap doctor");
        if is_form || runs {
            continue;
        }
        // There is no input here.
        let place = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &in_shell(first)]);
        shell.env("ARMSNAP", crate::support::armsnap());
        let output = run(shell.current_dir(place.path()));
        let said = text(&output);
        // What the parser of arguments ends with.
        assert!(!said.contains("try '--help'"), "{page}: {command}: {said}");
        count += 1;
    }
    assert!(count > 60, "{count}");
}

/// A block of a page: a fenced one, or one of indented lines.
struct Block {
    page: String,
    /// What follows the fence; empty for an indented block.
    language: String,
    lines: Vec<String>,
}

/// The blocks of README.md and docs/, but not continued items of lists.
fn blocks() -> Vec<Block> {
    let docs = fs::read_dir(Path::new(TOP).join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = docs.map(|entry| entry.unwrap().path()).collect();
    pages.push(Path::new(TOP).join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    let mut found: Vec<Block> = Vec::new();
    for page in pages {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let block = |language: &str| Block {
            page: name.clone(),
            language: language.to_owned(),
            lines: Vec::new(),
        };
        let text = fs::read_to_string(&page).unwrap();
        let (mut fenced, mut indented, mut empty) = (false, false, true);
        for line in text.lines() {
            if let Some(language) = line.strip_prefix("```") {
                fenced = !fenced;
                if fenced {
                    found.push(block(language));
                }
                continue;
            }
            if fenced {
                found.last_mut().unwrap().lines.push(line.to_owned());
                continue;
            }
            match line.strip_prefix("    ") {
                Some(line) if indented || empty => {
                    if !indented {
                        found.push(block(""));
                    }
                    indented = true;
                    found.last_mut().unwrap().lines.push(line.to_owned());
                }
                // The output of a command may contain empty lines.
                _ => indented &= line.is_empty(),
            }
            empty = line.is_empty();
        }
    }
    found
}

/// Runs GDB without armsnap's own start, in the top directory, with `armsnap` in PATH.
fn in_gdb(arguments: &[&str]) -> String {
    need_gdb();
    let own = Path::new(crate::support::armsnap()).parent().unwrap();
    let mut path = std::ffi::OsString::from(own);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]).args(arguments);
    let output = run(gdb.env("PATH", path).current_dir(TOP));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    said
}

/// GDB connects through a pipe, and takes the commands of armsnap.
#[test]
fn blocks_for_any_gdb_run() {
    let blocks = blocks();
    let typed = |of: &str, start: &str| -> Vec<String> {
        let block = blocks.iter().find(|block| {
            block.page == of && block.lines.iter().any(|line| line.starts_with(start))
        });
        let lines = block.unwrap().lines.iter();
        lines
            .filter_map(|line| line.strip_prefix("(gdb) ").map(str::to_owned))
            .collect()
    };
    let commands = typed("debugging.md", "(gdb) python import subprocess");
    for page in ["tour.md", "debugging.md"] {
        let mut arguments = Vec::new();
        let connected = typed(page, "(gdb) target remote | armsnap serve --stdio");
        for command in connected.iter().chain(&commands) {
            arguments.extend(["-ex", command]);
        }
        let said = in_gdb(
            &[
                &arguments[..],
                &["-ex", "armsnap where", "-ex", "backtrace 1"],
            ]
            .concat(),
        );
        assert!(
            said.contains("#0  grant (request=0x20000fd0"),
            "{page}: {said}"
        );
        assert!(said.contains("has no history"), "{page}: {said}");
    }
}

#[test]
fn the_hook_for_trace_files_selects_the_instruction_set() {
    let page = fs::read_to_string(Path::new(TOP).join("docs/trace-files.md")).unwrap();
    let from = page.find("define hookpost-tfind").unwrap();
    let hook = &page[from..from + page[from..].find("\n\n").unwrap()];
    let place = tempfile::tempdir().unwrap();
    let hooks = place.path().join("hook");
    fs::write(&hooks, hook).unwrap();
    let mode = |recorded: &str, core: &str| {
        let file = place.path().join(format!("{core}.tf"));
        let snapshot = testdata("recorded").join(recorded);
        let converted = run(armsnap()
            .args(["convert", "--core", core])
            .arg(snapshot)
            .arg(&file));
        assert!(converted.status.success(), "{}", text(&converted));
        let target = format!("target tfile {}", file.display());
        let hooks = hooks.to_str().unwrap();
        in_gdb(&[
            "-x",
            hooks,
            "-ex",
            &target,
            "-ex",
            "tfind 2",
            "-ex",
            "show arm fallback-mode",
        ])
    };
    let (thumb, arm) = (mode("etmv3", "Cortex-M4_0"), mode("ptm", "Cortex-A15_0"));
    assert!(thumb.contains("is \"thumb\""), "{thumb}");
    assert!(arm.contains("is \"arm\""), "{arm}");
}

/// A block is a transcript, which `tests/gdb/readme.rs` runs; or it starts with a command of armsnap,
/// which is tried above; or it is here.
#[test]
fn blocks_are_run_or_not_for_a_reason() {
    /// The page, the start of the block or the language of its fence, and what runs it, or would have
    /// to be there to run it.
    const OTHERS: [(&str, &str, &str); 44] = [
        ("README.md", "scripts/demo", "scripts/test-fresh"),
        ("README.md", "rustup target add", "scripts/test-hosts"),
        ("cluster.md", "console", "tests/cli/blocks.rs"),
        ("cluster.md", "sql", "tests/export/shards.rs"),
        ("debugging.md", "[program]", "tests/gdb/endpoints.rs"),
        ("debugging.md", "(gdb) directory", "tests/cli/blocks.rs"),
        (
            "debugging.md",
            "(gdb) info threads",
            "tests/record/tasks.rs",
        ),
        (
            "debugging.md",
            "(gdb) tbreak spoil",
            "tests/gdb/past_values.rs",
        ),
        (
            "debugging.md",
            "(gdb) watch list->next",
            "tests/gdb/past_values.rs",
        ),
        ("debugging.md", "(gdb) python import", "tests/cli/blocks.rs"),
        ("debugging.md", "(lldb) gdb-remote", "tests/gdb/lldb.rs"),
        ("decoding-as-a-library.md", "toml", "scripts/test"),
        ("decoding.md", "python", "tests/decode/branch_records.rs"),
        (
            "decoding-as-a-library.md",
            "rust",
            "crates/trace/src/lib.rs",
        ),
        ("editors.md", "cd editors/vscode", "needs VS Code"),
        ("editors.md", "json", "tests/cli/editors.rs"),
        ("editors.md", "lua", "needs Neovim"),
        ("editors.md", "elisp", "needs Emacs"),
        (
            "importing.md",
            "perf record",
            "needs a board with CoreSight",
        ),
        (
            "linux.md",
            "(gdb) monitor translate",
            "tests/translation/in_gdb.rs",
        ),
        ("linux.md", "(gdb) monitor dmesg", "tests/kernel/main.rs"),
        (
            "linux.md",
            "(gdb) info symbol pktgen_thread_worker",
            "tests/long/modules.rs",
        ),
        ("linux.md", "[translation]", "tests/translation"),
        (
            "questions.md",
            "(gdb) armsnap ask",
            "tests/record/questions.rs",
        ),
        (
            "recording.md",
            "the kernel runs at",
            "tests/long/kernels.rs",
        ),
        ("recording.md", "[recording]", "tests/record/past_values.rs"),
        (
            "recording.md",
            "[changed_code]",
            "tests/record/changed_code.rs",
        ),
        ("recording.md", "changed 0x", "tests/record/changed_code.rs"),
        (
            "recording.md",
            "[data_addresses]",
            "tests/record/data_addresses.rs",
        ),
        ("recording.md", "[replay]", "tests/record/replay.rs"),
        (
            "recording.md",
            "let addresses = loaded",
            "tests/record/data_addresses.rs",
        ),
        (
            "recording.md",
            "use armsnap::record",
            "tests/support/record/mod.rs",
        ),
        ("reports.md", "console", "tests/cli/blocks.rs"),
        ("saving.md", "(gdb) ", "tests/gdb/save.rs"),
        ("tables.md", "console", "tests/cli/blocks.rs"),
        ("tables.md", "sql", "tests/export/parquet.rs"),
        (
            "trace-files.md",
            "define hookpost-tfind",
            "tests/cli/blocks.rs",
        ),
        ("mcp.md", "json", "needs an assistant"),
        ("mcp.md", "describe", "tests/cli/mcp.rs"),
        ("mcp.md", "calls", "tests/cli/mcp.rs"),
        ("mcp.md", "accesses", "tests/cli/mcp.rs"),
        ("tour.md", "(gdb) target remote |", "tests/cli/blocks.rs"),
        ("tour.md", "console", "tests/cli/blocks.rs"),
        ("tutorial.md", "apt install", "needs root"),
    ];
    let mut used = vec![false; OTHERS.len()];
    let blocks = blocks();
    assert!(blocks.len() > 80, "{}", blocks.len());
    for Block {
        page,
        language,
        lines,
    } in &blocks
    {
        let first = lines.first().map_or("", |line| line.trim());
        let mut has_reason = false;
        for ((of, start, by), used) in OTHERS.iter().zip(&mut used) {
            let is_run = Path::new(TOP).join(by).exists();
            assert!(is_run || by.starts_with("needs "), "{by}");
            let is_it = match language.is_empty() {
                true => first.starts_with(start),
                false => language == start,
            };
            if page == of && is_it {
                (*used, has_reason) = (true, true);
            }
        }
        let is_command = first.starts_with("$ ") || first.starts_with("armsnap ");
        let tested = is_command && language.is_empty();
        assert!(
            tested || has_reason,
            "nothing runs: {page}: {language} {first}"
        );
    }
    let unused = OTHERS.iter().zip(used).filter(|(_, used)| !used);
    let unused: Vec<_> = unused.map(|(other, _)| other).collect();
    assert!(unused.is_empty(), "no such blocks: {unused:#?}");
}

/// Other programs read what the commands of the pages on exports write.
#[test]
fn transcripts_of_exports_run() {
    // Not in Debian, or without the program's own build: what armsnap writes for them is tested in
    // tests/export.
    let elsewhere = ["flamegraph.pl", "llvm-profgen", "perf2bolt"];
    let place = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(testdata("demo")).unwrap() {
        let from = entry.unwrap().path();
        for name in ["board", "saved"] {
            let to = place.path().join(name);
            fs::create_dir_all(&to).unwrap();
            fs::copy(&from, to.join(from.file_name().unwrap())).unwrap();
        }
        // genhtml reads the sources beside it.
        fs::copy(&from, place.path().join(from.file_name().unwrap())).unwrap();
    }
    let there = fs::read_dir(place.path()).unwrap();
    let there: Vec<PathBuf> = there.map(|entry| entry.unwrap().path()).collect();
    let mut count = 0;
    for Written {
        page,
        command,
        typed,
    } in commands()
    {
        // Those of tasks.md are run together with the commands before them, in tests/gdb/readme.rs.
        if !typed || page == "tasks.md" || !command.starts_with("armsnap export ") {
            continue;
        }
        let parts: Vec<&str> = command.split(" && ").collect();
        let parts = match elsewhere.iter().any(|name| command.contains(name)) {
            true => &parts[..1],
            false => &parts[..],
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", &in_shell(&parts.join(" && "))]);
        shell.env("ARMSNAP", crate::support::armsnap());
        // A command may write what another one wrote.
        for entry in fs::read_dir(place.path()).unwrap() {
            let made = entry.unwrap().path();
            if there.contains(&made) {
                continue;
            }
            let removed = match made.is_dir() {
                true => fs::remove_dir_all(&made),
                false => fs::remove_file(&made),
            };
            removed.unwrap();
        }
        let output = run_within(shell.current_dir(place.path()), Duration::from_secs(120));
        assert!(
            output.status.success(),
            "{page}: {command}: {}",
            text(&output)
        );
        count += 1;
    }
    assert!(count > 12, "{count}");
}
