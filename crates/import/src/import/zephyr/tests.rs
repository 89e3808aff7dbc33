use super::*;
use armsnap_snapshot::snapshot::OpenOptions;

fn dump(target: u16, version: u16, registers: &[u32], memory: &[u8]) -> Vec<u8> {
    let mut out = b"ZE\x02\x00".to_vec();
    out.extend(target.to_le_bytes());
    out.extend([5, 0, 25, 0, 0, 0]);
    out.push(b'A');
    out.extend(version.to_le_bytes());
    out.extend((4 * registers.len() as u16).to_le_bytes());
    out.extend(registers.iter().flat_map(|value| value.to_le_bytes()));
    out.extend(b"T\x01\x00\x02\x00\xAA\xBB");
    out.extend(b"M\x01\x00");
    out.extend(0x2000_0000_u32.to_le_bytes());
    out.extend((0x2000_0000 + memory.len() as u32).to_le_bytes());
    out.extend(memory);
    out
}

fn read(bytes: Vec<u8>) -> Result<Imported, ImportError> {
    assert!(is_zephyr_dump(&bytes));
    import_bytes(Path::new("dump"), bytes.into(), &Options::default())
}

#[test]
fn registers_and_memory_of_a_cortex_m() {
    let values: Vec<u32> = (100..117).collect();
    let imported = read(dump(CORTEX_M, 2, &values, b"stack")).unwrap();
    let loaded = imported
        .open(Path::new("dump"), &OpenOptions::default())
        .unwrap();
    let core = &loaded.snapshot.devices[0];
    let value = |name: &str| core.register(name).unwrap().value.as_u64();
    assert_eq!(
        (value("PC"), value("SP"), value("R11")),
        (Some(106), Some(108), Some(116))
    );
    assert_eq!(core.dumps[0].address, 0x2000_0000);
    assert_eq!(
        &*loaded.file(Path::new(""), &core.dumps[0].file).unwrap(),
        b"stack"
    );
}

#[test]
fn registers_that_were_not_saved_are_not_known() {
    let mut values: Vec<u32> = (100..109).collect();
    assert_eq!(
        read(dump(CORTEX_M, 1, &values, b""))
            .unwrap()
            .snapshot
            .devices[0]
            .registers
            .len(),
        9
    );
    values.resize(17, 0);
    assert_eq!(
        read(dump(CORTEX_M, 2, &values, b""))
            .unwrap()
            .snapshot
            .devices[0]
            .registers
            .len(),
        9
    );
}

fn notes(imported: &Imported) -> Vec<String> {
    let notes = imported.notes.iter().map(ToString::to_string);
    notes.filter(|note| !note.contains("THREAD_INFO")).collect()
}

#[test]
fn faults_are_named() {
    let other = read(dump(1, 1, &[1; 9], b"")).unwrap_err().to_string();
    assert!(other.contains("for target 1: expected Cortex-M"), "{other}");
    let whole = dump(CORTEX_M, 1, &[1; 9], b"memory");
    for length in 12..whole.len() {
        let cut = whole[..length].to_vec();
        match import_bytes(Path::new("dump"), cut.into(), &Options::default()) {
            Ok(imported) => assert!(notes(&imported).len() <= 1),
            Err(error) => assert!(error.to_string().contains("without the block of registers")),
        }
    }
    // The available part of a block of memory is kept.
    let imported = read(whole[..whole.len() - 2].to_vec()).unwrap();
    let wanted = "the file ends in a block of memory, of which 4 bytes are there";
    assert!(notes(&imported)[0].ends_with(wanted));
    assert_eq!(imported.snapshot.devices[0].dumps[0].length, Some(4));
    for (more, wanted) in [
        (
            &b"M\x01"[..],
            "block M is damaged, cut short, or of an unknown version: the rest is left out",
        ),
        (b"x\x01", "block of unknown kind 0x78: the rest is left out"),
    ] {
        let imported = read([&whole[..], more].concat()).unwrap();
        let wanted = format!("at byte {:#x}: {wanted}", whole.len());
        assert_eq!(notes(&imported), [wanted]);
    }
    // Erased flash follows the dump.
    let imported = read([&whole[..], &[0xff; 100]].concat()).unwrap();
    assert_eq!(notes(&imported), [""; 0]);
}

/// A block of ARM64 registers, each of which contains 0x100 plus its index; X29 is 0 without a
/// frame.
fn block64(kind: u8, version: u16, frame: u64) -> Vec<u8> {
    let count: u64 = [22, 24, 34][usize::from(version) - 1];
    let mut values: Vec<u64> = (0..count).map(|place| 0x100 + place).collect();
    let status = values.len() - if version == 1 { 2 } else { 4 };
    values[status] = 0x6000_03c5;
    if version > 1 {
        values[count as usize - 2] = frame;
    }
    let mut out = vec![kind];
    let head_version = if kind == b'F' { 1 } else { version };
    out.extend(head_version.to_le_bytes());
    out.extend((8 * count as u16).to_le_bytes());
    if kind == b'F' {
        out.extend(1_u32.to_le_bytes());
        out.extend(0x4030_0400_u64.to_le_bytes());
    }
    out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    out
}

fn dump64(blocks: &[Vec<u8>], flags: u8) -> Vec<u8> {
    let mut out = b"ZE\x02\x00\x06\x00\x06".to_vec();
    out.extend([flags, 25, 0, 0, 0]);
    out.extend(blocks.concat());
    out.extend(b"M\x01\x00");
    out.extend(0x4020_0000_u64.to_le_bytes());
    out.extend(0x4020_0006_u64.to_le_bytes());
    out.extend(b"memory");
    out
}

fn value(device: &Device, name: &str) -> Option<u64> {
    let mut registers = device.registers.iter();
    let register = registers.find(|register| register.name == name)?;
    register.value.as_u64()
}

#[test]
fn registers_of_arm64_in_each_version() {
    for (version, places) in [
        (
            1,
            [
                ("X18", Some(18)),
                ("X30", Some(19)),
                ("PC", Some(21)),
                ("X19", None),
                ("SP", None),
            ],
        ),
        (
            2,
            [
                ("X18", Some(18)),
                ("X30", Some(19)),
                ("PC", Some(21)),
                ("X19", None),
                ("SP", Some(23)),
            ],
        ),
        (
            3,
            [
                ("X28", Some(28)),
                ("X30", Some(29)),
                ("PC", Some(31)),
                ("X19", Some(19)),
                ("SP", Some(33)),
            ],
        ),
    ] {
        for frame in [0x4020_0010, 0] {
            let imported = read(dump64(&[block64(b'A', version, frame)], 0)).unwrap();
            let core = &imported.snapshot.devices[0];
            for (name, place) in places {
                let wanted = place.map(|place: u64| 0x100 + place);
                assert_eq!(value(core, name), wanted, "{name} of version {version}");
            }
            assert_eq!(value(core, "CPSR"), Some(0x6000_03c5));
            let frame = Some(frame).filter(|frame| version > 1 && *frame != 0);
            assert_eq!(value(core, "X29"), frame);
        }
    }
    let mut newer = block64(b'A', 3, 0);
    newer[1] = 4;
    let error = read(dump64(&[newer.clone()], 0)).unwrap_err().to_string();
    assert!(error.contains("without the block of registers"), "{error}");
    let imported = read(dump64(&[newer, block64(b'A', 3, 0)], 0)).unwrap();
    let wanted = "at byte 0xc: block of registers of version 4 with 272 bytes: its layout is not known, \
                  and it is left out";
    assert_eq!(notes(&imported), [wanted]);
    // A fault at EL0, for which SP need not be the stack pointer of the thread.
    let mut user = block64(b'A', 2, 0);
    let status = user.len() - 8 * 4;
    user[status] = 0xc0;
    let imported = read(dump64(&[user], 0)).unwrap();
    assert_eq!(value(&imported.snapshot.devices[0], "SP"), None);
    assert!(notes(&imported)[0].starts_with("SP is left out"));
}

#[test]
fn blocks_of_other_cpus_and_of_unknown_kinds() {
    let marker = [
        &b"F\x01\x00\x00\x00\x00\x00\x00\x00"[..],
        &0x4030_0000_u64.to_le_bytes(),
    ]
    .concat();
    let unknown = b"Q\x07\x00\x03\x00abc".to_vec();
    let mut frozen = block64(b'F', 3, 0x4020_0010);
    // The callee-saved registers are not filled in.
    let saved = frozen.len() - 34 * 8 + 19 * 8;
    frozen[saved..saved + 80].fill(0);
    let blocks = [block64(b'A', 2, 1), marker, unknown, frozen];
    let imported = read(dump64(&blocks, 0)).unwrap();
    let devices = &imported.snapshot.devices;
    assert_eq!(devices.len(), 2);
    assert_eq!((&*devices[0].name, &*devices[1].name), ("thread", "cpu_1"));
    assert_eq!(value(&devices[1], "PC"), Some(0x100 + 31));
    assert_eq!(value(&devices[1], "X19"), None);
    let other = |key: &str| {
        let entry = devices[0].other.iter().find(|(known, _)| known == key);
        entry.map(|(_, value)| &**value)
    };
    assert_eq!(
        (other("cpu"), other("thread")),
        (Some("0"), Some("0x40300000"))
    );
    assert!(devices.iter().all(|device| device.dumps.len() == 1));
    let text = notes(&imported);
    assert!(
        text[0].ends_with("block of unknown kind 0x51: 8 bytes are left out"),
        "{text:?}"
    );
    // A block without a length, and damage between blocks.
    let blocks = [block64(b'A', 2, 1), vec![b'Z'; 100], block64(b'F', 2, 1)];
    let imported = read(dump64(&blocks, 0)).unwrap();
    assert!(
        notes(&imported)[0].ends_with("0x5a: 100 bytes are left out"),
        "{:?}",
        notes(&imported)
    );
    assert_eq!(imported.snapshot.devices[0].dumps.len(), 1);
}

#[test]
fn checksums() {
    let with = |damage: bool| {
        let mut whole = dump64(&[block64(b'A', 2, 1)], HAS_CHECKSUM);
        let checksum = crc32fast::hash(&whole);
        whole.extend(b"C\x01\x00");
        whole.extend(checksum.to_le_bytes());
        whole[20] ^= u8::from(damage);
        whole
    };
    assert_eq!(notes(&read(with(false)).unwrap()), [""; 0]);
    let text = notes(&read(with(true)).unwrap());
    assert!(
        text[0].starts_with("the checksum of the dump is 0x"),
        "{text:?}"
    );
    let whole = with(false);
    let text = notes(&read(whole[..whole.len() - 7].to_vec()).unwrap());
    assert!(
        text[0].starts_with("the dump ends without the checksum"),
        "{text:?}"
    );
}

#[test]
fn cortex_m_of_version_3_and_cortex_a() {
    let mut values: Vec<u32> = (100..117).chain([1, 0x28]).collect();
    values[9..17].fill(0);
    let count = |target, values: &[u32]| {
        let imported = read(dump(target, 3, values, b"")).unwrap();
        let core = &imported.snapshot.devices[0];
        (core.kind.clone(), core.registers.len(), value(core, "CPSR"))
    };
    assert_eq!(count(CORTEX_M, &values), ("ARMv7-M".to_owned(), 17, None));
    values[17] = 0;
    assert_eq!(count(CORTEX_M, &values), ("ARMv7-M".to_owned(), 9, None));
    values[7] = 0x6000_0013;
    let wanted = ("ARMv7-A".to_owned(), 9, Some(0x6000_0013));
    assert_eq!(count(7, &values), wanted);
}

/// A console log that contains a dump.
fn log(dump: &[u8], color: bool) -> String {
    let (before, after) = if color {
        ("\x1b[1;31m", "\x1b[0m")
    } else {
        ("", "")
    };
    let line =
        |text: &str| format!("[00:00:01.240,000] {before}<err> coredump: #CD:{text}{after}\r\n");
    let mut out = "*** Booting Zephyr OS ***\r\n".to_owned() + &line("BEGIN#");
    for bytes in dump.chunks(32) {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        out += &line(&digits);
        out += "noise of another thread\r\n";
    }
    out + &line("END#")
}

#[test]
fn logs_of_the_console() {
    let whole = dump64(&[block64(b'A', 2, 1)], 0);
    let from = |text: &str| {
        assert!(is_log(text.as_bytes(), || Some(
            text.as_bytes().to_vec().into()
        )));
        let bytes = text.as_bytes().to_vec();
        import_bytes(Path::new("log"), bytes.into(), &Options::default())
    };
    let plain = log(&whole, false);
    for text in [
        &plain,
        &log(&whole, true),
        &plain.to_uppercase().replace("#CD:END", "x #CD:END"),
    ] {
        let imported = from(text).unwrap();
        assert_eq!(notes(&imported), [""; 0]);
        assert_eq!(value(&imported.snapshot.devices[0], "PC"), Some(0x100 + 21));
    }
    let cut = plain.split("#CD:END").next().unwrap();
    let text = notes(&from(cut).unwrap());
    assert_eq!(text, ["the log has no #CD:END#: the dump may be cut short"]);
    let text = notes(&from(&(plain.clone() + &plain)).unwrap());
    assert!(text[0].starts_with("the log has 1 more dump"), "{text:?}");
    let failed = plain.replace("#CD:END#", "#CD:ERROR CANNOT DUMP#");
    let text = notes(&from(&failed).unwrap());
    assert!(
        text[0].contains("the kernel says that it could not dump"),
        "{text:?}"
    );
    let damaged = plain.replacen("6d656d6f7279", "6d656d6?7279", 1);
    let text = notes(&from(&damaged).unwrap());
    assert!(text[0].starts_with("line "), "{text:?}");
    let error = from("#CD:BEGIN#\nnothing\n").unwrap_err().to_string();
    assert!(error.contains("no core dump of Zephyr follows"), "{error}");
    assert!(!is_log(b"text", || Some(b"text".to_vec().into())));
    assert!(!is_log(&[0; 64], || None));
}

#[test]
fn partitions_of_flash() {
    for (whole, wide) in [
        (dump64(&[block64(b'A', 2, 1)], 0), true),
        (dump(CORTEX_M, 1, &[1; 9], b"memory"), false),
    ] {
        let sum = whole
            .iter()
            .fold(0_u16, |sum, byte| sum.wrapping_add((*byte).into()));
        for unit in [4, 512] {
            let mut image = b"CD\x01\x00".to_vec();
            image.extend(&(whole.len() as u64).to_le_bytes()[..if wide { 8 } else { 4 }]);
            image.extend([0, 0]);
            image.extend(sum.to_le_bytes());
            image.extend([0; 4]);
            image.resize(image.len().next_multiple_of(unit), 0xff);
            image.extend(&whole);
            image.resize(image.len() + 1000, 0xff);
            assert!(is_zephyr_dump(&image));
            let read = |image: &[u8]| {
                import_bytes(
                    Path::new("flash"),
                    image.to_vec().into(),
                    &Options::default(),
                )
                .unwrap()
            };
            assert_eq!(notes(&read(&image)), [""; 0]);
            image[if wide { 14 } else { 10 }] ^= 1;
            assert!(
                notes(&read(&image))[0].starts_with("the checksum in the header of the partition")
            );
            let end = image.len() - 1001;
            assert!(notes(&read(&image[..end]))[0].starts_with("the dump has "));
        }
    }
}
