//! Tarmac traces: of models, and of RTL.

use super::Whole;
use crate::support::inputs::tarmac::{of_model, of_rtl};
use armsnap::import::Options;
use std::path::Path;

/// All of them.
pub fn all(directory: &Path) -> Vec<Whole> {
    let forms = [("tarmac", of_model()), ("tarmac of rtl", of_rtl())];
    let all = forms
        .map(|(name, text)| Whole::new(name, text.into_bytes(), directory, Options::default()));
    all.into()
}
