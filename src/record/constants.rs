//! Constants of the emulated processor that its GDB server does not report.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A64 code that exits with DCZID_EL0 as its status: `mrs x0, dczid_el0`; `mov x8, #93`; `svc #0`.
const CODE: [u32; 3] = [0xd53b_00e0, 0xd280_0ba8, 0xd400_0001];

/// Where the code is loaded.
const BASE: u64 = 0x40_0000;

/// A run of the emulator with a small program of its own.
#[derive(Debug)]
pub struct ZeroBlock(Child);

impl ZeroBlock {
    /// Starts an emulator of AArch64 programs with this processor; `directory` is for the program.
    ///
    /// # Errors
    ///
    /// If the program cannot be written, or the emulator not started.
    pub fn ask(emulator: &OsStr, cpu: Option<&str>, directory: &Path) -> io::Result<Self> {
        let path = directory.join("constants.elf");
        std::fs::write(&path, program())?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        let mut command = Command::new(emulator);
        if let Some(cpu) = cpu {
            command.args(["-cpu", cpu]);
        }
        let command = command.arg(path).stdin(Stdio::null());
        // It would wait for a debugger.
        let command = command.env_remove("QEMU_GDB");
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// Waits for the value of DCZID_EL0; `None` if it could not be read.
    pub fn value(mut self) -> Option<u64> {
        let status = self.0.wait().ok()?.code()?;
        // BS and DZP; the other bits are 0. Errors of the emulator have larger numbers, or 1 or 2, which
        // would be blocks of less than 16 bytes.
        u64::try_from(status)
            .ok()
            .filter(|status| (3..0x20).contains(status))
    }
}

/// An ELF file with the code in its only segment.
fn program() -> Vec<u8> {
    const HEADERS: u64 = 64 + 56;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    // ET_EXEC, EM_AARCH64, EV_CURRENT.
    file.extend([2, 0, 183, 0, 1, 0, 0, 0]);
    for number in [BASE + HEADERS, 64, 0] {
        file.extend(number.to_le_bytes());
    }
    // Flags; the sizes of the header and of the one program header; no sections.
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    // PT_LOAD, readable and executable.
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    let size = HEADERS + 4 * CODE.len() as u64;
    for number in [0, BASE, BASE, size, size, 0x1000] {
        file.extend(number.to_le_bytes());
    }
    file.extend(CODE.iter().flat_map(|word| word.to_le_bytes()));
    file
}
