//! Coverage as XML of Cobertura and Clover: the same counts as LCOV's, read by pycobertura and
//! diff-cover.

use super::common::{arg, export_text, run, said};
use super::programs::{Recorded, SOURCE, coverage};
use crate::support::skip;
use roxmltree::{Document, Node};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The structure of a report, as Cobertura defines it.
const STRUCTURE: &str = include_str!("cobertura.dtd");

/// Python with the readers, in `target/python`; `scripts/setup` makes it.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/python/bin/python");
    let imports = ["-c", "import lxml, pycobertura, diff_cover"];
    let found = std::process::Command::new(&python).args(imports).output();
    if !found.is_ok_and(|output| output.status.success()) {
        skip::unavailable("the Python packages of coverage (scripts/setup installs them)");
        return None;
    }
    Some(python)
}

/// The lines, the functions, and the outcomes of branches of the program's source in LCOV's export.
struct Lcov {
    lines: BTreeMap<u32, u64>,
    functions: BTreeMap<u32, u64>,
    /// By line, in order of their addresses.
    outcomes: BTreeMap<u32, Vec<u64>>,
}

fn lcov(recorded: &Recorded) -> Lcov {
    let text = export_text(&recorded.snapshot(), "lcov", &[]);
    let mut records = text.split("end_of_record");
    let own = records.find(|record| record.contains("/coverage.c\n"));
    let own = own.unwrap();
    let fields = |name: &str| -> Vec<Vec<String>> {
        let lines = own.lines().filter_map(|line| line.strip_prefix(name));
        lines
            .map(|line| line.split(',').map(str::to_owned).collect())
            .collect()
    };
    let entered: BTreeMap<String, u64> = fields("FNDA:")
        .into_iter()
        .map(|f| (f[1].clone(), f[0].parse().unwrap()))
        .collect();
    let mut outcomes: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for branch in fields("BRDA:") {
        let line = outcomes.entry(branch[0].parse().unwrap()).or_default();
        line.push(branch[3].parse().unwrap_or(0));
    }
    Lcov {
        lines: fields("DA:")
            .iter()
            .map(|f| (f[0].parse().unwrap(), f[1].parse().unwrap()))
            .collect(),
        functions: fields("FN:")
            .iter()
            .map(|f| (f[0].parse().unwrap(), entered[&f[1]]))
            .collect(),
        outcomes,
    }
}

fn number(node: Node<'_, '_>, name: &str) -> u64 {
    node.attribute(name).unwrap().parse().unwrap()
}

/// Children with a name.
fn all<'a, 'd: 'a>(node: Node<'a, 'd>, name: &'a str) -> impl Iterator<Item = Node<'a, 'd>> {
    node.descendants()
        .filter(move |node| node.has_tag_name(name))
}

fn parse(text: &str) -> Document<'_> {
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..roxmltree::ParsingOptions::default()
    };
    Document::parse_with_options(text, options).unwrap()
}

/// An element whose attribute ends with the name of the source.
fn of_source<'a>(document: &'a Document<'_>, name: &'a str, path: &str) -> Node<'a, 'a> {
    let mut found = all(document.root_element(), name);
    let own = found.find(|node| node.attribute(path).unwrap().ends_with("/coverage.c"));
    own.unwrap()
}

#[test]
fn cobertura_has_the_counts_of_lcov() {
    let Some(recorded) = coverage() else { return };
    let text = export_text(&recorded.snapshot(), "cobertura", &[]);
    let document = parse(&text);
    let lcov = lcov(recorded);
    let class = of_source(&document, "class", "filename");
    let lines = class.children().find(|node| node.has_tag_name("lines"));
    let mut found = BTreeMap::new();
    let mut covered = 0;
    for line in all(lines.unwrap(), "line") {
        let at = number(line, "number") as u32;
        found.insert(at, number(line, "hits"));
        let Some(outcomes) = lcov.outcomes.get(&at) else {
            assert_eq!(line.attribute("branch"), None);
            continue;
        };
        let hit = outcomes.iter().filter(|count| **count > 0).count();
        covered += hit;
        let share = 100 * hit / outcomes.len();
        let wanted = format!("{share}% ({hit}/{})", outcomes.len());
        assert_eq!(line.attribute("condition-coverage"), Some(&*wanted));
        let shares = all(line, "condition").map(|c| c.attribute("coverage").unwrap());
        let wanted = outcomes.chunks(2).map(|pair| {
            let hit = pair.iter().filter(|count| **count > 0).count();
            ["0%", "50%", "100%"][hit]
        });
        assert!(shares.eq(wanted), "{at}");
    }
    assert_eq!(found, lcov.lines);
    assert!(covered > 5);
    let methods = all(class, "method").map(|method| {
        let line = all(method, "line").next().unwrap();
        (number(line, "number") as u32, number(line, "hits"))
    });
    assert_eq!(methods.collect::<BTreeMap<_, _>>(), lcov.functions);
    let root = document.root_element();
    let sum = |name: &str| {
        all(root, "class")
            .flat_map(|c| c.children())
            .filter(|n| n.has_tag_name("lines"))
            .flat_map(|lines| lines.children())
            .filter(|line| line.is_element())
            .filter(|line| name == "lines-valid" || line.attribute("hits") != Some("0"))
            .count() as u64
    };
    for name in ["lines-valid", "lines-covered"] {
        assert_eq!(number(root, name), sum(name), "{name}");
    }
}

#[test]
fn clover_has_the_counts_of_lcov() {
    let Some(recorded) = coverage() else { return };
    let text = export_text(&recorded.snapshot(), "clover", &[]);
    let document = parse(&text);
    let lcov = lcov(recorded);
    let file = of_source(&document, "file", "path");
    assert_eq!(file.attribute("name"), Some("coverage.c"));
    let of =
        |kind: &'static str| all(file, "line").filter(move |l| l.attribute("type") == Some(kind));
    let counts = |kind: &'static str| -> BTreeMap<u32, u64> {
        let lines = of(kind).map(|l| (number(l, "num") as u32, number(l, "count")));
        lines.collect()
    };
    assert_eq!(counts("stmt"), lcov.lines);
    assert_eq!(counts("method"), lcov.functions);
    let mut outcomes: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for line in of("cond") {
        let at = outcomes.entry(number(line, "num") as u32).or_default();
        at.extend([number(line, "truecount"), number(line, "falsecount")]);
    }
    assert_eq!(outcomes, lcov.outcomes);
    let metrics = all(file, "metrics").next().unwrap();
    let hit = lcov.lines.values().filter(|count| **count > 0).count() as u64;
    assert_eq!(number(metrics, "coveredstatements"), hit);
    assert_eq!(number(metrics, "statements"), lcov.lines.len() as u64);
    let all = ["statements", "methods", "conditionals"].map(|name| number(metrics, name));
    assert_eq!(number(metrics, "elements"), all.iter().sum::<u64>());
}

#[test]
fn cobertura_has_its_structure_and_pycobertura_reads_it() {
    let Some(recorded) = coverage() else { return };
    let Some(python) = python() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (report, structure) = (
        directory.path().join("c.xml"),
        directory.path().join("c.dtd"),
    );
    std::fs::write(&report, export_text(&recorded.snapshot(), "cobertura", &[])).unwrap();
    std::fs::write(&structure, STRUCTURE).unwrap();
    let read = "import sys, json; from lxml import etree; from pycobertura import Cobertura\n\
                dtd = etree.DTD(open(sys.argv[2]))\n\
                assert dtd.validate(etree.parse(sys.argv[1])), dtd.error_log\n\
                c = Cobertura(sys.argv[1])\n\
                [own] = [f for f in c.files() if f.endswith('/coverage.c')]\n\
                print(json.dumps([c.missed_statements(own), c.hit_statements(own), \
                c.total_statements(own), c.branch_rate(own)]))";
    let output = run(arg(&python), &["-c", read, arg(&report), arg(&structure)]);
    assert!(output.status.success(), "{}", said(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lcov = lcov(recorded);
    let lines = |executed: bool| -> Vec<u32> {
        let lines = lcov
            .lines
            .iter()
            .filter(|(_, count)| (**count > 0) == executed);
        lines.map(|(line, _)| *line).collect()
    };
    // What pycobertura calls missed includes lines with an outcome that never was.
    let partly: Vec<u32> = lcov
        .outcomes
        .iter()
        .filter(|(line, counts)| lcov.lines[line] > 0 && counts.contains(&0))
        .map(|(line, _)| *line)
        .collect();
    let list = |value: &Value| -> Vec<u32> {
        let numbers = value.as_array().unwrap().iter();
        numbers.map(|line| line.as_u64().unwrap() as u32).collect()
    };
    let mut missed = lines(false);
    assert!(!missed.is_empty() && !partly.is_empty());
    let reported = list(&found[0]);
    if reported != missed {
        missed.extend(&partly);
        missed.sort_unstable();
        assert_eq!(reported, missed);
    }
    assert_eq!(found[2].as_u64(), Some(lcov.lines.len() as u64));
    let outcomes: Vec<u64> = lcov.outcomes.values().flatten().copied().collect();
    let hit = outcomes.iter().filter(|count| **count > 0).count();
    let rate = hit as f64 / outcomes.len() as f64;
    assert!((found[3].as_f64().unwrap() - rate).abs() < 1e-3, "{found}");
}

#[test]
fn diff_cover_finds_the_lines_that_were_not_executed() {
    let Some(recorded) = coverage() else { return };
    let Some(python) = python() else { return };
    let tool = python.with_file_name("diff-cover");
    let lcov = lcov(recorded);
    let missed = lcov.lines.iter().filter(|(_, count)| **count == 0);
    let missed: Vec<u64> = missed.map(|(line, _)| u64::from(*line)).collect();
    assert!(!missed.is_empty() && SOURCE.lines().count() > 30);
    let root = recorded.path("");
    // A change that added the whole source.
    let script = "git init -q -b main . && git config user.email a@b && git config user.name a \
                  && git commit -q --allow-empty -m empty && git checkout -q -b work \
                  && git add coverage.c && git commit -q -m all";
    let script = format!("cd {} && {script}", arg(&root));
    let output = run("sh", &["-c", &script]);
    assert!(output.status.success(), "{}", said(&output));
    for format in ["cobertura", "clover"] {
        let (report, found) = (root.join("coverage.xml"), root.join("found.json"));
        std::fs::write(&report, export_text(&recorded.snapshot(), format, &[])).unwrap();
        let script = format!(
            "cd {} && {} coverage.xml --compare-branch main --format json:{}",
            arg(&root),
            arg(&tool),
            arg(&found)
        );
        let output = run("sh", &["-c", &script]);
        assert!(output.status.success(), "{}", said(&output));
        let found: Value = serde_json::from_slice(&std::fs::read(&found).unwrap()).unwrap();
        let own = &found["src_stats"]["coverage.c"];
        let lines = own["violation_lines"].as_array().unwrap();
        let lines: Vec<u64> = lines.iter().map(|line| line.as_u64().unwrap()).collect();
        assert_eq!(lines, missed, "{format}: {found}");
    }
}
