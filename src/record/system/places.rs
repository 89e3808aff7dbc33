//! The locations named by `--from` and `--until`: addresses, and functions of an image or a kernel.

use super::image::Image;
use crate::record::Error;
use crate::record::until::Until;
use std::path::Path;

/// The end of a recording that needs no location: the machine is reset or switched off.
const RESET: &str = "reset";

/// A location, which may have several addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// The known addresses.
    pub addresses: Vec<u64>,
    /// Offsets from the start of a kernel, until its address is known.
    offsets: Vec<u32>,
}

impl Places {
    /// Finds a location in an image. `option` is the name of the argument, for messages.
    pub fn find(
        image: &Image,
        path: &Path,
        option: &str,
        wanted: Option<&Until>,
    ) -> Result<Self, Error> {
        let Some(wanted) = wanted else {
            return Ok(Self::default());
        };
        let fail = |why: String| Err(Error::Usage(format!("{option} {}: {why}", wanted.text)));
        let addresses = match image.until(wanted) {
            Ok(addresses) => addresses,
            Err(error) => return Err(Error::Usage(format!("{option} {error}"))),
        };
        let mut places = Self {
            addresses,
            offsets: Vec::new(),
        };
        let Some(kernel) = &image.kernel else {
            return match places.addresses.is_empty() {
                false => Ok(places),
                true => fail(format!(
                    "expected an address, or a function or FILE:LINE of {}: no function or label \
                     has this name, and no code belongs to this line",
                    path.display()
                )),
            };
        };
        if !places.addresses.is_empty() || option == "--until" && wanted.text == RESET {
            return Ok(places);
        }
        if kernel.symbols.is_none() {
            return fail(format!(
                "expected an address: {} has no symbols of its own (kallsyms)",
                path.display()
            ));
        }
        if kernel.first().is_none() {
            return fail("expected an address: where the kernel runs cannot be found".to_owned());
        }
        places.offsets = kernel.offsets(&wanted.text).collect();
        match places.offsets.is_empty() {
            false => Ok(places),
            true => fail(format!(
                "expected an address, or a function of {}: no symbol has this name",
                path.display()
            )),
        }
    }

    /// Returns whether addresses are missing until the kernel's address is known.
    pub fn is_open(&self) -> bool {
        !self.offsets.is_empty()
    }

    /// Resolves and returns the missing addresses, in the kernel that runs at `text`.
    pub fn close(&mut self, text: u64) -> Vec<u64> {
        let offsets = std::mem::take(&mut self.offsets).into_iter();
        let found: Vec<u64> = offsets
            .map(|offset| text.wrapping_add(offset.into()))
            .collect();
        self.addresses.extend(&found);
        found
    }
}
