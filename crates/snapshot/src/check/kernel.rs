//! The real-time operating system of a microcontroller: broken lists, and stacks that have overflowed.

use super::{Checker, Need};
use crate::capture::core_memory;
use crate::rtos::{self, Kernel, Memory};
use crate::snapshot::model::{DeviceClass, Severity};
use crate::snapshot::program::Program;
use armsnap_arch::arch::{Architecture, RegisterFile, state};

impl Checker<'_> {
    /// Warns of what is broken in the memory of the first kernel that is found.
    pub(super) fn kernel(&mut self) {
        let devices = self.snapshot.devices.iter().enumerate();
        let cores = devices.filter(|(_, device)| device.class == DeviceClass::Core);
        for (index, device) in cores {
            let Some(kernel) = self.kernel_of(index) else {
                continue;
            };
            for broken in kernel.broken {
                let text = format!("{}: {broken}", kernel.name);
                self.push(Severity::Warning, Need::Advice, &device.place, "", text);
            }
            return;
        }
    }

    /// Returns the kernel that a core runs.
    fn kernel_of(&self, index: usize) -> Option<Kernel> {
        let device = &self.snapshot.devices[index];
        let architecture = Architecture::detect(device).architecture;
        if architecture != Architecture::MProfile {
            return None;
        }
        let registers = RegisterFile::read(device, architecture);
        let space = state::current_space(&registers).space;
        let mut memory = core_memory(self.loaded, index);
        let program = Program::of_snapshot(self.loaded, architecture, &[(&memory, space)])?;
        program.add_to(&mut memory, space);
        memory.share(self.loaded, index);
        rtos::kernel(&Memory {
            memory: &memory,
            space,
            architecture,
            programs: &[&program.elf],
        })
    }
}
