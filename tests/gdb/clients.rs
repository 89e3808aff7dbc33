//! Clients that disconnect, stay silent, are too many, or interrupt their requests.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use armsnap::remote_protocol::framing::write_packet;
use armsnap::server::{Options, Session, endpoints};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::gdb::{Server, armsnap, attach, gdb_version, need_gdb, testdata};
use crate::support::is_optimised;

/// A timeout longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a condition.
#[track_caller]
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn threads(id: u32) -> usize {
    std::fs::read_dir(format!("/proc/{id}/task"))
        .unwrap()
        .count()
}

/// The number of threads, once stable: a starting server has additional ones briefly.
fn settled_threads(id: u32) -> usize {
    let (mut count, mut same) = (threads(id), 0);
    wait_until("threads settle", || {
        let now = threads(id);
        same = if now == count { same + 1 } else { 0 };
        count = now;
        same == 20
    });
    count
}

fn packet(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_packet(text.as_bytes(), &mut bytes);
    bytes
}

fn copy_recorded(to: &Path) {
    for entry in std::fs::read_dir(testdata("recorded/etmv4")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// A snapshot whose trace is followed by gigabytes of zeros, in which decoding cannot start:
/// searching for the last place where it can takes minutes.
fn endless() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    copy_recorded(directory.path());
    let trace = directory.path().join("trace.bin");
    let trace = File::options().write(true).open(trace).unwrap();
    if trace.set_len(64 << 30).is_err() {
        crate::support::skip::unavailable("no sparse files here");
        return None;
    }
    Some(directory)
}

#[test]
fn work_ends_with_its_client() {
    let Some(snapshot) = endless() else { return };
    let mut server = Server::start(snapshot.path(), &[], 1);
    let id = server.id();
    let before = settled_threads(id);
    let where_ = "qRcmd,7768657265";
    for packets in [
        &["bs"][..],
        &["bc"],
        &["vCont;s:1"],
        &[where_],
        &["QTFrame:5"],
    ] {
        for _ in 0..3 {
            let mut client = TcpStream::connect(&server.addresses[0]).unwrap();
            for text in packets {
                client.write_all(&packet(text)).unwrap();
            }
            // The packet has arrived once it is acknowledged or its thread runs.
            wait_until("a thread for the client", || threads(id) > before);
            client.shutdown(Shutdown::Both).unwrap();
        }
    }
    wait_until("no thread of a client that left", || threads(id) == before);
    assert!(server.lives());
}

#[test]
fn a_new_client_replaces_the_longest_idle_one() {
    let mut server = Server::start(&testdata("virt-a57"), &[], 1);
    let address = server.addresses[0].clone();
    // A client with requests stays among many silent ones.
    let mut busy = TcpStream::connect(&address).unwrap();
    busy.set_read_timeout(Some(PATIENCE)).unwrap();
    let ask = |stream: &mut TcpStream| -> std::io::Result<()> {
        stream.write_all(&packet("qC"))?;
        let mut reply = [0; 8];
        stream.read_exact(&mut reply)?;
        assert_eq!(&reply, b"+$QC1#c5");
        Ok(())
    };
    ask(&mut busy).unwrap();
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(&address).unwrap());
        ask(&mut busy).unwrap();
    }
    let text = attach(&address, &["info threads"]);
    assert!(text.contains("\"Cortex-A57_1\""), "{text}");
    ask(&mut busy).unwrap();
    // The first ones were disconnected; the last ones have slots.
    let mut first = silent.remove(0);
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)));
    ask(silent.last_mut().unwrap()).unwrap();
    drop(silent);
    wait_until("no thread of the silent", || threads(server.id()) < 8);
    ask(&mut busy).unwrap();
    assert!(server.lives());
}

#[test]
fn the_server_recovers_from_a_lack_of_descriptors() {
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -n 24; exec \"$0\" serve \"$1\""]);
    command
        .arg(armsnap().get_program())
        .arg(testdata("virt-a57"));
    let mut child: Child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut line).unwrap();
    let (_, rest) = line.trim_end().split_once("target remote ").expect(&line);
    let address = rest.trim_end_matches(['\'', ')']).to_owned();
    let many: Vec<_> = (0..60).map(|_| TcpStream::connect(&address)).collect();
    // More connections are open here than the server has descriptors.
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{}/fd", child.id()))
            .unwrap()
            .count()
    };
    wait_until("no descriptor is left", || descriptors() >= 24);
    drop(many);
    let text = attach(&address, &["info threads"]);
    assert!(text.contains("\"Cortex-A57_1\""), "{text}");
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn ctrl_c_between_two_moves_ends_the_next() {
    let loaded = Snapshot::open(&testdata("recorded/etmv4"), &OpenOptions::default()).unwrap();
    let endpoint = Arc::new(endpoints(&loaded, &Options::default()).unwrap().remove(0));
    let mut session = Session::new(endpoint);
    let mut ask = |bytes: &[u8]| {
        let mut out = Vec::new();
        session.feed(bytes, &mut out);
        String::from_utf8(out).unwrap()
    };
    let step = packet("bs");
    assert!(ask(&step).contains("$T05"));
    assert_eq!(ask(b"\x03"), "");
    let here = ask(&packet("p20"));
    assert!(ask(&step).contains("$T02"));
    // Nothing moved; the next move does.
    assert_eq!(ask(&packet("p20")), here);
    assert!(ask(&step).contains("$T05"));
    assert_ne!(ask(&packet("p20")), here);
}

/// Runs GDB with some commands and sends Ctrl-C every two seconds after it printed `said`. Returns
/// all output.
fn interrupted(address: &str, commands: &[&str], said: &str) -> String {
    let pause = Duration::from_secs(2);
    interrupted_after([pause, pause], address, commands, said)
}

/// Same as [`interrupted`], with the time before the first Ctrl-C and the one between two.
fn interrupted_after(
    [first, others]: [Duration; 2],
    address: &str,
    commands: &[&str],
    said: &str,
) -> String {
    need_gdb();
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex", &format!("target remote {address}")]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    let gdb = gdb.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = gdb.stderr(Stdio::null()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains(said) {
        assert_ne!(out.read_line(&mut text).unwrap(), 0, "{text}");
    }
    let (ended, has_ended) = mpsc::channel::<()>();
    let id = Pid::from_child(&child);
    let user = thread::spawn(move || {
        let start = Instant::now();
        let mut pause = first;
        while has_ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            pause = others;
            let hangs = start.elapsed() > PATIENCE;
            let signal = if hangs { Signal::KILL } else { Signal::INT };
            let _ = kill_process(id, signal);
        }
        start.elapsed() > PATIENCE
    });
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    drop(ended);
    assert!(!user.join().unwrap(), "GDB hangs");
    child.wait().unwrap();
    text + &String::from_utf8_lossy(&rest)
}

/// A snapshot whose trace, several times the same, has tens of millions of instructions.
fn long() -> tempfile::TempDir {
    let snapshot = tempfile::tempdir().unwrap();
    copy_recorded(snapshot.path());
    let trace = snapshot.path().join("trace.bin");
    let once = std::fs::read(&trace).unwrap();
    std::fs::write(&trace, once.repeat((4 << 20) / once.len())).unwrap();
    snapshot
}

/// GDB asks for callers where a move ends; the outermost one is searched for in millions of
/// instructions.
#[test]
fn ctrl_c_ends_a_search_for_callers() {
    if gdb_version() > 13 {
        println!("SKIPPED: GDB 16 and 18 end the search no sooner for Ctrl-C");
        return;
    }
    let snapshot = long();
    let server = Server::start(snapshot.path(), &[], 1);
    let source = concat!("source ", env!("CARGO_MANIFEST_DIR"), "/gdb/armsnap.py");
    let commands = [
        source,
        "tstatus",
        "echo <frames>\\n",
        "reverse-stepi",
        "echo <then>\\n",
        "armsnap where",
    ];
    // A Ctrl-C that comes when the move ends counts for the next one. The last command searches again:
    // a second Ctrl-C would end it on a busy machine.
    let answered = (1..=5).any(|attempt| {
        let soon = Duration::from_millis(attempt * 300);
        let times = [soon, PATIENCE / 2];
        let text = interrupted_after(times, &server.addresses[0], &commands, "<frames>\n");
        let after = text.split("<frames>\n").nth(1).unwrap();
        let Some((moved, then)) = after.split_once("<then>\n") else {
            return false;
        };
        // Without callers GDB shows no frame.
        !moved.contains("main.c") && then.contains("history is from")
    });
    // An optimised program needs no second for the search.
    assert!(answered || is_optimised());
}

#[test]
fn ctrl_c_ends_many_steps() {
    let snapshot = long();
    let server = Server::start(snapshot.path(), &[], 1);
    let steps = ["reverse-stepi", "reverse-stepi 1000000000", "monitor where"];
    let text = interrupted(&server.addresses[0], &steps, "main.c\n");
    assert!(
        !text.contains("No more reverse-execution history"),
        "{text}"
    );
}

#[test]
fn ctrl_c_ends_monitor_where() {
    let Some(snapshot) = endless() else { return };
    let server = Server::start(snapshot.path(), &[], 1);
    let commands = ["info threads", "monitor where", "info threads"];
    let text = interrupted(&server.addresses[0], &commands, "Cortex-A57_1");
    assert!(!text.contains("history is from"), "{text}");
}

#[test]
fn ctrl_c_ends_the_script_that_moves() {
    let Some(snapshot) = endless() else { return };
    let script = snapshot.path().join("script");
    let steps = "set $i = 0\nwhile $i < 4\nreverse-stepi\nset $i = $i + 1\nend\n";
    let python = "python\nfor i in range(4):\n  gdb.execute('reverse-stepi')\nend\n";
    let server = Server::start(snapshot.path(), &[], 1);
    let commands = concat!("source ", env!("CARGO_MANIFEST_DIR"), "/gdb/armsnap.py");
    for text in [steps, python] {
        std::fs::write(&script, format!("{text}echo after the moves\\n\n")).unwrap();
        let source = format!("source {}", script.display());
        let commands = [commands, "info threads", &source, "echo GDB goes on\\n"];
        let text = interrupted(&server.addresses[0], &commands, "Cortex-A57_1");
        assert_eq!(text.matches("received signal SIGINT").count(), 1, "{text}");
        assert!(!text.contains("after the moves"), "{text}");
        assert!(text.contains("GDB goes on"), "{text}");
    }
}

#[test]
fn hooks_defined_by_the_user_are_kept() {
    let source = concat!("source ", env!("CARGO_MANIFEST_DIR"), "/gdb/armsnap.py");
    let hook = "python gdb.execute('define hookpost-reverse-stepi\\necho my own hook\\\\n\\nend')";
    let server = Server::start(&testdata("recorded/etmv4"), &[], 1);
    let commands = [hook, source, "reverse-stepi", "reverse-stepi", "stepi"];
    let text = attach(&server.addresses[0], &commands);
    assert_eq!(text.matches("my own hook").count(), 2, "{text}");
}
