//! The command line of armsnap.
mod cli;
use clap::Parser;
#[derive(Parser)]
enum C {
    Serve(cli::serve::ServeArguments),
    Gdb(cli::gdb::GdbArguments),
}
fn main() {
    let r = match C::parse() {
        C::Serve(a) => cli::serve::run(&a),
        C::Gdb(a) => cli::gdb::run(&a),
    };
    if let Err(e) = r {
        eprintln!("armsnap: {e}");
        std::process::exit(1);
    }
}
