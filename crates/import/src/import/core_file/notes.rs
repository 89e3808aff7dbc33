//! The notes of a core file: threads with their registers, mapped files, the auxiliary vector.
//!
//! The layouts are those of Linux (`struct elf_prstatus`, `elf_prpsinfo`, `user_fpsimd_state`,
//! `fill_files_note`), which QEMU follows.

use super::sve;
use super::thread_notes::{self, NoteContents};
use crate::import::fields::Fields;
use crate::import::note::{CoreFileNote, Note};
use armsnap_arch::arch::pointer_auth;
use armsnap_snapshot::snapshot::model::{Register, RegisterValue};
use armsnap_snapshot::snapshot::signals::{INFORMATION, Signal};
use object::elf;
use std::collections::BTreeSet;

const PRSTATUS: u32 = elf::NT_PRSTATUS.0;
const FPREGSET: u32 = elf::NT_FPREGSET.0;
const PRPSINFO: u32 = elf::NT_PRPSINFO.0;
const AUXV: u32 = elf::NT_AUXV.0;
const ARM_VFP: u32 = elf::NT_ARM_VFP.0;
const ARM_SVE: u32 = elf::NT_ARM_SVE.0;
const SIGINFO: u32 = elf::NT_SIGINFO.0;
const FILE: u32 = elf::NT_FILE.0;
/// NT_GDB_TDESC: the register description that GDB 12 and later write.
const DESCRIPTION: u32 = 0xff00_0000;

/// The maximum numbers of threads and of mappings that are read.
const MOST: usize = 1 << 16;

/// A thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// The signal that stopped it; 0 for none.
    pub signal: u16,
    /// What the kernel knows about the signal (`siginfo_t`).
    pub information: Vec<u8>,
    /// Its registers.
    pub registers: Vec<Register>,
}

impl Thread {
    /// The signal that stopped it.
    pub fn received(&self) -> Option<Signal> {
        (self.signal != 0).then(|| Signal {
            number: self.signal.into(),
            information: self.information.clone(),
        })
    }

    /// Adds registers; those that are already known stay.
    fn add(&mut self, registers: Vec<Register>) {
        for register in registers {
            if self
                .registers
                .iter()
                .all(|known| known.name != register.name)
            {
                self.registers.push(register);
            }
        }
    }
}

/// A mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// The offset of its first byte in the file.
    pub offset: u64,
    /// The file's path.
    pub path: String,
}

/// The contents of the notes.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// In the order of the file: the first one caused the dump.
    pub threads: Vec<Thread>,
    /// In the order of the file.
    pub files: Vec<MappedFile>,
    /// The name of the program.
    pub name: Option<String>,
    /// The address of the program's entry point (AT_ENTRY).
    pub entry: Option<u64>,
    /// The kernel's self-description (VMCOREINFO).
    pub vmcoreinfo: Option<Vec<u8>>,
    /// The operating system, if it is not Linux; its notes have other layouts.
    pub system: Option<&'static str>,
    /// Whether the register description (written by GDB) is of the M-profile, if there is one.
    pub m_profile: Option<bool>,
    /// Whether SME registers (streaming mode, ZA) are left out.
    pub sme: bool,
    /// The types of notes with thread state that are left out.
    pub unread: BTreeSet<u32>,
    /// Notes that could not be read.
    pub faulty: usize,
    /// The number of threads beyond the limit.
    more_threads: u64,
    /// The number of mapped files beyond the limit.
    more_files: u64,
}

impl Notes {
    /// Reads the notes in a segment.
    pub fn take(&mut self, bytes: &[u8], big: bool, is_64bit: bool) {
        let mut fields = Fields::new(bytes, big);
        while let (Some(name), Some(size), Some(kind)) = (fields.u32(), fields.u32(), fields.u32())
        {
            let padded = |size: u32| (size as usize).checked_next_multiple_of(4);
            let Some((name, padded_size)) = padded(name).zip(padded(size)) else {
                break;
            };
            let owner = fields.bytes(name);
            let Some((owner, contents)) = owner.zip(fields.bytes(padded_size)) else {
                self.faulty += 1;
                break;
            };
            let contents = &contents[..(size as usize).min(contents.len())];
            if owner.starts_with(b"VMCOREINFO\0") {
                self.vmcoreinfo = Some(contents.to_vec());
                continue;
            }
            if let Some(system) = system(owner) {
                self.system = Some(system);
                continue;
            }
            if owner.starts_with(b"GDB\0") && kind == DESCRIPTION {
                let has = |name: &str| memchr::memmem::find(contents, name.as_bytes()).is_some();
                let m_profile = has("org.gnu.gdb.arm.m-profile");
                if m_profile || has("org.gnu.gdb.arm.core") {
                    self.m_profile = Some(m_profile);
                }
                continue;
            }
            let known = self.note(kind, fields.again(contents), is_64bit);
            self.faulty += usize::from(known.is_none());
        }
    }

    /// Copies the pointer authentication masks to threads without that note: all threads of a
    /// process have the same.
    pub fn share_masks(&mut self) {
        let is_mask = |register: &&Register| pointer_auth::MASKS.contains(&&*register.name);
        let mut masks = self.threads.iter().map(|thread| {
            let masks = thread.registers.iter().filter(is_mask);
            masks.cloned().collect::<Vec<_>>()
        });
        let Some(masks) = masks.find(|masks| !masks.is_empty()) else {
            return;
        };
        for thread in &mut self.threads {
            thread.add(masks.clone());
        }
    }

    /// Adds a register to all threads.
    pub fn add_to_all(&mut self, register: &Register) {
        for thread in &mut self.threads {
            thread.add(vec![register.clone()]);
        }
    }

    /// Notes on everything that is left out.
    pub fn left_out(&self) -> Vec<Note> {
        let mut out = Vec::new();
        if self.faulty > 0 {
            let count = self.faulty;
            out.push(CoreFileNote::CutNotes { count }.into());
        }
        if self.sme {
            out.push(CoreFileNote::NoSme.into());
        }
        if !self.unread.is_empty() {
            let kinds = self.unread.iter().copied().collect();
            out.push(CoreFileNote::UnreadNotes { kinds }.into());
        }
        if self.more_threads > 0 || self.more_files > 0 {
            let note = CoreFileNote::ManyNotes {
                threads: self.more_threads,
                files: self.more_files,
                limit: MOST,
            };
            out.push(note.into());
        }
        out
    }

    fn note(&mut self, kind: u32, mut fields: Fields<'_>, is_64bit: bool) -> Option<()> {
        match kind {
            PRSTATUS if self.threads.len() >= MOST => self.more_threads += 1,
            PRSTATUS => self.threads.push(thread(fields, is_64bit)?),
            // State of a thread that is left out.
            FPREGSET | ARM_VFP | SIGINFO | 0x400..=0x4ff if self.more_threads > 0 => {}
            SIGINFO => {
                let length = fields.rest().len().min(INFORMATION);
                self.threads.last_mut()?.information = fields.bytes(length)?.to_vec();
            }
            FPREGSET if is_64bit => {
                let found = sve::fpsimd(fields)?;
                self.threads.last_mut()?.add(found);
            }
            ARM_SVE if is_64bit => {
                let found = sve::registers(fields)?;
                self.threads.last_mut()?.add(found);
            }
            ARM_VFP if !is_64bit => {
                let thread = self.threads.last_mut()?;
                for number in 0..32 {
                    let value = fields.bytes(8)?;
                    thread
                        .registers
                        .push(register(&format!("D{number}"), value, &fields));
                }
                let value = fields.bytes(4)?;
                thread.registers.push(register("FPSCR", value, &fields));
            }
            0x401..=0x4ff => match thread_notes::read(kind, fields, is_64bit)? {
                NoteContents::Registers(found) => self.threads.last_mut()?.add(found),
                NoteContents::Sme => self.sme = true,
                NoteContents::Empty => {}
                NoteContents::Unread => drop(self.unread.insert(kind)),
            },
            PRPSINFO => {
                fields.bytes(if is_64bit { 40 } else { 28 })?;
                let name = fields.bytes(16)?;
                self.name = Some(fields.again(name).text());
            }
            AUXV => {
                let word = |fields: &mut Fields<'_>| word(fields, is_64bit);
                while let (Some(kind), Some(value)) = (word(&mut fields), word(&mut fields)) {
                    // AT_ENTRY.
                    if kind == 9 {
                        self.entry = Some(value);
                    }
                }
            }
            FILE => {
                let count = word(&mut fields, is_64bit)?;
                let page = word(&mut fields, is_64bit)?;
                let mut ranges = Vec::new();
                for _ in 0..count.min(MOST as u64) {
                    let start = word(&mut fields, is_64bit)?;
                    let end = word(&mut fields, is_64bit)?;
                    let offset = word(&mut fields, is_64bit)?;
                    ranges.push((start, end, offset.saturating_mul(page)));
                }
                let more = count.saturating_sub(MOST as u64);
                let size = if is_64bit { 24 } else { 12 };
                fields.bytes(usize::try_from(more.checked_mul(size)?).ok()?)?;
                self.more_files = self.more_files.saturating_add(more);
                let files = ranges.into_iter().map(|(start, end, offset)| MappedFile {
                    start,
                    end,
                    offset,
                    path: fields.text(),
                });
                self.files.extend(files);
            }
            _ => {}
        }
        Some(())
    }
}

/// The operating system whose core files have notes with this owner, if it is not Linux.
fn system(owner: &[u8]) -> Option<&'static str> {
    let owners: [(&[u8], _); 3] = [
        (b"FreeBSD\0", "FreeBSD"),
        (b"NetBSD-CORE", "NetBSD"),
        (b"OpenBSD", "OpenBSD"),
    ];
    let known = owners.iter().find(|(name, _)| owner.starts_with(name));
    known.map(|(_, system)| *system)
}

fn word(fields: &mut Fields<'_>, is_64bit: bool) -> Option<u64> {
    match is_64bit {
        true => fields.u64(),
        false => fields.u32().map(u64::from),
    }
}

/// `struct elf_prstatus`: signal, number of the thread, times, general registers.
fn thread(mut fields: Fields<'_>, is_64bit: bool) -> Option<Thread> {
    fields.bytes(12)?;
    let signal = fields.u16()?;
    fields.bytes(if is_64bit { 18 } else { 10 })?;
    let tid = fields.u32()?;
    fields.bytes(if is_64bit { 76 } else { 44 })?;
    let names: Vec<String> = match is_64bit {
        true => (0..31)
            .map(|number| format!("X{number}"))
            .chain(["SP", "PC", "CPSR"].map(str::to_owned))
            .collect(),
        false => (0..13)
            .map(|number| format!("R{number}"))
            .chain(["SP", "LR", "PC", "CPSR"].map(str::to_owned))
            .collect(),
    };
    let mut registers = Vec::new();
    for name in names {
        let mut value = fields.bytes(if is_64bit { 8 } else { 4 })?;
        if name == "CPSR" && is_64bit {
            // The upper half of the saved PSTATE is not used.
            value = if fields.is_big() {
                &value[4..]
            } else {
                &value[..4]
            };
        }
        registers.push(register(&name, value, &fields));
    }
    Some(Thread {
        tid,
        signal,
        information: Vec::new(),
        registers,
    })
}

/// A register from bytes in the byte order of the file.
pub(in crate::import) fn register(name: &str, bytes: &[u8], fields: &Fields<'_>) -> Register {
    let mut value = bytes.to_vec();
    if fields.is_big() {
        value.reverse();
    }
    Register {
        name: name.to_owned(),
        size: Some(8 * bytes.len() as u32),
        value: RegisterValue(value),
        ..Register::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn names_of_files_follow_all_ranges() {
        let count = MOST as u64 + 2;
        let mut contents = words([count, 4096]);
        contents.extend(words((0..count).flat_map(|index| [index, index + 1, 0])));
        for index in 0..count {
            contents.extend(format!("/lib{index}\0").bytes());
        }
        let mut notes = Notes::default();
        let known = notes.note(FILE, Fields::new(&contents, false), true);
        assert_eq!(known, Some(()));
        assert_eq!(notes.files.len(), MOST);
        assert_eq!(notes.files[0].path, "/lib0");
        assert_eq!(notes.files[MOST - 1].path, format!("/lib{}", MOST - 1));
        let note = CoreFileNote::ManyNotes {
            threads: 0,
            files: 2,
            limit: MOST,
        };
        assert_eq!(notes.left_out(), [Note::from(note)]);
    }

    #[test]
    fn registers_of_threads_that_are_left_out_are_not_those_of_the_last() {
        let mut notes = Notes {
            threads: vec![Thread::default(); MOST],
            ..Notes::default()
        };
        let contents = vec![0; 400];
        for kind in [PRSTATUS, ARM_VFP] {
            notes.note(kind, Fields::new(&contents, false), false);
        }
        assert_eq!(notes.threads.len(), MOST);
        assert!(notes.threads[MOST - 1].registers.is_empty());
        let text: Vec<String> = notes.left_out().iter().map(Note::to_string).collect();
        assert_eq!(text.len(), 1);
        assert!(
            text[0].starts_with("1 thread and 0 mapped files"),
            "{text:?}"
        );
    }
}
