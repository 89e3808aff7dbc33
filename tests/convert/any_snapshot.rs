//! Property tests: any snapshot → trace file → snapshot; any trace frame → snapshot; any damage.

use crate::support::convert::{
    CORE, back, description, foreign, made, open, read, same, trace_files,
};
use crate::support::gdb::testdata;
use armsnap::convert::snapshot::RestoredSnapshot;
use armsnap::convert::trace_file::Options;
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::model::*;
use armsnap::snapshot::write;
use armsnap::tfile::ByteOrder;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A snapshot with overlapping memory of two cores, address spaces, registers of any size.
fn snapshots() -> impl Strategy<Value = (Snapshot, InMemory)> {
    let word = "[A-Za-z][A-Za-z0-9_]{0,8}";
    let kind = prop::sample::select(vec!["Cortex-A57", "Cortex-A15", "Cortex-M4", "odd"]);
    let register = (0..40_u32, prop::option::of(1..130_u32), any::<u128>());
    let space = prop::option::of(prop::sample::select(vec!["S", "N", "EL2", "P", "H"]));
    let dump = (
        0..3_usize,
        0..300_u64,
        prop::option::of(0..200_u64),
        0..50_u64,
        space,
    );
    let device = (
        kind,
        prop::collection::vec(register, 0..40),
        prop::collection::vec(dump, 0..5),
    );
    let files = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 3);
    let devices = prop::collection::vec(device, 1..3);
    (word, devices, files).prop_map(|(description, devices, files)| {
        let devices = devices.into_iter().enumerate().map(|(n, device)| {
            let (kind, registers, dumps) = device;
            let mut seen = std::collections::BTreeSet::new();
            let registers = registers.into_iter().filter(|r| seen.insert(r.0));
            let register = |(number, size, value): (u32, Option<u32>, u128)| {
                let bits = size.unwrap_or(32);
                let value = if bits < 128 {
                    value & ((1 << bits) - 1)
                } else {
                    value
                };
                let name = match number {
                    33 => "CPSR".to_owned(),
                    34 => "SP".to_owned(),
                    35 => "PC".to_owned(),
                    n if kind == "Cortex-A57" => format!("X{n}"),
                    n => format!("R{n}"),
                };
                Register {
                    name,
                    size,
                    value: RegisterValue(value.to_le_bytes().to_vec()),
                    ..Register::default()
                }
            };
            type Place<'a> = (usize, u64, Option<u64>, u64, Option<&'a str>);
            let dump = |(number, (file, address, length, offset, space)): (usize, Place)| Dump {
                section: format!("dump{number}"),
                file: format!("sub/f{file}.bin"),
                address,
                length,
                offset: Some(offset),
                space: space.map(str::to_owned),
                ..Dump::default()
            };
            Device {
                key: format!("device{n}"),
                file: format!("device{n}.ini"),
                name: format!("cpu_{n}"),
                class: DeviceClass::Core,
                kind: kind.to_owned(),
                registers: registers.map(register).collect(),
                dumps: dumps.into_iter().enumerate().map(dump).collect(),
                ..Device::default()
            }
        });
        let snapshot = Snapshot {
            version: "1.0".to_owned(),
            description: Some(description),
            devices: devices.collect(),
            ..Snapshot::default()
        };
        let files = files.into_iter().enumerate();
        let files = files.map(|(n, bytes)| (format!("sub/f{n}.bin"), bytes.into()));
        (snapshot, InMemory(files.collect()))
    })
}

/// Memory of a frame, byte by byte: the first block with a byte counts.
type Bytes = BTreeMap<u64, u8>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_snapshot_is_restored((snapshot, files) in snapshots()) {
        let mut all = write::texts(&snapshot).unwrap();
        all.extend(files.0);
        let loaded = OpenSnapshot::from_files(Arc::new(InMemory(all)), "snapshot.ini").unwrap();
        for bytes in trace_files(&loaded, &Options::default()) {
            same(&loaded, &back(&bytes));
        }
    }

    #[test]
    fn any_frame_becomes_its_registers_and_memory(
        frames in prop::collection::vec(
            (any::<Option<[u8; 8]>>(), prop::collection::vec(
                (0..64_u64, prop::collection::vec(any::<u8>(), 0..20)), 0..6)),
            1..6,
        ),
        wanted in any::<prop::sample::Index>(),
        top in any::<bool>(),
        merge: bool,
    ) {
        // At the start and at the end of the address space.
        let base = if top { u64::MAX - 80 } else { 0 };
        let mut writer = foreign(&description(CORE), ByteOrder::Little);
        let mut images: Vec<Bytes> = Vec::new();
        for (registers, blocks) in &frames {
            if let Some(registers) = registers {
                writer.registers(registers).unwrap();
            }
            let mut image = Bytes::new();
            for (address, bytes) in blocks {
                writer.memory(base + address, bytes);
                // Bytes beyond the last address are dropped.
                let room = (base + address)..=u64::MAX;
                for (at, byte) in room.zip(bytes) {
                    image.entry(at).or_insert(*byte);
                }
            }
            images.push(image);
            writer.end_frame(1).unwrap();
        }
        let file = writer.finish().unwrap();
        let wanted = wanted.index(frames.len());
        let (snapshot, files) = made(&file, Some(wanted), merge);
        let device = &snapshot.devices[0];
        let mut found = Bytes::new();
        for dump in &device.dumps {
            let from = dump.offset.unwrap_or(0) as usize;
            let rest = files.0[&dump.file][from..].iter().copied();
            let bytes = rest.take(dump.length.map_or(usize::MAX, |length| length as usize));
            for (at, byte) in (dump.address..=u64::MAX).zip(bytes) {
                prop_assert!(found.insert(at, byte).is_none());
                if merge {
                    let from: usize = dump.other[0].1.parse().unwrap();
                    prop_assert_eq!(images[from].get(&at), Some(&byte));
                    let newer = &images[from + 1..=wanted];
                    prop_assert!(newer.iter().all(|image| !image.contains_key(&at)));
                }
            }
        }
        let mut oracle = images[wanted].clone();
        if merge {
            for image in images[..wanted].iter().rev() {
                for (at, byte) in image {
                    oracle.entry(*at).or_insert(*byte);
                }
            }
        }
        prop_assert_eq!(found, oracle);
        let values: Vec<_> = device.registers.iter().map(|r| r.value.as_u64().unwrap()).collect();
        match frames[wanted].0 {
            Some(block) => {
                let word = |at: usize| u64::from(u32::from_le_bytes(block[at..at + 4].try_into().unwrap()));
                prop_assert_eq!(values, [word(0), word(4)]);
            }
            None => prop_assert_eq!(values, [0x8000]),
        }
    }

    #[test]
    fn damaged_files_are_reported_without_panic(
        at in any::<prop::sample::Index>(),
        byte: u8,
        frame in prop::option::of(0..2_usize),
        merge: bool,
    ) {
        thread_local! {
            static FILE: Vec<u8> =
                trace_files(&open(&testdata("mps2-m4")), &Options::default()).remove(0);
        }
        let mut bytes = FILE.with(Clone::clone);
        // Twice as often in the text.
        let at = at.index(bytes.len() * 2) % bytes.len();
        bytes[at] = byte;
        if let Ok(RestoredSnapshot::Carried(carried)) = read(&bytes, frame, merge) {
            let _ = carried.open();
        }
    }
}
