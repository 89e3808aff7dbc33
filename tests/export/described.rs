//! Which program a profile for compilers describes: named, in the file or a note, and chosen by contents.

use super::common::{arg, armsnap, run, said};
use crate::support::record::installed;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const FORMS: [&str; 3] = ["autofdo", "llvm-profgen", "bolt"];

/// A dynamically linked program that runs shortly: most instructions are the dynamic linker's.
const SOURCE: &str = r#"
    #include <stdio.h>
    volatile int n;
    __attribute__((noinline)) int hot(int i) { return i & 1 ? i * 3 : i + 1; }
    int main(void) { for (int i = 0; i < 50; i++) n += hot(i); printf("%d\n", n); return 0; }
"#;

struct Recorded {
    directory: TempDir,
}

impl Recorded {
    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A profile, and the note on it.
    fn profile(&self, form: &str, program: Option<&Path>) -> (String, String) {
        let (saved, out) = (self.at("saved"), self.at("profile"));
        let mut arguments = vec!["export", arg(&saved), "--as", form, "--force"];
        arguments.extend(["-o", arg(&out)]);
        arguments.extend(program.iter().flat_map(|path| ["--program", arg(path)]));
        let output = armsnap(&arguments);
        assert!(output.status.success(), "{}", said(&output));
        (std::fs::read_to_string(out).unwrap(), said(&output))
    }
}

fn recorded(compiler: &str, options: &[&str]) -> Option<Recorded> {
    if !installed(&[compiler, "qemu-aarch64", "qemu-arm"]) {
        return None;
    }
    let recorded = Recorded {
        directory: tempfile::tempdir().unwrap(),
    };
    let (source, program) = (recorded.at("short.c"), recorded.at("short"));
    std::fs::write(&source, SOURCE).unwrap();
    let rest = ["-g", "-O1", arg(&source), "-o", arg(&program)];
    let built = run(compiler, &[options, &rest].concat());
    assert!(built.status.success(), "{}", said(&built));
    let saved = recorded.at("saved");
    let output = armsnap(&["record", "-o", arg(&saved), "--", arg(&program)]);
    assert!(output.status.success(), "{}", said(&output));
    Some(recorded)
}

/// The build-id, as `readelf` shows it; `None` without one.
fn build_id(program: &Path) -> Option<String> {
    let shown = run("readelf", &["-n", arg(program)]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let (_, id) = text.split_once("Build ID: ")?;
    Some(id.split_whitespace().next()?.to_owned())
}

#[test]
fn profiles_of_a_short_program_describe_it() {
    for (compiler, options) in [
        ("aarch64-linux-gnu-gcc", &["-pie", "-fPIE"][..]),
        ("aarch64-linux-gnu-gcc", &["-no-pie"]),
        ("aarch64-linux-gnu-gcc", &["-Wl,--build-id=none"]),
        ("aarch64-linux-gnu-gcc", &["-static-pie"]),
        ("arm-linux-gnueabihf-gcc", &["-marm"]),
    ] {
        let Some(recorded) = recorded(compiler, options) else {
            return;
        };
        let program = recorded.at("saved/short");
        let id = build_id(&program);
        assert_eq!(id.is_none(), options[0].ends_with("none"));
        for form in FORMS {
            let (text, note) = recorded.profile(form, None);
            let named = format!("the profile describes {}, with ", program.display());
            assert!(note.contains(&named), "{options:?}: {note}");
            if options[0] != "-static-pie" {
                let others = "; --program describes another: ";
                assert!(note.contains(others), "{options:?}: {note}");
                assert!(note.contains("libraries/ld-linux"), "{note}");
            }
            let in_file = match form {
                "autofdo" => Some(format!("// {}\n", program.display())),
                "bolt" => id.as_ref().map(|id| format!("B {id}:")),
                _ => None,
            };
            let in_file = in_file.unwrap_or_default();
            assert!(text.contains(&in_file), "{options:?} {form}: {text}");
            // The file itself, and copies, with symbols or without.
            let copy = recorded.at("a copy");
            std::fs::copy(recorded.at("short"), &copy).unwrap();
            assert_eq!(recorded.profile(form, Some(&program)).0, text);
            assert_eq!(recorded.profile(form, Some(&copy)).0, text);
            if id.is_some() {
                let strip = compiler.replace("gcc", "strip");
                assert!(run(&strip, &[arg(&copy)]).status.success());
                assert_eq!(recorded.profile(form, Some(&copy)).0, text);
            }
        }
    }
}

#[test]
fn profiles_of_a_library_are_chosen_by_its_contents() {
    let Some(recorded) = recorded("aarch64-linux-gnu-gcc", &["-pie", "-fPIE"]) else {
        return;
    };
    let own = Path::new("/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1");
    let kept = recorded.at("saved/libraries/ld-linux-aarch64.so.1");
    for form in FORMS {
        let (text, note) = recorded.profile(form, Some(own));
        let named = format!("the profile describes {}, with ", kept.display());
        assert!(note.contains(&named), "{note}");
        assert_eq!(recorded.profile(form, Some(&kept)).0, text);
        assert_ne!(recorded.profile(form, None).0, text);
    }
    // Another build of the same source is another program.
    let (source, other) = (recorded.at("short.c"), recorded.at("other"));
    let built = run(
        "aarch64-linux-gnu-gcc",
        &["-O2", arg(&source), "-o", arg(&other)],
    );
    assert!(built.status.success());
    let saved = recorded.at("saved");
    let refused = armsnap(&[
        "export",
        arg(&saved),
        "--as=bolt",
        "-o",
        "-",
        "--program",
        arg(&other),
    ]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("expected a program of the cores"));
}
