//! Forty thousand inputs with damage, like the few in `tests/import`.

use crate::support::damaged::{
    cores, damaged, kernel_log, minidump, modules, perf, tarmac, tombstone, zephyr,
};

/// How many inputs of each kind are used.
const INPUTS: usize = 5000;

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn core_files() {
    damaged(INPUTS, cores::all);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn recordings_of_perf() {
    damaged(INPUTS, perf::all);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn core_dumps_of_zephyr() {
    damaged(INPUTS, zephyr::all);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn modules_of_a_kernel() {
    damaged(INPUTS, modules::all);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn minidumps() {
    damaged(INPUTS, minidump::all);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn logs_of_kernels() {
    damaged(INPUTS, kernel_log::all);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn tombstones() {
    damaged(INPUTS, tombstone::all);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn tarmac_traces() {
    damaged(INPUTS, tarmac::all);
}
