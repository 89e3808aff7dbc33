//! Descriptions: what vendors write, and what nobody should.

use super::{Note, Svd};
use std::fmt::Write;

/// A description with these peripherals.
fn device(peripherals: &str) -> String {
    format!("<device><name>D</name><peripherals>{peripherals}</peripherals></device>")
}

/// A peripheral at 0x1000 with these registers.
fn with(registers: &str) -> Svd {
    let of = "<peripheral><name>P</name><baseAddress>0x1000</baseAddress><registers>";
    Svd::read(&device(&format!(
        "{of}{registers}</registers></peripheral>"
    )))
    .unwrap()
}

/// The registers as NAME@ADDRESS/BITS.
fn registers(svd: &Svd) -> String {
    let mut out = String::new();
    for peripheral in &svd.peripherals {
        for register in &peripheral.registers {
            let (name, address) = (&register.name, register.address);
            let _ = write!(
                out,
                "{}.{name}@{address:#x}/{} ",
                peripheral.name, register.bits
            );
        }
    }
    out
}

fn fault(text: &str) -> String {
    Svd::read(text).unwrap_err().to_string()
}

#[test]
fn arrays_and_clusters_are_expanded() {
    let svd = with(
        "<cluster><dim>2</dim><dimIncrement>0x10</dimIncrement><dimIndex>A-B</dimIndex>
           <name>CH%s</name><addressOffset>0x100</addressOffset><size>16</size>
           <cluster><name>IN</name><addressOffset>4</addressOffset>
             <register><dim>2</dim><dimIncrement>2</dimIncrement><name>R[%s]</name>
               <addressOffset>2</addressOffset></register></cluster></cluster>
         <register><dim>2</dim><dimIncrement>4</dimIncrement><dimIndex>X,Y</dimIndex>
           <name>Q%s</name><addressOffset>0</addressOffset></register>",
    );
    assert_eq!(
        registers(&svd),
        "P.QX@0x1000/32 P.QY@0x1004/32 P.CHA.IN.R[0]@0x1106/16 P.CHA.IN.R[1]@0x1108/16 \
         P.CHB.IN.R[0]@0x1116/16 P.CHB.IN.R[1]@0x1118/16 "
    );
    for (name, count) in [
        ("p.chb", 2),
        ("P.CHA.IN.R1", 1),
        ("p.q?", 2),
        ("p.c", 0),
        ("", 6),
    ] {
        let found = svd.find(name);
        assert_eq!(
            found.iter().map(|(_, all)| all.len()).sum::<usize>(),
            count,
            "{name}"
        );
    }
    for (address, name) in [
        (0x1000, Some("P.QX")),
        (0x1003, Some("P.QX+3")),
        (0x1119, Some("P.CHB.IN.R[1]+1")),
        (0x111a, None),
        (0xfff, None),
    ] {
        assert_eq!(svd.name_of(address).as_deref(), name, "{address:#x}");
    }
}

#[test]
fn elements_derive_from_others() {
    let svd = Svd::read(&device(
        "<peripheral><name>A</name><baseAddress>0</baseAddress><size>8</size><registers>
           <register><name>R</name><addressOffset>1</addressOffset><fields>
             <field><name>F</name><bitRange>[2:1]</bitRange>
               <enumeratedValues><name>V</name>
                 <enumeratedValue><name>on</name><value>#1x</value></enumeratedValue>
               </enumeratedValues></field></fields></register>
           <register derivedFrom='R'><name>S</name><addressOffset>3</addressOffset></register>
         </registers></peripheral>
         <peripheral derivedFrom='A'><name>B</name><baseAddress>0x100</baseAddress></peripheral>
         <peripheral><name>C</name><baseAddress>0x200</baseAddress><registers>
           <register derivedFrom='A.S'><name>T</name><size>16</size></register>
           <register derivedFrom='gone'><name>U</name><addressOffset>8</addressOffset><fields>
             <field><name>G</name><bitOffset>4</bitOffset><bitWidth>2</bitWidth>
               <enumeratedValues derivedFrom='A.R.F.V'/></field></fields></register>
         </registers></peripheral>",
    ))
    .unwrap();
    assert_eq!(
        registers(&svd),
        "A.R@0x1/8 A.S@0x3/8 B.R@0x101/8 B.S@0x103/8 C.T@0x203/16 C.U@0x208/32 "
    );
    let meaning = |name: &str, register: u64| {
        let found = svd.find(name);
        found[0].1[0].fields[0].of(register).meaning
    };
    for (register, of_t, of_u) in [
        (0, None, None),
        (6, Some("on"), None),
        (0x20, None, Some("on")),
    ] {
        assert_eq!(meaning("C.T", register).as_deref(), of_t, "{register}");
        assert_eq!(meaning("C.U", register).as_deref(), of_u, "{register}");
    }
    assert!(matches!(&*svd.notes, [Note::NoBase { name, .. }] if name == "gone"));
}

#[test]
fn what_cannot_be_read_is_left_out_and_said() {
    let svd = with(
        "<register><name>A</name></register>
         <register><name>B</name><addressOffset>x\u{202e}</addressOffset></register>
         <register><name>C</name><addressOffset>0</addressOffset><size>128</size></register>
         <register><name>D\u{202e}</name><addressOffset>4</addressOffset><fields>
           <field><name>wide</name><bitOffset>60</bitOffset><bitWidth>18446744073709551615</bitWidth>
           </field><field><name>far</name><bitRange>[70:60]</bitRange></field></fields></register>",
    );
    assert_eq!(registers(&svd), "P.D\\u{202e}@0x1004/32 ");
    assert!(svd.peripherals[0].registers[0].fields.is_empty());
    let notes: String = svd.notes.iter().map(|note| format!("{note}\n")).collect();
    assert_eq!(notes.lines().count(), 4, "{notes}");
    assert!(!notes.contains('\u{202e}'), "{notes}");
}

#[test]
fn hostile_descriptions_end() {
    let array = |inside: &str| {
        let dim = "<dim>1000000000</dim><dimIncrement>4</dimIncrement>";
        format!("<cluster>{dim}<name>C%s</name><addressOffset>0</addressOffset>{inside}</cluster>")
    };
    let of = "<peripheral><name>P</name><baseAddress>0</baseAddress><registers>";
    let peripheral = |inside: &str| device(&format!("{of}{inside}</registers></peripheral>"));
    let register = "<register><name>R</name><addressOffset>0</addressOffset></register>";
    let cluster = |derived: &str, inside: &str| {
        let start = "<name>K</name><addressOffset>0</addressOffset>";
        format!("<cluster {derived}>{start}{inside}</cluster>")
    };
    let many = array(&array(register))
        .replace("1000000000", "1000")
        .replace("4<", "0<");
    let many = many.replace(register, &register.repeat(2));
    let itself = cluster(
        "",
        &format!("{register}{}", cluster("derivedFrom='K'", "").repeat(2)),
    );
    let itself = itself.replacen("derivedFrom='K'><name>K", "derivedFrom='K'><name>L", 1);
    for (text, wanted) in [
        (
            peripheral(&array(register)),
            "registers, clusters and fields",
        ),
        (peripheral(&array("")), "registers, clusters and fields"),
        (peripheral(&many), "registers, clusters and fields"),
        (peripheral(&itself), "nested clusters"),
        (
            peripheral(&array(&"<register/>".repeat(10_000)).replace("1000000000", "500000")),
            "derive from",
        ),
        (
            "<!DOCTYPE d [<!ENTITY a 'b'>]><device>&a;</device>".to_owned(),
            "without definitions",
        ),
        ("<device>".to_owned(), "root"),
        ("<svg/>".to_owned(), "found \"svg\""),
        ("<d>".repeat(100_000), "nested elements"),
    ] {
        assert!(fault(&text).contains(wanted), "{}", fault(&text));
    }
    // Elements that derive from each other.
    let circle = "<register derivedFrom='B'><name>A</name></register>
         <register derivedFrom='A'><name>B</name></register>
         <register derivedFrom='C'><name>C</name><addressOffset>0</addressOffset></register>";
    let svd = with(circle);
    assert_eq!(registers(&svd), "P.C@0x1000/32 ");
    // Registers at one address.
    let svd = with(&register.repeat(1000));
    assert_eq!(svd.name_of(0x1003).as_deref(), Some("P.R+3"));
}
