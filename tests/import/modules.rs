//! Modules of the recorded kernel: linked as the kernel does, with what it changed left out.

use crate::perf_builder::{At, PerfData};
use crate::perf_generated::{ETMV4, at, decoded, frames};
use crate::support::gdb::{armsnap, run, text};
use crate::support::inputs::module::{BASE, MODULE, PRINTK, built, module, tool};
use armsnap::encode::{CodeAddress, Tracer};
use armsnap::etmv4::{TraceUnit, TraceUnitOptions};
use armsnap::flow::Pieces;
use armsnap::program::module_file::{Kallsyms, Linked, ModuleFile, Placement};
use armsnap::quantity::{Address, Isa};
use object::{Object, ObjectSection, ObjectSymbol};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The addresses of symbols in a linked file.
fn symbol(file: &object::File<'_>, name: &str) -> u64 {
    let found = file.symbol_by_name(name);
    found.unwrap_or_else(|| panic!("{name}")).address()
}

fn linked(path: &Path, first: u64, kernel: &[(&str, u64)]) -> Linked {
    let bytes = fs::read(path).unwrap();
    let module = ModuleFile::read(&bytes).unwrap();
    let placement = Placement::of_code(&module, first);
    module.link(&placement, &|name| {
        let known = kernel.iter().find(|known| known.0 == name);
        known.map(|known| known.1)
    })
}

/// The trace of the module as it ran: with what the kernel wrote.
fn trace(file: &object::File<'_>, linked: &Linked) -> (TraceUnitOptions, Vec<u8>) {
    let mut code = Pieces::default();
    let of = |name: &str| symbol(file, name);
    let branch = |from: u64, to: u64, link: u32| {
        0x1400_0000 | link << 31 | ((to.wrapping_sub(from) >> 2) as u32 & 0x03ff_ffff)
    };
    let (label, call) = (of("label"), of("call"));
    let written = [
        // mov x9, x30
        (of("traced"), 0xaa1e_03e9),
        (of("alternative"), 0xd280_0022),
        (call, branch(call, PRINTK, 1)),
        (label, branch(label, of("taken"), 0)),
        (PRINTK, 0xd65f_03c0),
    ];
    for (address, word) in written {
        code.add(Address(address), word.to_le_bytes().to_vec());
    }
    for part in &linked.code {
        code.add(
            Address(part.address),
            linked.file[part.file.clone()].to_vec(),
        );
    }
    // Other instructions that are not known are no branches.
    for range in &linked.straight {
        let nops = (range.end - range.start) / 4;
        let bytes = 0xd503_201f_u32.to_le_bytes().repeat(nops as usize);
        code.add(Address(range.start), bytes);
    }
    let options = TraceUnitOptions::default();
    let mut tracer = Tracer::new(TraceUnit::new(options), code, 0);
    let address = |at: u64| CodeAddress {
        address: Address(at),
        isa: Isa::A64,
    };
    let mut run = |from: u64, to: u64| tracer.run(address(from), Address(to));
    let helper = of("helper");
    run(of("entry"), of("loop") + 16);
    for _ in 0..2 {
        run(helper, helper + 8);
        run(of("loop") + 16, of("alternative"));
        run(of("loop"), of("loop") + 16);
    }
    run(helper, helper + 8);
    run(of("loop") + 16, of("back"));
    run(PRINTK, PRINTK + 4);
    run(of("back"), of("label") + 4);
    run(of("taken"), of("taken") + 4);
    run(of("entry2"), of("entry2") + 8);
    run(of("taken") + 4, of("end") + 4);
    tracer.finish(Some(address(PRINTK)));
    assert_eq!(tracer.gaps(), 0);
    let mut out = Vec::new();
    tracer.take(&mut out);
    (options, out)
}

/// A recording of the kernel with the module.
fn recording(path: &str, id: &[u8], (options, trace): &(TraceUnitOptions, Vec<u8>)) -> PerfData {
    let mut file = PerfData::default();
    let kernel = At {
        pid: u32::MAX,
        tid: 0,
        time: 0,
        cpu: 0,
    };
    file.map(path, BASE, 0x1_0000, 0, id, kernel);
    file.comm("prog", true, at(100, 1, 0));
    let registers = options.registers();
    let value = |name: &str| {
        let found = registers.iter().find(|register| register.0 == name);
        u64::from(found.unwrap_or_else(|| panic!("{name}")).1)
    };
    let parameters = [
        value("TRCCONFIGR"),
        0x10,
        value("TRCIDR0"),
        value("TRCIDR1"),
        value("TRCIDR2"),
        value("TRCIDR8"),
        0xcc,
    ];
    file.info(1, &[(ETMV4, 0, parameters.to_vec())]);
    let trace = frames(&[(0x10, trace)]);
    file.trace(0, 0, 0, &trace);
    file.aux(0, trace.len() as u64, 0, at(100, 5, 0));
    file
}

fn ranges(output: &str) -> Vec<(u64, u64)> {
    let number = |value: &Value| {
        let text = value.as_str().unwrap();
        u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
    };
    let elements = output
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ranges = elements.filter(|element| element["kind"] == "range");
    ranges
        .map(|range| (number(&range["start"]), number(&range["end"])))
        .collect()
}

#[test]
fn code_of_modules_is_decoded_without_what_the_kernel_changed() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(path) = module(scratch.path(), "aarch64-linux-gnu-", MODULE) else {
        return;
    };
    let module = linked(&path, BASE, &[]);
    let file = object::File::parse(&*module.file).unwrap();
    let of = |name: &str| symbol(&file, name);
    assert_eq!(of("entry"), BASE);
    let trace = trace(&file, &module);
    let bytes = fs::read(&path).unwrap();
    let id = object::File::parse(&*bytes).unwrap();
    let id = id.build_id().unwrap().unwrap().to_owned();
    let input = scratch.path().join("perf.data");
    let recorded = "/lib/modules/6.1/test-module.ko";
    fs::write(&input, recording(recorded, &id, &trace).file()).unwrap();
    let symfs = ["--symfs", scratch.path().to_str().unwrap()];
    let (out, said) = decoded(&input, &symfs);
    assert!(
        said.contains("the code of 1 module is from files"),
        "{said}"
    );
    assert!(said.contains("(ftrace) was not in use"), "{said}");
    let found = ranges(&out);
    let (helper, after) = (of("helper"), of("loop") + 16);
    let mut expected = vec![(BASE, after)];
    for _ in 0..2 {
        expected.push((helper, helper + 8));
        expected.push((after, of("alternative")));
        expected.push((of("loop"), after));
    }
    // The call of the kernel and the static key are not known: a gap up to the next address.
    expected.extend([
        (helper, helper + 8),
        (after, of("alternative")),
        (of("alternative"), of("call")),
    ]);
    expected.push((of("back"), of("label")));
    let known = found.len().min(expected.len());
    assert_eq!(found[..known], expected, "{out}");
    assert!(
        !found
            .iter()
            .any(|range| (range.0..range.1).contains(&of("call"))),
        "{out}"
    );
    assert!(
        !found
            .iter()
            .any(|range| (range.0..range.1).contains(&of("label"))),
        "{out}"
    );

    // Instructions that are not known are not shown.
    let mut listing = armsnap();
    listing
        .args(["decode", "--level", "instructions"])
        .arg(&input)
        .args(symfs);
    let listing = text(&run(&mut listing));
    let line = |name: &str| {
        let address = format!("{:x}", of(name));
        let mut lines = listing
            .lines()
            .filter(|line| line.contains(&address) && !line.contains(".."));
        lines
            .next()
            .unwrap_or_else(|| panic!("{name}: {listing}"))
            .to_owned()
    };
    assert!(
        line("entry").contains("bti") || line("entry").contains("hint"),
        "{listing}"
    );
    assert!(!line("traced").contains("nop"), "{listing}");
    assert!(!line("alternative").contains("nop"), "{listing}");

    // Written as a snapshot, it is the same.
    let written = scratch.path().join("written");
    let mut import = armsnap();
    import.arg("import").arg(&input).arg(&written).args(symfs);
    let imported = run(&mut import);
    assert!(imported.status.success(), "{}", text(&imported));
    let (again, _) = decoded(&written, &[]);
    assert_eq!(ranges(&again), found);

    // Compressed, by another path, and named; another build is not used.
    let directory = path.parent().unwrap();
    tool("gzip", &["test-module.ko"], directory);
    assert_eq!(ranges(&decoded(&input, &symfs).0), found);
    let packed = directory.join("test-module.ko.gz");
    fs::write(&input, recording("[test_module]", &[], &trace).file()).unwrap();
    let named = scratch.path().join("named");
    let mut import = armsnap();
    import.arg("import").arg(&input).arg(&named);
    let imported = run(import.arg("--elf").arg(&packed));
    assert!(imported.status.success(), "{}", text(&imported));
    assert_eq!(ranges(&decoded(&named, &[]).0), found);
    fs::write(&input, recording(recorded, &[7; 20], &trace).file()).unwrap();
    let (out, said) = decoded(&input, &symfs);
    assert_eq!(ranges(&out), []);
    assert!(
        said.contains("is not the file that was mapped as"),
        "{said}"
    );
    fs::write(
        scratch.path().join("lib/modules/6.1/test-module.ko"),
        "no module",
    )
    .unwrap();
    let (out, said) = decoded(&input, &symfs);
    assert_eq!(ranges(&out), []);
    assert!(said.contains("missing image"), "{said}");
}

/// Compares all code and data that are known with what the linker writes, at the same addresses.
fn equals_the_linker(prefix: &str, source: &str, base: u64, printk: u64) {
    let scratch = tempfile::tempdir().unwrap();
    let Some(path) = module(scratch.path(), prefix, source) else {
        return;
    };
    let bytes = fs::read(&path).unwrap();
    let module = ModuleFile::read(&bytes).unwrap();
    let sections = [(".text", 0), (".text.unlikely", 0x4000), (".data", 0x8000)];
    let places = sections.map(|(name, offset)| (name.to_owned(), base + offset));
    let placement = Placement::of_names(&module, &places);
    let linked = module.link(&placement, &|name| (name == "printk").then_some(printk));
    let mut words = vec![
        "--no-relax".to_owned(),
        "--defsym".to_owned(),
        format!("printk={printk:#x}"),
        "--unresolved-symbols=ignore-all".to_owned(),
        "-e0".to_owned(),
        format!("--section-start=.init.text={:#x}", base + 0xc000),
    ];
    words.extend(
        places
            .iter()
            .map(|(name, at)| format!("--section-start={name}={at:#x}")),
    );
    // With this script, sections keep their names.
    let script = "SECTIONS { .init.text : { *(.init.text) } .text : { *(.text) } .text.unlikely : \
                  { *(.text.unlikely) } .data : { *(.data) } }";
    fs::write(scratch.path().join("script"), script).unwrap();
    words.extend(["-T", "script", "module.o", "-o", "linked"].map(str::to_owned));
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    tool(&format!("{prefix}ld"), &words, scratch.path());
    let reference = fs::read(scratch.path().join("linked")).unwrap();
    let reference = object::File::parse(&*reference).unwrap();
    let own = object::File::parse(&*linked.file).unwrap();
    for (name, _) in sections {
        let [own, theirs] = [&own, &reference].map(|file| file.section_by_name(name).unwrap());
        assert_eq!(own.address(), theirs.address(), "{name}");
        assert_eq!(own.data().unwrap(), theirs.data().unwrap(), "{name}");
    }
    for name in ["entry", "helper"] {
        assert_eq!(symbol(&own, name), symbol(&reference, name), "{name}");
    }
    let known: usize = linked.code.iter().map(|part| part.file.len()).sum();
    assert!(known > 40, "{known}");
}

#[test]
fn relocations_of_aarch64_equal_the_linkers() {
    equals_the_linker("aarch64-linux-gnu-", MODULE, 0x4100_0000, 0x4200_0010);
}

/// Relocations of modules for Arm.
const ARM: &str = r#"
    .syntax unified
    .arch armv7-a
    .text
    .arm
    .globl entry
entry:
    bl helper
    blne printk
    b printk
    movw r0, #:lower16:data
    movt r0, #:upper16:data
    bx lr
    .word data, entry - .
    .thumb
    .thumb_func
thumb:
    bl thumb2
    b.w thumb2
    movw r1, #:lower16:data+4
    movt r1, #:upper16:data
    bx lr
    .section .text.unlikely, "ax"
    .arm
    nop
helper:
    bx lr
    .thumb
    .thumb_func
    .type thumb2, %function
thumb2:
    bx lr
    .data
data: .word entry, printk, thumb2
"#;

#[test]
fn relocations_of_arm_equal_the_linkers() {
    equals_the_linker("arm-none-eabi-", ARM, 0x7f00_0000, 0x7f80_0010);
}

#[test]
fn the_kernels_list_places_sections() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(path) = module(scratch.path(), "aarch64-linux-gnu-", MODULE) else {
        return;
    };
    let bytes = fs::read(&path).unwrap();
    let module = ModuleFile::read(&bytes).unwrap();
    let mut placement = Placement::of_code(&module, BASE);
    let before = placement.clone();
    let list = "ffff800002000010 T printk\n0000000000000000 t hidden\n\
                ffff800001100000 t init_module\t[test_module]\nffff800001200010 d data\t[test_module]\n\
                ffff800001000000 t entry\t[test_module]\nbroken\n";
    let kallsyms = Kallsyms::read(list.as_bytes());
    assert_eq!(kallsyms.kernel["printk"], Some(PRINTK));
    assert_eq!(kallsyms.kernel.get("hidden"), None);
    placement.correct(&module, &kallsyms.modules["test_module"]);
    assert_ne!(placement, before);
    let linked = module.link(&placement, &|name| {
        kallsyms.kernel.get(name).copied().flatten()
    });
    let file = object::File::parse(&*linked.file).unwrap();
    assert_eq!(symbol(&file, "init_module"), 0xffff_8000_0110_0000);
    assert_eq!(symbol(&file, "key"), 0xffff_8000_0120_0000);
    // `data` and `printk` are known: so are ADRP and the call.
    let call = symbol(&file, "call");
    let known = |at| {
        let mut code = linked.code.iter();
        code.any(|part| (part.address..part.address + part.file.len() as u64).contains(&at))
    };
    assert!(known(call) && known(symbol(&file, "loop")));
    // Contradictions: nothing is known.
    let list = "ffff800001000000 t entry\t[x]\nffff800001000000 t entry2\t[x]\n";
    let kallsyms = Kallsyms::read(list.as_bytes());
    placement.correct(&module, &kallsyms.modules["x"]);
    let linked = module.link(&placement, &|_| None);
    let file = object::File::parse(&*linked.file).unwrap();
    assert!(
        file.symbol_by_name("entry")
            .is_none_or(|entry| entry.is_undefined())
    );
}

#[test]
fn damaged_modules_are_harmless() {
    let Some(good) = built() else {
        return;
    };
    let headers = u64::from_le_bytes(good[0x28..0x30].try_into().unwrap()) as usize;
    let places = (0..64).chain(headers..good.len()).step_by(3);
    for at in places {
        for value in [0, 0x7f, 0xff] {
            let mut bad = good.clone();
            bad[at] = value;
            if let Some(module) = ModuleFile::read(&bad) {
                let placement = Placement::of_code(&module, BASE);
                let linked = module.link(&placement, &|_| Some(PRINTK));
                assert!(
                    linked
                        .code
                        .iter()
                        .all(|part| part.file.end <= linked.file.len())
                );
            }
        }
    }
    for end in (0..good.len()).step_by(97) {
        if let Some(module) = ModuleFile::read(&good[..end]) {
            module.link(&Placement::of_code(&module, BASE), &|_| None);
        }
    }
}
