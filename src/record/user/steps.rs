//! Registers and stores of each instruction, for the register log.

use super::{Error, Session};
use crate::record::register_log::Writer;
use crate::record::remote::{bytes_of, number_of};
use std::fs::File;
use std::io::BufWriter;

/// Logs registers and stores after each instruction.
#[derive(Debug)]
pub(super) struct StepLog {
    out: Writer<BufWriter<File>>,
    /// The size in bytes of each register in the reply to `g`.
    sizes: Vec<usize>,
    /// Stores of the instruction: address, bytes.
    stores: Vec<(u64, u32)>,
}

impl StepLog {
    /// Starts the log with the state before the first instruction.
    pub fn new(file: File, session: &mut Session) -> Result<Self, Error> {
        let length = session.emulator.remote.ask("g")?.len() / 2;
        let mut names = Vec::new();
        let mut sizes = Vec::new();
        let mut left = length;
        for (name, size) in &session.emulator.remote.target().registers {
            if *size > left || *size == 0 || *size > 8 {
                break;
            }
            left -= size;
            names.push(name.clone());
            sizes.push(*size);
        }
        let mut steps = Self {
            out: Writer::new(BufWriter::new(file), &names)?,
            sizes,
            stores: Vec::new(),
        };
        let values = steps.values(session)?;
        steps.out.step(&values, &[])?;
        Ok(steps)
    }

    fn values(&self, session: &mut Session) -> Result<Vec<u64>, Error> {
        let reply = session.emulator.remote.ask("g")?;
        let mut rest = &reply[..];
        let value = |size: &usize| Some(number_of(&bytes_of(rest.split_off(..2 * size)?)?));
        let values: Option<Vec<u64>> = self.sizes.iter().map(value).collect();
        values.ok_or_else(|| {
            Error::Failed("the emulator reports fewer registers than before".to_owned())
        })
    }

    /// Adds a store of the current instruction.
    pub fn stored(&mut self, address: u64, bytes: u32) {
        /// More than the number of stores of any instruction.
        const MOST: usize = 1 << 12;
        if self.stores.len() < MOST {
            self.stores.push((address, bytes));
        }
    }

    /// Logs the state after an instruction.
    pub fn step(&mut self, session: &mut Session) -> Result<(), Error> {
        let values = self.values(session)?;
        let mut stores = Vec::new();
        for (address, bytes) in std::mem::take(&mut self.stores) {
            let mut memory = vec![0; bytes.min(64) as usize];
            let count = match &session.memory {
                Some(there) => there.read(address.wrapping_add(session.base), &mut memory),
                None => {
                    let read = session.emulator.remote.memory(address, memory.len())?;
                    memory[..read.len()].copy_from_slice(&read);
                    read.len()
                }
            };
            memory.truncate(count);
            stores.push((address, memory));
        }
        self.out.step(&values, &stores)?;
        Ok(())
    }

    /// Writes the end of the log.
    pub fn finish(self) -> Result<(), Error> {
        Ok(self.out.finish()?)
    }
}
