//! Trace files of other writers → snapshot.

use crate::support::convert::{CORE, description, foreign, made, open, read};
use crate::support::gdb::testdata;
use armsnap::check::check;
use armsnap::convert::snapshot::{self, RestoredSnapshot};
use armsnap::convert::{Error, with_trace};
use armsnap::program::elf::Elf;
use armsnap::tfile::ByteOrder;

#[test]
fn frames_of_other_writers_become_snapshots() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut writer = foreign(&description(CORE), order);
        let registers = match order {
            ByteOrder::Little => [1, 2, 3, 4, 0, 0x80, 0, 0],
            ByteOrder::Big => [4, 3, 2, 1, 0, 0, 0x80, 0],
        };
        writer.registers(&registers).unwrap();
        writer.memory(0x100, &[1, 2, 3]);
        writer.memory(0x101, &[9, 9, 9, 9]);
        writer.end_frame(1).unwrap();
        writer.memory(0x102, &[7]);
        writer.variable(5, -6);
        writer.end_frame(1).unwrap();
        writer.end_frame(2).unwrap();
        let bytes = writer.finish().unwrap();

        let (first, dumps) = made(&bytes, Some(0), false);
        let device = &first.devices[0];
        let values = device
            .registers
            .iter()
            .map(|r| (&*r.name, r.value.as_u64()));
        let values: Vec<_> = values.collect();
        assert_eq!(values, [("R0", Some(0x0403_0201)), ("PC", Some(0x8000))]);
        let pieces = device.dumps.iter().map(|d| (d.address, d.length.unwrap()));
        assert_eq!(pieces.collect::<Vec<_>>(), [(0x100, 5)]);
        assert_eq!(*dumps.0["memory.bin"], [1, 2, 3, 9, 9]);
        let title = first.description.unwrap();
        assert_eq!(title, "trace frame 0 of x.tf: tracepoint 1 at 0x8000");

        let (second, _) = made(&bytes, Some(1), false);
        let pc = &second.devices[0].registers;
        assert_eq!((pc.len(), pc[0].value.as_u64()), (1, Some(0x8000)));
        assert_eq!(second.devices[0].dumps.len(), 1);
        let variables = &second.other_sections[0].entries;
        assert_eq!(variables[2], ("$5".to_owned(), "-6".to_owned()));

        let (merged, dumps) = made(&bytes, Some(1), true);
        let pieces = merged.devices[0].dumps.iter();
        let pieces: Vec<_> = pieces.map(|d| (d.address, &*d.other[0].1)).collect();
        assert_eq!(pieces, [(0x100, "0"), (0x102, "1"), (0x103, "0")]);
        let offsets = merged.devices[0].dumps.iter().map(|d| d.offset);
        assert_eq!(offsets.collect::<Vec<_>>(), [None, Some(2), Some(3)]);
        assert_eq!(dumps.0.len(), 1);
        assert_eq!(dumps.0["memory.bin"][..2], [1, 2]);
        assert_eq!(dumps.0["memory.bin"][3..], [9, 9]);

        // The last frame: a tracepoint with two locations does not determine the pc.
        let (last, _) = made(&bytes, None, false);
        assert!(last.devices[0].registers.is_empty());
        assert!(last.devices[0].dumps.is_empty());

        let error = read(&bytes, Some(3), false).unwrap_err();
        assert!(matches!(error, Error::Usage(_)));
        assert_eq!(
            error.to_string(),
            "expected a trace frame from 0 to 2, found 3"
        );
        for frame in [Some(0), Some(1), Some(2)] {
            for merge in [false, true] {
                let directory = tempfile::tempdir().unwrap();
                let out = directory.path().join("out");
                read(&bytes, frame, merge)
                    .unwrap()
                    .write(&out, false, &mut |_, _| {})
                    .unwrap();
                let loaded = open(&out);
                assert!(loaded.notes.is_empty(), "{:?}", loaded.notes);
                let found = check(&loaded);
                let odd = found
                    .iter()
                    .find(|note| note.to_string().contains("unknown key"));
                assert!(odd.is_none(), "{odd:?}");
                let error = read(&bytes, frame, merge)
                    .unwrap()
                    .write(&out, false, &mut |_, _| {});
                assert!(error.unwrap_err().to_string().contains("exists"));
                // Open files are input, which is not replaced.
                drop((found, loaded));
                read(&bytes, frame, merge)
                    .unwrap()
                    .write(&out, true, &mut |_, _| {})
                    .unwrap();
            }
        }
    }
}

#[test]
fn files_that_cannot_be_converted_give_the_reason() {
    let whole = |target: &str| {
        let mut writer = foreign(&description(target), ByteOrder::Little);
        writer.end_frame(1).unwrap();
        writer.finish().unwrap()
    };
    let x86 = "<target><architecture>i386:x86-64</architecture></target>";
    let text = |bytes: &[u8]| read(bytes, None, false).unwrap_err().to_string();
    assert!(text(&whole(x86)).contains("found i386:x86-64"));
    assert!(text(&whole("<target")).contains("tdesc:"));
    assert!(text(b"\x7fTRACE0\nR 8\n\n").contains("no complete trace frame"));
    assert!(text(b"\x7fTRACE1\nR 8\n\n").contains("expected \\x7fTRACE0"));
    assert!(text(b"\x7fTRACE0\nR 8").contains("ends without an empty line"));
    let no_target = b"\x7fTRACE0\nR 8\n\n\x01\0\0\0\0\0";
    assert!(text(no_target).contains("no target description (tdesc)"));
    let cut = b"\x7fTRACE0\nR 8\n\n\x01\0\x09\0\0\0\0";
    assert!(text(cut).contains("no complete trace frame"));

    // Problems that are reported and do not stop the conversion.
    let odd = |body: &[u8]| {
        let mut bytes = b"\x7fTRACE0\n".to_vec();
        bytes.extend_from_slice(body);
        let mut notes = Vec::new();
        let options = snapshot::Options::default();
        snapshot::read(&bytes.clone().into(), "x.tf", &options, &mut notes).unwrap();
        let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
        notes.join("\n")
    };
    let tdesc = format!("tdesc {CORE}");
    for (body, tail, told) in [
        ("", "", "there is no R line"),
        ("R 8\nstatus 9\n", "", "expected 0 or 1"),
        (
            "R 8\nstatus 0;tframes:-1\n",
            "",
            "tframes: cannot read \"-1\"",
        ),
        ("R 8\ntp T-1:10:E:0:0\n", "", "tp: cannot read"),
        ("R 8\n", "Zoo", "block of type 'Z' at byte 0 cannot be read"),
        (
            "R 8\n",
            "R123",
            "block of type 'R' at byte 0 cannot be read",
        ),
        ("R 8\n", "M12345678\x05\x001", "block of type 'M' at byte 0"),
        ("R 8\n", "", "has no registers"),
    ] {
        let mut file = format!("{body}{tdesc}\n").into_bytes();
        file.extend_from_slice(&[3, 0, tail.len() as u8, 0, 0, 0]);
        file.extend_from_slice(tail.as_bytes());
        file.extend_from_slice(&[0; 4]);
        let notes = odd(&file);
        assert!(notes.contains(told), "{told} not in {notes}");
    }
}

/// Frames without CPSR have the instruction set of the program: by its mapping symbols or, in a file
/// without any, by its functions.
#[test]
fn the_program_names_the_instruction_set_of_frames() {
    // `count` in cores-a15-bare-a15.elf, as objdump lists it, and the A32 function that it calls.
    let t32 = [
        0x13c, 0x140, 0x144, 0x148, 0x14a, 0x14e, 0x152, 0x156, 0x15a,
    ];
    let a32 = [0x110, 0x114];
    let mut writer = foreign(&description(CORE), ByteOrder::Little);
    for at in t32.into_iter().chain(a32) {
        let pc = 0x4008_0000_u32 + at;
        writer
            .registers(&[[0; 4], pc.to_le_bytes()].concat())
            .unwrap();
        writer.end_frame(1).unwrap();
    }
    let bytes = writer.finish().unwrap().into();
    let program = std::fs::read(testdata("recorded/ptm/cores-a15-bare-a15.elf")).unwrap();
    // Without the names of its mapping symbols.
    let mut functions = program.clone();
    for at in 0..functions.len() - 3 {
        if [b"\0$a\0", b"\0$t\0", b"\0$d\0"].contains(&functions[at..].first_chunk().unwrap()) {
            functions[at + 1] = b'_';
        }
    }
    assert_ne!(functions, program);
    for program in [program, functions] {
        let elf = Elf::read("p.elf".into(), program.into()).unwrap();
        let (options, mut notes) = (snapshot::Options::default(), Vec::new());
        let found = with_trace::read(&bytes, "x.tf", &options, &[elf], &mut notes, &mut |_, _| {});
        let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
        let traced = "trace of 11 frames, with 0 gaps between them";
        assert!(notes.iter().any(|note| note == traced), "{notes:?}");
        let RestoredSnapshot::Made(snapshot, _) = found.unwrap() else {
            panic!("nothing is carried");
        };
        let code = snapshot.devices[0].dumps.iter();
        let code: Vec<_> = code.map(|dump| (dump.address, dump.length)).collect();
        assert_eq!(code, [(0x4008_0110, Some(8)), (0x4008_013c, Some(0x22))]);
    }
}
