//! The structure of a `perf.data` file: header, event attributes, feature sections, records.
//!
//! The layout is that of Linux (`tools/perf/Documentation/perf.data-file-format.txt`). A file is
//! mapped and walked in place: no length or count in it is trusted, and the trace in it is never
//! copied. (The crate `linux-perf-data` reads such files too, but copies every record, allocates
//! memory according to lengths in the file, and panics on some of them.)

use super::inflate::{Inflate, Stopped};
use crate::import::fields::Fields;
use armsnap_snapshot::mapped::Mapped;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Why a file cannot be read as `perf.data`.
#[derive(Debug, thiserror::Error)]
#[error("at byte {at:#x}: {text}")]
pub struct FileError {
    /// The offset in the file.
    pub at: u64,
    /// What was found, and what was expected.
    pub text: String,
}

pub(super) fn fault(at: usize, text: impl Into<String>) -> FileError {
    FileError {
        at: at as u64,
        text: text.into(),
    }
}

impl Stopped<FileError> {
    /// The fault of a compressed record at an offset.
    fn at(self, at: usize) -> FileError {
        match self {
            Self::Inner(error) => error,
            Self::Damaged(why) => fault(at, why),
        }
    }
}

/// The record types that are used here.
pub mod kind {
    #![allow(missing_docs)]
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const AUX: u32 = 11;
    pub const ITRACE_START: u32 = 12;
    pub const SWITCH: u32 = 14;
    pub const SWITCH_CPU_WIDE: u32 = 15;
    pub const AUX_OUTPUT_HW_ID: u32 = 21;
    pub const HEADER_ATTR: u32 = 64;
    pub const HEADER_BUILD_ID: u32 = 67;
    pub const AUXTRACE_INFO: u32 = 70;
    pub const AUXTRACE: u32 = 71;
    pub const TIME_CONV: u32 = 79;
    pub const HEADER_FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
    /// The first of simpleperf's own types.
    pub const SIMPLEPERF: u32 = 32768;
}

/// The feature sections that are used here.
pub mod feature {
    #![allow(missing_docs)]
    pub const BUILD_ID: u32 = 2;
    pub const CMDLINE: u32 = 11;
    pub const SIMPLEPERF_META_INFO: u32 = 129;
}

/// The bits of `perf_event_attr.sample_type` for fields that follow every record.
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const STREAM_ID: u64 = 1 << 9;
const IDENTIFIER: u64 = 1 << 16;
/// `perf_event_attr.sample_id_all`.
const SAMPLE_ID_ALL: u64 = 1 << 18;

/// The parts of `perf_event_attr` that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attribute {
    sample_type: u64,
    sample_id_all: bool,
}

/// The event attributes of a file.
#[derive(Clone, Debug, Default)]
struct Attributes {
    first: Option<Attribute>,
    /// Whether any other attribute differs from the first.
    differ: bool,
    /// Whether the records of all attributes end with an identifier.
    identified: bool,
    by_id: HashMap<u64, Attribute>,
}

impl Attributes {
    /// Adds an attribute with the identifiers in `ids`.
    fn add(&mut self, attribute: Attribute, mut ids: Fields<'_>) {
        let identified = attribute.sample_type & IDENTIFIER != 0;
        match self.first {
            None => (self.first, self.identified) = (Some(attribute), identified),
            Some(first) => {
                self.differ |= attribute != first;
                self.identified &= identified;
            }
        }
        while let Some(id) = ids.u64() {
            self.by_id.entry(id).or_insert(attribute);
        }
    }

    /// The attribute that a record belongs to, found by its identifier if the attributes differ.
    fn of(&self, body: &[u8], big: bool) -> Option<Attribute> {
        if !self.differ || !self.identified {
            return self.first;
        }
        let id = Fields::new(body.last_chunk::<8>()?, big).u64()?;
        self.by_id.get(&id).copied().or(self.first)
    }
}

impl Attribute {
    /// Reads the fixed first part of the structure: type, size, config, period, sample type, read
    /// format, flags.
    fn read(bytes: &[u8], big: bool) -> Option<Self> {
        let mut fields = Fields::new(bytes, big);
        fields.bytes(24)?;
        let sample_type = fields.u64()?;
        fields.u64()?;
        let flags = fields.u64()?;
        // In bit fields of the other byte order, the bits of a word are counted from the top.
        let id_all = match big {
            false => flags & SAMPLE_ID_ALL,
            true => flags & SAMPLE_ID_ALL.reverse_bits(),
        };
        Some(Self {
            sample_type,
            sample_id_all: id_all != 0,
        })
    }

    /// The number of bytes that follow the fields of each record.
    fn trailer(&self) -> usize {
        let fields = self.sample_type & (TID | TIME | ID | STREAM_ID | CPU | IDENTIFIER);
        match self.sample_id_all {
            true => 8 * fields.count_ones() as usize,
            false => 0,
        }
    }
}

/// The data at the end of a record, if the file contains it: who caused the record, when and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// Process.
    pub pid: Option<u32>,
    /// Thread.
    pub tid: Option<u32>,
    /// Time on the perf clock, in nanoseconds.
    pub time: Option<u64>,
    /// CPU.
    pub cpu: Option<u32>,
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its type.
    pub kind: u32,
    /// `misc` of its header.
    pub misc: u16,
    /// Its fields, without the header.
    pub body: &'a [u8],
    /// Who, when, where.
    pub sample: SampleId,
    /// The offset of its header in the file, or that of the compressed record that contained it.
    pub at: usize,
    /// The byte order.
    pub big: bool,
}

impl<'a> Record<'a> {
    /// Its fields.
    pub const fn fields(&self) -> Fields<'a> {
        Fields::new(self.body, self.big)
    }
}

/// A `perf.data` file.
#[derive(Debug)]
pub struct PerfFile {
    /// Its bytes.
    pub bytes: Mapped,
    /// Whether its byte order is big-endian.
    pub big: bool,
    /// Whether it was written to a pipe, and therefore has no sections.
    pub piped: bool,
    attributes: Attributes,
    data: Range<usize>,
    features: BTreeMap<u32, Range<usize>>,
}

/// The maximum size of a record inside compressed records: its size has 16 bits.
const LARGEST_COMPRESSED: usize = 0xFFFF;

/// Whether bytes are the start of a `perf.data` file.
pub fn is_perf_data(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PERFILE2") || bytes.starts_with(b"2ELIFREP")
}

impl PerfFile {
    /// Reads the header, the attributes, and the locations of the sections.
    ///
    /// # Errors
    ///
    /// If the header or the attributes are damaged.
    pub fn open(bytes: Mapped) -> Result<Self, FileError> {
        let big = bytes.starts_with(b"2ELIFREP");
        let mut fields = Fields::new(&bytes, big);
        let short = || fault(bytes.len(), "the file ends in its header");
        fields.bytes(8).ok_or_else(short)?;
        let size = fields.u64().ok_or_else(short)?;
        if size == 16 {
            let data = 16..bytes.len();
            return Ok(Self {
                bytes,
                big,
                piped: true,
                attributes: Attributes::default(),
                data,
                features: BTreeMap::new(),
            });
        }
        if size < 64 {
            return Err(fault(8, format!("header of {size} bytes: expected 104")));
        }
        let mut word = || fields.u64().ok_or_else(short);
        let attribute_size = word()?;
        let mut section = |what: &str| -> Result<Range<usize>, FileError> {
            let (offset, length) = (word()?, word()?);
            let begin = usize::try_from(offset).ok().filter(|&at| at <= bytes.len());
            let begin = begin.ok_or_else(|| {
                fault(
                    8,
                    format!("the section of {what} begins at {offset:#x}, beyond the file"),
                )
            })?;
            let end = begin.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
            Ok(begin..end)
        };
        let attributes = section("attributes")?;
        let data = section("data")?;
        section("event types")?;
        // An interrupted recording has 0 here.
        let ended = !data.is_empty();
        let data = match ended {
            true => data.start..data.end.min(bytes.len()),
            false => data.start..bytes.len(),
        };
        let mut features = BTreeMap::new();
        let mut table = Fields::new(bytes.get(data.end..).unwrap_or(&[]), big);
        for group in 0..4 {
            let bits = word().unwrap_or(0);
            for bit in (0..64).filter(|bit| ended && bits >> bit & 1 == 1) {
                let Some((offset, length)) = table.u64().zip(table.u64()) else {
                    break;
                };
                let begin = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let end = begin.saturating_add(length).min(bytes.len());
                features.insert(group * 64 + bit, begin..end);
            }
        }
        let attributes = read_attributes(&bytes, attributes, attribute_size, big)?;
        Ok(Self {
            bytes,
            big,
            piped: false,
            attributes,
            data,
            features,
        })
    }

    /// Opens another file of the same directory, which contains only records.
    pub fn with_records(&self, bytes: Mapped) -> Self {
        Self {
            data: 0..bytes.len(),
            bytes,
            big: self.big,
            piped: self.piped,
            attributes: self.attributes.clone(),
            features: BTreeMap::new(),
        }
    }

    /// The bytes of a feature section.
    pub fn feature(&self, number: u32) -> Option<&[u8]> {
        self.bytes.get(self.features.get(&number)?.clone())
    }

    /// Calls `each` with the records in file order. Compressed records are decompressed. In a pipe,
    /// attributes and feature sections are records: they are kept for [`feature`](Self::feature)
    /// and not passed on. A file that ends within a record is read up to that point, and the fault
    /// is returned.
    ///
    /// # Errors
    ///
    /// If a record is invalid, or `each` fails.
    pub fn records(
        &mut self,
        each: &mut dyn FnMut(Record<'_>) -> Result<(), FileError>,
    ) -> Result<Option<FileError>, FileError> {
        let bytes = self.bytes.clone();
        let mut at = self.data.start;
        let mut inflate = Inflate::default();
        while at < self.data.end {
            let Some((kind, misc, size)) = header(&bytes[at..self.data.end], self.big) else {
                return Ok(Some(fault(
                    at,
                    "the file ends within the header of a record",
                )));
            };
            if size < 8 {
                return Err(fault(
                    at,
                    format!("record of type {kind} with {size} bytes"),
                ));
            }
            let Some(body) = bytes.get(at + 8..at + size) else {
                return Ok(Some(fault(
                    at,
                    format!("the file ends within a record of type {kind} with {size} bytes"),
                )));
            };
            // The trace follows its record.
            let trace = match kind {
                kind::AUXTRACE => Fields::new(body, self.big).u64().unwrap_or(0),
                _ => 0,
            };
            match kind {
                kind::COMPRESSED | kind::COMPRESSED2 => {
                    self.compressed(&mut inflate, kind, body, at, each)?;
                }
                kind::HEADER_ATTR if self.piped => self.attribute(body),
                kind::HEADER_FEATURE if self.piped => {
                    let number = Fields::new(body, self.big).u64().unwrap_or(0);
                    let number = u32::try_from(number).unwrap_or(u32::MAX);
                    self.features.insert(number, at + 16..at + size);
                }
                _ => each(self.record(kind, misc, body, at))?,
            }
            at = at
                .saturating_add(size)
                .saturating_add(usize::try_from(trace).unwrap_or(usize::MAX));
        }
        let mut last = |whole: &[u8]| self.inflated(whole, at, each);
        inflate.end(&mut last).map_err(|stopped| stopped.at(at))?;
        let rest = inflate.rest();
        Ok((rest > 0).then(|| {
            fault(
                at,
                format!("{rest} bytes of compressed records are left over"),
            )
        }))
    }

    /// Reads the records in a compressed record.
    fn compressed(
        &self,
        inflate: &mut Inflate,
        kind: u32,
        body: &[u8],
        at: usize,
        each: &mut dyn FnMut(Record<'_>) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let body = match kind {
            // The length without padding, followed by the bytes.
            kind::COMPRESSED2 => {
                let mut fields = Fields::new(body, self.big);
                let length = fields.u64().unwrap_or(0);
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                fields.rest().get(..length).unwrap_or(fields.rest())
            }
            _ => body,
        };
        let mut each = |whole: &[u8]| self.inflated(whole, at, each);
        inflate
            .feed(body, &mut each)
            .map_err(|stopped| stopped.at(at))
    }

    /// Passes the complete records in decompressed bytes to `each`. Returns the number of bytes
    /// used.
    fn inflated(
        &self,
        bytes: &[u8],
        at: usize,
        each: &mut dyn FnMut(Record<'_>) -> Result<(), FileError>,
    ) -> Result<usize, FileError> {
        let mut used = 0;
        while let Some((kind, misc, size)) = header(&bytes[used..], self.big) {
            if size < 8 {
                let text = format!("compressed record of type {kind} with {size} bytes");
                return Err(fault(at, text));
            }
            // Only simpleperf's own records are larger, and it does not compress them. A larger
            // record would require all bytes up to its end to be kept.
            if size > LARGEST_COMPRESSED {
                let text = format!(
                    "compressed record of type {kind} with {size} bytes: expected at most {LARGEST_COMPRESSED}"
                );
                return Err(fault(at, text));
            }
            // Trace is stored outside compressed records; for a record in here, its position in the
            // file is unknown.
            if kind == kind::AUXTRACE {
                return Err(fault(
                    at,
                    "compressed AUXTRACE record: expected it as it is",
                ));
            }
            let Some(body) = bytes.get(used + 8..used + size) else {
                break;
            };
            each(self.record(kind, misc, body, at))?;
            used += size;
        }
        Ok(used)
    }

    fn record<'a>(&self, kind: u32, misc: u16, body: &'a [u8], at: usize) -> Record<'a> {
        let attribute = match kind {
            kind::SAMPLE | 64.. => None,
            _ => self.attributes.of(body, self.big),
        };
        let split = attribute.and_then(|attribute| {
            let length = body.len().checked_sub(attribute.trailer())?;
            let (body, trailer) = body.split_at(length);
            Some((body, self.sample_id(attribute, trailer)))
        });
        let (body, sample) = split.unwrap_or((body, SampleId::default()));
        Record {
            kind,
            misc,
            body,
            sample,
            at,
            big: self.big,
        }
    }

    fn sample_id(&self, attribute: Attribute, trailer: &[u8]) -> SampleId {
        let mut fields = Fields::new(trailer, self.big);
        let mut out = SampleId::default();
        let has = |bit| attribute.sample_type & bit != 0;
        if has(TID) {
            out.pid = fields.u32();
            out.tid = fields.u32();
        }
        if has(TIME) {
            out.time = fields.u64();
        }
        for bit in [ID, STREAM_ID] {
            if has(bit) {
                fields.u64();
            }
        }
        if has(CPU) {
            // -1: not known.
            out.cpu = fields.u32().filter(|&cpu| cpu != u32::MAX);
        }
        out
    }

    /// Reads an attribute from a record in a pipe: the structure with its own size, and IDs.
    fn attribute(&mut self, body: &[u8]) {
        let mut fields = Fields::new(body, self.big);
        fields.u32();
        let size = fields.u32().unwrap_or(0) as usize;
        if let Some(attribute) = Attribute::read(body, self.big) {
            let ids = Fields::new(body.get(size..).unwrap_or(&[]), self.big);
            self.attributes.add(attribute, ids);
        }
    }
}

/// The type, `misc` and size of the record at the start of `bytes`.
fn header(bytes: &[u8], big: bool) -> Option<(u32, u16, usize)> {
    let mut fields = Fields::new(bytes, big);
    let (kind, misc, size) = (fields.u32()?, fields.u16()?, fields.u16()?);
    // simpleperf's own records have the upper half of their size in place of `misc`.
    match kind >= kind::SIMPLEPERF {
        true => Some((kind, 0, usize::from(misc) << 16 | usize::from(size))),
        false => Some((kind, misc, size.into())),
    }
}

/// Reads the attributes in their section, each followed by the location of its IDs.
fn read_attributes(
    bytes: &[u8],
    section: Range<usize>,
    size: u64,
    big: bool,
) -> Result<Attributes, FileError> {
    let Some(size) = usize::try_from(size).ok().filter(|size| *size >= 64) else {
        return Err(fault(
            16,
            format!("attributes of {size} bytes: expected 64 at least"),
        ));
    };
    let all = &bytes[section.start..section.end.min(bytes.len())];
    let mut out = Attributes::default();
    let (mut ids, most) = (0, bytes.len() / 8);
    for (index, each) in all.chunks_exact(size).enumerate() {
        let at = section.start + index * size;
        let attribute =
            Attribute::read(each, big).ok_or_else(|| fault(at, "attribute cut short"))?;
        let mut place = Fields::new(&each[size - 16..], big);
        let (offset, length) = (place.u64().unwrap_or(0), place.u64().unwrap_or(0));
        let offset = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let listed = &bytes[offset..offset.saturating_add(length).min(bytes.len())];
        // Many attributes may refer to the same long list.
        ids += listed.len() / 8;
        if ids > most {
            return Err(fault(
                at,
                "attributes with more IDs than the file has room for",
            ));
        }
        out.add(attribute, Fields::new(listed, big));
    }
    Ok(out)
}
