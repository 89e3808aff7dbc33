//! Hostile files, and files that are truncated while they are read: no command ends by a signal, or
//! uses memory or writes output out of proportion.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use crate::support::gdb::{Server, armsnap, attach, run, testdata, text, write_snapshot};

/// Runs the program, which must end by itself; returns its status and output.
fn status(arguments: &[&str], path: &Path) -> (i32, String) {
    let output = run(armsnap().arg(arguments[0]).arg(path).args(&arguments[1..]));
    let code = output.status.code();
    (
        code.unwrap_or_else(|| panic!("{:?}", output.status)),
        text(&output),
    )
}

/// A trace file with this target description and one frame.
fn trace_file(description: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let lines: String = description
        .lines()
        .map(|line| format!("tdesc {line}\n"))
        .collect();
    let head = format!("\x7fTRACE0\nR 10c\n{lines}status 0;tstop::0\ntp T1:1000:E:0:0\n\n");
    file.write_all(head.as_bytes()).unwrap();
    file.write_all(&[1, 0, 13, 0, 0, 0, b'V', 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0])
        .unwrap();
    file.write_all(&[0; 4]).unwrap();
    file
}

#[test]
fn a_deeply_nested_target_description_is_refused() {
    for levels in [100, 20_000, 500_000] {
        let (begin, end) = ("<f>".repeat(levels), "</f>".repeat(levels));
        let architecture = "<architecture>aarch64</architecture>";
        let file = trace_file(&format!("<target>{architecture}{begin}{end}</target>"));
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        for arguments in [
            &["convert", out.to_str().unwrap()][..],
            &["serve", "--stdio"],
        ] {
            let (code, text) = status(arguments, file.path());
            assert_eq!(code, 1, "{text}");
            assert!(text.contains("nested elements"), "{text}");
        }
    }
}

#[test]
fn a_long_name_costs_info_only_its_length() {
    let name = "f".repeat(70_000);
    let mut device = "class=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0\n".to_owned();
    for n in 0..500 {
        device += &format!("[dump{n}]\nfile=x{n}\naddress={:#x}\n", n * 0x1000);
    }
    device += &format!("[dump.z]\nfile=y\naddress=0\nspace={name}\n");
    let snapshot = write_snapshot(&[("cpu_0", &device)], &[]);
    let (code, text) = status(&["info"], snapshot.path());
    assert_eq!(code, 0, "{text:.500}");
    assert!(text.contains(&name));
    assert!(text.len() < 20 * name.len(), "{} bytes", text.len());
}

/// A recorded snapshot with its trace repeated to some megabytes, and code.
fn long_trace(megabytes: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let from = testdata("recorded/etmv4");
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let trace = directory.path().join("trace.bin");
    let once = std::fs::read(&trace).unwrap();
    std::fs::write(&trace, once.repeat((megabytes << 20).div_ceil(once.len()))).unwrap();
    directory
}

#[test]
fn a_trace_buffer_truncated_while_decoding_is_an_error() {
    for jobs in ["1", "2"] {
        let snapshot = long_trace(16);
        let mut child = armsnap()
            .arg("decode")
            .arg(snapshot.path())
            .args(["--level", "packets", "--jobs", jobs])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It waits until its output is read.
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let trace = File::options()
            .write(true)
            .open(snapshot.path().join("trace.bin"));
        trace.unwrap().set_len(100).unwrap();
        std::io::copy(&mut out, &mut std::io::sink()).unwrap();
        let mut told = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(1), "{status:?}: {told}");
        assert!(told.contains("trace.bin: was cut from"), "{told}");
        assert!(told.contains("to 100 bytes while it was read"), "{told}");
    }
}

#[test]
fn reading_a_dump_truncated_while_served_is_an_error() {
    let device = "class=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0x80000000\n\
                  SP(size:64)=0x80001000\nCPSR=0x3c5\n[dump1]\nfile=a.bin\naddress=0x80000000\n\
                  [dump2]\nfile=b.bin\naddress=0x90000000\n";
    let dump = vec![0x11; 40_000];
    let snapshot = write_snapshot(&[("cpu_0", device)], &[("a.bin", &dump), ("b.bin", &dump)]);
    let mut server = Server::start(snapshot.path(), &[], 1);
    let address = server.addresses[0].clone();
    let look = [
        "x/1xw 0x80000000",
        "x/1xw 0x80000070",
        "x/1xw 0x80009000",
        "x/1xw 0x90009000",
    ];
    let text = attach(&address, &look);
    assert_eq!(text.matches("0x11111111").count(), 4, "{text}");
    // In the middle of a page: the rest of the page reads as zeros, which are not shown.
    let file = File::options()
        .write(true)
        .open(snapshot.path().join("a.bin"))
        .unwrap();
    file.set_len(100).unwrap();
    for _ in 0..2 {
        let text = attach(&address, &look);
        assert_eq!(text.matches("0x11111111").count(), 2, "{text}");
        assert_eq!(text.matches("Cannot access memory").count(), 2, "{text}");
        assert!(
            text.contains("Cannot access memory at address 0x80000070"),
            "{text}"
        );
    }
    assert!(server.lives());
}

#[test]
fn no_history_is_invented_for_truncated_trace() {
    let snapshot = long_trace(2);
    let mut server = Server::start(snapshot.path(), &[], 1);
    let address = server.addresses[0].clone();
    let moves = [
        "reverse-stepi",
        "monitor where",
        "reverse-continue",
        "monitor where",
    ];
    let text = attach(&address, &moves);
    assert!(text.contains(", A64\n"), "{text}");
    let file = File::options()
        .write(true)
        .open(snapshot.path().join("trace.bin"))
        .unwrap();
    file.set_len(1000).unwrap();
    let text = attach(&address, &moves);
    assert!(text.contains("trace.bin: was cut from"), "{text}");
    assert!(text.contains("are not known any more"), "{text}");
    assert!(!text.contains(", A64\n"), "{text}");
    assert!(server.lives());
    // Requests that do not need the trace still succeed.
    let text = attach(&address, &["info threads", "p/x $sp"]);
    assert!(text.contains("Cortex-A57_1"), "{text}");
}

#[test]
fn reading_a_trace_file_truncated_while_served_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.tf");
    let output = run(armsnap()
        .arg("convert")
        .arg(testdata("recorded/etmv3"))
        .arg(&path));
    assert!(output.status.success(), "{}", text(&output));
    let mut server = Server::start(&path, &[], 1);
    let address = server.addresses[0].clone();
    assert!(attach(&address, &["tfind 5"]).contains("Found trace frame 5"));
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(64).unwrap();
    let text = attach(&address, &["tfind 5", "tfind 6"]);
    assert!(!text.contains("Found trace frame"), "{text}");
    assert!(server.lives());
    assert!(TcpStream::connect(&address).is_ok());
}
