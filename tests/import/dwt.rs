//! `armsnap dwt`: exceptions, samples, data and counters, from bytes made by hand from the Armv7-M
//! Architecture Reference Manual (DDI 0403E), appendix D4.3, and of captures.

use crate::capture;
use crate::support::gdb::{armsnap, run, testdata, text};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// D4.2.1.
const SYNC: [u8; 6] = [0, 0, 0, 0, 0, 0x80];
/// D4.2.3.
const OVERFLOW: &[u8] = &[0x70];

fn output(file: &Path, options: &[&str]) -> String {
    let output = run(armsnap().arg("dwt").arg(file).args(options));
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn of_bytes(bytes: &[&[u8]], options: &[&str]) -> String {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("capture.swo");
    fs::write(&file, [&[&SYNC[..]], bytes].concat().concat()).unwrap();
    output(&file, options)
}

fn summary(text: &str) -> Value {
    let all: Value = serde_json::from_str(text).unwrap();
    all[0].clone()
}

/// D4.2.4, format 1: ticks since the last timestamp.
fn ticks(count: u16) -> Vec<u8> {
    vec![0xc0, 0x80 | (count & 0x7f) as u8, (count >> 7) as u8]
}

/// D4.3.2: 1 entered, 2 exited, 3 returned to; and the time.
fn exception(number: u8, action: u8, after: u16) -> Vec<u8> {
    [vec![0x0e, number, action << 4], ticks(after)].concat()
}

#[test]
fn handlers_have_durations_within_each_other() {
    // SysTick from 100 to 400, interrupted by IRQ 5 from 200 to 250.
    let bytes = [
        exception(15, 1, 100),
        exception(21, 1, 100),
        exception(21, 2, 50),
        exception(15, 3, 5),
        exception(15, 2, 145),
        exception(0, 3, 3),
        // SVCall from 500, PendSV tail-chained from 530 to 560.
        exception(11, 1, 97),
        exception(11, 2, 30),
        exception(14, 1, 0),
        exception(14, 2, 30),
        exception(0, 3, 1),
    ];
    let bytes: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    let found = summary(&of_bytes(&bytes, &["--json"]));
    assert_eq!(found["exception_packets"], 11);
    let exceptions = found["exceptions"].as_array().unwrap();
    let row = |number: u64| {
        let exception = exceptions.iter().find(|e| e["number"] == number).unwrap();
        ["entered", "exited", "returned", "nested", "interrupted"]
            .map(|key| exception[key].as_u64().unwrap())
            .into_iter()
            .chain(["ticks", "own_ticks"].map(|key| exception[key]["total"].as_u64().unwrap()))
            .collect::<Vec<u64>>()
    };
    assert_eq!(row(15), [1, 1, 1, 0, 1, 300, 250]);
    assert_eq!(row(21), [1, 1, 0, 1, 0, 50, 50]);
    assert_eq!(row(11), [1, 1, 0, 0, 0, 30, 30]);
    assert_eq!(row(14), [1, 1, 0, 0, 0, 30, 30]);
    assert_eq!(row(0), [0, 0, 2, 0, 0, 0, 0]);
    let rows = of_bytes(&bytes, &["--table", "exceptions", "--clock", "1k"]);
    assert_eq!(
        rows,
        "source,entered,exited,after_losses,seconds,number,name,depth,interrupted,ticks,own_ticks\n\
         ITM,200,250,0,0.200000000,21,IRQ 5,2,0,50,50\n\
         ITM,100,400,0,0.100000000,15,SysTick,1,1,300,250\n\
         ITM,500,530,0,0.500000000,11,SVCall,1,0,30,30\n\
         ITM,530,560,0,0.530000000,14,PendSV,1,0,30,30\n"
    );
    let shown = of_bytes(&bytes, &["--prescaler", "4"]);
    let line = shown
        .lines()
        .find(|line| line.contains("15 SysTick"))
        .unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        cells[2..],
        ["1", "0", "1", "1200", "1000", "1200", "1200", "1200"],
        "{shown}"
    );
}

/// D4.3.4 and D4.3.6: the address of an instruction of comparator 0.
fn pc(address: u32) -> Vec<u8> {
    [&[0x47], &address.to_le_bytes()[..]].concat()
}

#[test]
fn a_packet_of_parts_of_two_is_not_shown() {
    // After its first byte of payload, a packet is lost up to the next.
    let joined = [&pc(0x0800_b8aa)[..2], &pc(0x0800_b8aa)[..]].concat();
    let good = [pc(0x0800_b8aa), ticks(10)].concat();
    let bytes = [good.repeat(30), joined, SYNC.to_vec(), good.repeat(2)];
    let bytes: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    let rows = of_bytes(&bytes, &["--table", "values", "--as", "jsonl"]);
    let rows: Vec<Value> = rows
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["pc"].as_str().unwrap_or(""),
                row["after_losses"].as_u64(),
            )
        })
        .collect();
    let wanted = [
        vec![("0x800b8aa", Some(0)); 30],
        vec![("0x800b8aa", Some(1)); 2],
    ];
    assert_eq!(found, wanted.concat());
}

#[test]
fn a_duration_with_a_loss_in_it_is_not_known() {
    let bytes = [
        exception(15, 1, 100),
        OVERFLOW.to_vec(),
        exception(15, 2, 100),
        exception(16, 2, 10),
        exception(17, 1, 10),
        // Its end was lost: it does not interrupt itself.
        exception(17, 1, 10),
        exception(17, 2, 7),
    ];
    let bytes: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    let rows = of_bytes(&bytes, &["--table", "exceptions", "--as", "jsonl"]);
    let rows: Vec<Value> = rows
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    let found: Vec<[&Value; 4]> = rows
        .iter()
        .map(|row| ["number", "entered", "exited", "ticks"].map(|key| &row[key]))
        .collect();
    let wanted = [
        [json!(15), json!(100), json!(200), json!(null)],
        [json!(16), json!(null), json!(210), json!(null)],
        [json!(17), json!(220), json!(null), json!(null)],
        [json!(17), json!(230), json!(237), json!(7)],
    ];
    assert_eq!(found, wanted.each_ref().map(|row| row.each_ref()));
    assert_eq!(summary(&of_bytes(&bytes, &["--json"]))["overflows"], 1);
}

#[test]
fn samples_are_a_profile_by_function() {
    let program = testdata("mps2-m4/program.elf");
    // D4.3.3: the core at 0x4c (grant) and 0x4e, at an address without a function, and asleep.
    let sample = |pc: u8| [0x17, pc, 0, 0, 0];
    let (grant, next) = (sample(0x4c), sample(0x4e));
    let bytes: [&[u8]; 5] = [
        &grant,
        &next,
        &[0x17, 0, 0, 0, 0x10],
        &[0x15, 0],
        &[0x15, 0xff],
    ];
    let options = ["--elf", program.to_str().unwrap()];
    let found = summary(&of_bytes(&bytes, &[&options[..], &["--json"]].concat()));
    let samples = json!({
        "count": 5, "asleep": 1, "prohibited": 1,
        "functions": [["grant", 2], ["0x10000000", 1]],
    });
    assert_eq!(found["samples"], samples);
    let shown = of_bytes(&bytes, &options);
    assert!(
        shown.contains("5 PC samples: a statistical profile"),
        "{shown}"
    );
    assert!(shown.contains("2   40.0 %  grant"), "{shown}");
    let rows = of_bytes(&bytes, &[&options[..], &["--table", "samples"]].concat());
    assert!(rows.contains("\nITM,,,,awake,0x4c,grant\n"), "{rows}");
    assert!(rows.contains("\nITM,,,,asleep,,\n"), "{rows}");
}

#[test]
fn data_packets_of_an_access_are_one() {
    // D4.3.4: comparator 1: the instruction, then a word that was written; comparator 2: the
    // address, and a byte that was read.
    let bytes: [&[u8]; 8] = [
        &[0x57, 0x34, 0x12, 0, 8],
        &[0x9f, 0xef, 0xbe, 0, 0],
        &ticks(9),
        &[0x6e, 0x78, 0x56],
        &[0xa5, 0x2a],
        &ticks(1),
        &[0x57, 0x36, 0x12, 0, 8],
        &ticks(2),
    ];
    let rows = of_bytes(&bytes, &["--table", "values"]);
    assert_eq!(
        rows,
        "source,time,after_losses,seconds,comparator,variable,access,value,size,pc,function,address\n\
         ITM,9,0,,1,,write,0xbeef,4,0x8001234,0x08001234,\n\
         ITM,10,0,,2,,read,0x2a,1,,,0x5678\n\
         ITM,12,0,,1,,,,,0x8001236,0x08001236,\n"
    );
}

#[test]
fn counters_wrap() {
    // D4.3.1: the sleep and the cycle counter.
    let bytes: [&[u8]; 3] = [&[0x05, 0x24], &ticks(4), &[0x05, 0x20]];
    let found = summary(&of_bytes(&bytes, &["--json"]));
    assert_eq!(found["counter_packets"], 2);
    let wanted = json!([{"counter": "sleep", "wraps": 1}, {"counter": "cyc", "wraps": 2}]);
    assert_eq!(found["counters"], wanted);
    let rows = of_bytes(&bytes, &["--table", "counters"]);
    assert!(rows.ends_with("ITM,4,0,,sleep cyc\nITM,,,,cyc\n"), "{rows}");
}

#[test]
fn what_the_comparators_match_has_a_name() {
    let place = tempfile::tempdir().unwrap();
    let program = testdata("mps2-m4/program.elf");
    // The variable `boiler` of that program is at the start of its RAM.
    for (name, contents) in [
        (
            "snapshot.ini",
            "[snapshot]\nversion=1.0\n[device_list]\ndevice0=itm.ini\n[trace]\nmetadata=trace.ini\n",
        ),
        (
            "itm.ini",
            "[device]\nname=ITM_0\nclass=trace_source\ntype=ITM\n[regs]\nITMTCR=0x00010111\n\
             DWT_COMP0=0x20000000\nDWT_COMP1=0x20000004\nDWT_COMP2=0x30000000\nDWT_COMP3=0x40005004\n",
        ),
        (
            "trace.ini",
            "[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=SWO\nfile=swo.bin\nformat=source_data\n\
             [source_buffers]\nITM_0=SWO\n",
        ),
    ] {
        fs::write(place.path().join(name), contents).unwrap();
    }
    // D4.3.4, and two ticks with the prescaler 4 of ITM_TCR.
    let bytes = [&SYNC[..], &[0x8d, 1, 0x9d, 2, 0xad, 3, 0xbd, 4, 0x20]];
    fs::write(place.path().join("swo.bin"), bytes.concat()).unwrap();
    let options = ["--elf", program.to_str().unwrap(), "--table", "values"];
    let rows = output(place.path(), &options);
    let variables = |rows: &str| -> Vec<String> {
        let rows = rows.lines().skip(1);
        rows.map(|row| row.split(',').nth(5).unwrap().to_owned())
            .collect()
    };
    let wanted = ["boiler", "boiler+0x4", "0x30000000", "0x40005004"];
    assert_eq!(variables(&rows), wanted);
    let svd = testdata("svd/mps2.svd");
    let options = [&options[..], &["--svd", svd.to_str().unwrap()]].concat();
    let wanted = ["boiler", "boiler+0x4", "0x30000000", "UART1.STATE"];
    assert_eq!(variables(&output(place.path(), &options)), wanted);
    assert!(rows.contains("ITM_0,8,0,"), "{rows}");
}

#[test]
fn captures_have_their_counts_and_values() {
    let Some(directory) = capture("swo-ctrace") else {
        return;
    };
    let of = |name: &str, options: &[&str]| output(&directory.join(name), options);
    let all: Value = serde_json::from_str(&of("Blinky+Arm.TB.raw", &["--json"])).unwrap();
    let count = |source: usize, packets: &str| all[source][packets].as_u64().unwrap();
    assert_eq!(
        (count(0, "exception_packets"), count(1, "exception_packets")),
        (165, 84)
    );
    assert_eq!(
        (&all[0]["samples"]["count"], &all[1]["samples"]["count"]),
        (&json!(121), &json!(129))
    );
    assert_eq!(all[0]["data"][0]["writes"], 26);
    let counted = summary(&of("Arm.SWO.raw", &["--json"]));
    assert_eq!(counted["counter_packets"], 26_125);
    // The values of another reader, each with its instruction, and the differences of their times.
    let rows = of(
        "Blinky+Arm.SWO.raw",
        &["--table", "values", "--as", "jsonl"],
    );
    let rows: Vec<Value> = rows
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    let table = fs::read_to_string(directory.join("Blinky+Arm.SWO.csv")).unwrap();
    let wanted = table.lines().filter(|line| line.ends_with(",0x0800b8aa,,"));
    let wanted: Vec<(u64, u64)> = wanted
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let value = u64::from_str_radix(&cells[4][2..], 16).unwrap();
            (cells[0].parse().unwrap(), value)
        })
        .collect();
    // One is at the damaged bytes: its instruction is not known.
    let others = rows.iter().filter(|row| row["pc"] != "0x800b8aa");
    let others: Vec<_> = others.map(|row| &row["pc"]).collect();
    assert_eq!((rows.len(), &others[..]), (876, &[&json!(null)][..]));
    let mut found = rows.iter().filter(|row| row["pc"] == "0x800b8aa");
    let mut same = 0;
    for pair in wanted.windows(2) {
        let value = format!("{:#x}", pair[1].1);
        let Some(row) = found.find(|row| row["value"] == *value) else {
            continue;
        };
        same += usize::from(row["access"] == "write" && row["size"] == 4);
    }
    assert!(same >= 526, "{same}");
}

#[test]
fn the_capture_of_a_small_program_has_its_functions() {
    let Some(directory) = capture("swo-etmv3-stm32f105") else {
        return;
    };
    let elf = directory.join("trace_example.elf");
    let options = ["--json", "--elf", elf.to_str().unwrap()];
    let found = summary(&output(&directory.join("swo.bin"), &options));
    assert_eq!(found["overflows"], 14);
    let name = found["samples"]["functions"][0][0].as_str().unwrap();
    assert!(!name.starts_with("0x"), "{found}");
}
/// A description of two processors, of which one traces.
const RUN: &str = "ctrace-run:
  ctrace-setup:
  - pname: CM7
    data:
    - symbol: ring.head
    timestamps:
      itm-prescaler: 4
  - pname: CM4
    disable:
  ctrace-refs:
  - ctrace-ref: CM7/data#0
    pname: CM7
    regs:
    - name: DWT_COMP0
      value: 0x24000024
    - name: ITM_TCR
      value: 0x00000009
      mask: 0x00000009
";

#[test]
fn a_described_run_opens_as_one_input() {
    let place = tempfile::tempdir().unwrap();
    let description = place.path().join("My run.ctrace-run.yml");
    fs::write(&description, RUN).unwrap();
    let alone = run(armsnap().arg("info").arg(&description));
    let said = text(&alone);
    assert!(
        said.contains("whose trace is not beside it: expected My run.SWO.raw or"),
        "{said}"
    );
    // D4.3.4 and D4.2.8; two ticks of four cycles.
    let bytes = [&SYNC[..], &[0x8d, 7, 0x20, 0x01, b'!']].concat();
    fs::write(place.path().join("My run.SWO.raw"), bytes).unwrap();
    fs::write(place.path().join("My run.ER.raw"), b"records").unwrap();
    let rows = output(&description, &["--table", "values"]);
    assert!(
        rows.ends_with(",8,0,,0,ring.head,write,0x7,1,,,\n"),
        "{rows}"
    );
    let shown = run(armsnap().arg("console").arg(&description));
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "!\n");
    let said = text(&shown);
    for wanted in [
        "assumed to have traced CM7",
        "records of the Event Recorder",
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    // As a snapshot.
    let snapshot = place.path().join("snapshot");
    let made = run(armsnap().arg("import").arg(&description).arg(&snapshot));
    assert!(made.status.success(), "{}", text(&made));
    assert_eq!(output(&snapshot, &["--table", "values"]), rows);
    fs::write(&description, "ctrace-run: [").unwrap();
    let said = text(&run(armsnap().arg("info").arg(&description)));
    assert!(
        said.contains("is no description of a traced run: "),
        "{said}"
    );
}

#[test]
fn the_run_of_a_debugger_opens() {
    let Some(directory) = capture("swo-ctrace") else {
        return;
    };
    let found = output(&directory.join("Blinky+Arm.ctrace-run.yml"), &["--json"]);
    let all: Value = serde_json::from_str(&found).unwrap();
    let packets = all
        .as_array()
        .unwrap()
        .iter()
        .map(|source| &source["exception_packets"]);
    assert_eq!(
        packets.collect::<Vec<_>>(),
        [&json!(0), &json!(165), &json!(84)]
    );
    assert_eq!(all[0]["data"][0]["variable"], "osRtxInfo.kernel.tick");
}
