//! The program for people: help, first steps, terminals, editors, packages.

#[path = "../support/mod.rs"]
mod support;

mod blocks;
mod book;
mod dap;
mod dap_client;
mod documentation;
mod editors;
mod explain;
mod first_steps;
mod generated;
mod help;
mod mcp;
mod messages;
mod next_steps;
mod packages;
mod terminal;
