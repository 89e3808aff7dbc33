//! Addresses by random tables of each form, walked by QEMU and by armsnap.

use crate::support::translation::{FORMS, compare};

fn maps_as_in_qemu(addresses: usize) {
    for form in FORMS {
        compare(form, addresses, 2);
    }
}

#[test]
fn ten_thousand_addresses_of_each_form_map_as_in_qemu() {
    maps_as_in_qemu(10_000);
}

#[test]
#[ignore = "many minutes"]
fn a_hundred_thousand_addresses_of_each_form_map_as_in_qemu() {
    maps_as_in_qemu(100_000);
}
