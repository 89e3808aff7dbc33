//! A column of a row group: values waiting to be encoded, and the encoded pages in memory.

use super::super::columns::ColumnType;
use super::super::rows::Value;
use ::parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use ::parquet::column::writer::{ColumnCloseResult, ColumnWriter, get_column_writer};
use ::parquet::data_type::ByteArray;
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterPropertiesPtr;
use ::parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use ::parquet::schema::types::ColumnDescPtr;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Values that are not encoded yet.
#[derive(Debug)]
pub struct Staged {
    values: Values,
    /// The highest number that the column can contain.
    most: u64,
    /// 1 for each row, or 0 if its value is unknown.
    levels: Vec<i16>,
}

#[derive(Debug)]
enum Values {
    Numbers(Vec<i64>),
    Flags(Vec<bool>),
    Texts(Vec<ByteArray>),
}

impl Staged {
    /// Allocates space for values of a kind.
    pub fn new(kind: ColumnType) -> Self {
        Self {
            values: match kind {
                ColumnType::Text => Values::Texts(Vec::new()),
                ColumnType::Flag => Values::Flags(Vec::new()),
                _ => Values::Numbers(Vec::new()),
            },
            most: match kind {
                ColumnType::Number | ColumnType::Address | ColumnType::Time => u64::MAX,
                _ => i64::MAX as u64,
            },
            levels: Vec::new(),
        }
    }

    /// Adds a value.
    #[inline]
    pub fn push(&mut self, value: Value<'_>) {
        match (&mut self.values, value) {
            (Values::Numbers(all), Value::Number(number) | Value::Address(number)) => {
                all.push(number.min(self.most) as i64);
            }
            (Values::Numbers(all), Value::Signed(number)) => all.push(number),
            (Values::Flags(all), Value::Flag(flag)) => all.push(flag),
            (Values::Texts(all), Value::Text(text)) => {
                // Texts repeat, especially those of tracks.
                let same = all.last().filter(|last| last.data() == text.as_bytes());
                let new = || ByteArray::from(text.as_bytes().to_vec());
                let text = same.cloned().unwrap_or_else(new);
                all.push(text);
            }
            (_, value) => {
                debug_assert_eq!(value, Value::None);
                return self.levels.push(0);
            }
        }
        self.levels.push(1);
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.levels.clear();
        match &mut self.values {
            Values::Numbers(all) => all.clear(),
            Values::Flags(all) => all.clear(),
            Values::Texts(all) => all.clear(),
        }
    }
}

/// A column of a row group while being encoded.
pub struct Chunk {
    writer: ColumnWriter<'static>,
    pages: Pages,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").finish_non_exhaustive()
    }
}

/// Pages in memory, shared by a chunk and its writer.
#[derive(Clone)]
struct Pages(Arc<Mutex<TrackedWrite<Vec<u8>>>>);

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec, ParquetError> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        SerializedPageWriter::new(&mut bytes).write_page(page)
    }

    fn close(&mut self) -> Result<(), ParquetError> {
        Ok(())
    }
}

impl Chunk {
    /// Starts a column.
    pub fn new(column: ColumnDescPtr, properties: WriterPropertiesPtr) -> Self {
        let pages = Pages(Arc::new(Mutex::new(TrackedWrite::new(Vec::new()))));
        let writer = Box::new(pages.clone());
        Self {
            writer: get_column_writer(column, properties, writer),
            pages,
        }
    }

    /// Encodes values.
    ///
    /// # Errors
    ///
    /// If the values are not of the column's type.
    pub fn write(&mut self, staged: &Staged) -> Result<(), ParquetError> {
        let levels = Some(&*staged.levels);
        match (&mut self.writer, &staged.values) {
            (ColumnWriter::Int64ColumnWriter(writer), Values::Numbers(values)) => {
                writer.write_batch(values, levels, None)?;
            }
            (ColumnWriter::BoolColumnWriter(writer), Values::Flags(values)) => {
                writer.write_batch(values, levels, None)?;
            }
            (ColumnWriter::ByteArrayColumnWriter(writer), Values::Texts(values)) => {
                writer.write_batch(values, levels, None)?;
            }
            _ => return Err(ParquetError::General("a column of another type".to_owned())),
        }
        Ok(())
    }

    /// Ends the column; returns its pages and their description.
    ///
    /// # Errors
    ///
    /// If the last values cannot be encoded.
    pub fn close(self) -> Result<(Vec<u8>, ColumnCloseResult), ParquetError> {
        let column = self.writer.close()?;
        let pages = Arc::into_inner(self.pages.0);
        let pages = pages.ok_or_else(|| ParquetError::General("a column is open".to_owned()))?;
        let pages = pages.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((pages.into_inner()?, column))
    }
}
