//! Variants of the format that writers of snapshots produce, each made by hand.

use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::model::{BufferFormat, DeviceClass, Severity};
use armsnap::snapshot::topology::sources;
use std::sync::Arc;

/// Loads files from memory; except snapshot.ini and trace.ini, all are listed as devices if their
/// name ends in `.ini`.
fn load(files: &[(&str, &str)]) -> OpenSnapshot {
    let mut memory = InMemory::default();
    for (name, text) in files {
        memory
            .0
            .insert((*name).into(), text.as_bytes().to_vec().into());
    }
    if !memory.0.contains_key("snapshot.ini") {
        let devices = files.iter().map(|(name, _)| *name);
        let devices = devices.filter(|name| name.ends_with(".ini") && *name != "trace.ini");
        let mut text = String::from("[snapshot]\nversion=1.0\n[device_list]\n");
        for (index, name) in devices.enumerate() {
            text += &format!("device{index}={name}\n");
        }
        if memory.0.contains_key("trace.ini") {
            text += "[trace]\nmetadata=trace.ini\n";
        }
        memory
            .0
            .insert("snapshot.ini".into(), text.into_bytes().into());
    }
    OpenSnapshot::from_files(Arc::new(memory), "snapshot.ini").unwrap()
}

fn notes(loaded: &OpenSnapshot) -> Vec<String> {
    loaded.notes.iter().map(|note| note.to_string()).collect()
}

const CPU: (&str, &str) = (
    "cpu_0.ini",
    "[device]\nname=cpu_0\nclass=core\ntype=ARM-AA64\n",
);

#[test]
fn repeated_keys_trailing_comma_and_buffers_out_of_order() {
    let loaded = load(&[
        CPU,
        (
            "s1.ini",
            "[device]\nname=ETE_0_s1\nclass=trace_source\ntype=ETE\n",
        ),
        (
            "s2.ini",
            "[device]\nname=ETE_0_s2\nclass=trace_source\ntype=ETE\n",
        ),
        (
            "trace.ini",
            "[trace_buffers]\nbuffers=buffer1,buffer2,\n\n[buffer2]\nname=ETB_2\nfile=b\n\
             format=source_data\n[buffer1]\nname=ETB_1\nfile=a\nformat=source_data\n\
             [source_buffers]\nETE_0_s1=ETB_1\nETE_0_s2=ETB_2\n\
             [core_trace_sources]\ncpu_0=ETE_0_s1\ncpu_0=ETE_0_s2",
        ),
        ("a", "x"),
        ("b", "y"),
    ]);
    assert_eq!(notes(&loaded), Vec::<String>::new());
    let trace = loaded.snapshot.trace.as_ref().unwrap();
    let ids: Vec<&str> = trace.buffers.iter().map(|b| b.id.as_str()).collect();
    assert_eq!(ids, ["buffer1", "buffer2"]);
    assert_eq!(trace.core_sources.len(), 2);
    let rows: Vec<_> = sources(&loaded.snapshot)
        .iter()
        .map(|s| (s.core, s.buffer))
        .collect();
    assert_eq!(rows, [(Some(0), 0), (Some(0), 1)]);
}

#[test]
fn dstream_format_timestamp_frequency_and_an_extra_contents_ini() {
    let loaded = load(&[
        CPU,
        (
            "trace.ini",
            "; DS-5 trace metadata\n[timestamp]\nfrequency=25000000\n[trace_buffers]\nbuffers=b\n\
             [b]\nname=D\nfile=d\nformat=dstream_coresight\n[core_trace_sources]\n",
        ),
        ("d", "x"),
        (
            "snapshot.ini",
            "[snapshot]\nversion=1.0\n[device_list]\na=cpu_0.ini\n[trace]\nmetadata=trace.ini\n",
        ),
        ("contents.ini", "[trace]\nbuffer0=d\n"),
    ]);
    let trace = loaded.snapshot.trace.as_ref().unwrap();
    assert_eq!(trace.timestamp_frequency, Some(25_000_000));
    assert_eq!(trace.buffers[0].format, BufferFormat::DstreamCoresight);
    assert_eq!(loaded.snapshot.devices.len(), 1);
    assert_eq!(notes(&loaded), Vec::<String>::new());
}

#[test]
fn dump_sections_of_all_names_with_and_without_length() {
    let loaded = load(&[
        (
            "cpu.ini",
            "[device]\nname=cpu\nclass=core\n[dump]\nfile=f\naddress=0x0\n\
             [dump3a]\nfile=f\naddress=16\nlength=2\n[dump.init]\nfile=f\naddress=0x20\noffset=0x1\n\
             [dump__libc_freeres_fn]\nfile=README.txt\naddress=0x30\nlength=0x2\nspace=EL1R\n",
        ),
        ("f", "abc"),
        ("README.txt", "\x7fELF"),
    ]);
    let dumps = &loaded.snapshot.devices[0].dumps;
    let names: Vec<&str> = dumps.iter().map(|d| d.section.as_str()).collect();
    assert_eq!(
        names,
        ["dump", "dump3a", "dump.init", "dump__libc_freeres_fn"]
    );
    let lengths: Vec<Option<u64>> = dumps.iter().map(|d| d.length).collect();
    assert_eq!(lengths, [None, Some(2), None, Some(2)]);
    assert_eq!(dumps[1].address, 16);
    assert_eq!(dumps[2].offset, Some(1));
    assert_eq!(notes(&loaded), Vec::<String>::new());
}

#[test]
fn comments_everywhere() {
    let loaded = load(&[(
        "cpu.ini",
        "# made by hand\n[device] ; the core\nname=cpu # zero\n;class=trace_source\nclass=core\n\
         [regs]\n# none\nPC(size:64)=0x1000 ; entry\nSP=0x80;stack\n",
    )]);
    let device = &loaded.snapshot.devices[0];
    assert_eq!(
        (device.name.as_str(), &device.class),
        ("cpu", &DeviceClass::Core)
    );
    assert_eq!(device.register("pc").unwrap().value.as_u64(), Some(0x1000));
    assert_eq!(device.register("SP").unwrap().value.as_u64(), Some(0x80));
    assert_eq!(notes(&loaded), Vec::<String>::new());
}

#[test]
fn itm_control_register_of_three_writers() {
    for key in [
        "CONTROL_REGISTER(0xE80)",
        "ITM_CTRL(id:0x3A0)",
        "ITMTCR(0xE80)",
    ] {
        let text =
            format!("[device]\nname=i\nclass=trace_source\ntype=ITM\n[regs]\n{key}=0x10000\n");
        let loaded = load(&[("itm.ini", &text)]);
        let names = ["CONTROL_REGISTER", "ITM_CTRL", "ITMTCR"];
        let register = loaded.snapshot.devices[0].component_register(&names, 0x3A0);
        assert_eq!(register.unwrap().value.as_u64(), Some(0x10000), "{key}");
        let register = loaded.snapshot.devices[0].component_register(&[], 0x3A0);
        assert!(register.is_some(), "{key} by its ID");
    }
}

#[test]
fn class_memory() {
    let text = "[device]\nname=AXI\nclass=memory\ntype=AXI\n[dump]\nfile=f\naddress=0\nspace=P\n";
    let loaded = load(&[("m.ini", text), ("f", "x")]);
    assert_eq!(loaded.snapshot.devices[0].class, DeviceClass::MemorySpace);
}

#[test]
fn missing_files_give_notes_and_the_rest_loads() {
    let loaded = load(&[
        (
            "snapshot.ini",
            "[snapshot]\nversion=1.0\n[device_list]\na=none.ini\nb=cpu_0.ini\n[trace]\nmetadata=gone.ini\n",
        ),
        (
            "cpu_0.ini",
            "[device]\nname=c\nclass=core\n[dump1]\nfile=none.bin\naddress=0\n[dump2]\nfile=f\naddress=4\n",
        ),
        ("f", "x"),
    ]);
    assert_eq!(loaded.snapshot.devices.len(), 1);
    assert_eq!(loaded.snapshot.devices[0].dumps.len(), 2);
    assert_eq!(
        notes(&loaded),
        [
            "snapshot.ini:4: a: \"none.ini\": no such file",
            "cpu_0.ini:5: [dump1] file \"none.bin\": no such file",
            "snapshot.ini:7: metadata: \"gone.ini\": no such file",
        ]
    );
}

#[test]
fn sub_directories_backslashes_and_no_last_newline() {
    let loaded = load(&[
        (
            "snapshot.ini",
            "[snapshot]\r\nversion=1.0\r\n[device_list]\r\na=devices\\cpu.ini",
        ),
        (
            "devices/cpu.ini",
            "[device]\nname=c\nclass=core\n[dump1]\nfile=bin\\new.bin\naddress=0\n[dump2]\nfile=beside.bin\naddress=9",
        ),
        ("bin/new.bin", "abc"),
        ("devices/beside.bin", "d"),
    ]);
    assert_eq!(notes(&loaded), Vec::<String>::new());
    let device = &loaded.snapshot.devices[0];
    assert_eq!(device.file, "devices\\cpu.ini");
    let bytes = loaded
        .file(&device.place.file, &device.dumps[0].file)
        .unwrap();
    assert_eq!(&*bytes, b"abc");
    let bytes = loaded
        .file(&device.place.file, &device.dumps[1].file)
        .unwrap();
    assert_eq!(&*bytes, b"d");
}

#[test]
fn paths_that_lead_outside_are_refused() {
    for path in ["../x", "/etc/passwd", "C:\\x.bin", "a/../../x"] {
        let text = format!("[device]\nname=c\nclass=core\n[dump1]\nfile={path}\naddress=0\n");
        let loaded = load(&[("cpu.ini", &text)]);
        assert_eq!(loaded.notes.len(), 1, "{path}");
        assert!(
            loaded.notes[0].text.contains("leads out"),
            "{}",
            loaded.notes[0]
        );
        assert_eq!(loaded.notes[0].severity, Severity::Error);
        assert_eq!(loaded.notes[0].place.line, 5);
    }
}

#[test]
fn names_that_differ_in_case_as_in_the_specifications_example() {
    let loaded = load(&[
        ("cpu.ini", "[device]\nname=cortex-A7_0\nclass=core\n"),
        (
            "etm.ini",
            "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM3.5\n",
        ),
        (
            "trace.ini",
            "[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=ETB_0\nfile=f\nformat=coresight\n[core_trace_sources]\ncortex-a7_0=etm_0\n[source_buffers]\netm_0=etb_0\n",
        ),
        ("f", "x"),
    ]);
    let rows: Vec<_> = sources(&loaded.snapshot)
        .iter()
        .map(|s| (s.core, s.buffer))
        .collect();
    assert_eq!(rows, [(Some(0), 0)]);
}

#[test]
fn no_source_buffers_with_one_buffer() {
    let loaded = load(&[
        CPU,
        (
            "etm.ini",
            "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM4\n",
        ),
        (
            "trace.ini",
            "[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=f\nformat=coresight\n[core_trace_sources]\ncpu_0=ETM_0\n",
        ),
        ("f", "x"),
    ]);
    assert_eq!(sources(&loaded.snapshot).len(), 1);
    assert_eq!(notes(&loaded), Vec::<String>::new());
}

#[test]
fn versions_one_and_none() {
    for (head, version) in [
        ("[snapshot]\nversion=1\n", "1"),
        ("[snapshot]\n", ""),
        ("", ""),
    ] {
        let text = format!("{head}[device_list]\na=cpu_0.ini\n");
        let loaded = load(&[("snapshot.ini", &text), CPU]);
        assert_eq!(loaded.snapshot.version, version);
        assert_eq!(loaded.snapshot.devices.len(), 1);
    }
}

#[test]
fn the_old_single_file_form() {
    let text = "[global]\ncore=Cortex-A8\n[regs]\nR0=1\nPC=0x8000\n[extendregs]\n37=0x5\n\
                [dump]\nfile=f\naddress=0x8000\n";
    let loaded = load(&[("snapshot.ini", text), ("f", "x")]);
    let device = &loaded.snapshot.devices[0];
    assert_eq!(
        (&device.class, device.kind.as_str()),
        (&DeviceClass::Core, "Cortex-A8")
    );
    assert_eq!(device.registers.len(), 3);
    assert_eq!(device.registers[2].id, Some(37));
    assert_eq!(device.dumps.len(), 1);
    assert_eq!(
        notes(&loaded),
        ["snapshot.ini:1: no [device_list]: read as the old format, one device in one file"]
    );
}

/// `[global]` is the older `[device]`: what both have is taken from `[device]`, and keys that mean the
/// same are not kept twice.
#[test]
fn old_and_new_heads_of_a_device_are_one() {
    let text = "[global]\ncore=Cortex-A8\nname=old\nlocation=address:1\nboard=b\n\
                [device]\nname=new\ntype=Cortex-A9\n";
    let loaded = load(&[("cpu.ini", text)]);
    let device = &loaded.snapshot.devices[0];
    assert_eq!(
        (
            &device.class,
            &*device.kind,
            &*device.name,
            device.location.as_deref()
        ),
        (&DeviceClass::Core, "Cortex-A9", "new", Some("address:1"))
    );
    assert_eq!(device.other, [("board".to_owned(), "b".to_owned())]);
    assert_eq!(
        notes(&loaded),
        [
            "cpu.ini:3: name again, first in line 7: ignored",
            "cpu.ini:2: core Cortex-A8: ignored, the type is Cortex-A9",
        ]
    );
}

#[test]
fn what_is_left_out_has_a_note() {
    let trace = "[trace_buffers]\nbuffers=a,B\n[a]\nname=A\nfile=f\nformat=coresight\n\
                 [b]\nname=B\nfile=f\nformat=coresight\n[A]\nname=C\n[a]\nname=D\n[other]\n";
    let core = "[device]\nname=c\nclass=core\n[dump]\nfile=f\naddress=0\nspace=X\n";
    let loaded = load(&[("cpu.ini", core), ("trace.ini", trace), ("f", "x")]);
    let buffers = &loaded.snapshot.trace.as_ref().unwrap().buffers;
    let names: Vec<&str> = buffers.iter().map(|buffer| &*buffer.name).collect();
    assert_eq!(names, ["A", "B"]);
    assert_eq!(
        notes(&loaded),
        [
            "cpu.ini:7: [dump] unknown space \"X\": its memory is not read",
            "trace.ini:11: [A] again, first in line 3: ignored",
            "trace.ini:13: [a] again, first in line 3: ignored",
        ]
    );
}

#[test]
fn messages_have_place_finding_and_expectation() {
    let loaded = load(&[(
        "cpu_0.ini",
        "[device]\nname=c\nclass=core\n[regs]\nR0=1\nPC=0xZZ\nR1\nR2(what)=1\nR3(size:64)=0x12340000123400000\n",
    )]);
    assert_eq!(
        notes(&loaded),
        [
            "cpu_0.ini:7: expected key=value, found \"R1\"",
            "cpu_0.ini:6: PC: expected a number, found \"0xZZ\"",
            "cpu_0.ini:8: R2(what): expected an ID or a size, found \"what\"",
            "cpu_0.ini:9: R3: 65 bits do not fit its 64",
        ]
    );
    assert_eq!(loaded.snapshot.devices[0].registers.len(), 3);
}

#[test]
fn an_unusable_snapshot_is_an_error() {
    let files = |text: &str| {
        let mut memory = InMemory::default();
        memory
            .0
            .insert("snapshot.ini".into(), text.as_bytes().to_vec().into());
        OpenSnapshot::from_files(Arc::new(memory), "snapshot.ini")
            .unwrap_err()
            .to_string()
    };
    let wanted = "snapshot.ini:1: expected a section [device_list], found none [section 3.1.2]: it is \
                  no snapshot.ini, nor an input that armsnap knows by its contents";
    assert_eq!(files(""), wanted);
    assert_eq!(files("[snapshot]\nversion=1.0\n"), wanted);
    let none = OpenSnapshot::from_files(Arc::new(InMemory::default()), "snapshot.ini").unwrap_err();
    assert_eq!(none.to_string(), "snapshot.ini: no such file");
}

#[test]
fn a_device_file_is_read_once() {
    let text = "[snapshot]\nversion=1.0\n[device_list]\na=cpu_0.ini\nb=.\\cpu_0.ini\n";
    let loaded = load(&[("snapshot.ini", text), CPU]);
    assert_eq!(loaded.snapshot.devices.len(), 1);
    assert_eq!(
        notes(&loaded),
        ["snapshot.ini:5: .\\cpu_0.ini again, first in line 4"]
    );
}

/// Sizes at which quadratic work would exceed the timeout of a test.
#[test]
fn files_of_many_lines_are_read() {
    const MANY: usize = 50_000;
    let mut cpu = String::from("[device]\nname=c\nclass=core\n[regs]\n");
    let mut trace = String::from("[trace_buffers]\nbuffers=");
    for number in 0..MANY {
        cpu += &format!("R{number}=1\n");
        trace += &format!("b{number},");
    }
    trace += "\n";
    for number in 0..MANY {
        trace += &format!("[b{number}]\nname=B{number}\nfile=f\nformat=coresight\n");
    }
    trace += "[source_buffers]\n";
    for number in 0..MANY {
        cpu += &format!(
            "[dump{number}]\nfile=f\naddress={number}\nlength={}\n",
            MANY - number
        );
        trace += &format!("c=b{number}\n");
    }
    let file = "x".repeat(MANY);
    let loaded = load(&[("cpu.ini", &cpu), ("trace.ini", &trace), ("f", &file)]);
    assert_eq!(loaded.notes, []);
    assert_eq!(sources(&loaded.snapshot).len(), MANY);
    let core = &loaded.snapshot.devices[0];
    let memory = armsnap::snapshot::memory::CoreMemory::new(&loaded, core);
    let from = armsnap::quantity::Address(MANY as u64 - 1);
    let space = armsnap::arch::Space::N;
    assert_eq!(memory.slice(from, space), *b"x");
    assert!(armsnap::check::check(&loaded).len() >= MANY - 1);
}
