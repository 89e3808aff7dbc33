use super::*;
use proptest::prelude::*;

/// A run as passed to the writer: key, instructions, accesses.
type Ran = (u32, usize, Vec<(u32, Access)>);

fn pc(key: u32, index: u32) -> u64 {
    0x40_0000 + 0x1000 * u64::from(key) + 4 * u64::from(index)
}

fn file(runs: &[Ran]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out).unwrap();
    for (key, instructions, accesses) in runs {
        let pc = |index| pc(*key, index);
        writer.ran(*key, *instructions, accesses, pc).unwrap();
    }
    writer.finish().unwrap();
    out
}

fn expected(runs: &[Ran]) -> Vec<Accessed> {
    let mut first = 0;
    let mut out = Vec::new();
    for (key, instructions, accesses) in runs {
        out.extend(accesses.iter().map(|&(index, access)| Accessed {
            instruction: first + u64::from(index),
            pc: pc(*key, index),
            access,
        }));
        first += *instructions as u64;
    }
    out
}

fn read(bytes: &[u8]) -> Result<Vec<Accessed>, Error> {
    let addresses = Addresses::open(bytes)?;
    addresses.accesses(0..u64::MAX).collect()
}

fn runs() -> impl Strategy<Value = Vec<Ran>> {
    let access = (0..8_u32, any::<u64>(), 1..64_u32, any::<bool>());
    let run = (0..5_u32, prop::collection::vec(access, 0..4), 1..6_u64);
    let repeated = (run, 0..4_u64).prop_map(|((key, accesses, times), stride)| {
        let runs = (0..times).map(move |time| {
            let accesses = accesses.iter().map(|&(index, address, bytes, store)| {
                let address = address.wrapping_add(time * stride);
                let access = Access {
                    address,
                    bytes,
                    store,
                };
                (index, access)
            });
            let mut accesses: Vec<_> = accesses.collect();
            accesses.sort_by_key(|access| access.0);
            (key, 8, accesses)
        });
        runs.collect::<Vec<_>>()
    });
    prop::collection::vec(repeated, 0..50).prop_map(|runs| runs.concat())
}

proptest! {
    #[test]
    fn what_is_written_is_read(runs in runs(), from in 0..400_u64, count in 0..400_u64) {
        let bytes = file(&runs);
        let all = expected(&runs);
        prop_assert_eq!(&read(&bytes).unwrap(), &all);
        let addresses = Addresses::open(&*bytes).unwrap();
        prop_assert_eq!(addresses.instructions(), 8 * runs.len() as u64);
        let range = from..from + count;
        let part: Result<Vec<_>, _> = addresses.accesses(range.clone()).collect();
        let inside: Vec<_> = all.into_iter().filter(|a| range.contains(&a.instruction)).collect();
        prop_assert_eq!(part.unwrap(), inside);
    }

    #[test]
    fn damaged_files_end(runs in runs(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = file(&runs);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = read(&bytes) {
            prop_assert!(read.len() <= 64 * bytes.len() + (1 << 20));
        }
        prop_assert!(Addresses::open(&bytes[..at]).is_err() || at < FIRST.len());
    }
}

/// 1,000,000 instructions: a loop that reads an array and sometimes stores elsewhere.
fn long() -> Vec<Ran> {
    let access = |address, store| Access {
        address,
        bytes: 8,
        store,
    };
    let runs = (0..250_000_u64).map(|time| {
        let load = (1, access(0x1000_0000 + 8 * time, false));
        let store = (3, access(0x7fff_0000 - 16 * (time % 3), true));
        match time % 100 {
            0 => (1, 4, vec![load, store]),
            1 => (2, 4, Vec::new()),
            _ => (1, 4, vec![load]),
        }
    });
    runs.collect()
}

#[test]
fn pieces_are_read_on_their_own() {
    let runs = long();
    let bytes = file(&runs);
    assert!(bytes.len() < 60_000, "{}", bytes.len());
    let all = expected(&runs);
    let addresses = Addresses::open(&*bytes).unwrap();
    assert_eq!(addresses.instructions(), 1_000_000);
    assert_eq!(addresses.pieces().len(), 16);
    let mut end = all.len();
    for piece in addresses.pieces().rev() {
        let read: Result<Vec<_>, _> = addresses.accesses(piece).collect();
        let read = read.unwrap();
        assert_eq!(read, all[end - read.len()..end]);
        end -= read.len();
    }
    assert_eq!(end, 0);
}

#[test]
fn malformed_files_are_named() {
    let piece = |records: &[u64], instructions: u64| {
        let mut bytes = FIRST.to_vec();
        let mut body = Vec::new();
        for &number in records {
            crate::protocol::number::leb128(number, &mut body);
        }
        bytes.extend_from_slice(&body);
        let index = bytes.len() as u64;
        for number in [1, instructions, body.len() as u64] {
            crate::protocol::number::leb128(number, &mut bytes);
        }
        bytes.extend_from_slice(&index.to_le_bytes());
        bytes
    };
    // A run of two instructions at 0x40 whose second one stores 4 bytes, executed once.
    let good = [0, 0x80, 2, 1, 1, 4, 9, 3, 0x2000];
    let store = Access {
        address: 0x1000,
        bytes: 4,
        store: true,
    };
    let stored = Accessed {
        instruction: 1,
        pc: 0x44,
        access: store,
    };
    assert_eq!(read(&piece(&good, 2)), Ok(vec![stored]));
    let text = |bytes: &[u8]| read(bytes).unwrap_err().text;
    for (bytes, wanted) in [
        (b"other".to_vec(), "first line"),
        (FIRST.to_vec(), "no index"),
        ([FIRST, &[0xff; 8]].concat(), "cut"),
        (piece(&good, 3), "without all its instructions"),
        (piece(&good, 1), "more instructions"),
        (piece(&good[..8], 2), "end in a record"),
        (piece(&good[7..], 2), "not defined"),
        (piece(&[AGAIN, 1], 2), "without a run"),
        (piece(&[PASSED, 3], 2), "more instructions"),
        (piece(&[0, 0, 2, 1, 2, 4, 9], 2), "after the run"),
        (piece(&[0, 0, 5000], 2), "too many instructions"),
        (piece(&[0, 0, 0, 0, 3, AGAIN, 2], 2), "without instructions"),
        (piece(&good, 1 << 20), "too long"),
    ] {
        let found = text(&bytes);
        assert!(found.contains(wanted), "{found:?}, wanted {wanted:?}");
    }
}
