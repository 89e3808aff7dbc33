use super::*;
use proptest::prelude::*;

fn description() -> Description {
    Description {
        register_bytes: 0x10,
        status: Some(Status {
            stop: Some(StopReason::Command(Some("done".to_owned()))),
            frames: Some(3),
            notes: Some("a; b: \u{fc}".to_owned()),
            other: vec![("x-armsnap".to_owned(), "00ff".to_owned())],
            ..Status::default()
        }),
        variables: vec![Variable {
            number: 1,
            initial: -1,
            builtin: false,
            name: "cycles".to_owned(),
        }],
        tracepoints: vec![Tracepoint {
            number: 7,
            address: 0x8000,
            enabled: true,
            steps: 2,
            pass: 0,
            options: vec!["X3,220000".to_owned()],
            actions: vec!["R0fff".to_owned()],
            step_actions: vec!["M-1,8000,4".to_owned()],
            sources: vec![SourceString {
                kind: "cond".to_owned(),
                text: "x".repeat(1000),
            }],
            hits: Some((3, 0x40)),
        }],
        target: Some("<?xml version=\"1.0\"?>\n<target/>\n".to_owned()),
        unknown: vec!["future thing".to_owned()],
    }
}

fn file(order: ByteOrder) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &description(), order).unwrap();
    writer.registers(&[1; 16]).unwrap();
    writer.memory(0x1000, &vec![5; 70_000]);
    writer.variable(1, -2);
    writer.end_frame(7).unwrap();
    writer.end_frame(7).unwrap();
    writer.finish().unwrap()
}

#[test]
fn written_files_are_read_back() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = file(order);
        // A program's order does not override that of frames that fit no other.
        for program in [None, Some(ByteOrder::Little), Some(ByteOrder::Big)] {
            assert_eq!(File::open(&bytes, program).unwrap().order(), order);
        }
        let file = File::open(&bytes, None).unwrap();
        assert_eq!(file.description(), &description());
        // 10 in hex, as GDB writes it: the frames fit no other interpretation.
        assert!(file.notes().is_empty(), "{:?}", file.notes());
        assert_eq!(file.count(), 2);
        let blocks: Vec<_> = file.frame(0).unwrap().unwrap().blocks().collect();
        assert_eq!(blocks.len(), 4);
        assert_eq!(blocks[0], Block::Registers(&[1; 16]));
        assert!(
            matches!(blocks[2], Block::Memory { address: 0x10fff, bytes } if bytes.len() == 4465)
        );
        assert_eq!(
            blocks[3],
            Block::Variable {
                number: 1,
                value: -2
            }
        );
        assert_eq!(file.frame(1).unwrap().unwrap().tracepoint, 7);
        assert!(file.frame(2).is_none());
    }
}

/// As in GDB's manual, unlike GDB itself: a decimal `R`, and 2 bytes at the end, or none.
#[test]
fn a_decimal_size_is_recognised_by_the_frames() {
    for end in [&[][..], &[0, 0][..]] {
        let mut bytes = b"\x7fTRACE0\nR 16\n\n\x01\x00\x1e\x00\x00\x00R".to_vec();
        bytes.extend_from_slice(&[9; 16]);
        bytes.push(b'V');
        bytes.extend_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(end);
        let file = File::open(&bytes, None).unwrap();
        assert_eq!(file.description().register_bytes, 16);
        let (decimal, bytes) = (true, 16);
        assert_eq!(file.notes(), [Note::RegisterSize { decimal, bytes }]);
        let blocks: Vec<_> = file.frame(0).unwrap().unwrap().blocks().collect();
        assert_eq!(
            blocks[1],
            Block::Variable {
                number: 1,
                value: 2
            }
        );
    }
}

#[test]
fn a_block_of_an_unknown_type_ends_its_frame_only() {
    let mut bytes = b"\x7fTRACE0\nR 1\n\n".to_vec();
    bytes.extend_from_slice(b"\x01\x00\x04\x00\x00\x00R\x05Sx");
    bytes.extend_from_slice(b"\x02\x00\x02\x00\x00\x00R\x06");
    let file = File::open(&bytes, None).unwrap();
    let first: Vec<_> = file.frame(0).unwrap().unwrap().blocks().collect();
    assert_eq!(
        first,
        [
            Block::Registers(&[5]),
            Block::Unreadable { kind: b'S', at: 2 }
        ]
    );
    let second: Vec<_> = file.frame(1).unwrap().unwrap().blocks().collect();
    assert_eq!(second, [Block::Registers(&[6])]);
}

#[test]
fn errors_in_the_description_are_reported_with_their_line() {
    let bytes =
        b"\x7fTRACE0\nR xyz\nstatus 7;tframes:zz;tstop:q:0\ntsv 1\ntp A1:2:x\ntp T0:10:E:0:0\n\n";
    let file = File::open(bytes, None).unwrap();
    let notes: Vec<String> = file.notes().iter().map(ToString::to_string).collect();
    let notes = notes.join("\n");
    for expected in [
        "line 2: R: expected a number of bytes, found \"xyz\"",
        "line 3: status: expected 0 or 1, found \"7\"",
        "line 3: status: tframes: cannot read \"zz\"",
        "line 3: status: tstop: cannot read \"q:0\"",
        "line 4: tsv: cannot read \"1\"",
        "line 5: tp: cannot read \"A1:2:x\"",
    ] {
        assert!(notes.contains(expected), "{expected} not in\n{notes}");
    }
    assert_eq!(file.description().unknown, ["tsv 1", "tp A1:2:x"]);
    assert_eq!(file.description().tracepoints[0].number, 0);
}

/// Found by fuzzing: a line containing only a carriage return is not an empty line.
#[test]
fn an_unknown_line_is_written_back_unchanged() {
    let bytes = b"\x7fTRACE0\nR 4\n\r\nlast\n\n\x01\x00\x00\x00\x00\x00";
    let file = File::open(bytes, None).unwrap();
    assert_eq!(file.description().unknown, ["\r", "last"]);
    let mut writer = Writer::new(Vec::new(), file.description(), ByteOrder::Little).unwrap();
    writer.end_frame(1).unwrap();
    let again = writer.finish().unwrap();
    let again = File::open(&again, None).unwrap();
    assert_eq!(again.description(), file.description());
    assert_eq!(again.count(), 1);
}

#[test]
fn files_unreadable_for_gdb_are_not_written() {
    let mut zero = description();
    zero.register_bytes = 0;
    assert!(Writer::new(Vec::new(), &zero, ByteOrder::Little).is_err());
    let mut number = description();
    number.tracepoints[0].number = 0x8000;
    assert!(Writer::new(Vec::new(), &number, ByteOrder::Little).is_err());
    let mut long = description();
    long.unknown.push("x".repeat(1000));
    assert!(Writer::new(Vec::new(), &long, ByteOrder::Little).is_err());
    let mut writer = Writer::new(Vec::new(), &description(), ByteOrder::Little).unwrap();
    assert!(writer.end_frame(0).is_err());
    assert!(writer.registers(&[0; 3]).is_err());
}

#[test]
fn the_order_of_a_program_decides_where_frames_do_not() {
    let mut writer = Writer::new(Vec::new(), &description(), ByteOrder::Little).unwrap();
    // The number and size are the same in both orders.
    writer.end_frame(0x0101).unwrap();
    let bytes = writer.finish().unwrap();
    for (program, order) in [
        (None, ByteOrder::Little),
        (Some(ByteOrder::Little), ByteOrder::Little),
        (Some(ByteOrder::Big), ByteOrder::Big),
    ] {
        assert_eq!(File::open(&bytes, program).unwrap().order(), order);
    }
}

#[test]
fn a_file_truncated_at_any_byte_is_read_up_to_its_end() {
    let mut small = Writer::new(Vec::new(), &description(), ByteOrder::Little).unwrap();
    small.memory(0x10, &[1, 2, 3]);
    small.end_frame(7).unwrap();
    small.variable(1, 1);
    small.end_frame(7).unwrap();
    let bytes = small.finish().unwrap();
    for length in 0..bytes.len() {
        match File::open(&bytes[..length], Some(ByteOrder::Little)) {
            Err(error) => assert!(error.to_string().starts_with("line "), "{error}"),
            Ok(file) => {
                let whole = file.frames().filter(Result::is_ok).count();
                let cut = file.frames().filter(Result::is_err).count();
                assert!(whole <= 2 && cut <= 1);
                assert_eq!(file.count(), whole);
            }
        }
    }
}

#[test]
fn frames_are_found_by_number_beyond_the_first_places_of_the_index() {
    let mut writer = Writer::new(Vec::new(), &description(), ByteOrder::Little).unwrap();
    for number in 0..3000 {
        writer.variable(1, number);
        writer.end_frame(7).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let file = File::open(&bytes, None).unwrap();
    for number in [2999, 0, 255, 256, 257, 1024, 2560] {
        let frame = file.frame(number).unwrap().unwrap();
        assert_eq!(frame.number, number);
        let value = number as i64;
        assert_eq!(
            frame.blocks().next(),
            Some(Block::Variable { number: 1, value })
        );
    }
    assert!(file.frame(3000).is_none());
    assert_eq!(file.count(), 3000);
    for number in [0, 255, 256, 2999, 3000, 3001, usize::MAX] {
        let mut after = file.frames_from(number).map(|frame| frame.unwrap().number);
        assert_eq!(after.next(), (number < 3000).then_some(number));
        assert_eq!(
            after.count(),
            3000_usize.saturating_sub(number).saturating_sub(1)
        );
    }
    // Everything except the end that GDB writes.
    assert!(bytes.ends_with(&[file.buffer(), &[0; 4]].concat()));
    assert_eq!(file.buffer().len(), 3000 * (6 + 13));
}

#[test]
fn memory_of_skipped_frames_is_released() {
    let mut writer = Writer::new(Vec::new(), &description(), ByteOrder::Little).unwrap();
    let memory = vec![5; 1 << 20];
    for _ in 0..40 {
        writer.memory(0, &memory);
        writer.end_frame(7).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let released = std::sync::Mutex::new(Vec::new());
    let file = File::open(&bytes, None).unwrap();
    let file = file.releasing(|walked| released.lock().unwrap().push(walked));
    assert_eq!(file.count(), 40);
    let released = std::mem::take(&mut *released.lock().unwrap());
    assert_eq!(released.len(), 2);
    assert_eq!(released[0].end, released[1].start);
    let walked = released[1].end - released[0].start;
    assert!((32 << 20..bytes.len()).contains(&walked), "{walked:#x}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(tail in prop::collection::vec(any::<u8>(), 0..400), head in 0usize..3) {
        let mut bytes = [&b""[..], b"\x7fTRACE0\n", b"\x7fTRACE0\nR 4\n\n"][head].to_vec();
        bytes.extend_from_slice(&tail);
        if let Ok(file) = File::open(&bytes, None) {
            for frame in file.frames().flatten() {
                for block in frame.blocks() {
                    std::hint::black_box(block);
                }
            }
            std::hint::black_box(file.count());
        }
    }
}
