//! Names of registers, threads, files and functions that contain commands. GDB runs none of them, and
//! none controls the terminal.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};

/// The command that a name runs if it becomes part of a command.
fn shell(made: &Path) -> String {
    format!("shell touch {}", made.display())
}

/// A description of a core whose additional registers have such names: lines of commands, and a call
/// of a function that runs one.
fn description(made: &Path) -> String {
    let registers: String = (0..31)
        .map(|n| format!("<reg name=\"x{n}\" bitsize=\"64\"/>"))
        .collect();
    let shell = shell(made);
    format!(
        "<target version=\"1.0\"><architecture>aarch64</architecture>\
         <feature name=\"org.gnu.gdb.aarch64.core\">{registers}\
         <reg name=\"sp\" bitsize=\"64\"/><reg name=\"pc\" bitsize=\"64\"/>\
         <reg name=\"cpsr\" bitsize=\"32\"/></feature><feature name=\"own&#10;{shell}&#10;\">\
         <reg name=\"a&#10;{shell}&#10;\" bitsize=\"64\" type=\"ieee_double\"/>\
         <reg name=\"_shell(&quot;touch {made}&quot;)\" bitsize=\"64\" group=\"b&#10;{shell}\"/>\
         <reg name=\"c&#10;[dump]&#10;file=/etc/passwd&#10;\" bitsize=\"64\"/>\
         <reg name=\"d&#x9b;2J&#x202e;\" bitsize=\"64\"/></feature></target>",
        made = made.display()
    )
}

/// The bytes of all its registers: the value of each is its number.
fn register_block() -> Vec<u8> {
    let mut block = Vec::new();
    for number in 0..38_u64 {
        let bytes = if number == 33 { 4 } else { 8 };
        block.extend(&number.to_le_bytes()[..bytes]);
    }
    block
}

/// The values of the additional registers in a saved snapshot.
fn saved_registers(snapshot: &Path, device: &str) -> Vec<String> {
    let checked = run(armsnap().arg("check").arg(snapshot));
    assert!(checked.status.success(), "{}", text(&checked));
    let device = fs::read_to_string(snapshot.join(device)).unwrap();
    let lines = device.lines().skip_while(|line| *line != "[regs]").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    lines.skip(34).map(str::to_owned).collect()
}

const SAFE_C: &str = "c__dump__file__etc_passwd_(size:64)=0x0000000000000024";

#[test]
fn register_names_of_a_trace_file_are_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("made");
    let mut file = b"\x7fTRACE0\n".to_vec();
    let block = register_block();
    writeln!(file, "R {:x}", block.len()).unwrap();
    for line in description(&made).split_inclusive('>') {
        writeln!(file, "tdesc {line}").unwrap();
    }
    write!(file, "status 0;tstop::0;tframes:1\ntp T1:400000:E:0:0\n\n").unwrap();
    file.extend(1_u16.to_le_bytes());
    file.extend((block.len() as u32 + 1).to_le_bytes());
    file.push(b'R');
    file.extend(&block);
    file.extend([0; 4]);
    let path = directory.path().join("hostile.tf");
    fs::write(&path, file).unwrap();
    let saved = directory.path().join("saved");
    let save = format!("armsnap save {}", saved.display());
    let shown = session(&path, &[], &["info registers", "info all-registers", &save]);
    assert!(shown.contains("saved: 1 core"), "{shown}");
    assert!(shown.contains("d_2J_"), "{shown}");
    assert!(!shown.contains(['\u{9b}', '\u{202e}']), "{shown:?}");
    assert!(!made.exists(), "{shown}");
    let registers = saved_registers(&saved, "trace_file.ini");
    assert_eq!(registers.len(), 4, "{registers:?}");
    assert_eq!(registers[2], SAFE_C);
    // The converted snapshot has such names too.
    let converted = directory.path().join("converted");
    let output = run(armsnap().arg("convert").arg(&path).arg(&converted));
    assert!(output.status.success(), "{}", text(&output));
    let registers = saved_registers(&converted, "device1.ini");
    assert!(
        registers.iter().any(|line| line.starts_with("C__DUMP__")),
        "{registers:?}"
    );
}

/// A hostile server with the replies that GDB requires.
struct Hostile {
    socket: PathBuf,
}

impl Hostile {
    /// Serves one client; `program` is the remote file name of `elf`.
    fn start(directory: &Path, description: String, program: String, elf: Vec<u8>) -> Self {
        let socket = directory.join("hostile");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            while let Some(packet) = packet(&mut client) {
                let mut reply = reply(&packet, &description, &program, &elf);
                let sum = reply.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
                reply.insert(0, b'$');
                write!(reply, "#{sum:02x}").unwrap();
                reply.insert(0, b'+');
                if client.write_all(&reply).is_err() {
                    break;
                }
            }
        });
        Self { socket }
    }
}

/// The next packet of a client; `None` at the end.
fn packet(client: &mut UnixStream) -> Option<String> {
    let mut byte = [0];
    let mut text = Vec::new();
    while byte != *b"$" {
        client.read_exact(&mut byte).ok()?;
    }
    loop {
        client.read_exact(&mut byte).ok()?;
        if byte == *b"#" {
            client.read_exact(&mut [0; 2]).ok()?;
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
        text.push(byte[0]);
    }
}

/// Escapes binary data of a reply.
fn escaped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for &byte in bytes {
        match byte {
            b'#' | b'$' | b'}' | b'*' => out.extend([b'}', byte ^ 0x20]),
            byte => out.push(byte),
        }
    }
    out
}

/// `OFFSET,LENGTH` of a document.
fn piece(document: &[u8], place: &str) -> Vec<u8> {
    let (offset, length) = place.split_once(',').unwrap();
    let number = |text| usize::from_str_radix(text, 16).unwrap();
    let rest = document.get(number(offset)..).unwrap_or_default();
    let taken = &rest[..rest.len().min(number(length)).min(6000)];
    let mark = if taken.len() < rest.len() { b'm' } else { b'l' };
    [&[mark][..], &escaped(taken)].concat()
}

fn reply(packet: &str, description: &str, program: &str, elf: &[u8]) -> Vec<u8> {
    let threads = "<threads><thread id=\"1\" name=\"t&#10;[dump]&#10;file=/etc/passwd&#x9b;2J\">\
                   x</thread></threads>";
    if let Some(rest) = packet.strip_prefix("qXfer:") {
        let (what, rest) = rest.split_once(":read:").unwrap();
        let (_, place) = rest.split_once(':').unwrap();
        let document = match what {
            "features" => description,
            "exec-file" => program,
            "threads" => threads,
            _ => return Vec::new(),
        };
        return piece(document.as_bytes(), place);
    }
    if let Some(place) = packet.strip_prefix("vFile:pread:") {
        let (_, place) = place.split_once(',').unwrap();
        let (length, offset) = place.split_once(',').unwrap();
        let data = piece(elf, &format!("{offset},{length}"));
        // After a mark; an escape takes two bytes for one.
        let escapes = data.iter().filter(|byte| **byte == b'}').count();
        let head = format!("F{:x};", data.len() - 1 - escapes);
        return [head.as_bytes(), &data[1..]].concat();
    }
    if packet.starts_with("vFile:fstat") {
        let mut stat = [0; 64];
        stat[8..12].copy_from_slice(&0o100_444_u32.to_be_bytes());
        stat[28..36].copy_from_slice(&(elf.len() as u64).to_be_bytes());
        return [b"F40;", &escaped(&stat)[..]].concat();
    }
    let text = match packet {
        "?" => "T05thread:1;".to_owned(),
        "qC" => "QC1".to_owned(),
        "qAttached" => "1".to_owned(),
        "g" => register_block()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        "vFile:setfs:0" => "F0".to_owned(),
        _ if packet.starts_with("qSupported") => {
            "PacketSize=4000;qXfer:features:read+;qXfer:exec-file:read+;qXfer:threads:read+"
                .to_owned()
        }
        _ if packet.starts_with("vFile:open") => "F5".to_owned(),
        _ if packet.starts_with("vFile:close") => "F0".to_owned(),
        _ if packet.starts_with(['H', 'T']) => "OK".to_owned(),
        _ if packet.starts_with('m') => "E01".to_owned(),
        _ => String::new(),
    };
    text.into_bytes()
}

/// Saves from a hostile server in a GDB not started by armsnap.
fn save_from(directory: &Path, made: &Path, program: String) -> (PathBuf, String) {
    need_gdb();
    let elf = fs::read(testdata("virt-a57").join("program.elf")).unwrap();
    let hostile = Hostile::start(directory, description(made), program, elf);
    let commands = directory.join("armsnap.py");
    fs::write(&commands, run(armsnap().arg("gdb-commands")).stdout).unwrap();
    let saved = directory.join("saved");
    let mut gdb = Command::new("gdb-multiarch");
    // Without a locale, GDB's own character set is ASCII.
    gdb.args(["-nx", "-batch", "-ex"]).env("LC_ALL", "C");
    gdb.arg(format!("source {}", commands.display()));
    gdb.args([
        "-ex",
        &format!("target remote {}", hostile.socket.display()),
    ]);
    gdb.args(["-ex", &format!("armsnap save {}", saved.display())]);
    let shown = text(&run(&mut gdb));
    assert!(!made.exists(), "{shown}");
    assert!(!shown.contains("Traceback"), "{shown}");
    (saved, shown)
}

#[test]
fn names_of_a_remote_target_are_harmless() {
    for quote in ["\\'\" /dev/null", "'", "\\"] {
        let directory = tempfile::tempdir().unwrap();
        let made = directory.path().join("made");
        let program = format!("/x{quote}\n{}\n", shell(&made));
        let (saved, shown) = save_from(directory.path(), &made, program);
        assert!(
            shown.contains("not passed to GDB's `remote get`"),
            "{shown}"
        );
        let (_, ours) = shown.split_once("saved: 1 core").expect(&shown);
        assert!(ours.contains("\\nshell touch"), "{shown}");
        let registers = saved_registers(&saved, "t__dump__file__etc_passwd_2J.ini");
        assert_eq!(registers.len(), 4, "{registers:?}");
        assert_eq!(registers[2], SAFE_C);
    }
}

#[test]
fn a_program_with_a_harmless_name_is_fetched() {
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("made");
    let (saved, shown) = save_from(directory.path(), &made, "/no such place/a b.elf".to_owned());
    assert!(shown.contains("program a_b.elf\n"), "{shown}");
    let fetched = fs::read(saved.join("a_b.elf")).unwrap();
    assert_eq!(
        fetched,
        fs::read(testdata("virt-a57").join("program.elf")).unwrap()
    );
}
