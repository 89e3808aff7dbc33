//! The shared libraries of a program, from the dynamic linker's list at the halted state.
//!
//! Without this GDB reads the list from the program's memory, which is unknown at past positions. A
//! program statically linked with glibc also has such a list, with a breakpoint address in the
//! program itself: GDB would treat all of its code as that of the dynamic linker, and not stop in
//! it.

use std::fmt::Write as _;

use super::endpoint::Endpoint;
use armsnap_snapshot::snapshot::libraries::LinkMap;
use armsnap_snapshot::text::markup;

/// Formats the list (GDB manual, "Library List Format for SVR4 Targets"); `None` without a
/// program.
pub(super) fn document(endpoint: &Endpoint) -> Option<String> {
    let core = endpoint.cores.first()?;
    endpoint.programs().next()?;
    let memory = (&*core.memory, core.space.space);
    let list = endpoint
        .programs()
        .find_map(|program| LinkMap::of(&program.elf, memory));
    let LinkMap { debug, entries, .. } = list.unwrap_or_default();
    let mut text = "<library-list-svr4 version=\"1.0\"".to_owned();
    let mut entries = entries.into_iter();
    if let Some(program) = entries.next() {
        let _ = write!(text, " main-lm=\"{:#x}\"", program.address);
    }
    text.push_str(">\n");
    for library in entries.filter(|library| !library.name.is_empty()) {
        // GDB distinguishes namespaces of the linker by `lmid`.
        let _ = writeln!(
            text,
            "<library name=\"{}\" lm=\"{:#x}\" l_addr=\"{:#x}\" l_ld=\"{:#x}\" lmid=\"{debug:#x}\"/>",
            markup(&library.name),
            library.address,
            library.offset,
            library.dynamic
        );
    }
    text.push_str("</library-list-svr4>\n");
    Some(text)
}
