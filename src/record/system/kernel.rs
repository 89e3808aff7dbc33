//! A Linux kernel for QEMU's own boot protocol (`-kernel`): an arm64 `Image`, also compressed with
//! gzip or as an EFI application that unpacks itself (zboot).
//!
//! The address at which the kernel runs is known once it has relocated itself.

use crate::record::snapshot_files::Ram;
use armsnap_snapshot::linux::module_names::ModuleNames;
use armsnap_snapshot::linux::modules::NoModules;
use armsnap_snapshot::linux::physical::PhysicalKernel;
use armsnap_snapshot::linux::vmcoreinfo::Info;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::program::kallsyms::Kallsyms;
use armsnap_snapshot::program::kernel_symbols;
use std::io::Read;

/// A kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    /// The unpacked image.
    pub image: Mapped,
    /// Whether the file was compressed.
    pub packed: bool,
    /// Its own symbols, if it has them.
    pub symbols: Option<Kallsyms>,
}

/// Maximum size of an unpacked image.
const LARGEST: u64 = 512 << 20;

/// The function whose address shows where the kernel runs: the first one after relocation.
const FIRST: &str = "start_kernel";

impl Kernel {
    /// Reads a file if it is a kernel. Fails with the reason if it cannot be used.
    pub fn read(bytes: &Mapped) -> Result<Option<Self>, String> {
        let unpacked: Option<Mapped> = if bytes.starts_with(&[0x1f, 0x8b]) {
            Some(gunzip(bytes)?.into())
        } else {
            zboot(bytes)?.map(Mapped::from)
        };
        let packed = unpacked.is_some();
        let image = unpacked.unwrap_or_else(|| bytes.clone());
        if !is_image(&image) {
            return match packed {
                true => Err("a compressed file without an arm64 Linux image in it".to_owned()),
                false => Ok(None),
            };
        }
        Ok(Some(Self {
            symbols: Kallsyms::find(&image),
            image,
            packed,
        }))
    }

    /// Returns the start of the image and the offset of a function in it, whose first execution shows
    /// where the kernel runs.
    pub fn first(&self) -> Option<(u64, u32)> {
        let start = u64::from_be_bytes(*self.image.first_chunk()?);
        Some((start, self.offsets(FIRST).next()?))
    }

    /// Returns the offsets of a function in the image.
    pub fn offsets<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        let symbols = self.symbols.as_ref();
        let based = symbols.and_then(|symbols| Some((symbols, symbols.base()?)));
        based
            .into_iter()
            .flat_map(move |(symbols, (first, image))| {
                let lead = (first - image) as u32;
                symbols
                    .offsets(name)
                    .map(move |offset| lead.saturating_add(offset))
            })
    }

    /// Returns the address at which the image was linked.
    pub fn linked_at(&self) -> Option<u64> {
        Some(self.symbols.as_ref()?.base()?.1)
    }

    /// Returns an ELF file for the kernel that runs at `text`: the names of its functions, and how
    /// to find their callers. `signed`: return addresses may have authentication codes.
    pub fn symbol_file(&self, text: u64, signed: bool) -> Option<Vec<u8>> {
        let symbols = self.symbols.as_ref()?;
        kernel_symbols::write(symbols, &self.image, text, signed)
    }

    /// Returns the names of the modules of the kernel that runs at `text`, from physical memory; `None`
    /// if the kernel has not described itself yet. Fails with the reason if they cannot be read.
    pub fn module_names(
        &self,
        ram: &Ram,
        text: u64,
        signed: bool,
    ) -> Option<Result<ModuleNames, NoModules>> {
        let info = Info::find(&ram.bytes, false)?;
        let kernel = PhysicalKernel::new(ram.pieces(), &info)?;
        let symbols = kernel_symbols::placed(self.symbols.as_ref()?, text)?;
        let symbols = symbols.map(|(symbol, address, size)| (&*symbol.name, address, size));
        Some(ModuleNames::find(&kernel, symbols, signed))
    }
}

/// Documentation/arm64/booting.rst: "ARM\x64" at offset 56.
fn is_image(bytes: &[u8]) -> bool {
    bytes.get(56..60) == Some(b"ARM\x64")
}

fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    limited(flate2::read::GzDecoder::new(bytes)).map_err(|error| format!("gzip: {error}"))
}

/// Unpacks an EFI zboot image: after "MZ\0\0zimg" the offset and size of the compressed data, and at
/// offset 24 the name of the compression (drivers/firmware/efi/libstub/zboot-header.S).
fn zboot(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    if bytes.get(..2) != Some(b"MZ") || bytes.get(4..8) != Some(b"zimg") {
        return Ok(None);
    }
    let word = |at: usize| {
        let word = bytes.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*word)).ok()
    };
    let data = (|| bytes.get(word(8)?..)?.get(..word(12)?))();
    let data = data.ok_or("zboot: the compressed data is not inside the file")?;
    let name = bytes.get(24..56).unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let unpacked = match name {
        b"gzip" => gunzip(data)?,
        b"zstd" | b"zstd22" => {
            let reader = ruzstd::decoding::StreamingDecoder::new(data);
            let reader = reader.map_err(|error| format!("zstd: {error}"))?;
            limited(reader).map_err(|error| format!("zstd: {error}"))?
        }
        other => {
            return Err(format!(
                "zboot: compressed with {:?}: expected gzip or zstd",
                String::from_utf8_lossy(other)
            ));
        }
    };
    Ok(Some(unpacked))
}

fn limited(reader: impl Read) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    reader.take(LARGEST + 1).read_to_end(&mut out)?;
    if out.len() as u64 > LARGEST {
        return Err(std::io::Error::other("larger than 512 MiB when unpacked"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn image() -> Vec<u8> {
        let mut image = vec![0x11; 5000];
        image[56..60].copy_from_slice(b"ARM\x64");
        image
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zboot(name: &[u8], offset: u32, data: &[u8]) -> Vec<u8> {
        let mut out = b"MZ\0\0zimg".to_vec();
        out.extend(offset.to_le_bytes());
        out.extend((data.len() as u32).to_le_bytes());
        out.resize(24, 0);
        out.extend(name);
        out.resize(64, 0);
        out.extend(data);
        out
    }

    fn read(bytes: &[u8]) -> Result<Option<Kernel>, String> {
        Kernel::read(&bytes.to_vec().into())
    }

    #[test]
    fn images_in_all_packings() {
        let packed = gzip(&image());
        for bytes in [image(), packed.clone(), zboot(b"gzip", 64, &packed)] {
            let kernel = read(&bytes).unwrap().unwrap();
            assert_eq!(*kernel.image, image());
            assert!(kernel.symbols.is_none());
        }
        assert!(read(b"\x7fELF").unwrap().is_none());
        assert!(read(&[]).unwrap().is_none());
    }

    #[test]
    fn bad_packings_are_refused_with_the_reason() {
        let packed = gzip(&image());
        let refused = |bytes: &[u8], why: &str| {
            let error = read(bytes).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused(&packed[..packed.len() / 2], "gzip");
        refused(&gzip(b"text"), "without an arm64 Linux image");
        refused(&zboot(b"gzip", 65, &packed), "not inside the file");
        refused(&zboot(b"gzip", u32::MAX, &packed), "not inside the file");
        refused(&zboot(b"lzma", 64, &packed), "expected gzip or zstd");
        refused(&zboot(b"zstd", 64, &packed), "zstd");
    }
}
