//! 100,000 addresses by random tables of each form, walked by QEMU and by armsnap.

use crate::support::translation::{FORMS, compare};

const ADDRESSES: usize = 100_000;

#[test]
fn a_hundred_thousand_addresses_of_each_form_map_as_in_qemu() {
    for form in FORMS {
        compare(form, ADDRESSES, 2);
    }
}
