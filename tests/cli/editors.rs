//! The extension of VS Code fits `armsnap dap`, and the configurations in docs/editors.md are JSON
//! with what their extensions require.

use super::help::help;
use crate::support::gdb::{run, text};
use crate::support::skip;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const MANIFEST: &str = include_str!("../../editors/vscode/package.json");
const ARGUMENTS: &str = include_str!("../../editors/vscode/src/arguments.ts");
const DOCS: &str = include_str!("../../docs/editors.md");

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// Fails unless a configuration has the attributes that the manifest declares, in their types.
fn fits(configuration: &Value, schema: &Value) {
    for required in schema["required"].as_array().unwrap() {
        let required = required.as_str().unwrap();
        assert!(
            configuration.get(required).is_some(),
            "{required}: {configuration}"
        );
    }
    for (name, value) in configuration.as_object().unwrap() {
        if ["type", "request", "name"].contains(&name.as_str()) {
            assert!(value.is_string(), "{name}: {configuration}");
            continue;
        }
        match schema["properties"][name]["type"].as_str() {
            Some("string") => assert!(value.is_string(), "{name}: {configuration}"),
            Some("array") => assert!(value.is_array(), "{name}: {configuration}"),
            other => panic!("{name}: {other:?} in the manifest"),
        }
    }
}

#[test]
fn the_manifest_declares_what_the_adapter_takes() {
    let manifest: Value = serde_json::from_str(MANIFEST).unwrap();
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(manifest["license"], env!("CARGO_PKG_LICENSE"));
    let debuggers = &manifest["contributes"]["debuggers"];
    assert_eq!(debuggers.as_array().unwrap().len(), 1);
    let debugger = &debuggers[0];
    assert_eq!(debugger["type"], "armsnap");
    let schema = &debugger["configurationAttributes"]["launch"];
    let dap = help(&["dap"]);
    for name in keys(&schema["properties"]) {
        // The snapshot is an argument; the others are options of the same name.
        let found = name == "snapshot" || dap.contains(&format!("--{name}"));
        assert!(found, "{name}: {dap}");
        assert!(
            ARGUMENTS.contains(&format!("configuration.{name}")),
            "{name}"
        );
    }
    let examples = debugger["initialConfigurations"].as_array().unwrap().iter();
    let snippets = debugger["configurationSnippets"].as_array().unwrap();
    for example in examples.chain(snippets.iter().map(|snippet| &snippet["body"])) {
        assert_eq!(example["type"], debugger["type"]);
        assert_eq!(example["request"], "launch");
        fits(example, schema);
    }
    let commands = &manifest["contributes"]["commands"];
    let menus = manifest["contributes"]["menus"]["explorer/context"]
        .as_array()
        .unwrap();
    for menu in menus {
        assert_eq!(menu["command"], commands[0]["command"]);
        for name in ["snapshot.ini", "perf\\.data", ".tf", "core"] {
            assert!(menu["when"].as_str().unwrap().contains(name), "{name}");
        }
    }
    let main = manifest["main"].as_str().unwrap();
    let source = main.replace("./out/", "src/").replace(".js", ".ts");
    let extension = Path::new(env!("CARGO_MANIFEST_DIR")).join("editors/vscode");
    assert!(extension.join(source).is_file());
}

#[test]
fn configurations_in_the_documentation_are_json() {
    let manifest: Value = serde_json::from_str(MANIFEST).unwrap();
    let schema = &manifest["contributes"]["debuggers"][0]["configurationAttributes"]["launch"];
    let mut types = Vec::new();
    for block in DOCS.split("```json\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let parsed: Value = serde_json::from_str(block).unwrap_or_else(|e| panic!("{e}: {block}"));
        assert_eq!(parsed["version"], "0.2.0");
        for configuration in parsed["configurations"].as_array().unwrap() {
            let kind = configuration["type"].as_str().unwrap();
            // What the manifests of these extensions require.
            let required: &[&str] = match kind {
                "armsnap" => {
                    fits(configuration, schema);
                    &["snapshot"]
                }
                "gdb" => &["target", "cwd"],
                "cppdbg" => &["program", "MIMode", "miDebuggerServerAddress"],
                other => panic!("{other}"),
            };
            for name in ["name", "request"].iter().chain(required) {
                assert!(configuration[*name].is_string(), "{kind}: {name}");
            }
            types.push(kind.to_owned());
        }
    }
    assert_eq!(types, ["armsnap", "gdb", "cppdbg"]);
}

/// The arguments that the extension passes are those of the program. The test removes the types of
/// the extension's code, and runs it in Node.js.
#[test]
fn the_extension_passes_arguments_that_the_program_takes() {
    let directory = tempfile::tempdir().unwrap();
    let module = directory.path().join("arguments.mjs");
    // Without the types, TypeScript is JavaScript.
    let mut script = ARGUMENTS.to_owned();
    let interface = script.find("/** The attributes").unwrap();
    let function = script.find("/** Returns").unwrap();
    script.replace_range(interface..function, "");
    for (typed, plain) in [
        (
            "configuration: Configuration, gdb: string): string[]",
            "configuration, gdb)",
        ),
        (
            "option: string, values: string[] | undefined",
            "option, values",
        ),
    ] {
        assert!(script.contains(typed), "{typed}");
        script = script.replace(typed, plain);
    }
    script.push_str(
        "console.log(JSON.stringify(adapterArguments({snapshot: '-x', elf: ['a b'], \
         sysroot: ['r'], core: ['c']}, 'no-such-gdb')))",
    );
    std::fs::write(&module, script).unwrap();
    let Ok(output) = Command::new("node").arg(&module).output() else {
        return skip::unavailable("node");
    };
    let words: Vec<String> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    assert_eq!(
        words,
        [
            "dap",
            "--elf=a b",
            "--sysroot=r",
            "--core=c",
            "--gdb=no-such-gdb",
            "./-x"
        ]
    );
    let output = run(crate::support::gdb::armsnap().args(words));
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("no-such-gdb is not installed"), "{told}");
}
