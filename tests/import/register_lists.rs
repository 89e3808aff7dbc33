//! Registers as debuggers print them, beside dumps of memory: GDB shows in such a snapshot what it shows in
//! the one whose registers were printed.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use std::fs;
use std::path::Path;

/// The registers of the first core, as saved.
fn saved(directory: &str) -> Vec<(String, String)> {
    let ini = fs::read_to_string(testdata(directory).join("cpu_0.ini")).unwrap();
    let regs = ini.split("[regs]").nth(1).unwrap();
    let lines = regs
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    let values = lines.filter_map(|line| line.split_once("=0x"));
    let plain = |name: &str| name.split('(').next().unwrap().to_owned();
    values
        .map(|(name, value)| (plain(name), value.to_owned()))
        .collect()
}

fn import(arguments: &[&str], into: &Path) -> String {
    let output = run(armsnap()
        .arg("import")
        .args(arguments)
        .arg("--force")
        .arg(into));
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

#[test]
fn what_gdb_prints_is_read_back() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    for (directory, memory, core, registers) in [
        (
            "mps2-m4",
            "ram.bin@0x20000000",
            "Cortex-M4",
            "pc sp lr r0 xpsr",
        ),
        (
            "recorded/etmv4",
            "memory_40100000.bin@0x40100000",
            "Cortex-A57",
            "pc sp x0 x30 cpsr",
        ),
        (
            "recorded/ptm",
            "memory_40080000.bin@0x40080000",
            "Cortex-A15",
            "pc sp lr r2 cpsr",
        ),
    ] {
        let from = testdata(directory);
        let list = session(&from, &[], &["info all-registers"]);
        let file = scratch.path().join("session.txt");
        fs::write(&file, &list).unwrap();
        let memory = from.join(memory);
        let into = scratch.path().join("snapshot");
        let options = [
            "--memory",
            memory.to_str().unwrap(),
            "--registers",
            file.to_str().unwrap(),
            "--core",
            core,
        ];
        let said = import(&options, &into);
        assert!(said.contains("session.txt: "), "{said}");
        assert!(
            said.contains("registers with memory: 1 core (cpu0)"),
            "{said}"
        );
        let show = format!("info registers {registers}");
        let values = |said: &str| {
            // GDB names places in functions that the program has.
            let values = said.lines().filter_map(|line| {
                let mut words = line.split_whitespace();
                let (name, value) = (words.next()?, words.next()?);
                let is_register = registers.split(' ').any(|register| register == name);
                match is_register {
                    true => Some(format!("{name} {value}")),
                    false => line.starts_with('$').then(|| line.to_owned()),
                }
            });
            values.collect::<Vec<_>>()
        };
        let vectors = ["p/x $d0", "p/x $v0", "p/x $v31", "p/x *(int *) $sp"];
        let commands = [&[&*show][..], &vectors].concat();
        let wanted = values(&session(&from, &[], &commands));
        assert!(wanted.len() >= 7, "{wanted:?}");
        assert_eq!(
            values(&session(&into, &[], &commands)),
            wanted,
            "{directory}"
        );
    }
}

#[test]
fn lists_of_probes() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let saved = saved("mps2-m4");
    let mut openocd = "===== arm v7m registers\n".to_owned();
    let mut jlink = "J-Link>regs\n".to_owned();
    let mut pyocd = "general registers:\n".to_owned();
    for (number, (name, value)) in saved.iter().enumerate() {
        let bits = 4 * value.len();
        let name = name.to_lowercase();
        openocd += &format!("({number}) {name} (/{bits}): 0x{value}\n");
        pyocd += &format!("{name:>8}: 0x{value} ");
        let name = match &*name {
            "sp" => "SP(R13)".to_owned(),
            "lr" => "R14(LR) ".to_owned(),
            name => name.to_uppercase(),
        };
        jlink += &format!("{name}= {value}, ");
    }
    let from = testdata("mps2-m4");
    let at = |name: &str| from.join(name).to_str().unwrap().to_owned();
    let [ram, code] = [at("ram.bin") + "@0x20000000", at("code.bin") + "@0"];
    let program = at("program.elf");
    let commands = ["bt 4", "p/x $xpsr", "p/x $d6", "p boiler"];
    let shown = |said: &str| {
        let lines = said.lines().filter(|line| line.starts_with(['#', '$']));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let wanted = shown(&session(&from, &[], &commands));
    assert!(wanted.len() > 4, "{wanted:?}");
    let into = scratch.path().join("snapshot");
    for list in [openocd, jlink, pyocd] {
        let file = scratch.path().join("registers.txt");
        fs::write(&file, &list).unwrap();
        let file = file.to_str().unwrap();
        let options = ["--memory", &ram, "--registers", file, "--elf", &program];
        let said = import(&options, &into);
        assert!(
            said.contains(&format!("{} registers are those of cpu0", saved.len())),
            "{said}"
        );
        assert_eq!(shown(&session(&into, &[], &commands)), wanted, "{list}");
    }
    // The program as an image of memory, and no registers in a file.
    let said = import(&["--memory", &program, "--core", "Cortex-M4"], &into);
    assert!(said.contains("program.elf: ELF: "), "{said}");
    let refused = |arguments: &[&str]| {
        let output = run(armsnap()
            .arg("import")
            .args(arguments)
            .arg(scratch.path().join("no")));
        assert!(!output.status.success());
        text(&output)
    };
    let said = refused(&["--registers", &code[..code.len() - 2]]);
    assert!(said.contains("no list of registers is found"), "{said}");
    let core = testdata("linux-core/program.core");
    let file = scratch.path().join("registers.txt");
    let both = ["--raw", &program, "--registers", file.to_str().unwrap()];
    let said = refused(&[&[core.to_str().unwrap()][..], &both].concat());
    assert!(
        said.contains("the input has registers of its own"),
        "{said}"
    );
}
