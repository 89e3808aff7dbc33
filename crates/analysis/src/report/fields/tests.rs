//! Fields of registers.

mod etmv3;
mod etmv4;
mod etmv4_id;
mod itm;
mod ptm;
mod stm;

use super::*;

/// The only field of that name, as `(value, meaning)`.
#[track_caller]
fn field(fields: &[Field], name: &str) -> (u64, String) {
    let mut found = fields.iter().filter(|field| field.name == name);
    let field = found.next().unwrap_or_else(|| panic!("no field {name}"));
    assert!(found.next().is_none(), "two fields {name}");
    (field.value, field.meaning.to_string())
}

/// Names of the fields that are not 0.
fn set(fields: &[Field]) -> Vec<&'static str> {
    let fields = fields.iter().filter(|field| field.value != 0);
    fields.map(|field| field.name).collect()
}

#[test]
fn a_field_in_two_parts_is_combined() {
    let bits = Bits((21, 21), Some((6, 4)));
    assert_eq!(bits.to_string(), "[21,6:4]");
    assert_eq!(bits.of(0x0020_0000), 0b1000);
    assert_eq!(bits.of(0x0000_0050), 0b0101);
    assert_eq!(bits.of(!0x0020_0070), 0);
    assert_eq!(bits.mask(), 0x0020_0070);
}

#[test]
fn a_whole_register_is_a_field() {
    let bits = Bits((31, 0), None);
    assert_eq!(bits.of(0xFFFF_FFFF), 0xFFFF_FFFF);
    assert_eq!(Bits((63, 0), None).of(u64::MAX), u64::MAX);
    assert_eq!(Bits((63, 0), None).mask(), u64::MAX);
}

#[test]
fn bits_outside_of_fields_are_reserved_run_by_run() {
    let ete = TraceArchitecture::Ete { major: 1, minor: 0 };
    let fields = describe(ete, "TRCIDR6", 0x8000_0000_0000_003D).unwrap();
    let seen: Vec<_> = fields
        .iter()
        .map(|field| (field.bits.to_string(), field.name, field.value))
        .collect();
    assert_eq!(
        seen,
        [
            ("[2]".into(), "EXLEVEL_RL_EL2", 1),
            ("[1]".into(), "EXLEVEL_RL_EL1", 0),
            ("[0]".into(), "EXLEVEL_RL_EL0", 1),
            ("[63]".into(), "reserved", 1),
            ("[5:3]".into(), "reserved", 7),
        ]
    );
}

#[test]
fn no_register_value_panics() {
    let architectures = [
        TraceArchitecture::Etm { major: 1, minor: 0 },
        TraceArchitecture::Etm { major: 3, minor: 5 },
        TraceArchitecture::Pft { major: 1, minor: 1 },
        TraceArchitecture::Etmv4 { minor: 6 },
        TraceArchitecture::Ete { major: 1, minor: 3 },
        TraceArchitecture::Stm,
        TraceArchitecture::Itm,
    ];
    let mut names: Vec<String> = (0..14).map(|n| format!("TRCIDR{n}")).collect();
    let others = "ETMCR ETMCCER ETMIDR ETMTRACEIDR TRCCONFIGR TRCTRACEIDR TRCAUTHSTATUS \
                  TRCDEVARCH STMTCSR ITMTCR";
    names.extend(others.split_whitespace().map(str::to_owned));
    let mut described = 0;
    for architecture in architectures {
        for name in &names {
            for value in (0..64).map(|bit| u64::MAX >> bit).chain([0]) {
                if let Some(fields) = describe(architecture, name, value) {
                    described += 1;
                    assert!(
                        fields.iter().all(|field| !field.meaning.is_empty()),
                        "{name}"
                    );
                }
            }
        }
    }
    assert_eq!(described, 65 * (4 + 4 + 4 + 18 + 18 + 1 + 1));
}
