//! Trace that is decoded while it arrives: the output is that of the complete trace.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::in_parts::case::{Case, LEVELS, bytes_of, cases, numbers, snapshots};
use crate::support::repeated::repeated;
use crate::support::{armsnap, is_optimised, skip};
use armsnap::decode::BufferDecoder;
use armsnap::report::listing::LineForm;

const PATIENCE: Duration = Duration::from_secs(60);

fn decode(input: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(armsnap());
    command.arg("decode").arg(input).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

/// `decode -` with the sources of a snapshot.
fn from_input(snapshot: &Path, arguments: &[&str]) -> Child {
    let mut command = decode(Path::new("-"), arguments);
    command.arg("--like").arg(snapshot).spawn().unwrap()
}

#[track_caller]
fn succeeded(output: &Output) -> &[u8] {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    &output.stdout
}

#[track_caller]
fn at_rest(snapshot: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = decode(snapshot, arguments).output().unwrap();
    succeeded(&output).to_vec()
}

/// A random size from 1 to 1 MiB; small ones are as likely as large ones.
fn size(random: &mut impl FnMut() -> u64) -> usize {
    let most = 1 << (random() % 21);
    (random() % most + 1) as usize
}

/// Writes bytes in chunks of random sizes, and closes the pipe.
fn feed(mut to: ChildStdin, bytes: Vec<u8>, seed: u64) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut random = numbers(seed);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(size(&mut random).min(rest.len()));
            to.write_all(chunk).unwrap();
            rest = after;
        }
    })
}

/// The output for bytes that arrive through a pipe.
#[track_caller]
fn through_a_pipe(snapshot: &Path, bytes: Vec<u8>, arguments: &[&str], seed: u64) -> Vec<u8> {
    let mut child = from_input(snapshot, arguments);
    let feeder = feed(child.stdin.take().unwrap(), bytes, seed);
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    succeeded(&output).to_vec()
}

/// The lines of each source.
fn by_source(lines: &[u8]) -> BTreeMap<String, Vec<&str>> {
    let mut sources: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for line in std::str::from_utf8(lines).unwrap().lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let source = value["source"].as_str().unwrap().to_owned();
        sources.entry(source).or_default().push(line);
    }
    sources
}

#[test]
fn captures_decode_through_a_pipe_as_at_rest() {
    let levels = ["elements", "packets", "branches", "instructions"];
    let mut random = numbers(0x11fe);
    let (mut alone, mut together) = (0, 0);
    for path in snapshots() {
        cases(&path, |case| {
            let bytes = bytes_of(&case.buffer);
            let level = match bytes.len() > 100 << 10 && !is_optimised() {
                true => levels[alone % 3],
                false => levels[alone % 4],
            };
            let buffer = &*case.buffer.name;
            let source = &case.buffer.sources[random() as usize % case.buffer.sources.len()];
            let form = ["text", "jsonl"][alone / 4 % 2];
            let wanted = ["--level", level, "--buffer", buffer, "--format"];
            let arguments = [&wanted[..], &[form, "--source", &source.name]].concat();
            let found = through_a_pipe(&path, bytes.clone(), &arguments, random() | 1);
            let name = format!("{}: {arguments:?}", path.display());
            assert!(found == at_rest(&path, &arguments), "{name}");
            alone += 1;
            if case.buffer.sources.len() > 1 {
                let arguments = [&wanted[..], &["jsonl"]].concat();
                let found = through_a_pipe(&path, bytes, &arguments, random() | 1);
                let at_rest = at_rest(&path, &arguments);
                assert!(by_source(&found) == by_source(&at_rest), "{name}");
                together += 1;
            }
        });
    }
    skip::found_enough(alone, 20);
    skip::found_enough(together, 2);
}

/// The text of each source, from pieces of the given sizes.
fn in_pieces(case: &Case<'_>, mut size: impl FnMut() -> usize) -> Vec<Vec<u8>> {
    let mut decoders = case.boxed_decoders();
    let mut texts = vec![Vec::new(); decoders.len()];
    let mut decoder = BufferDecoder::new(case.buffer.frames, case.piece, &mut decoders);
    let bytes = bytes_of(&case.buffer);
    let mut rest = &bytes[..];
    let mut more = true;
    while more {
        let (piece, after) = rest.split_at(size().min(rest.len()));
        more = !piece.is_empty();
        decoder
            .arrived(piece, !more, |index, listed| {
                texts[index].extend(listed.text().take());
                Ok::<(), ()>(())
            })
            .unwrap();
        rest = after;
    }
    texts
}

#[test]
fn pieces_of_any_size_decode_as_the_whole() {
    let mut random = numbers(0x9e3779b9);
    let mut count = 0;
    for path in snapshots() {
        cases(&path, |mut case| {
            for level in LEVELS {
                (case.level, case.form, case.piece) = (level, LineForm::Text, 16 << 10);
                let large = case.buffer.bytes() > 40 << 10;
                if large && level == LEVELS[3] && !is_optimised() {
                    continue;
                }
                let whole = in_pieces(&case, || usize::MAX);
                let small = 1 + random() % 64;
                let sizes = || match small == 1 {
                    true => 1,
                    false => size(&mut random) % (small as usize * 100) + 1,
                };
                let name = format!("{}: {}", path.display(), case.name());
                assert!(in_pieces(&case, sizes) == whole, "{name}, {small}");
                count += 1;
            }
        });
    }
    skip::found_enough(count, 80);
}

#[test]
fn losses_are_located_in_pieces_of_any_size_as_in_the_whole() {
    let mut random = numbers(0x10550);
    let mut count = 0;
    for path in snapshots() {
        cases(&path, |mut case| {
            let mut bytes = bytes_of(&case.buffer);
            if case.buffer.frames.is_none() || bytes.len() < 64 {
                return;
            }
            bytes.truncate(8_000);
            for _ in 0..8 {
                let at = random() as usize % bytes.len();
                // Frame synchronisation in a frame.
                bytes.splice(at..at, [0xff, 0xff, 0xff, 0x7f]);
            }
            case.buffer.parts = vec![bytes.into()];
            for level in [LEVELS[0], LEVELS[1]] {
                (case.level, case.form, case.piece) = (level, LineForm::Text, 4 << 10);
                let whole = in_pieces(&case, || usize::MAX);
                for most in [1, 17, 40] {
                    let sizes = || random() as usize % most + 1;
                    let name = format!("{}: {}", path.display(), case.name());
                    assert!(in_pieces(&case, sizes) == whole, "{name}, {most}");
                    count += 1;
                }
            }
        });
    }
    skip::found_enough(count, 40);
}

/// Receives the lines of a program's output as they appear.
fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let _ = sender.send(line.unwrap());
        }
    });
    receiver
}

/// Receives lines until there are `count`.
#[track_caller]
fn receive(lines: &Receiver<String>, count: usize) -> Vec<String> {
    let next = |_| lines.recv_timeout(PATIENCE).expect("a line in time");
    (0..count).map(next).collect()
}

fn text_lines(text: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(text).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// The number of lines that may depend on bytes that have not arrived.
const HELD_BACK: usize = 4;

#[test]
fn lines_appear_while_the_writer_waits() {
    let snapshot = repeated("etmv4", 20_000);
    let bytes = fs::read(snapshot.path().join("trace.bin")).unwrap();
    for level in ["packets", "elements", "branches"] {
        let arguments = ["--level", level, "--source", "ETMV4_0"];
        let wanted = text_lines(&at_rest(snapshot.path(), &arguments));
        let mut child = from_input(snapshot.path(), &arguments);
        let found = lines(child.stdout.take().unwrap());
        let mut input = child.stdin.take().unwrap();
        input.write_all(&bytes).unwrap();
        let known = wanted.len() - HELD_BACK;
        assert_eq!(receive(&found, known), wanted[..known]);
        drop(input);
        let rest: Vec<String> = found.iter().collect();
        assert_eq!(rest, wanted[known..]);
        assert!(child.wait().unwrap().success());
    }
}

/// A copy of a recording whose trace is `bytes`.
fn recording(bytes: &[u8]) -> tempfile::TempDir {
    let directory = repeated("etmv4", 1);
    fs::write(directory.path().join("trace.bin"), bytes).unwrap();
    directory
}

#[test]
fn a_growing_file_is_followed_until_its_writer_closes_it() {
    let whole = repeated("etmv4", 30_000);
    let bytes = fs::read(whole.path().join("trace.bin")).unwrap();
    let wanted = at_rest(whole.path(), &["--source", "ETMV4_0"]);
    let (first, rest) = bytes.split_at(7_001);
    let growing = recording(first);
    let file = growing.path().join("trace.bin");
    let mut writer = File::options().append(true).open(&file).unwrap();
    let mut child = decode(growing.path(), &["--source", "ETMV4_0", "-f"])
        .spawn()
        .unwrap();
    let found = lines(child.stdout.take().unwrap());
    let mut all = receive(&found, 10);
    for piece in rest.chunks(5_000) {
        writer.write_all(piece).unwrap();
        thread::sleep(Duration::from_millis(30));
    }
    // Where the writer is not seen, nothing but Ctrl-C ends it.
    if cfg!(target_os = "linux") {
        thread::sleep(Duration::from_millis(1500));
        drop(writer);
        all.extend(found.iter());
        assert_eq!(all, text_lines(&wanted));
        assert!(child.wait().unwrap().success());
    } else {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[cfg(unix)]
fn interrupt(child: &Child) {
    let process = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_trace() {
    let snapshot = repeated("etmv4", 20_000);
    let bytes = fs::read(snapshot.path().join("trace.bin")).unwrap();
    let source = ["--source", "ETMV4_0"];
    let wanted = text_lines(&at_rest(snapshot.path(), &source));
    let known = wanted.len() - HELD_BACK;
    // A file that nobody writes.
    let mut child = decode(snapshot.path(), &[&source[..], &["-f"]].concat())
        .spawn()
        .unwrap();
    let found = lines(child.stdout.take().unwrap());
    let mut all = receive(&found, known);
    interrupt(&child);
    all.extend(found.iter());
    assert_eq!(all, wanted);
    assert!(child.wait().unwrap().success());
    // A pipe that stays open, and results in a file.
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.jsonl");
    let to_file = ["-o", output.to_str().unwrap(), "--stats"];
    let arguments = [&source[..], &to_file].concat();
    let mut child = from_input(snapshot.path(), &arguments);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&bytes).unwrap();
    let size = wanted[..known].iter().map(|line| line.len() as u64 + 1);
    let size = size.sum();
    until(|| written(directory.path()) >= size);
    assert!(!output.exists());
    interrupt(&child);
    let stats = child.wait_with_output().unwrap();
    let stats: serde_json::Value = serde_json::from_slice(succeeded(&stats)).unwrap();
    assert_eq!(stats["bytes"], bytes.len());
    assert_eq!(text_lines(&fs::read(&output).unwrap()), wanted);
    drop(input);
}

/// The size of the files in a directory.
fn written(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len()));
    sizes.sum()
}

#[track_caller]
fn until(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_leaves_ends_the_program() {
    let snapshot = repeated("etmv4", 20_000);
    let bytes = fs::read(snapshot.path().join("trace.bin")).unwrap();
    let mut piped = from_input(snapshot.path(), &[]);
    let mut input = piped.stdin.take().unwrap();
    input.write_all(&bytes).unwrap();
    let followed = [
        &["-f"][..],
        &["-f", "-o", "-"],
        &["-f", "-o", "/dev/stdout"],
    ];
    let followed = followed.map(|arguments| decode(snapshot.path(), arguments).spawn().unwrap());
    for mut child in [piped].into_iter().chain(followed) {
        let mut found = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        found.read_line(&mut line).unwrap();
        drop(found);
        // Nothing more arrives.
        until(|| child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        succeeded(&output);
    }
    drop(input);
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let snapshot = repeated("etmv4", 20_000);
    let mut child = decode(snapshot.path(), &["-f"]).spawn().unwrap();
    let found = lines(child.stdout.take().unwrap());
    receive(&found, 10);
    let file = File::options()
        .write(true)
        .open(snapshot.path().join("trace.bin"))
        .unwrap();
    file.set_len(100).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("trace.bin: was cut from "), "{errors}");
    assert!(errors.contains(" to 100 bytes while"), "{errors}");
}

#[cfg(unix)]
#[test]
fn files_of_a_buffer_are_followed_as_at_rest() {
    let mut random = numbers(0xf11e5);
    let several = recording(&[]);
    for name in ["a.bin", "b.bin", "c.bin"] {
        let noise: Vec<u8> = (0..100).map(|_| random() as u8 | 1).collect();
        fs::write(several.path().join(name), noise).unwrap();
    }
    let metadata = fs::read_to_string(several.path().join("trace.ini")).unwrap();
    let metadata = metadata.replace("file=trace.bin", "file=a.bin, b.bin, c.bin");
    let metadata = metadata.replace("format=coresight", "format=source_data");
    fs::write(several.path().join("trace.ini"), metadata).unwrap();
    let arguments = ["--source", "ETMV4_0", "--level", "packets"];
    let wanted = text_lines(&at_rest(several.path(), &arguments));
    let mut child = decode(several.path(), &[&arguments[..], &["-f"]].concat())
        .spawn()
        .unwrap();
    let found = lines(child.stdout.take().unwrap());
    let mut all = receive(&found, 2);
    interrupt(&child);
    all.extend(found.iter());
    assert_eq!(all, wanted);
    assert_eq!(all.len(), 3);
    assert!(child.wait().unwrap().success());
}

#[test]
fn standard_input_may_be_a_file() {
    let snapshot = repeated("etmv4", 20_000);
    let mut command = decode(Path::new("-"), &["--like"]);
    command.arg(snapshot.path()).args(["--source", "ETMV4_0"]);
    command.stdin(File::open(snapshot.path().join("trace.bin")).unwrap());
    // The snapshot's own trace is not read, and may be missing.
    let wanted = at_rest(snapshot.path(), &["--source", "ETMV4_0"]);
    fs::remove_file(snapshot.path().join("trace.bin")).unwrap();
    assert!(succeeded(&command.output().unwrap()) == wanted);
}

#[test]
fn bytes_that_are_no_trace_are_decoded_and_explained() {
    let mut random = numbers(0xbad);
    for name in ["etmv3", "etmv4", "ptm"] {
        let snapshot = repeated(name, 1);
        let noise: Vec<u8> = (0..300_000).map(|_| random() as u8).collect();
        let arguments = ["--level", "elements", "--format", "jsonl"];
        fs::write(snapshot.path().join("trace.bin"), &noise).unwrap();
        let wanted = at_rest(snapshot.path(), &arguments);
        let mut child = from_input(snapshot.path(), &arguments);
        let feeder = feed(child.stdin.take().unwrap(), noise, 7);
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        assert!(
            by_source(succeeded(&output)) == by_source(&wanted),
            "{name}"
        );
        assert!(!output.stderr.is_empty(), "{name}");
    }
}

#[test]
fn wrong_use_is_explained() {
    let snapshot = repeated("etmv4", 1);
    let snapshot = snapshot.path();
    let usage = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let told = usage(&mut decode(Path::new("-"), &[]));
    assert!(told.starts_with("-: expected --like SNAPSHOT"), "{told}");
    let told = usage(decode(snapshot, &["--like"]).arg(snapshot));
    assert!(told.starts_with("--like: expected -"), "{told}");
    let two = recording(&[]);
    let metadata = fs::read_to_string(two.path().join("trace.ini")).unwrap();
    let metadata = metadata.replacen("buffers=", "buffers=other,", 1);
    let metadata = metadata + "\n[other]\nname=other\nfile=trace.bin\nformat=coresight\n";
    fs::write(two.path().join("trace.ini"), &metadata).unwrap();
    let mut one = decode(Path::new("-"), &["--source", "ETMV4_0", "--like"]);
    succeeded(&one.arg(two.path()).stdin(Stdio::null()).output().unwrap());
    let input = two.path().join("live.bin");
    fs::write(&input, [0; 64]).unwrap();
    let mut same = decode(Path::new("-"), &["--source", "ETMV4_0", "--force", "-o"]);
    same.arg(&input).arg("--like").arg(two.path());
    let output = same.stdin(File::open(&input).unwrap()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("is input: it is not overwritten"), "{told}");
    assert_eq!(fs::read(&input).unwrap(), [0; 64]);
    let metadata = metadata.replace("=ETB_0", "=ETB_0,other");
    let metadata = metadata.replace("name=ETB_0,other", "name=ETB_0");
    fs::write(two.path().join("trace.ini"), metadata).unwrap();
    let told = usage(decode(Path::new("-"), &["--like"]).arg(two.path()));
    let expected = "live decoding reads one buffer: select it with --buffer; the buffers are: ";
    assert!(told.starts_with(expected), "{told}");
}

/// The most memory that a running program used so far, in KiB.
#[cfg(target_os = "linux")]
fn peak(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

/// Hundreds of MB if the program is optimised.
#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_trace() {
    let snapshot = repeated("etmv4", 1 << 20);
    let trace = fs::read(snapshot.path().join("trace.bin")).unwrap();
    let (silent, listed) = if is_optimised() { (400, 20) } else { (12, 2) };
    for (arguments, times) in [
        (&["--format", "none", "--stats"][..], silent),
        (&["-o", "/dev/null", "--stats"], listed),
    ] {
        let mut child = from_input(snapshot.path(), arguments);
        let mut input = child.stdin.take().unwrap();
        let mut after = |times: usize| {
            for _ in 0..times {
                input.write_all(&trace).unwrap();
            }
            peak(&child)
        };
        let (first, last) = (after(2), after(times));
        drop(input);
        let stats = child.wait_with_output().unwrap();
        let stats: serde_json::Value = serde_json::from_slice(succeeded(&stats)).unwrap();
        assert_eq!(stats["bytes"], trace.len() * (times + 2));
        assert!(last < first + (2 << 10), "{first} KiB, then {last} KiB");
        eprintln!("{} MiB: {first} KiB, then {last} KiB", times + 2);
    }
}
