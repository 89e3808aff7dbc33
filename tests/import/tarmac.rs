//! Tarmac traces: GDB steps through them in both directions, and shows the values that they list.

use crate::support::gdb::{armsnap, need_gdb, run, session, text};
use crate::support::inputs::tarmac::{DATA, STEPS, of_model, of_rtl};
use std::fs;

#[test]
fn gdb_shows_the_values_of_the_trace() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    for (name, trace) in [("model.tarmac", of_model()), ("rtl.tarmac", of_rtl())] {
        let file = scratch.path().join(name);
        fs::write(&file, trace).unwrap();
        // From the end to the start: the registers before each instruction.
        let mut commands = vec!["printf \"%x %x %x\\n\", $pc, $sp, $x3".to_owned()];
        let mut wanted = vec![format!("102c 3000 {DATA:x}")];
        let mut values = ["x0", "x1", "x2", "x4"].map(|name| (name, None));
        let mut before = Vec::new();
        for (address, _, register, _) in &STEPS[..STEPS.len() - 1] {
            before.push((*address, values));
            if let Some((name, value)) = register {
                let known = values
                    .iter_mut()
                    .find(|known| known.0.eq_ignore_ascii_case(name));
                known.unwrap().1 = Some(*value);
            }
        }
        for (address, values) in before.iter().rev() {
            let known = values
                .iter()
                .filter_map(|(name, value)| Some((name, (*value)?)));
            let known: Vec<_> = known.collect();
            let names: String = known.iter().map(|(name, _)| format!(", ${name}")).collect();
            let forms = " %x".repeat(known.len());
            commands.push("reverse-stepi".to_owned());
            commands.push(format!("printf \"%x{forms}\\n\", $pc{names}"));
            let values: String = known
                .iter()
                .map(|(_, value)| format!(" {value:x}"))
                .collect();
            wanted.push(format!("{address:x}{values}"));
        }
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let said = session(&file, &[], &commands);
        let mut lines = said.lines();
        for wanted in &wanted {
            assert!(lines.any(|line| line == wanted), "{name}: {wanted}: {said}");
        }
        // The data before and after the stores.
        let said = session(
            &file,
            &[],
            &[
                "x/gx 0x2000",
                "tbreak *0x1010",
                "reverse-continue",
                "x/gx 0x2000",
            ],
        );
        for wanted in ["0x2000:\t0x0000000000000000", "0x2000:\t0x000000000000000c"] {
            assert!(said.contains(wanted), "{name}: {said}");
        }
        let decoded = run(armsnap()
            .arg("decode")
            .arg(&file)
            .args(["--level", "instructions"]));
        let decoded = text(&decoded);
        for wanted in ["mov", "cbz", "0x1020", "str"] {
            assert!(decoded.contains(wanted), "{wanted}: {decoded}");
        }
        let into = scratch.path().join("snapshot");
        let output = run(armsnap().arg("import").arg(&file).arg(&into).arg("--force"));
        let said = text(&output);
        for wanted in [
            "Tarmac trace: 1 core",
            "the trace has 12 instructions of 1 core: the snapshot is the state before the last one",
        ] {
            assert!(said.contains(wanted), "{said}");
        }
        let output = run(armsnap().arg("check").arg(&into));
        assert!(output.status.success(), "{}", text(&output));
    }
    let alone = text(&run(armsnap().current_dir(scratch.path())));
    assert!(alone.contains("model.tarmac: a Tarmac trace"), "{alone}");
}

#[test]
fn what_others_write_is_not_inferred() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("devices.tarmac");
    let trace = of_model().replace(
        "MR8 00002000:000000002000_NS 00000000_0000000c",
        "MR8 00002000 00000000_0000000d",
    );
    fs::write(&file, trace).unwrap();
    let output = text(&run(armsnap().arg("info").arg(&file)));
    assert!(
        output.contains("loads returned what no store in the trace wrote"),
        "{output}"
    );
    let said = session(
        &file,
        &[],
        &["tbreak *0x1010", "reverse-continue", "p/x $pc", "p/x $x4"],
    );
    assert!(said.contains("= 0x1010"), "{said}");
    fs::write(&file, "0 clk R r0 00000000\n".repeat(20)).unwrap();
    let output = run(armsnap().arg("info").arg(&file));
    let said = text(&output);
    assert!(
        said.contains("Tarmac trace without executed instructions"),
        "{said}"
    );
}
