//! Parser of the emulator's log of exceptions (`-d int`, for M-profile with `mmu`).
//!
//! For an AArch64 core the log contains the return addresses of exceptions; for an AArch32 core it
//! does not. For a Cortex-M it contains the address of the stacked frame instead, among the
//! accesses checked by the memory protection unit. With TrustZone-M, these accesses also show which
//! code is secure.

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// A core took an exception.
    Exception(Taken),
    /// The running core returned from an exception.
    Return {
        /// The exception level returned to, if known.
        level: Option<u8>,
        /// M-profile: the address of the frame that was unstacked.
        frame: Option<u32>,
        /// M-profile: whether it returned to secure state, if there is one.
        secure: Option<bool>,
    },
    /// M-profile: this exception was taken instead of completing a return (tail-chaining).
    TailChain {
        /// The exception's number.
        number: u16,
        /// The address of the handler.
        handler: Option<u64>,
        /// Whether it was taken to secure state.
        secure: Option<bool>,
    },
    /// M-profile: a core executed the instruction SG at this address, the entry to secure code. The emulator
    /// does so without translating it.
    Gate {
        /// QEMU's index of the core.
        core: u32,
        /// The address.
        address: u64,
    },
    /// M-profile: the running core returned from a non-secure function to the secure code that called it.
    FunctionReturn,
    /// M-profile: code at this address is about to be executed for the first time.
    Fetch {
        /// The address.
        address: u64,
        /// Whether it is secure.
        secure: bool,
    },
    /// The running core changed its exception level without an exception.
    Level(u8),
}

/// An exception.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// QEMU's index of the core.
    pub core: u32,
    /// QEMU's number of the cause (EXCP_UDEF 1, EXCP_SWI 2…).
    pub cause: u16,
    /// M-profile: the number of the exception.
    pub number: Option<u16>,
    /// The return address.
    pub return_to: Option<u64>,
    /// The exception level it was taken to.
    pub level: Option<u8>,
    /// Whether it is an alignment fault.
    pub alignment: bool,
    /// M-profile: the address of the stacked frame.
    pub frame: Option<u32>,
    /// The address of the handler.
    pub handler: Option<u64>,
    /// M-profile: whether it was taken to secure state.
    pub secure: Option<bool>,
}

/// QEMU's cause of an instruction fetch fault (EXCP_PREFETCH_ABORT).
const PREFETCH_ABORT: u16 = 3;

/// QEMU's cause for the start of a return from an exception in M-profile.
const EXCEPTION_EXIT: u16 = 8;

/// Parses the log as it grows.
#[derive(Debug, Default)]
pub struct Reader {
    /// The start of an incomplete line.
    line: Vec<u8>,
    taken: Option<Taken>,
    /// A return from an exception in M-profile, as far as it has been read.
    exit: Option<Exit>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Exit {
    frame: Option<u32>,
    chained: Option<u16>,
    handler: Option<u64>,
    /// Whether the exception that was chained, or else the state returned to, is secure.
    secure: Option<bool>,
    successful: bool,
    /// Whether it is a return from a non-secure function.
    function: bool,
}

/// The maximum length of a line.
const LONGEST: usize = 1 << 12;

impl Reader {
    /// Parses more text and returns the entries of its complete lines. The last exception may
    /// continue in the next line; [`Reader::end`] completes it.
    pub fn text(&mut self, text: &[u8], out: &mut Vec<Logged>) {
        for &byte in text {
            if byte != b'\n' {
                if self.line.len() < LONGEST {
                    self.line.push(byte);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            self.read_line(&String::from_utf8_lossy(&line), out);
            self.line = line;
            self.line.clear();
        }
    }

    /// Completes the last entry, before an instruction is executed.
    pub fn end(&mut self, out: &mut Vec<Logged>) {
        out.extend(self.taken.take().map(Logged::Exception));
        let Some(exit) = self.exit.take() else {
            return;
        };
        match exit.chained {
            Some(number) => out.push(Logged::TailChain {
                number,
                handler: exit.handler,
                secure: exit.secure,
            }),
            None if exit.function => out.push(Logged::FunctionReturn),
            None if exit.successful => out.push(Logged::Return {
                level: None,
                frame: exit.frame,
                secure: exit.secure,
            }),
            None => {}
        }
    }

    fn read_line(&mut self, line: &str, out: &mut Vec<Logged>) {
        if let Some(rest) = line.strip_prefix("Taking exception ") {
            self.end(out);
            let cause = number(rest).unwrap_or(0) as u16;
            let core = after(rest, "on CPU ").and_then(number).unwrap_or(0) as u32;
            if cause == EXCEPTION_EXIT {
                self.exit = Some(Exit::default());
            } else {
                self.taken = Some(Taken {
                    core,
                    cause,
                    ..Taken::default()
                });
            }
        } else if let Some(rest) = line.strip_prefix("...") {
            self.detail(rest, out);
        } else if let Some(rest) = line.strip_prefix("PMSA MPU lookup for ") {
            self.access(rest);
            out.extend(fetch(rest));
        } else if let Some(rest) = line.strip_prefix("Exception return: magic PC ") {
            if let Some(exit) = &mut self.exit {
                // EXC_RETURN.S (DDI 0553, B3.22): the state of the code that was interrupted.
                exit.secure = digits(rest).map(|magic| magic & 1 << 6 != 0);
            }
        } else if let Some(rest) = line.strip_prefix("Exception return from AArch64 ") {
            self.end(out);
            let level = after(rest, "to AArch")
                .and_then(|r| after(r, " EL"))
                .and_then(number)
                .map(|level| level as u8);
            out.push(returned(level));
        } else if let Some(rest) = line.strip_prefix("Exception return from AArch32 ") {
            self.end(out);
            out.push(returned(after(rest, " to ").and_then(mode_level)));
        } else if let Some(rest) = line.strip_prefix("AArch32 mode switch from ") {
            self.end(out);
            out.extend(after(rest, " to ").and_then(mode_level).map(Logged::Level));
        }
    }

    /// Parses a line that continues the exception of the previous lines.
    fn detail(&mut self, rest: &str, out: &mut Vec<Logged>) {
        if let Some(exit) = &mut self.exit {
            exit.successful |= rest.starts_with("successful exception return");
            exit.function |= rest.starts_with("function return successful");
            if let Some((number, secure)) = pending(rest) {
                exit.chained = Some(number);
                exit.secure = Some(secure);
            }
            if let Some(handler) = after(rest, "loaded new PC ") {
                exit.handler = hex(handler);
            }
        }
        let Some(taken) = &mut self.taken else {
            return;
        };
        if rest.starts_with("handled as PSCI call") || rest.starts_with("handling as semihosting") {
            self.taken = None;
        } else if let Some(place) = after(rest, "really an SG instruction at ") {
            let core = taken.core;
            self.taken = None;
            out.extend(hex(place).map(|address| Logged::Gate { core, address }));
        } else if let Some(place) = after(rest, "with ELR ") {
            taken.return_to = hex(place);
        } else if let Some(place) = after(rest, "with IFSR ").and_then(|r| after(r, "IFAR ")) {
            // BKPT has the same vector and does not set IFAR.
            taken.return_to = hex(place).filter(|_| taken.cause == PREFETCH_ABORT);
        } else if let Some(syndrome) = after(rest, "with ESR ").and_then(|r| after(r, "/")) {
            // ESR_ELx.DFSC (DDI 0487, D17.2.37): 0b100001 is an alignment fault.
            let data_abort = taken.cause == 4;
            taken.alignment = data_abort && hex(syndrome).is_some_and(|esr| esr & 0x3f == 0x21);
        } else if let Some((number, secure)) = pending(rest) {
            taken.number = Some(number);
            taken.secure = Some(secure);
        } else if let Some(handler) = after(rest, "loaded new PC ") {
            taken.handler = hex(handler);
        } else if rest.starts_with("from EL") {
            taken.level = after(rest, " to EL")
                .and_then(number)
                .map(|level| level as u8);
        }
    }

    /// Takes the address of the frame from the first word stacked or unstacked.
    fn access(&mut self, rest: &str) {
        let address = |kind| {
            let address = after(rest, kind).and_then(hex)?;
            u32::try_from(address).ok()
        };
        if let Some(taken) = &mut self.taken
            && taken.number.is_none()
            && taken.frame.is_none()
        {
            taken.frame = address("writing at ");
        }
        if let Some(exit) = &mut self.exit
            && exit.frame.is_none()
            && exit.chained.is_none()
        {
            exit.frame = address("reading at ");
        }
    }
}

/// `taking pending nonsecure exception 15`: the number, and whether it is secure.
fn pending(rest: &str) -> Option<(u16, bool)> {
    let rest = rest.strip_prefix("taking pending ")?;
    let number = number(after(rest, "exception ")?)?;
    Some((number as u16, rest.starts_with("secure")))
}

/// `execute at 0x10000000 mmu_idx 69 -> Hit (prot rwx)`.
fn fetch(rest: &str) -> Option<Logged> {
    /// Bit of QEMU's index of a translation regime in M-profile (ARM_MMU_IDX_M_S).
    const SECURE: u64 = 4;
    let address = hex(rest.strip_prefix("execute at ")?)?;
    after(rest, " -> Hit")?;
    let secure = number(after(rest, " mmu_idx ")?)? & SECURE != 0;
    Some(Logged::Fetch { address, secure })
}

/// A return from an exception of another profile.
fn returned(level: Option<u8>) -> Logged {
    Logged::Return {
        level,
        frame: None,
        secure: None,
    }
}

fn after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    Some(&text[text.find(label)? + label.len()..])
}

/// Parses the decimal number at the start of a text.
fn number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

/// Parses the hexadecimal number, with 0x, at the start of a text.
fn hex(text: &str) -> Option<u64> {
    digits(text.strip_prefix("0x")?)
}

/// The same without 0x.
fn digits(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_hexdigit());
    u64::from_str_radix(&text[..end.unwrap_or(text.len())], 16).ok()
}

/// Returns the exception level of an AArch32 mode.
fn mode_level(mode: &str) -> Option<u8> {
    match mode.split(' ').next()? {
        "usr" => Some(0),
        "hyp" => Some(2),
        "mon" => Some(3),
        "fiq" | "irq" | "svc" | "abt" | "und" | "sys" => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a text, and checks that the result is the same for every split of it.
    fn read(text: &str) -> Vec<Logged> {
        let mut whole = Vec::new();
        let mut reader = Reader::default();
        reader.text(text.as_bytes(), &mut whole);
        reader.end(&mut whole);
        let mut pieces = Vec::new();
        let mut reader = Reader::default();
        for byte in text.as_bytes() {
            reader.text(&[*byte], &mut pieces);
        }
        reader.end(&mut pieces);
        assert_eq!(whole, pieces);
        whole
    }

    #[test]
    fn exceptions_of_aarch64() {
        let log = "Taking exception 4 [Data Abort] on CPU 1\n...from EL0 to EL1\n\
            ...with ESR 0x25/0x96000010\n...with FAR 0x90000000000\n...with ELR 0x40100074\n\
            ...to EL1 PC 0x40100a00 PSTATE 0x3c5\n\
            Exception return from AArch64 EL1 to AArch64 EL0 PC 0x40100078\n\
            Taking exception 11 [Hypervisor Call] on CPU 0\n...from EL1 to EL2\n\
            ...with ESR 0x16/0x5a000000\n...handled as PSCI call\n\
            Taking exception 16 [Semihosting call] on CPU 0\n...from EL1 to EL1\n\
            ...handling as semihosting call 0x18\n";
        let taken = Taken {
            core: 1,
            cause: 4,
            return_to: Some(0x4010_0074),
            level: Some(1),
            ..Taken::default()
        };
        let back = returned(Some(1));
        let found = read(log);
        assert_eq!(found[0], Logged::Exception(taken));
        assert_eq!(found.len(), 2);
        let level = |line: &str| read(line).first().copied();
        assert_eq!(
            level("Exception return from AArch64 EL2 to AArch64 EL1 PC 0x0\n"),
            Some(back)
        );
        let to_user = returned(Some(0));
        assert_eq!(
            level("Exception return from AArch64 EL1 to AArch32 EL0 PC 0x0\n"),
            Some(to_user)
        );
    }

    #[test]
    fn exceptions_of_aarch32() {
        let log = "AArch32 mode switch from und to svc PC 0x40100020\n\
            Taking exception 2 [SVC] on CPU 0\n...from EL1 to EL1\n...with ESR 0x11/0x46000001\n\
            Exception return from AArch32 und to usr PC 0x40100034\n\
            Taking exception 3 [Prefetch Abort] on CPU 0\n...from EL1 to EL1\n\
            ...with ESR 0x21/0x86000010\n...with IFSR 0x8 IFAR 0x60000000\n";
        let found = read(log);
        let taken = |cause, return_to| {
            Logged::Exception(Taken {
                cause,
                return_to,
                level: Some(1),
                ..Taken::default()
            })
        };
        assert_eq!(found[0], Logged::Level(1));
        assert_eq!(found[1], taken(2, None));
        assert_eq!(found[2], returned(Some(0)));
        assert_eq!(found[3], taken(3, Some(0x6000_0000)));
    }

    #[test]
    fn exceptions_of_m_profile() {
        let log = "PMSA MPU lookup for writing at 0x20000004 mmu_idx 65 -> Hit (prot rwx)\n\
            Taking exception 5 [IRQ] on CPU 0\n\
            PMSA MPU lookup for writing at 0x20000f90 mmu_idx 65 -> Hit (prot rwx)\n\
            PMSA MPU lookup for writing at 0x20000f94 mmu_idx 65 -> Hit (prot rwx)\n\
            ...taking pending nonsecure exception 15\n\
            ...loading from element 15 of non-secure vector table at 0x3c\n...loaded new PC 0x41\n\
            PMSA MPU lookup for writing at 0x20000fb0 mmu_idx 65 -> Hit (prot rwx)\n\
            Taking exception 8 [QEMU v7M exception exit] on CPU 0\n\
            Exception return: magic PC ffffffe9 previous exception 15\n\
            ...tailchaining to pending exception\n...taking pending nonsecure exception 14\n\
            ...loading from element 14 of non-secure vector table at 0x38\n...loaded new PC 0x6d\n\
            Taking exception 8 [QEMU v7M exception exit] on CPU 0\n\
            Exception return: magic PC ffffffe9 previous exception 14\n\
            PMSA MPU lookup for reading at 0x20000f90 mmu_idx 65 -> Hit (prot rwx)\n\
            PMSA MPU lookup for reading at 0x20000f94 mmu_idx 65 -> Hit (prot rwx)\n\
            ...successful exception return\n";
        assert_eq!(
            read(log),
            [
                Logged::Exception(Taken {
                    cause: 5,
                    number: Some(15),
                    frame: Some(0x2000_0f90),
                    handler: Some(0x41),
                    secure: Some(false),
                    ..Taken::default()
                }),
                Logged::TailChain {
                    number: 14,
                    handler: Some(0x6d),
                    secure: Some(false),
                },
                Logged::Return {
                    level: None,
                    frame: Some(0x2000_0f90),
                    secure: Some(true),
                },
            ]
        );
    }

    #[test]
    fn security_of_m_profile() {
        let log = "PMSA MPU lookup for execute at 0x00200078 mmu_idx 65 -> Hit (prot rwx)\n\
            PMSA MPU lookup for execute at 0x10080000 mmu_idx 65 -> Miss (prot ---)\n\
            Taking exception 3 [Prefetch Abort] on CPU 1\n...at fault address 0x10080000\n\
            PMSA MPU lookup for execute at 0x10080000 mmu_idx 69 -> Hit (prot rwx)\n\
            ...really an SG instruction at 0x10080000, executing it\n\
            Taking exception 5 [IRQ] on CPU 1\n...taking pending secure exception 15\n\
            Taking exception 8 [QEMU v7M exception exit] on CPU 1\n\
            Exception return: magic PC ffffffb9 previous exception 15\n\
            ...successful exception return\n\
            Taking exception 8 [QEMU v7M exception exit] on CPU 1\n\
            ...really v7M secure function return\n...function return successful\n";
        let fetch = |address, secure| Logged::Fetch { address, secure };
        let taken = Taken {
            core: 1,
            cause: 5,
            number: Some(15),
            secure: Some(true),
            ..Taken::default()
        };
        let back = Logged::Return {
            level: None,
            frame: None,
            secure: Some(false),
        };
        let (core, address) = (1, 0x1008_0000);
        assert_eq!(
            read(log),
            [
                fetch(0x20_0078, false),
                fetch(address, true),
                Logged::Gate { core, address },
                Logged::Exception(taken),
                back,
                Logged::FunctionReturn,
            ]
        );
    }

    #[test]
    fn irrelevant_lines_are_ignored() {
        for text in [
            "",
            "...",
            "Taking exception",
            "...with ELR zzz\n",
            "Exception return: magic PC\n...successful exception return\n",
            "Loaded reset SP 0x0 PC 0x0 from vector table\n",
            "ä\u{0}\n",
        ] {
            assert_eq!(read(text), [], "{text:?}");
        }
        let long = format!("{}\n", "x".repeat(1 << 20));
        assert_eq!(read(&long), []);
    }
}
