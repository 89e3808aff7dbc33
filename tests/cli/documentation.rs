//! The book: its table of contents and links.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages of docs/ and docs/messages/, but not the table of contents.
fn pages() -> Vec<PathBuf> {
    let entries = ["docs", "docs/messages"].map(|name| fs::read_dir(top().join(name)).unwrap());
    let paths = entries.into_iter().flatten();
    let paths = paths.map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.filter(|path| !path.ends_with("SUMMARY.md")).collect()
}

/// The targets of links in a text, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            code = !code;
        }
        if code || line.starts_with("    ") {
            continue;
        }
        for link in line.split("](").skip(1) {
            found.push(link.split(')').next().unwrap_or_default().to_owned());
        }
    }
    found
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let summary = fs::read_to_string(top().join("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<String> = links(&summary).into_iter().collect();
    let there: BTreeSet<String> = pages()
        .iter()
        .map(|page| page.strip_prefix(top().join("docs")).unwrap())
        .map(|page| page.to_string_lossy().replace('\\', "/"))
        .collect();
    assert_eq!(listed, there, "docs/SUMMARY.md and the pages of docs/");
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let name = line.trim_start_matches('#').trim().to_lowercase();
            let kept = name
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut count = 0;
    for page in pages().into_iter().chain([top().join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link}", page.display());
            if !heading.is_empty() {
                let there = anchors(&fs::read_to_string(&target).unwrap());
                assert!(there.contains(heading), "{}: {link}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}
