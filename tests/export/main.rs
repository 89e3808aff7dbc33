//! Exports: each format is read by another tool, and all agree on the counts.

#[path = "../support/mod.rs"]
mod support;

mod agreement;
mod branch_stacks;
mod common;
mod described;
mod inlined;
mod lcov;
mod parquet;
mod profilers;
mod programs;
mod shards;
mod shared_code;
mod timelines;
mod xml_coverage;
