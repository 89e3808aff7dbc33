//! The documentation as a book: it builds, and its search finds words in a browser.

use crate::support::browser::{self, Browser};
use crate::support::gdb::{run, text};
use crate::support::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

const TOP: &str = env!("CARGO_MANIFEST_DIR");

/// mdBook: of `scripts/setup mdbook`, or in PATH.
fn mdbook() -> Option<PathBuf> {
    let own = Path::new(TOP).join("target/tools/bin/mdbook");
    let found = [own, "mdbook".into()];
    found
        .into_iter()
        .find(|mdbook| Command::new(mdbook).arg("--version").output().is_ok())
}

#[test]
fn the_book_builds_and_its_search_finds_pages() {
    let Some(mdbook) = mdbook() else {
        return skip::unavailable("mdbook (scripts/setup mdbook)");
    };
    if !browser::is_available() {
        return;
    }
    let book = tempfile::tempdir().unwrap();
    let mut build = Command::new(mdbook);
    build
        .arg("build")
        .arg(TOP)
        .arg("--dest-dir")
        .arg(book.path());
    let built = run(&mut build);
    let said = text(&built);
    assert!(built.status.success(), "{said}");
    for complaint in ["WARN", "ERROR"] {
        assert!(!said.contains(complaint), "{said}");
    }
    let page = book.path().join("tutorial.html");
    let mut browser = Browser::open(&page, (1200, 900));
    // As a reader does: open the search, which loads the index, type, and read the results.
    browser.wait_for("typeof window.search === 'object' && window.search.hasFocus !== undefined");
    browser.evaluate(
        "document.querySelector('#mdbook-search-toggle').click(); \
         document.querySelector('#mdbook-searchbar').value = 'watchpoints of AArch64'; 0",
    );
    let results = "document.querySelectorAll('#mdbook-searchresults li a')";
    browser.wait_for(&format!("{results}.length > 0"));
    let found = browser.evaluate(&format!(
        "Array.from({results}, link => link.href).join('\\n')"
    ));
    let found = found.as_str().unwrap();
    assert!(found.contains("editors.html"), "{found}");
}
