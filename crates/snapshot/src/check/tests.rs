use super::*;
use crate::snapshot::files::InMemory;
use std::sync::Arc;

/// A sound snapshot: a core, its ETMv4, a buffer.
const SOUND: &[(&str, &str)] = &[
    (
        "snapshot.ini",
        "[snapshot]\nversion=1.0\n[device_list]\ndevice0=cpu.ini\ndevice1=etm.ini\n\
         [clusters]\nA=cpu\n[trace]\nmetadata=trace.ini\n",
    ),
    (
        "cpu.ini",
        "[device]\nname=cpu\nclass=core\ntype=Cortex-A9\n[regs]\n\
         R0=0\nR1=0\nR2=0\nR3=0\nR4=0\nR5=0\nR6=0\nR7=0\nR8=0\nR9=0\nR10=0\nR11=0\nR12=0\n\
         SP=0x8000\nLR=0\nPC=0x1004\nCPSR=0x1D3\n[dump0]\nfile=code.bin\naddress=0x1000\nlength=16\n",
    ),
    (
        "etm.ini",
        "[device]\nname=etm\nclass=trace_source\ntype=PFT1.1\n[regs]\nETMCR(0)=0\nETMCCER(0x7A)=0\n\
         ETMIDR(0x79)=0\nETMTRACEIDR(0x80)=0x10\n",
    ),
    (
        "trace.ini",
        "[trace_buffers]\nbuffers=b0\n[b0]\nname=ETB\nfile=trace.bin\nformat=coresight\n\
         [core_trace_sources]\ncpu=etm\n[source_buffers]\netm=ETB\n",
    ),
    ("code.bin", "0123456789abcdef"),
    ("trace.bin", "0123456789abcdef"),
];

/// The findings on the sound snapshot after replacing texts in one file.
fn findings(file: &str, changes: &[(&str, &str)]) -> Vec<String> {
    let mut files = InMemory::default();
    for (name, text) in SOUND {
        let mut text = (*text).to_owned();
        for (from, to) in changes.iter().filter(|_| *name == file) {
            assert!(text.contains(from), "{from} is not in {file}");
            text = text.replace(from, to);
        }
        files.0.insert((*name).into(), text.into_bytes().into());
    }
    let loaded = OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap();
    check(&loaded).iter().map(Finding::to_string).collect()
}

/// Each case is a change to one file and the resulting finding.
#[test]
fn each_fault_is_found_at_its_place() {
    assert_eq!(findings("", &[]), Vec::<String>::new());
    let mut differing = Vec::new();
    for (file, from, to, expected) in [
        (
            "snapshot.ini",
            "version=1.0\n",
            "",
            "snapshot.ini:1: error (required): no version; the only valid one is 1.0 [section 3.1.1]",
        ),
        (
            "snapshot.ini",
            "version=1.0",
            "version=2",
            "snapshot.ini:2: error (required): version: expected 1.0, found \"2\": read as 1.0 [section 3.1.1]",
        ),
        (
            "snapshot.ini",
            "version=1.0",
            "version=1",
            "snapshot.ini:2: warning (advice): version 1: expected 1.0 [section 3.1.1]",
        ),
        (
            "snapshot.ini",
            "A=cpu",
            "A=cpu,gpu",
            "snapshot.ini:7: error (required): A: there is no device gpu [section 3.1.3]",
        ),
        (
            "snapshot.ini",
            "A=cpu",
            "A=CPU",
            "snapshot.ini:7: warning (advice): device CPU is cpu where it is defined [section 3.1.3]",
        ),
        (
            "snapshot.ini",
            "A=cpu",
            "A=cpu\nB=cpu",
            "snapshot.ini:8: warning (advice): cpu is in A and in B [section 3.1.3]",
        ),
        (
            "snapshot.ini",
            "device1=",
            "device0=",
            "snapshot.ini:5: error (required): key device0 again, first in line 4 [section 3.1.2]",
        ),
        ("cpu.ini", "class=core", "class=core\nextra=1", ""),
        (
            "cpu.ini",
            "SP=0x8000\n",
            "",
            "cpu.ini:1: warning (required for debug): cpu: no register SP [section 4.1.1]",
        ),
        ("cpu.ini", "PC=0x1004\n", "R15=0x1004\n", ""),
        (
            "cpu.ini",
            "CPSR=0x1D3",
            "CPSR=0x1D3\nDACR=0xZZ",
            "cpu.ini:23: error (required): DACR: expected a number, found \"0xZZ\" [section 3.2.2]",
        ),
        (
            "cpu.ini",
            "R3=0\n",
            "",
            "cpu.ini:1: warning (required for debug): cpu: 1 of the registers R0-R14 are missing [section 4.1.1]",
        ),
        (
            "cpu.ini",
            "R3=0\n",
            "R3=0\nR3=1\n",
            "cpu.ini:10: warning (advice): R3 again, first in line 9: the first is used [section 3.2.2]",
        ),
        (
            "cpu.ini",
            "length=16",
            "length=17",
            "cpu.ini:23: error (required): [dump0] needs 17 bytes from offset 0 of code.bin, which has 16 [section 3.2.3]",
        ),
        (
            "cpu.ini",
            "length=16",
            "offset=17",
            "cpu.ini:23: error (required): [dump0] needs 0 bytes from offset 17 of code.bin, which has 16 [section 3.2.3]",
        ),
        (
            "cpu.ini",
            "file=code.bin",
            "file=none.bin",
            "cpu.ini:24: error (required): [dump0] file \"none.bin\": no such file [section 3.2.3]",
        ),
        (
            "cpu.ini",
            "file=code.bin",
            "file=../code.bin",
            "cpu.ini:24: error (required): [dump0] file \"../code.bin\": leads outside the snapshot's directory (--allow-outside permits it) [section 3.2.3]",
        ),
        (
            "cpu.ini",
            "length=16",
            "length=16\n[dump1]\nfile=code.bin\naddress=0x100F",
            "cpu.ini:27: warning (advice): [dump1] overlaps [dump0] of line 23, which has priority [section 3.2.3]",
        ),
        (
            "cpu.ini",
            "length=16",
            "space=N\n[dump1]\nspace=S\nfile=code.bin\naddress=0x100F",
            "",
        ),
        (
            "cpu.ini",
            "length=16",
            "length=16\n[dump0]\nfile=code.bin\naddress=0x2000",
            "cpu.ini:27: warning (advice): [dump0] again, first in line 23 [section 3.2.3]",
        ),
        (
            "cpu.ini",
            "length=16",
            "space=X",
            "cpu.ini:26: error (required): [dump0] unknown space \"X\": its memory is not read [section 3.2.3]",
        ),
        (
            "cpu.ini",
            "length=16",
            "space=EL3",
            "cpu.ini:23: warning (advice): space EL3 is not one of AArch32 [section 4.1.1]",
        ),
        (
            "cpu.ini",
            "length=16",
            "space=ROOT",
            "cpu.ini:23: warning (advice): space ROOT is beyond the specification [section 3.2.3]",
        ),
        (
            "cpu.ini",
            "length=16",
            "key=1",
            "cpu.ini:23: warning (advice): [dump0] unknown key key: ignored [section 3.2.3]",
        ),
        (
            "cpu.ini",
            "address=0x1000",
            "address=0xFFFFFFFFFFFFFFF1",
            "cpu.ini:21: warning (advice): cpu: PC 0x1004 is in no dump and in no program of the snapshot [section 4.1]\n\
             cpu.ini:23: error (required): [dump0] runs past the last address [section 3.2.3]",
        ),
        ("cpu.ini", "SP=0x8000", "SP=0\nDACR=7", ""),
        ("etm.ini", "name=etm", "name=etm\nlocation=address:1", ""),
        (
            "etm.ini",
            "ETMIDR(0x79)=0\n",
            "",
            "etm.ini:1: error (required for trace): etm: no register ETMIDR (0x79) [section 4.2.2]",
        ),
        ("etm.ini", "ETMIDR(0x79)=0\n", "VERSION(0x79)=0\n", ""),
        (
            "etm.ini",
            "ETMIDR(0x79)",
            "ETMIDR(0x1E4)",
            "etm.ini:8: warning (advice): ETMIDR: ID 0x1e4 is an offset in bytes; IDs count words: 0x79 [section 3.2.2]",
        ),
        (
            "etm.ini",
            "=0x10",
            "=0x70",
            "etm.ini:1: warning (advice): etm: trace ID 0x70 is reserved [section 4.2]",
        ),
        (
            "trace.ini",
            "format=coresight",
            "format=raw",
            "trace.ini:3: warning (advice): [b0] unknown format raw [section 3.3.2]",
        ),
        (
            "trace.ini",
            "format=coresight",
            "",
            "trace.ini:3: error (required for trace): [b0] has no format [section 3.3.2]",
        ),
        (
            "trace.ini",
            "name=ETB\n",
            "name=etb\n",
            "trace.ini:10: warning (advice): buffer ETB is etb where it is defined [section 3.3.4]",
        ),
        (
            "trace.ini",
            "buffers=b0",
            "buffers=b0,b0",
            "trace.ini:2: error (required): buffer ID b0 again: ignored [section 3.3.1]",
        ),
        (
            "trace.ini",
            "buffers=b0",
            "buffers=b0,b1",
            "trace.ini:2: error (required): buffer b1 has no section [b1] [section 3.3.1]",
        ),
        (
            "trace.ini",
            "cpu=etm\n",
            "cpu=etm\ncpu2=etm\n",
            "trace.ini:9: error (required for trace): there is no core cpu2 [section 3.3.3]",
        ),
        (
            "trace.ini",
            "cpu=etm\n",
            "cpu=etm\ncpu=@address:4\n",
            "trace.ini:9: error (required for trace): there is no trace source @address:4 [section 3.3.3]",
        ),
        (
            "trace.ini",
            "etm=ETB",
            "etm=ETB,ETR",
            "trace.ini:10: error (required for trace): there is no trace buffer ETR [section 3.3.4]",
        ),
        (
            "trace.ini",
            "etm=ETB",
            "etm=b0",
            "trace.ini:10: warning (advice): b0 is a buffer's ID: expected its name [section 3.3.4]",
        ),
        (
            "trace.ini",
            "etm=ETB",
            "etm=ETB\nstm=ETB",
            "trace.ini:11: error (required for trace): there is no trace source stm [section 3.3.4]",
        ),
        (
            "trace.ini",
            "file=trace.bin",
            "file=trace.bin,gone.bin",
            "trace.ini:5: error (required): [b0] file \"gone.bin\": no such file [section 3.3.2]",
        ),
        (
            "trace.ini",
            "file=trace.bin\n",
            "",
            "trace.ini:3: error (required for trace): [b0] has no file [section 3.3.2]",
        ),
        ("trace.ini", "[source_buffers]\netm=ETB\n", "", ""),
        (
            "cpu.ini",
            "PC=0x1004",
            "PC=0x1010",
            "cpu.ini:21: warning (advice): cpu: PC 0x1010 is in no dump and in no program of the snapshot [section 4.1]",
        ),
        (
            "cpu.ini",
            "length=16",
            "length=0010",
            "cpu.ini:26: warning (advice): length: 0010 is decimal and looks like hexadecimal, which is written 0x10 [section 3.2.3]",
        ),
        ("cpu.ini", "length=16", "length=0016", ""),
        (
            "cpu.ini",
            "length=16",
            "length=1f",
            "cpu.ini:26: error (required): length: expected a number, found \"1f\"; hexadecimal numbers begin with 0x [section 3.2.3]",
        ),
    ] {
        let found = findings(file, &[(from, to)]);
        let expected: Vec<&str> = expected.lines().collect();
        if found != expected {
            differing.push(format!("{file}: {from} → {to}: {found:#?}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn decimal_addresses_that_look_like_hexadecimal_are_reported() {
    for (written, hex) in [
        ("80000000", Some("0x80000000")),
        ("1000", Some("0x1000")),
        ("40100818", Some("0x40100818")),
        ("08000000", Some("0x8000000")),
        ("0000000040080000", Some("0x40080000")),
        // Numbers that are round if read as decimal.
        ("0", None),
        ("4096", None),
        ("65536", None),
        ("16777216", None),
        ("33554432", None),
        ("536870912", None),
        ("2147483648", None),
        ("3221225472", None),
        ("0x80000000", None),
    ] {
        let dump = format!("[dump1]\nfile=code.bin\naddress={written}\n[dump0]");
        let found = findings("cpu.ini", &[("[dump0]", &dump)]);
        let reported: Vec<&String> = found.iter().filter(|f| f.contains("looks like")).collect();
        let wanted = hex.map(|hex| {
            format!(
                "cpu.ini:25: warning (advice): address: {written} is decimal and looks like \
                 hexadecimal, which is written {hex} [section 3.2.3]"
            )
        });
        assert_eq!(reported, Vec::from_iter(&wanted), "{written}");
    }
}

#[test]
fn a_pc_in_memory_of_another_core_or_a_program_is_accepted() {
    let two = ("device1=etm.ini", "device1=etm.ini\ndevice2=cpu2.ini");
    let mut files = InMemory::default();
    for (name, text) in SOUND {
        let text = text.replace(two.0, two.1);
        files.0.insert((*name).into(), text.into_bytes().into());
    }
    let (_, cpu) = SOUND[1];
    let dumps = cpu.find("[dump0]").unwrap();
    let cpu2 = cpu[..dumps].replace("name=cpu", "name=cpu2");
    files.0.insert("cpu2.ini".into(), cpu2.into_bytes().into());
    let loaded = OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap();
    assert_eq!(check(&loaded), []);
}

#[test]
fn a_dump_without_length_ends_with_its_file() {
    let far = ("PC=0x1004", "PC=0x80000000");
    let found = findings("cpu.ini", &[far, ("length=16\n", "")]);
    let text = "cpu: PC 0x80000000 is in no dump and in no program of the snapshot";
    assert!(found.iter().any(|line| line.contains(text)), "{found:?}");
    // The length of a missing file is not known: that is a separate finding.
    let found = findings(
        "cpu.ini",
        &[far, ("length=16\n", ""), ("code.bin", "none.bin")],
    );
    assert!(found.iter().all(|line| !line.contains(text)), "{found:?}");
}

#[test]
fn registers_not_needed_for_decoding_are_not_errors() {
    let all = "TRCIDR0(0x78)=0x28000EA1\nTRCIDR1(0x79)=0x4100F403\nTRCIDR2(0x7A)=0x488\n\
               TRCIDR8(0x60)=0\nTRCTRACEIDR(4)=0x10\n";
    let without = |configr: &str| {
        let registers = format!("type=ETM4\n[regs]\n{all}TRCCONFIGR(4)={configr}\n[other]");
        findings("etm.ini", &[("type=PFT1.1\n[regs]", &registers)])
    };
    let found = without("0xC1");
    let text = "etm.ini:1: warning (advice): etm: no register TRCIDR9, TRCIDR10, TRCIDR11, \
                TRCIDR12, TRCIDR13, TRCAUTHSTATUS: required, but not needed for decoding this trace \
                [section 4.2.3]";
    assert_eq!(found, [text]);
    // Conditional tracing, Q elements, data trace.
    for configr in ["0x100", "0x2000", "0x10000"] {
        let found = without(configr);
        let errors = found.iter().filter(|line| line.contains(": error "));
        assert_eq!(errors.count(), 5, "{found:#?}");
    }
}

#[test]
fn trace_of_etmv1_is_reported_as_not_decoded() {
    let found = findings("etm.ini", &[("PFT1.1", "ETM1.3")]);
    let text = "etm.ini:1: warning (advice): etm: trace of ETMv1.3 cannot be decoded";
    assert!(found.iter().any(|line| line.starts_with(text)), "{found:?}");
}

#[test]
fn names_and_locations_are_unique() {
    let twin = [("name=etm", "name=cpu\nlocation=address:1")];
    let found = findings("etm.ini", &twin);
    assert!(
        found[0].contains("name cpu again, first in cpu.ini:1"),
        "{found:?}"
    );
    let mut files = InMemory::default();
    let mut put = |name: &str, text: &str| {
        files.0.insert(name.into(), text.as_bytes().to_vec().into());
    };
    put(
        "snapshot.ini",
        "[snapshot]\nversion=1.0\n[device_list]\na=a.ini\nb=b.ini\nc=c.ini\nd=d.ini\n",
    );
    put(
        "a.ini",
        "[device]\nname=m\nclass=memory\nlocation=address:1\n",
    );
    put(
        "b.ini",
        "[device]\nname=M\nclass=memory_space\nlocation=address:1\n",
    );
    put("c.ini", "[device]\nname=w\nclass=widget\ntype=W\n");
    put("d.ini", "[device]\nname=n\n");
    let loaded = OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap();
    let found: Vec<String> = check(&loaded).iter().map(Finding::to_string).collect();
    assert_eq!(
        found,
        [
            "b.ini:1: warning (advice): names m and M differ in case only [section 3.2.1]",
            "b.ini:1: error (required): location address:1 again, first in a.ini:1 [section 3.2.1]",
            "c.ini:1: warning (advice): w: unknown class widget [section 3.2.1]",
            "d.ini:1: warning (required for trace): n: no class [section 3.2.1]",
            "d.ini:1: warning (required for trace): n: no type [section 3.2.1]",
        ]
    );
}

#[test]
fn repetitions_name_the_first_occurrence() {
    let dumps = "[dump0]\nfile=code.bin\naddress=0x3000\n".repeat(2);
    let found = findings("cpu.ini", &[("[dump0]", &format!("{dumps}[dump0]"))]);
    let lines: Vec<&str> = found.iter().map(|line| &line[..10]).collect();
    let repeated = found.iter().filter(|line| line.contains("[dump0] again"));
    let repeated: Vec<&String> = repeated.collect();
    assert_eq!(repeated.len(), 2, "{lines:?}");
    for line in repeated {
        assert!(line.contains("first in line 23"), "{line}");
    }
}

#[test]
fn aarch64_state_may_be_given_in_parts() {
    let type_ = ("type=Cortex-A9", "type=Cortex-A57");
    let cpsr = |found: &[String], name: &str| {
        let wanted = format!("no register {name} [section 4.1.2.1]");
        found.iter().any(|f| f.ends_with(&wanted))
    };
    let all = "X0=0\nCurrentEL=8\nDAIF=0\nNZCV=0\nSPSel=1\n";
    assert!(!cpsr(
        &findings("cpu.ini", &[type_, ("CPSR=0x1D3\n", all)]),
        "CPSR"
    ));
    assert!(cpsr(
        &findings("cpu.ini", &[type_, ("CPSR=0x1D3\n", "X0=0\n")]),
        "CPSR"
    ));
    let most = "X0=0\nCurrentEL=8\nDAIF=0\nNZCV=0\n";
    assert!(cpsr(
        &findings("cpu.ini", &[type_, ("CPSR=0x1D3\n", most)]),
        "SPSel"
    ));
}

#[test]
fn aarch32_state_of_armv8_has_its_own_section() {
    let found = findings("cpu.ini", &[("Cortex-A9", "Cortex-A53"), ("CPSR=", "PSR=")]);
    let text = "cpu.ini:1: warning (required for debug): cpu: no register CPSR [section 4.1.2.2]";
    assert_eq!(found, [text]);
}

#[test]
fn trace_without_metadata_is_found() {
    let found = findings("snapshot.ini", &[("metadata=", "meta=")]);
    let text = "snapshot.ini:8: error (required): [trace] has no metadata: no trace is read \
                [section 3.1.4]";
    assert!(found.iter().any(|line| line == text), "{found:?}");
}

#[test]
fn m_profile_requires_xpsr() {
    let found = findings("cpu.ini", &[("type=Cortex-A9", "type=Cortex-M3")]);
    let text = "cpu.ini:1: warning (required for debug): cpu: no register xPSR [section 4.1.3]";
    assert_eq!(found, [text]);
    let xpsr = [("type=Cortex-A9", "type=ARMv7-M"), ("CPSR", "XPSR")];
    assert_eq!(findings("cpu.ini", &xpsr), Vec::<String>::new());
    let parts = "APSR=0\nIPSR=0\nEPSR=0x1000000";
    let parts = [("type=Cortex-A9", "type=ARMv7-M"), ("CPSR=0x1D3", parts)];
    assert_eq!(findings("cpu.ini", &parts), Vec::<String>::new());
}

#[test]
fn placeholders_are_reported() {
    let stackless = [("SP=0x8000", "SP=0"), ("PC=0x1004", "PC=0x1000")];
    assert_eq!(findings("cpu.ini", &stackless), Vec::<String>::new());
    // Capture libraries write this, without general registers.
    let edits = [
        stackless[0],
        stackless[1],
        ("[regs]", "[other]"),
        ("SP=0", "[regs]\nSP=0"),
    ];
    let found = findings("cpu.ini", &edits);
    let text = "cpu: the registers are placeholders, not machine state: PC is the start of";
    let placeholders = found.iter().filter(|line| line.contains(text));
    assert_eq!(placeholders.count(), 1, "{found:?}");
}

#[test]
fn json_has_the_fields() {
    let finding = Finding {
        place: FileLine {
            file: "a.ini".into(),
            line: 3,
        },
        severity: Severity::Error,
        need: Need::RequiredForTrace,
        text: "x".into(),
        section: "4.2.3",
    };
    assert_eq!(
        serde_json::to_string(&finding).unwrap(),
        r#"{"file":"a.ini","line":3,"severity":"error","need":"required for trace","text":"x","section":"4.2.3"}"#
    );
}
