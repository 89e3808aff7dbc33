//! Tarmac traces: GDB steps through them in both directions, and shows the values that they list.

use crate::support::gdb::{armsnap, need_gdb, run, session, text};
use crate::support::inputs::tarmac::{DATA, STEPS, of_model, of_rtl};
use armsnap::import::{Options, import_tarmac};
use std::fs;
use std::path::Path;

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

/// The register at the end of a trace; `None` if it is unknown.
fn at_end(trace: &str, name: &str) -> Option<u128> {
    let path = Path::new("trace.tarmac");
    let imported = import_tarmac(path, trace.as_bytes().to_vec().into(), &Options::default());
    let device = imported.unwrap().snapshot.devices.remove(0);
    let found = device.registers.iter().find(|known| known.name == name)?;
    let bytes = found.value.0.iter().rev();
    Some(bytes.fold(0, |all, byte| all << 8 | u128::from(*byte)))
}

#[track_caller]
fn ends_with(trace: &str, wanted: &[(&str, Option<u128>)]) {
    for (name, value) in wanted {
        assert_eq!(at_end(trace, name), *value, "{name}: {trace}");
    }
}

#[test]
fn parts_of_registers_change_the_whole() {
    let ends = "2 clk IT (2) 00001004 d503201f O EL1t_n : NOP\n\
        3 clk IT (3) 00001008 d503201f O EL1t_n : NOP\n";
    let trace = |lines: &str| {
        format!(
            "0 clk R X1 1111111111111111\n0 clk R X2 0000000000000001\n0 clk R SP_EL0 0000000000005000\n\
             0 clk R V0 0000000000000001 0000000000000002\n0 clk R cpsr 600003c4\n\
             1 clk IT (1) 00001000 d503201f O EL1t_n : NOP\n{lines}{ends}"
        )
    };
    let v0 = Some(1 << 64 | 2);
    ends_with(
        &trace(""),
        &[
            ("V0", v0),
            ("SP", Some(0x5000)),
            ("CPSR", Some(0x6000_03c4)),
        ],
    );
    let vector = trace("1 clk R Z0 0000000000000003\n1 clk R nzcv 80000000\n");
    ends_with(&vector, &[("V0", None), ("CPSR", None), ("X2", Some(1))]);
    ends_with(&trace("1 clk R v0.2d 0000000000000003\n"), &[("V0", None)]);
    let words =
        trace("1 clk R W1 00000007\n1 clk R WSP 00004000\n1 clk R S3_0_C15_C2_0 00000007\n");
    ends_with(&words, &[("X1", Some(7)), ("SP", Some(0x4000)), ("V0", v0)]);
    // A level without its stack.
    let level = trace("").replace("EL1t_n", "EL1_n");
    ends_with(&level, &[("SP", None)]);
    // AArch32 in between.
    let narrow = trace("1 clk IT (1) 00002000 e3a00005 A usr : MOV\n1 clk R r1 00000005\n");
    ends_with(&narrow, &[("X1", None), ("X2", None), ("SP", Some(0x5000))]);
    let narrow = "0 clk R d0 0000000000000007\n0 clk R r0 00000001\n\
        1 clk IT (1) 00001000 e3a00005 A svc : MOV\n\
        1 clk R q0 00000000000000020000000000000001\n\
        2 clk IT (2) 00001004 e3a00005 A svc : MOV\n3 clk IT (3) 00001008 e3a00005 A svc : MOV\n";
    ends_with(narrow, &[("D0", Some(1)), ("D1", Some(2))]);
    ends_with(&narrow.replace("R q0", "R s0"), &[("D0", None)]);
}

#[test]
fn banks_are_those_of_the_mode() {
    let start = "0 clk R r13_usr 00005000\n0 clk R r13_svc 00003000\n0 clk R cpsr 60000110\n\
        1 clk IT (1) 00001000 e3a00005 A usr : MOV\n2 clk IT (2) 00001004 ef000000 A usr : SVC\n\
        2 clk E CoreEvent_SVC\n2 clk R r14_svc 00001008\n2 clk R cpsr 600001d3\n\
        3 clk IT (3) 00000008 e24dd010 A svc : SUB sp,sp,#16\n3 clk R r13 00002ff0\n\
        4 clk IT (4) 0000000c e1b0f00e A svc : MOVS pc,lr\n";
    ends_with(start, &[("SP", Some(0x2ff0)), ("LR", Some(0x1008))]);
    let call = start.split_once("4 clk").unwrap().0;
    ends_with(call, &[("CPSR", Some(0x6000_01d3)), ("SP", Some(0x3000))]);
    // What a line of an exception's entry does not say.
    let call = call.replace("r14_svc", "r14");
    ends_with(&call, &[("CPSR", Some(0x6000_01d3)), ("LR", None)]);
    let back = format!(
        "{start}4 clk R cpsr 60000110\n5 clk IT (5) 00001008 e3a00005 A usr : MOV\n\
         6 clk IT (6) 0000100c e3a00005 A usr : MOV\n"
    );
    ends_with(
        &back,
        &[
            ("SP", Some(0x5000)),
            ("LR", None),
            ("CPSR", Some(0x6000_0110)),
        ],
    );
    let banks = back.replace("R r13 0", "R R13 (SVC) 0");
    ends_with(&banks, &[("SP", Some(0x5000))]);
    ends_with(
        &back.replace("4 clk R cpsr 60000110\n", ""),
        &[("CPSR", None)],
    );
    let micro = "0 clk R MSP 20001000\n0 clk R PSP 20002000\n0 clk R r13 20002000\n\
        0 clk R CONTROL 00000002\n0 clk R r0 00000001\n0 clk R r4 00000004\n\
        1 clk IT (1) 00001000 2005 T thread : MOVS\n1 clk R r0 00000005\n\
        1 clk E CoreEvent_EXC\n1 clk R PSP 20001fe0\n1 clk R r14 fffffffd\n\
        2 clk IT (2) 00000400 2006 T handler : MOVS\n2 clk R r0 00000006\n\
        3 clk IT (3) 00000402 b082 T handler : SUB\n3 clk R r13 20000ff8\n\
        4 clk IT (4) 00000404 4770 T handler : BX lr\n";
    ends_with(
        micro,
        &[
            ("SP", Some(0x2000_0ff8)),
            ("MSP", Some(0x2000_0ff8)),
            ("PSP", Some(0x2000_1fe0)),
            ("LR", Some(0xffff_fffd)),
        ],
    );
    let back = format!(
        "{micro}4 clk R PSP 20002000\n5 clk IT (5) 00001002 2007 T thread : MOVS\n\
         6 clk IT (6) 00001004 2007 T thread : MOVS\n"
    );
    // What the frame restored is not said.
    ends_with(
        &back,
        &[
            ("SP", None),
            ("R0", None),
            ("LR", None),
            ("R4", Some(4)),
            ("PSP", Some(0x2000_2000)),
        ],
    );
}

#[test]
fn instructions_that_fail_are_not_executed() {
    let decoded = |trace: &str| {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("trace.tarmac");
        fs::write(&file, trace).unwrap();
        let mut command = armsnap();
        command
            .arg("decode")
            .arg(&file)
            .args(["--level", "instructions"]);
        text(&run(&mut command))
    };
    let trace = "0 clk R r0 00002000\n1 clk IT (1) 00001000 e3a02005 A usr : MOV\n\
        2 clk IT (2) 00001004 e5901000 A usr : LDR r1,[r0]\n2 clk E CoreEvent_DataAbort\n\
        2 clk R r14_abt 0000100c\n2 clk R cpsr 600001d7\n\
        3 clk IT (3) 00000010 e3a02005 A abt : MOV\n4 clk IT (4) 00000014 e3a02005 A abt : MOV\n";
    let said = decoded(trace);
    assert!(!said.contains("ldr"), "{said}");
    assert!(said.contains("returns to 0x1004"), "{said}");
    // It was another instruction that failed: this one was executed.
    let said = decoded(&trace.replace("r14_abt 0000100c", "r14_abt 0000100d"));
    assert!(said.contains("ldr"), "{said}");
    // Whether it was is not known.
    let said = decoded(&trace.replace("2 clk R r14_abt 0000100c\n", ""));
    assert!(
        !said.contains("ldr") && said.matches("trace_on").count() > 1,
        "{said}"
    );
    // Events of the debugger are no exceptions, nor are changes of the mode.
    for event in ["DebugEvent_X", "00001004 svc 00000019 CoreEvent_ModeChange"] {
        let said = decoded(&trace.replace("CoreEvent_DataAbort", event));
        assert!(said.contains("ldr"), "{said}");
        assert!(
            !said.contains("data fault") && !said.contains("trap"),
            "{said}"
        );
    }
}

#[test]
fn memory_that_lines_do_not_say_is_unknown() {
    let holds = |trace: &str| {
        let path = Path::new("trace.tarmac");
        let imported = import_tarmac(path, trace.as_bytes().to_vec().into(), &Options::default());
        let dumps = imported.unwrap().snapshot.devices.remove(0).dumps;
        let has = |dump: &armsnap::snapshot::model::Dump| {
            let end = dump.address + dump.length.unwrap_or(0);
            (dump.address..end).contains(&0x2000)
        };
        dumps.iter().any(has)
    };
    let trace = "0 clk R X0 0000000000002004\n1 clk IT (1) 00001000 d503201f O EL1h : NOP\n\
        1 clk MR8 00002000 00000000_00000001\n2 clk IT (2) 00001004 d503201f O EL1h : NOP\n\
        3 clk IT (3) 00001008 d503201f O EL1h : NOP\n";
    assert!(holds(trace));
    // DC ZVA, X0, whose stores are not listed.
    assert!(!holds(
        &trace.replace("00001004 d503201f", "00001004 d50b7420")
    ));
    let narrow = "0 clk R cpsr 60000110\n1 clk IT (1) 00001000 e5902000 A usr : LDR\n\
        1 clk MR4 00002000 00000001\n2 clk IT (2) 00001004 e3a02005 A usr : MOV\n\
        3 clk IT (3) 00001008 e3a02005 A usr : MOV\n";
    assert!(holds(narrow));
    assert!(!holds(&narrow.replace("60000110", "60000310")));
    // In the M-profile, the bit has another meaning.
    let micro = narrow
        .replace("60000110", "41000200")
        .replace(" A usr", " T handler");
    assert!(holds(
        &micro
            .replace("e5902000", "e8900004")
            .replace("e3a02005", "f04f0205")
    ));
}

#[test]
fn what_an_exception_stores_is_not_of_the_instruction() {
    let recorded = |trace: &str| {
        let path = Path::new("trace.tarmac");
        let imported = import_tarmac(path, trace.as_bytes().to_vec().into(), &Options::default());
        imported.unwrap().files["data_addresses_0.bin"].to_vec()
    };
    let frame = "1 clk MW4 20001ffc 01000000\n1 clk MW4 20001ff8 00001002\n";
    let trace = format!(
        "0 clk R r0 00000005\n1 clk IT (1) 00001000 6008 T thread : STR r0,[r1]\n\
         1 clk MW4 20004000 00000005\n1 clk E 00000000 handler 00000019 CoreEvent_ModeChange\n\
         {frame}1 clk E 00001002 0000000f CoreEvent_SysTick\n\
         2 clk IT (2) 00000400 2006 T handler : MOVS\n3 clk IT (3) 00000402 2006 T handler : MOVS\n"
    );
    assert_eq!(recorded(&trace), recorded(&trace.replace(frame, "")));
}
