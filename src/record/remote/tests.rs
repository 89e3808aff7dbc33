use super::*;
use crate::remote_protocol::framing::{Framer, Incoming, write_packet};
use crate::server::{Options, Session, endpoints};
use armsnap_arch::arch::Architecture;
use armsnap_snapshot::snapshot::OpenOptions;
use armsnap_snapshot::snapshot::model::{RegisterValue, Snapshot};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const WAIT: Duration = Duration::from_secs(20);

/// Starts a server for one client, and returns its socket; `reply` maps the client's bytes to the server's.
fn serve(mut reply: impl FnMut(&[u8], &mut Vec<u8>) + Send + 'static) -> PathBuf {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(directory);
        let (mut bytes, mut out) = ([0; 4096], Vec::new());
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            reply(&bytes[..count], &mut out);
            if stream.write_all(&out).is_err() {
                break;
            }
            out.clear();
        }
    });
    socket
}

const DESCRIPTION: &str = "l<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\">\
    <target><architecture>arm</architecture><xi:include href=\"core.xml\"/>\
    <xi:include href=\"more.xml\"></xi:include></target>";
const CORE: &str = "l<?xml version=\"1.0\"?><!DOCTYPE feature SYSTEM \"gdb-target.dtd\">\
    <feature name=\"org.gnu.gdb.arm.m-profile\"><reg name=\"r0\" bitsize=\"32\"/>\
    <reg name=\"pc\" bitsize=\"32\" regnum=\"15\"/></feature>";
const MORE: &str = "l<feature name=\"x\"><reg name=\"d0\" bitsize=\"64\" regnum=\"30\"/>\
    <reg name=\"d1\" bitsize=\"64\"/></feature>";

/// A server that replies to whole packets; packets unknown to `other` get an empty reply.
fn scripted(other: impl FnMut(&str) -> Vec<u8> + Send + 'static) -> PathBuf {
    serve(replies(other))
}

/// Replies to whole packets; the lines of a reply are packets.
fn replies(
    mut other: impl FnMut(&str) -> Vec<u8> + Send,
) -> impl FnMut(&[u8], &mut Vec<u8>) + Send {
    let mut framer = Framer::default();
    move |bytes, out| {
        for byte in bytes {
            let Some(Incoming::Packet(packet)) = framer.push(*byte) else {
                continue;
            };
            out.push(b'+');
            let packet = String::from_utf8_lossy(&packet).into_owned();
            let reply = match packet.split(':').collect::<Vec<_>>()[..] {
                ["qSupported", ..] => b"PacketSize=40".to_vec(),
                ["qXfer", "features", "read", "target.xml", _] => DESCRIPTION.into(),
                ["qXfer", "features", "read", "core.xml", _] => CORE.into(),
                ["qXfer", "features", "read", "more.xml", _] => MORE.into(),
                _ => other(&packet),
            };
            for packet in reply.split(|byte| *byte == b'\n') {
                write_packet(packet, out);
            }
        }
    }
}

#[test]
fn a_saved_system_is_read_back() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/virt-a57");
    let loaded = Snapshot::open(&directory, &OpenOptions::default()).unwrap();
    let endpoint = Arc::new(endpoints(&loaded, &Options::default()).unwrap().remove(0));
    let mut session = Session::new(endpoint);
    let address = serve(move |bytes, out| {
        session.feed(bytes, out);
    });
    let mut remote = Remote::connect(&address, WAIT).unwrap();
    assert_eq!(remote.target().architecture, Architecture::AArch64);
    let threads = remote.threads().unwrap();
    assert_eq!(threads.len(), 2);
    for (thread, device) in threads.iter().zip(&loaded.snapshot.devices) {
        remote.select(thread).unwrap();
        let found = crate::record::device_state::registers(&mut remote).unwrap();
        assert_eq!(found.len(), device.registers.len());
        for wanted in &device.registers {
            let found = found.iter().find(|found| found.name == wanted.name);
            let found = found.unwrap_or_else(|| panic!("no {}", wanted.name));
            assert_eq!(found.value, wanted.value, "{}", wanted.name);
            assert_eq!(found.size, wanted.size, "{}", wanted.name);
        }
        let pc = device.register("PC").unwrap().value.as_u64();
        assert_eq!(remote.value("pc").unwrap(), pc);
        assert_eq!(remote.value("no_such").unwrap(), None);
    }
    for dump in &loaded.snapshot.devices[0].dumps {
        let bytes = std::fs::read(directory.join(&dump.file)).unwrap();
        // There is no memory after the dump.
        let found = remote.memory(dump.address, bytes.len()).unwrap();
        assert!(found == bytes, "{}", dump.section);
    }
    assert!(remote.memory(0, 16).unwrap().is_empty());
    assert!(remote.memory(u64::MAX, 16).unwrap().is_empty());
}

#[test]
fn descriptions_include_others_and_registers_come_in_pieces() {
    let address = scripted(|packet| match packet {
        // r0, and an incomplete register: the others are requested.
        "g" => b"78563412".to_vec(),
        "pf" => b"xxxxxxxx".to_vec(),
        "p1e" => b"0* 1*\"".to_vec(),
        "p1f" => b"E14".to_vec(),
        "m1000,20" => b"11".repeat(32),
        "m1020,1" => b"E14".to_vec(),
        _ => Vec::new(),
    });
    let mut remote = Remote::connect(&address, WAIT).unwrap();
    let target = remote.target().clone();
    assert_eq!(target.architecture, Architecture::MProfile);
    assert_eq!(target.numbers, [0, 15, 30, 31]);
    let values = remote.registers().unwrap();
    assert_eq!(values[0], Some(vec![0x78, 0x56, 0x34, 0x12]));
    assert_eq!(values[1..], [None, None, None]);
    let registers = crate::record::device_state::registers(&mut remote).unwrap();
    assert_eq!(registers.len(), 1);
    assert_eq!(registers[0].name, "R0");
    assert_eq!(registers[0].size, None);
    assert_eq!(registers[0].value, RegisterValue::from_u64(0x1234_5678, 4));
    assert_eq!(remote.memory(0x1000, 33).unwrap(), [0x11; 32]);
    assert_eq!(remote.threads().unwrap(), [""; 0]);
    let error = remote.insert_breakpoint(4, 4).unwrap_err();
    assert!(error.to_string().contains("expected OK"), "{error}");
}

#[test]
fn a_server_with_much_output() {
    const PACKETS: usize = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(directory);
        let mut packets = replies(|_| {
            b"O3031\n"
                .repeat(PACKETS)
                .into_iter()
                .chain(*b"OK")
                .collect()
        });
        let (mut bytes, mut out) = ([0; 4096], Vec::new());
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            packets(&bytes[..count], &mut out);
            // It does not read while it writes packets.
            for packet in out.chunks(9) {
                stream.write_all(packet).unwrap();
            }
            out.clear();
        }
    });
    let mut remote = Remote::connect(&path, WAIT).unwrap();
    assert_eq!(remote.monitor("q").unwrap().len(), 2 * PACKETS);
}

#[test]
fn running_and_stopping() {
    let address = scripted(|packet| match packet {
        "vCont;c" => b"T05thread:02;swbreak:;".to_vec(),
        "vCont;s:1" => b"O6869".to_vec(),
        "qRcmd,71" => b"OK".to_vec(),
        _ => Vec::new(),
    });
    let mut remote = Remote::connect(&address, WAIT).unwrap();
    remote.resume().unwrap();
    let stop = remote.wait(WAIT).unwrap();
    let thread = Some("02".to_owned());
    assert_eq!(stop, Some(Stop::Signal { signal: 5, thread }));
    // It prints and continues.
    remote.step("1").unwrap();
    assert_eq!(remote.wait(Duration::from_millis(50)).unwrap(), None);
    assert_eq!(remote.take_output(), b"hi");
    remote.interrupt().unwrap();
    assert_eq!(remote.monitor("q").unwrap(), "");
}

#[test]
fn stop_replies() {
    let signal = |signal, thread: Option<&str>| {
        let thread = thread.map(str::to_owned);
        Some(Stop::Signal { signal, thread })
    };
    for (packet, wanted) in [
        ("S05", signal(5, None)),
        ("T0b", signal(11, None)),
        ("T02thread:p1.2;core:0;", signal(2, Some("p1.2"))),
        ("T02core:0;thread:7", signal(2, Some("7"))),
        ("W00", Some(Stop::Exited(0))),
        ("W2a;process:1", Some(Stop::Exited(42))),
        ("X06", Some(Stop::Ended(6))),
        ("", None),
        ("T", None),
        ("T5", None),
        ("Tä0", None),
        ("Szz", None),
        ("W", None),
        ("OK", None),
        ("E01", None),
    ] {
        assert_eq!(stop(packet.as_bytes()), wanted, "{packet}");
    }
}

#[test]
fn malformed_replies_are_errors() {
    // It includes itself.
    let itself = serve(|_, out| {
        write_packet(b"l<target><xi:include href=\"target.xml\"/></target>", out);
    });
    let no_description = serve(|_, out| write_packet(b"", out));
    let no_document = serve(|_, out| write_packet(b"l<target>", out));
    let broken = serve(|_, out| out.extend_from_slice(b"$m#00"));
    let minus = serve(|_, out| out.extend_from_slice(b"-"));
    for (name, address) in [
        ("itself", itself),
        ("no description", no_description),
        ("no document", no_document),
        ("broken", broken),
        ("minus", minus),
    ] {
        let error = Remote::connect(&address, WAIT).unwrap_err();
        assert!(!matches!(error, Error::Silent(_)), "{name}: {error}");
    }
    let nobody = Path::new("/nowhere/to/be/found");
    let error = Remote::connect(nobody, Duration::ZERO).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/to/be/found: no GDB server")
    );
}
