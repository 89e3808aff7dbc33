//! An ELF file with the names of the functions of a kernel's modules.

use super::Memory;
use super::modules::{self, NoModules};
use super::physical::PhysicalKernel;
use crate::program::kernel_symbols;
use std::collections::BTreeMap;

/// The function names of a kernel's modules.
#[derive(Debug)]
pub struct ModuleNames {
    /// An ELF file with their functions at their addresses in memory; `None` if there are none.
    pub file: Option<Vec<u8>>,
    /// The number of modules.
    pub modules: usize,
    /// The number of their functions.
    pub functions: usize,
    /// Why there may be more, if the list is incomplete.
    pub broken: Option<String>,
}

/// The name of the file in a snapshot.
pub const FILE: &str = "module-symbols";

impl ModuleNames {
    /// Finds the modules of a kernel with these symbols (name, address and size). With `signed`,
    /// return addresses may have authentication codes.
    ///
    /// # Errors
    ///
    /// Returns the reason if the list of modules is not found.
    pub fn find<'s>(
        kernel: &PhysicalKernel<'_>,
        symbols: impl Iterator<Item = (&'s str, u64, u64)>,
        signed: bool,
    ) -> Result<Self, NoModules> {
        let mut named: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        for (name, address, size) in symbols {
            if modules::NAMES.contains(&name) {
                named.entry(name).or_default().push((address, size));
            }
        }
        let symbols = |name: &str| named.get(name).cloned().unwrap_or_default();
        let (found, broken) = modules::of_kernel(kernel, &symbols)?;
        let modules = found.len();
        let functions = found.iter().map(|module| module.functions.len()).sum();
        let found = found.into_iter().map(|module| {
            let code = module.code.into_iter().map(|range| {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                let known = kernel.read(range.start, &mut bytes);
                bytes.truncate(known);
                (range, bytes)
            });
            kernel_symbols::Module {
                name: module.name,
                code: code.collect(),
                functions: module.functions,
            }
        });
        Ok(Self {
            file: kernel_symbols::of_modules(found.collect(), signed),
            modules,
            functions,
            broken,
        })
    }
}
