//! Queries to the emulator while its program is stopped.

use super::{Error, Request, Session};
use crate::record::guest_program::Program;
use crate::record::process;
use crate::record::remote::number_of;
use crate::record::stop;
use crate::record::until::Until;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_snapshot::mapped::Mapped;
use armsnap_trace::encode::CodeAddress;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

/// A loaded ELF file: the program itself, or a library.
pub(super) struct Image {
    pub path: PathBuf,
    pub bytes: Mapped,
    pub program: Program,
    /// Its load bias.
    pub moved: u64,
}

impl Session {
    /// Sends SIGINT to the program. A terminal may have done so already.
    pub(super) fn interrupt(&self) -> io::Result<()> {
        let pid = i32::try_from(self.emulator.pid()).ok();
        match pid.and_then(rustix::process::Pid::from_raw) {
            Some(pid) => Ok(rustix::process::kill_process(
                pid,
                rustix::process::Signal::INT,
            )?),
            None => Ok(()),
        }
    }

    pub(super) fn gone(&self, how: &str) -> Error {
        Error::Lost(format!(
            "the program ended ({how}) before its registers and memory could be read"
        ))
    }

    /// Returns the error for a stream that ended before the program.
    pub(super) fn unread(&mut self) -> Error {
        let gone = self.gone("the emulator's plugin is gone").to_string();
        self.emulator.unread(&gone)
    }

    /// Selects the thread that stopped, and returns its ID.
    pub(super) fn thread(&mut self, reported: Option<String>) -> Result<u32, Error> {
        let thread = self.emulator.stopped_thread(reported)?;
        self.emulator.remote.select(&thread)?;
        u32::from_str_radix(&thread, 16).map_err(|_| {
            Error::Failed(format!(
                "the emulator reports an invalid thread ID {thread:?}"
            ))
        })
    }

    /// Returns the address and instruction set at which the selected thread is stopped.
    pub(super) fn here(&mut self) -> Result<CodeAddress, Error> {
        let pc = self.emulator.remote.value("pc")?;
        let cpsr = self.emulator.remote.value("cpsr")?;
        let architecture = self.emulator.remote.target().architecture;
        Ok(CodeAddress {
            address: Address(pc.unwrap_or(0)),
            isa: stop::isa(architecture, cpsr).unwrap_or(Isa::A32),
        })
    }

    /// Returns the address of the program's first instruction (getauxval(3), AT_ENTRY).
    pub(super) fn entry(&mut self) -> Result<u64, Error> {
        const ENTRY: u64 = 9;
        let reply = self.emulator.remote.ask("qXfer:auxv:read::0,1000")?;
        let size = if self.program.is_64bit { 8 } else { 4 };
        let vector = reply.get(1..).unwrap_or_default();
        let mut pairs = vector.chunks_exact(2 * size);
        let entry = pairs
            .find(|pair| number_of(&pair[..size]) == ENTRY)
            .map(|pair| number_of(&pair[size..]) & !u64::from(!self.program.is_64bit));
        match entry {
            Some(entry) => Ok(entry),
            None if self.program.fixed => Ok(self.program.entry & !1),
            None => Err(Error::Failed(
                "the emulator does not report where the program was loaded".to_owned(),
            )),
        }
    }

    /// Returns the program and the libraries loaded so far.
    pub(super) fn images(&self) -> Result<Vec<Image>, Error> {
        let mut images: Vec<Image> = Vec::new();
        let mut seen = BTreeSet::new();
        for mapping in process::mappings(self.emulator.pid())? {
            let Some(path) = mapping.file.filter(|file| seen.insert(file.clone())) else {
                continue;
            };
            // The emulator's own files are for another architecture.
            let Ok((program, bytes)) = Program::open(&path) else {
                continue;
            };
            let start = mapping.start.wrapping_sub(self.base);
            let moved = program.moved(mapping.offset, start);
            if let (true, Some(moved)) = (program.is_64bit == self.program.is_64bit, moved) {
                images.push(Image {
                    path,
                    bytes,
                    program,
                    moved,
                });
            }
        }
        Ok(images)
    }

    /// Returns the offset from guest addresses to addresses of the emulator, derived from the
    /// mapping of the program's file.
    pub(super) fn find_base(&self, request: &Request) -> Result<u64, Error> {
        let path = &request.program;
        let path = path
            .canonicalize()
            .map_err(|error| Error::of_file(path, error))?;
        let mappings = process::mappings(self.emulator.pid())?;
        let base = mappings.iter().find_map(|mapping| {
            let file = mapping.file.as_ref().filter(|file| **file == path);
            let whole = file.and_then(|_| self.program.moved(mapping.offset, mapping.start))?;
            Some(whole.wrapping_sub(self.moved))
        });
        base.ok_or_else(|| Error::of_file(&path, "the emulator did not map it"))
    }

    /// Returns the locations that match `until`: those in the program or, if there are none, those
    /// in the libraries loaded so far.
    pub(super) fn until(&self, until: &Until) -> Result<Vec<CodeAddress>, Error> {
        let images = self.images()?;
        if let Some(address) = until.number() {
            // A trap in data would change the data.
            let place = images.iter().find_map(|Image { program, moved, .. }| {
                let place = self.place(program, address, *moved);
                let is_code = program.is_code(place.address.0.wrapping_sub(*moved), place.isa);
                is_code.then_some(place)
            });
            return Ok(Vec::from_iter(place));
        }
        let own =
            |image: &&Image| image.moved == self.moved && image.program.entry == self.program.entry;
        let (own, libraries): (Vec<&Image>, Vec<&Image>) = images.iter().partition(own);
        for images in [own, libraries] {
            let mut places = Vec::new();
            for Image {
                program,
                bytes,
                moved,
                ..
            } in images
            {
                let found = until.addresses(program, bytes);
                let found = found.map_err(|error| Error::Usage(format!("--until {error}")))?;
                let found = found
                    .into_iter()
                    .map(|address| address.wrapping_add(*moved));
                places.extend(found.map(|address| self.place(program, address, *moved)));
            }
            if !places.is_empty() {
                return Ok(places);
            }
        }
        Ok(Vec::new())
    }

    fn place(&self, program: &Program, address: u64, moved: u64) -> CodeAddress {
        let isa = match program.isa((address & !1).wrapping_sub(moved)) {
            _ if self.program.is_64bit => Isa::A64,
            _ if address & 1 == 1 => Isa::T32,
            Some(isa) => isa,
            None => Isa::A32,
        };
        let bit = u64::from(!self.program.is_64bit);
        let address = Address(address & !bit);
        CodeAddress { address, isa }
    }
}
