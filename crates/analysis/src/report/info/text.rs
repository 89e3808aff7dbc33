//! [`Info`] as text for people: the cores first, then memory, trace, the rest; similar items are
//! grouped.

use std::collections::HashMap;
use std::fmt::{self, Write};

use super::{
    CoreInfo, Info, KernelInfo, MemorySpaceInfo, RegionInfo, RegisterCount, SourceInfo,
    SourceRegisterInfo,
};
use armsnap_snapshot::text::Plain;

/// Displays a snapshot's contents as text.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a Info);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0, &mut Plain(f))
    }
}

fn write(info: &Info, out: &mut impl Write) -> fmt::Result {
    head(info, out)?;
    cores(info, out)?;
    if let Some(found) = &info.kernel {
        kernel(found, out)?;
    }
    memory_spaces(&info.memory_spaces, out)?;
    buffers(info, out)?;
    sources(info, out)?;
    devices(info, out)?;
    if !info.notes.is_empty() {
        writeln!(out, "\nNotes")?;
        for note in &info.notes {
            writeln!(out, "  {note}")?;
        }
    }
    Ok(())
}

fn head(info: &Info, out: &mut impl Write) -> fmt::Result {
    match info.version.as_str() {
        "" => writeln!(out, "Snapshot without a version")?,
        version => writeln!(out, "Snapshot, version {version}")?,
    }
    if let Some(description) = &info.description {
        writeln!(out, "  {description}")?;
    }
    for cluster in info.clusters.iter().filter(|cluster| !cluster.assumed) {
        writeln!(
            out,
            "  cluster {}: {}",
            cluster.name,
            cluster.devices.join(", ")
        )?;
    }
    if info.clusters.iter().any(|cluster| cluster.assumed) {
        writeln!(out, "  all cores are in one cluster")?;
    }
    Ok(())
}

fn plural(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

fn heading(out: &mut impl Write, count: usize, one: &str) -> fmt::Result {
    writeln!(out, "\n{}", plural(count, one))
}

/// Groups the items with the same `key`, in order of the first of each group.
fn groups<T>(items: &[T], key: impl Fn(&T) -> String) -> Vec<Vec<&T>> {
    let mut groups: Vec<Vec<&T>> = Vec::new();
    let mut known = HashMap::new();
    for item in items {
        let group = *known.entry(key(item)).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups
}

fn cores(info: &Info, out: &mut impl Write) -> fmt::Result {
    heading(out, info.cores.len(), "core")?;
    let but_for_the_name = |core: &CoreInfo| {
        let name = String::new();
        format!(
            "{:?}",
            CoreInfo {
                name,
                ..core.clone()
            }
        )
    };
    for group in groups(&info.cores, but_for_the_name) {
        let names: Vec<&str> = group.iter().map(|core| core.name.as_str()).collect();
        core(&names.join(", "), group[0], out)?;
    }
    Ok(())
}

fn kernel(kernel: &KernelInfo, out: &mut impl Write) -> fmt::Result {
    writeln!(
        out,
        "\n{}, {}",
        kernel.name,
        plural(kernel.tasks.len(), "task")
    )?;
    for task in &kernel.tasks {
        let name = match &*task.name {
            "" => "without a name",
            name => name,
        };
        write!(out, "  {name}: {}", task.state)?;
        if let Some(priority) = task.priority {
            write!(out, ", priority {priority}")?;
        }
        if let Some(pc) = task.pc {
            write!(out, ", PC {pc}")?;
        }
        if let Some(unused) = task.stack_never_used {
            write!(out, ", {unused} bytes of stack never used")?;
        }
        writeln!(out)?;
    }
    for broken in &kernel.broken {
        writeln!(out, "  broken: {broken}")?;
    }
    Ok(())
}

fn core(names: &str, core: &CoreInfo, out: &mut impl Write) -> fmt::Result {
    write!(out, "  {names}: {}", core.architecture)?;
    if !core.architecture_from.is_empty() {
        write!(out, " ({})", core.architecture_from)?;
    }
    let RegisterCount { written, distinct } = core.registers;
    let registers = plural(distinct, "register");
    if written > distinct {
        writeln!(out, ", {registers} ({written} with their views)")?;
    } else {
        writeln!(out, ", {registers}")?;
    }
    if let Some(why) = &core.placeholder {
        writeln!(
            out,
            "    the registers are placeholders, not machine state: {why}"
        )?;
    }
    if let Some(signal) = &core.signal {
        writeln!(out, "    stopped by {signal}")?;
    }
    for (name, value) in [("PC", core.pc), ("SP", core.sp)] {
        if let Some(value) = value {
            writeln!(out, "    {name:5} {value}")?;
        }
    }
    if let Some(status) = &core.status {
        writeln!(
            out,
            "    {:5} {}  {}",
            status.name, status.value, status.meaning
        )?;
    }
    if let Some(space) = core.current_space.name {
        writeln!(out, "    space {space}: {}", core.current_space.reason)?;
    }
    for note in &core.notes {
        writeln!(out, "    note: {note}")?;
    }
    memory(&core.memory, out)
}

fn memory_spaces(spaces: &[MemorySpaceInfo], out: &mut impl Write) -> fmt::Result {
    if spaces.is_empty() {
        return Ok(());
    }
    heading(out, spaces.len(), "memory space")?;
    for space in spaces {
        writeln!(out, "  {}", space.name)?;
        memory(&space.memory, out)?;
    }
    Ok(())
}

fn memory(regions: &[RegionInfo], out: &mut impl Write) -> fmt::Result {
    if regions.is_empty() {
        return writeln!(out, "    no memory");
    }
    let rows = regions.iter().map(|region| {
        let end = region.end.map(|end| end.to_string());
        [
            region.space.clone().unwrap_or_else(|| "-".into()),
            format!("{}-{}", region.start, end.as_deref().unwrap_or("?")),
            region.size.map_or_else(|| "?".into(), size),
            match &region.missing {
                Some(why) => format!("{} MISSING: {why}", region.file),
                None => region.file.clone(),
            },
        ]
    });
    let mut table = vec![[
        "space".into(),
        "memory".into(),
        "size".into(),
        "file".into(),
    ]];
    table.extend(rows);
    aligned(&table, "    ", out)
}

/// The largest width of a column: one long name must not widen every row.
const WIDEST: usize = 80;

/// Rows of a table, with columns aligned to the left and the last one unpadded. A cell wider than
/// [`WIDEST`] shifts the rest of its row.
fn aligned<const N: usize>(
    rows: &[[String; N]],
    indent: &str,
    out: &mut impl Write,
) -> fmt::Result {
    let length = |cell: &String| cell.chars().count();
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| length(&row[column]));
        lengths.filter(|&length| length <= WIDEST).max()
    };
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for row in rows {
        let mut line = String::from(indent);
        for (cell, width) in row.iter().zip(widths) {
            let padding = width.saturating_sub(length(cell));
            line.extend([cell, "  "]);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A number of bytes in the largest unit that leaves no fraction.
fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024 && value.is_multiple_of(1024) && unit + 1 < units.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value} {}", units[unit])
}

fn buffers(info: &Info, out: &mut impl Write) -> fmt::Result {
    if info.buffers.is_empty() {
        return Ok(());
    }
    heading(out, info.buffers.len(), "trace buffer")?;
    let rows: Vec<[String; 4]> = info
        .buffers
        .iter()
        .map(|buffer| {
            let files = buffer.files.iter().map(|file| match &file.missing {
                Some(why) => format!("{} MISSING: {why}", file.file),
                None => file.file.clone(),
            });
            let format = match buffer.format.as_str() {
                "" => "no format",
                format => format,
            };
            [
                buffer.name.clone(),
                format.to_owned(),
                size(buffer.size),
                files.collect::<Vec<_>>().join(", "),
            ]
        })
        .collect();
    aligned(&rows, "  ", out)?;
    match info.timestamp_frequency {
        Some(frequency) => writeln!(out, "  timestamps count at {frequency} Hz"),
        None => Ok(()),
    }
}

/// The common properties of grouped sources: all registers except the trace ID.
fn configuration(source: &SourceInfo) -> String {
    let registers = source.registers.iter();
    let registers: Vec<_> = registers
        .filter(|register| !is_trace_id(register))
        .collect();
    format!("{:?} {registers:?}", source.protocol)
}

/// Whether a register holds only the trace ID, which the heading already shows.
fn is_trace_id(register: &SourceRegisterInfo) -> bool {
    matches!(&register.fields[..], [field] if field.bits.to_string() == "[6:0]")
}

fn sources(info: &Info, out: &mut impl Write) -> fmt::Result {
    if info.sources.is_empty() {
        return Ok(());
    }
    heading(out, info.sources.len(), "trace source")?;
    for group in groups(&info.sources, configuration) {
        let rows: Vec<[String; 5]> = group.iter().map(|source| source_row(source)).collect();
        aligned(&rows, "  ", out)?;
        for register in group[0].registers.iter().filter(|r| !is_trace_id(r)) {
            source_register(register, out)?;
        }
        if group.iter().all(|source| source.registers.is_empty()) {
            writeln!(out, "    no configuration register")?;
        }
    }
    Ok(())
}

fn source_row(source: &SourceInfo) -> [String; 5] {
    let buffers = source.buffers.iter().map(|place| match place.stream {
        Some(stream) => format!("{} (stream {stream})", place.buffer),
        None => place.buffer.clone(),
    });
    let list = |what, names: &[String]| match names {
        [] => format!("no {what}"),
        names => format!("{what} {}", names.join(", ")),
    };
    let protocol = source.protocol.to_string();
    [
        source.name.clone(),
        match protocol.as_str() {
            "unknown" => format!("unknown type \"{}\"", source.kind),
            _ => protocol,
        },
        match source.trace_id {
            Some(id) => format!("trace ID {id:#04x}"),
            None => "no trace ID".into(),
        },
        list("core", &source.cores),
        list("buffer", &buffers.collect::<Vec<_>>()),
    ]
}

fn source_register(register: &SourceRegisterInfo, out: &mut impl Write) -> fmt::Result {
    write!(out, "    {}", register.name)?;
    if let Some(name) = register.by_id {
        write!(out, " ({name} by its ID)")?;
    }
    write!(out, " {}", register.value)?;
    if let [field] = &register.fields[..] {
        return writeln!(out, "  {}: {}", field.name, field.meaning);
    }
    writeln!(out)?;
    let on = register.fields.iter().filter(|field| !field.off);
    let rows: Vec<[String; 4]> = on
        .map(|field| {
            let alarm = if field.alarm { "!! " } else { "" };
            let plain = field.value.to_string();
            let (value, meaning) = match field.value {
                _ if plain == field.meaning => (plain, String::new()),
                0..10 => (plain, format!("{alarm}{}", field.meaning)),
                large => (format!("{large:#x}"), format!("{alarm}{}", field.meaning)),
            };
            [
                field.bits.to_string(),
                field.name.to_owned(),
                value,
                meaning,
            ]
        })
        .collect();
    aligned(&rows, "      ", out)?;
    let off = register.fields.iter().filter(|field| field.off);
    let off: Vec<&str> = off.map(|field| field.name).collect();
    match &off[..] {
        [] => Ok(()),
        off => wrapped("      no: ", off, out),
    }
}

/// The width at which lines are broken.
const WIDTH: usize = 100;

/// A list after `first`, broken where a line would be too long; continuation lines are indented
/// below the list.
fn wrapped(first: &str, list: &[&str], out: &mut impl Write) -> fmt::Result {
    let mut line = first.to_owned();
    for (at, item) in list.iter().enumerate() {
        let comma = if at + 1 < list.len() { "," } else { "" };
        if at > 0 && line.len() + item.len() + comma.len() >= WIDTH {
            writeln!(out, "{}", line.trim_end())?;
            line = " ".repeat(first.len());
        }
        write!(line, "{item}{comma} ")?;
    }
    writeln!(out, "{}", line.trim_end())
}

fn devices(info: &Info, out: &mut impl Write) -> fmt::Result {
    heading(out, info.devices.len(), "device")?;
    let or = |text: &str, none: &str| if text.is_empty() { none } else { text }.to_owned();
    let rows: Vec<[String; 5]> = info
        .devices
        .iter()
        .map(|device| {
            [
                or(&device.name, "(no name)"),
                or(&device.class, "(no class)"),
                or(&device.kind, "(no type)"),
                device.file.clone(),
                device.location.clone().unwrap_or_default(),
            ]
        })
        .collect();
    aligned(&rows, "  ", out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1000, "1000 bytes"),
            (1024, "1 KiB"),
            (0x5_0000, "320 KiB"),
            (1025, "1025 bytes"),
            (4 << 30, "4 GiB"),
            (u64::MAX, "18446744073709551615 bytes"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn long_lists_are_broken() {
        let mut out = String::new();
        wrapped(
            "  no: ",
            &["x".repeat(60).as_str(), "y".repeat(40).as_str(), "z"],
            &mut out,
        )
        .unwrap();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], format!("  no: {},", "x".repeat(60)));
        assert_eq!(lines[1], format!("      {}, z", "y".repeat(40)));
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn columns_are_aligned_and_lines_do_not_end_in_spaces() {
        let rows = [["a", "b", ""], ["ccc", "", "é"]].map(|row| row.map(str::to_owned));
        let mut out = String::new();
        aligned(&rows, "  ", &mut out).unwrap();
        assert_eq!(out, "  a    b\n  ccc     é\n");
    }

    #[test]
    fn a_wide_cell_costs_its_own_row_only() {
        let wide = "w".repeat(70_000);
        let mut rows = vec![[wide.clone(), "b".to_owned()]];
        rows.resize(1000, ["a".to_owned(), "b".to_owned()]);
        let mut out = String::new();
        aligned(&rows, "", &mut out).unwrap();
        assert!(out.starts_with(&format!("{wide}  b\na  b\na  b\n")));
        assert_eq!(out.len(), wide.len() + 4 + 999 * 5);
    }
}
