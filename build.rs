//! Compiles the emulator's plugin that `armsnap record` uses to a shared object.
//!
//! Without a C compiler the build continues with an empty file, and `record` says what is missing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    plugin::build();
}

mod plugin {
    use std::path::Path;
    use std::{env, fs};

    const SOURCE: &str = "src/record/plugin.c";

    pub fn build() {
        println!("cargo::rerun-if-changed={SOURCE}");
        let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
        let object = Path::new(&out).join("plugin.so");
        // The emulator's plugins exist on Linux only.
        if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
            fs::write(&object, []).expect("OUT_DIR can be written to");
            return;
        }
        if let Err(reason) = compile(&object) {
            println!("cargo::warning=armsnap record will not work: {SOURCE}: {reason}");
            fs::write(&object, []).expect("OUT_DIR can be written to");
        }
    }

    fn compile(object: &Path) -> Result<(), String> {
        let mut build = cc::Build::new();
        build.opt_level(2).pic(true).cargo_metadata(false);
        // Into an emulator that uses the system's C library, also from a static armsnap.
        if let Ok(target) = env::var("TARGET") {
            build.target(&target.replace("-musl", "-gnu"));
        }
        let compiler = build
            .try_get_compiler()
            .map_err(|error| error.to_string())?;
        let mut command = compiler.to_command();
        command.args(["-shared", "-fvisibility=hidden", "-pthread", "-o"]);
        let done = command.arg(object).arg(SOURCE).status();
        match done {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{}: {status}", compiler.path().display())),
            Err(error) => Err(format!("{}: {error}", compiler.path().display())),
        }
    }
}
