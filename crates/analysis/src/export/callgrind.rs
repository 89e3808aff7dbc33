//! Instructions and calls as a Callgrind profile ("Callgrind Format Specification" in the Valgrind
//! manual).

use super::{Analysed, ExportError, hidden};
use crate::profile::{FunctionId, NodeId, Profile, Track};
use armsnap_history::decode::Image;
use armsnap_snapshot::program::symbols::Symbols;
use std::collections::BTreeMap;
use std::io::Write;

/// The location of a cost: address and line.
type CostLocation = (u64, u32);

/// The costs of a function.
#[derive(Default)]
struct Costs {
    /// Instructions by file and location.
    own: BTreeMap<(String, CostLocation), u64>,
    /// Calls and their instructions, by file and location of the call and by the called function.
    calls: BTreeMap<(String, CostLocation, FunctionId), (u64, u64)>,
}

/// Writes the costs of all tracks.
///
/// # Errors
///
/// If the output cannot be written.
pub fn write(analysed: &Analysed<'_>, out: &mut impl Write) -> Result<(), ExportError> {
    writeln!(out, "# callgrind format\nversion: 1")?;
    writeln!(out, "creator: armsnap-{}", env!("CARGO_PKG_VERSION"))?;
    for (track, profile) in analysed.tracks {
        if let Some(text) = hidden(track, profile) {
            writeln!(out, "desc: Gaps: {}", super::clean(&text))?;
        }
    }
    writeln!(out, "positions: instr line\nevents: Ir\n")?;
    let mut total = 0_u64;
    for (track, profile) in analysed.tracks.iter().filter(|(track, _)| track.follows) {
        write_track(analysed, track, profile, out)?;
        total = total.saturating_add(profile.totals.instructions);
    }
    writeln!(out, "totals: {total}")?;
    Ok(())
}

fn write_track(
    analysed: &Analysed<'_>,
    track: &Track,
    profile: &Profile,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let symbols = track.core.and_then(|core| analysed.programs.symbols(core));
    let mut functions: BTreeMap<FunctionId, Costs> = BTreeMap::new();
    let image = Image(track.core.and_then(|core| analysed.programs.memory(core)));
    own_costs(profile, image, symbols, &mut functions);
    call_costs(profile, symbols, &mut functions);
    let image = |function: FunctionId| {
        let start = profile.functions.get(function).start?;
        let images = analysed.programs.images_of(track.core);
        let found = images
            .into_iter()
            .find(|image| image.slice(start.0).is_some())?;
        Some(clean(&found.path.display().to_string()))
    };
    let home_of = |function: FunctionId| {
        let start = profile.functions.get(function).start;
        let line = start.and_then(|start| symbols?.line(start.0));
        line.map_or_else(|| "???".to_owned(), |line| clean(&line.file))
    };
    writeln!(out, "# {}", super::clean(&track.name))?;
    for (id, costs) in &functions {
        let name = clean(&profile.functions.get(*id).name);
        let file = home_of(*id);
        writeln!(
            out,
            "ob={}\nfl={file}\nfn={name}",
            image(*id).unwrap_or_else(|| "???".to_owned())
        )?;
        let mut current = file.clone();
        let home = &file;
        let enter = |file: &str, current: &mut String, out: &mut dyn Write| {
            if file != current {
                file.clone_into(current);
                // Code inlined from another file, or the function's own code again.
                let place = if file == home { "fe" } else { "fi" };
                writeln!(out, "{place}={file}")?;
            }
            Ok::<_, std::io::Error>(())
        };
        for ((place_file, (address, line)), count) in &costs.own {
            enter(place_file, &mut current, out)?;
            writeln!(out, "{address:#x} {line} {count}")?;
        }
        for ((place_file, (address, line), callee), (calls, instructions)) in &costs.calls {
            enter(place_file, &mut current, out)?;
            let called = profile.functions.get(*callee);
            let start = called.start.map_or(0, |start| start.0);
            let first = symbols.and_then(|symbols| symbols.line(start));
            writeln!(
                out,
                "cob={}\ncfi={}\ncfn={}",
                image(*callee).unwrap_or_else(|| "???".to_owned()),
                home_of(*callee),
                clean(&called.name)
            )?;
            let first = first.map_or(0, |line| line.line);
            // Costs after `calls=0` are those of the caller itself.
            let calls = (*calls).max(1);
            writeln!(out, "calls={calls} {start:#x} {first}")?;
            writeln!(out, "{address:#x} {line} {instructions}")?;
        }
        writeln!(out)?;
    }
    if profile.totals.unknown_path > 0 {
        writeln!(
            out,
            "ob=???\nfl=???\nfn=[unknown path]\n0x0 0 {}\n",
            profile.totals.unknown_path
        )?;
    }
    Ok(())
}

/// The instructions executed in each function, by address.
fn own_costs(
    profile: &Profile,
    image: Image<'_>,
    symbols: Option<&Symbols>,
    functions: &mut BTreeMap<FunctionId, Costs>,
) {
    for ((function, address), count) in profile.code.instructions(&image) {
        let place = place(symbols, address.0);
        let own = &mut functions.entry(function).or_default().own;
        *own.entry(place).or_insert(0) += count;
    }
}

/// The calls from each function. A recursive call has no cost of its own: the outer call includes
/// it. Instructions executed below a function that has no recorded call are charged to the function
/// they were executed for.
fn call_costs(
    profile: &Profile,
    symbols: Option<&Symbols>,
    functions: &mut BTreeMap<FunctionId, Costs>,
) {
    let ends: std::collections::HashMap<u64, u64> = profile
        .code
        .blocks()
        .iter()
        .map(|block| (block.end.0, block.last_at.0))
        .collect();
    let sums = profile.tree.sums();
    let recursive = profile.tree.recursive();
    for (index, node) in profile.tree.nodes().iter().enumerate().skip(1) {
        let cost = if recursive[index] { 0 } else { sums[index].0 };
        if node.parent == NodeId::ROOT || node.calls == 0 && cost == 0 {
            continue;
        }
        let caller = profile.tree.nodes()[node.parent.index()].function;
        let start = profile.functions.get(caller).start;
        // For a jump, only the function is known.
        let called_at = node
            .returns_to
            .and_then(|to| ends.get(&to.0).copied())
            .or(start.map(|start| start.0))
            .unwrap_or(0);
        let (file, place) = place(symbols, called_at);
        let calls = &mut functions.entry(caller).or_default().calls;
        let sum = calls.entry((file, place, node.function)).or_default();
        sum.0 += node.calls;
        sum.1 += cost;
    }
}

/// A name without control characters. A leading `(12)` would be read as a number that stands for a
/// name.
fn clean(name: &str) -> String {
    let name = super::clean(name);
    let number = name.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    match number {
        Some((digits, _)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => format!("_{name}"),
        _ => name,
    }
}

fn place(symbols: Option<&Symbols>, address: u64) -> (String, CostLocation) {
    match symbols.and_then(|symbols| symbols.line(address)) {
        Some(line) => (clean(&line.file), (address, line.line)),
        None => ("???".to_owned(), (address, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_read_as_a_number() {
        assert_eq!(clean("(12)x"), "_(12)x");
        assert_eq!(clean("(12)"), "_(12)");
        assert_eq!(
            clean("(anonymous namespace)::x"),
            "(anonymous namespace)::x"
        );
        assert_eq!(clean("(12x"), "(12x");
    }
}
