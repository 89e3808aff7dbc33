//! Random tables, walked by QEMU and by armsnap. The long tests do the same with more addresses.

use crate::support::translation::{FORMS, compare};

const ADDRESSES: usize = 3000;

#[test]
fn random_tables_of_aarch64_map_as_in_qemu() {
    for form in &FORMS[..7] {
        compare(*form, ADDRESSES, 1);
    }
}

#[test]
fn random_tables_of_aarch32_map_as_in_qemu() {
    for form in &FORMS[7..] {
        compare(*form, ADDRESSES, 1);
    }
}
