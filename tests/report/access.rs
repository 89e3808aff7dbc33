//! The page for those who use a keyboard or a screen reader, or need contrast.

use crate::support::browser::{self, Browser};
use crate::{Report, TESTDATA, recorded};
use serde_json::{Value, json};

/// Pairs of colours of a text and its background with less contrast than WCAG requires: 4.5.
const FAINT: &str = "(() => {
    const context = document.createElement('canvas').getContext('2d');
    const luminance = (colour) => {
        context.fillStyle = colour;
        context.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((value) => {
            const part = value / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const style = getComputedStyle(document.documentElement);
    const named = (names) => names.map((name) => style.getPropertyValue(`--${name}`).trim());
    const slices = Array.from({ length: 360 }, (_, hue) => page.colours.slice(hue));
    const faint = (texts, grounds) => texts.flatMap((text) => grounds.filter((ground) => {
        const [low, high] = [luminance(text), luminance(ground)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05) < 4.5;
    }).map((ground) => `${text} on ${ground}`));
    return [
        ...faint(named(['text', 'quiet', 'link']), named(['ground', 'run', 'missed', 'here'])),
        ...faint(named(['text', 'link']), named(['raised'])),
        ...faint(named(['slice-text']), slices),
    ];
})()";

fn open() -> Option<(Report, Browser)> {
    if !browser::is_available() {
        return None;
    }
    let sources = format!("{TESTDATA}/virt-a57");
    let report = Report::of(&recorded("etmv4"), &["--sources", &sources]);
    let browser = Browser::open(&report.path, (1200, 900));
    Some((report, browser))
}

#[test]
fn texts_have_contrast_in_light_and_dark() {
    let Some((_report, mut browser)) = open() else {
        return;
    };
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let dark = scheme == "dark";
        browser.wait_for(&format!(
            "page.colours.ground === '{}'",
            if dark { "#15171b" } else { "#fff" }
        ));
        assert_eq!(browser.evaluate(FAINT), json!([]), "{scheme}");
    }
}

/// Everything that can have the focus has a name for screen readers, except rows of code, of which
/// they read the cells.
#[test]
fn everything_to_use_has_a_name() {
    let Some((_report, mut browser)) = open() else {
        return;
    };
    let show = "page.goTo(page.functions.findIndex((called) => called.name === 'main'), null)";
    browser.evaluate(show);
    browser.wait_for("document.querySelector('#disassembly tr.here') !== null");
    browser.call("Accessibility.enable", json!({}));
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let is_focusable = |node: &&Value| {
        let properties = node["properties"].as_array();
        properties.is_some_and(|all| {
            all.iter()
                .any(|one| one["name"] == "focusable" && one["value"]["value"] == true)
        })
    };
    let nodes = tree["nodes"].as_array().unwrap();
    let names: Vec<&str> = nodes
        .iter()
        .filter(|node| is_focusable(node) && node["role"]["value"] != "row")
        .map(|node| node["name"]["value"].as_str().unwrap_or_default())
        .collect();
    let unspoken: Vec<_> = names
        .iter()
        .filter(|name| !name.contains(char::is_alphabetic))
        .collect();
    assert_eq!(unspoken, [&""; 0], "{names:?}");
    for wanted in ["Zoom in", "Earlier", "Line 82", "Source", "Lines: %"] {
        assert!(names.contains(&wanted), "{wanted}: {names:?}");
    }
}

#[test]
fn the_keyboard_selects_marks() {
    let Some((_report, mut browser)) = open() else {
        return;
    };
    browser.evaluate("page.canvases[1].canvas.focus()");
    browser.press("m", Some("m"));
    let shown = browser.evaluate("document.getElementById('selected').textContent");
    let shown = shown.as_str().unwrap();
    assert!(shown.starts_with("exception: debug halt"), "{shown}");
    // There is no other mark, and marks have no source line.
    browser.press("m", Some("m"));
    browser.press("Enter", Some("\r"));
    let selected = "page.canvases[1].selected";
    assert_eq!(browser.evaluate(selected), json!({"mark": 0}));
    assert_eq!(browser.evaluate("location.hash"), "");
    // From there to the slice around it.
    browser.press("ArrowRight", None);
    assert_eq!(
        browser.evaluate("page.canvases[1].selected.mark === undefined"),
        true
    );
    assert_eq!(browser.complaints(), [""; 0]);
}

/// The ring around a timeline is within what its surroundings show.
#[test]
fn the_focus_of_a_timeline_is_visible() {
    let Some((_report, mut browser)) = open() else {
        return;
    };
    browser.evaluate("page.canvases[0].canvas.focus()");
    browser.press("ArrowRight", None);
    let visible = "(() => { \
        const style = getComputedStyle(document.activeElement); \
        const ring = parseFloat(style.outlineWidth) + parseFloat(style.outlineOffset); \
        const own = document.activeElement.getBoundingClientRect(); \
        const around = page.canvases[0].rows.getBoundingClientRect(); \
        return style.outlineStyle === 'solid' && \
            own.left - ring >= around.left && own.right + ring <= around.right; })()";
    assert_eq!(browser.evaluate(visible), true);
}

/// A window as narrow as a page at a scale of 400 % is only scrolled down.
#[test]
fn a_narrow_window_shows_all() {
    if !browser::is_available() {
        return;
    }
    let report = Report::of(&recorded("etmv4"), &[]);
    let mut browser = Browser::open(&report.path, (320, 640));
    let wide = browser.evaluate("document.documentElement.scrollWidth");
    assert_eq!(wide, 320);
}
