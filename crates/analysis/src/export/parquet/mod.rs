//! Tables as Apache Parquet files (parquet.apache.org/docs/file-format), one per table.
//!
//! A row group belongs to one track. Its columns are encoded while the trace is decoded, and wait
//! in a temporary file of the track until all tracks are complete: memory use does not grow with
//! the trace, and the order of rows does not depend on the number of threads.

mod chunk;
mod schema;

use super::ExportError;
use super::columns::Table;
use super::rows::{Sink, Value};
use super::spool::Spool;
use ::parquet::column::writer::ColumnCloseResult;
use ::parquet::errors::ParquetError;
use ::parquet::file::writer::SerializedFileWriter;
use bytes::Bytes;
use chunk::{Chunk, Staged};
use schema::TableSchema;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Rows of a row group.
const GROUP: usize = 1 << 20;
/// Rows encoded at once.
const BATCH: usize = 1 << 12;

/// The tables of one track.
#[derive(Debug)]
pub struct Sheets {
    sheets: Vec<Sheet>,
    spool: Spool,
    /// Bytes in the spool.
    size: u64,
    error: Option<ParquetError>,
}

/// A table of one track.
#[derive(Debug)]
struct Sheet {
    table: Table,
    schema: TableSchema,
    staged: Vec<Staged>,
    /// Rows in `staged`, and in the open row group.
    rows: (usize, usize),
    /// The columns of the open row group.
    chunks: Vec<Chunk>,
    groups: Vec<Group>,
}

/// A row group in the spool.
#[derive(Debug)]
struct Group {
    /// Offset of its first column.
    offset: u64,
    columns: Vec<ColumnCloseResult>,
}

/// All row groups of a track.
struct Complete {
    tables: Vec<(Table, Vec<Group>)>,
    /// The file that contains them.
    spool: File,
}

fn failure(error: ParquetError) -> ExportError {
    ExportError::Io(io::Error::other(error))
}

/// The schemas of the wanted tables.
#[derive(Clone, Debug)]
pub struct TableSchemas(Vec<(Table, TableSchema)>);

impl TableSchemas {
    /// Describes tables.
    ///
    /// # Errors
    ///
    /// On a big-endian machine, where the parquet crate writes files that cannot be read.
    pub fn of(tables: &[Table]) -> Result<Self, ExportError> {
        if cfg!(target_endian = "big") {
            let why = "parquet files cannot be written on a big-endian machine: use csv or jsonl";
            return Err(ExportError::Unfit(why.to_owned()));
        }
        let tables = tables.iter();
        let schemas = tables.map(|&table| Ok((table, TableSchema::of(table)?)));
        let schemas = schemas.collect::<Result<_, _>>().map_err(failure)?;
        Ok(Self(schemas))
    }
}

impl Sheets {
    /// Starts the tables of a track.
    pub fn new(schemas: &TableSchemas) -> Self {
        let sheets = schemas.0.iter().map(|(table, schema)| {
            let columns = table.columns().iter();
            Sheet {
                table: *table,
                schema: schema.clone(),
                staged: columns.map(|column| Staged::new(column.kind)).collect(),
                rows: (0, 0),
                chunks: Vec::new(),
                groups: Vec::new(),
            }
        });
        Self {
            sheets: sheets.collect(),
            spool: Spool::new(),
            size: 0,
            error: None,
        }
    }

    /// Ends the row groups.
    fn finish(mut self) -> Result<Complete, ExportError> {
        if let Some(error) = self.error {
            return Err(failure(error));
        }
        for sheet in &mut self.sheets {
            sheet.encode().map_err(failure)?;
            let end = sheet.end_group(&mut self.spool, &mut self.size);
            end.map_err(failure)?;
        }
        let groups = self.sheets.into_iter();
        let groups = groups.map(|sheet| (sheet.table, sheet.groups));
        Ok(Complete {
            tables: groups.collect(),
            spool: self.spool.into_file()?,
        })
    }
}

impl Sink for Sheets {
    fn wants(&self, table: Table) -> bool {
        self.sheets.iter().any(|sheet| sheet.table == table)
    }

    fn put(&mut self, table: Table, values: &[Value<'_>]) {
        let mut sheets = self.sheets.iter_mut();
        let Some(sheet) = sheets.find(|sheet| sheet.table == table) else {
            return;
        };
        if self.error.is_some() {
            return;
        }
        debug_assert_eq!(sheet.staged.len(), values.len());
        for (staged, value) in sheet.staged.iter_mut().zip(values) {
            staged.push(*value);
        }
        sheet.rows.0 += 1;
        if sheet.rows.0 == BATCH {
            let mut done = sheet.encode();
            if sheet.rows.1 >= GROUP {
                done = done.and_then(|()| sheet.end_group(&mut self.spool, &mut self.size));
            }
            self.error = done.err();
        }
    }
}

impl Sheet {
    /// Encodes the staged rows.
    fn encode(&mut self) -> Result<(), ParquetError> {
        if self.rows.0 == 0 {
            return Ok(());
        }
        if self.chunks.is_empty() {
            self.chunks = self.schema.chunks();
        }
        for (chunk, staged) in self.chunks.iter_mut().zip(&mut self.staged) {
            chunk.write(staged)?;
            staged.clear();
        }
        self.rows = (0, self.rows.1 + self.rows.0);
        Ok(())
    }

    /// Moves the open row group to the spool, if there is one.
    fn end_group(&mut self, spool: &mut Spool, size: &mut u64) -> Result<(), ParquetError> {
        let chunks = std::mem::take(&mut self.chunks);
        if chunks.is_empty() {
            return Ok(());
        }
        let offset = *size;
        let columns = chunks.into_iter().map(|chunk| {
            let (bytes, column) = chunk.close()?;
            spool.put(&bytes);
            *size += bytes.len() as u64;
            Ok(column)
        });
        let columns = columns.collect::<Result<_, ParquetError>>()?;
        self.groups.push(Group { offset, columns });
        self.rows.1 = 0;
        Ok(())
    }
}

/// Writes a file for each table into a directory.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write(
    directory: &Path,
    schemas: &TableSchemas,
    tracks: Vec<Sheets>,
) -> Result<(), ExportError> {
    let tracks = tracks.into_iter().map(Sheets::finish);
    let mut tracks: Vec<_> = tracks.collect::<Result<_, _>>()?;
    for (table, schema) in &schemas.0 {
        let path = directory.join(format!("{}.parquet", table.name()));
        let file = File::create_new(path)?;
        let mut out = schema.file(file).map_err(failure)?;
        for Complete { tables, spool } in &mut tracks {
            let own = tables.iter_mut().filter(|(own, _)| own == table);
            for group in own.flat_map(|(_, groups)| groups.drain(..)) {
                append(&mut out, group, spool).map_err(failure)?;
            }
        }
        out.close().map_err(failure)?;
    }
    Ok(())
}

/// Copies a row group.
fn append(
    out: &mut SerializedFileWriter<File>,
    group: Group,
    spool: &mut File,
) -> Result<(), ParquetError> {
    spool.seek(SeekFrom::Start(group.offset))?;
    let mut to = out.next_row_group()?;
    for column in group.columns {
        let mut bytes = Vec::new();
        spool.take(column.bytes_written).read_to_end(&mut bytes)?;
        to.append_column(&Bytes::from(bytes), column)?;
    }
    to.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::parquet::file::reader::{FileReader, SerializedFileReader};

    #[test]
    #[cfg_attr(target_endian = "big", ignore = "refused there")]
    fn rows_are_grouped_by_track() {
        let schemas = TableSchemas::of(&[Table::Lines]).unwrap();
        let track = |rows: u64| {
            let mut sheets = Sheets::new(&schemas);
            for row in 0..rows {
                let known = [Value::Text("main.c"), Value::Number(row), Value::Number(7)];
                sheets.put(Table::Lines, &known);
            }
            sheets
        };
        let directory = tempfile::tempdir().unwrap();
        let group = GROUP as u64;
        let tracks = vec![track(group + 5), track(0), track(3)];
        write(directory.path(), &schemas, tracks).unwrap();
        let file = File::open(directory.path().join("lines.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let groups = reader.metadata().row_groups().iter();
        let groups: Vec<i64> = groups.map(|group| group.num_rows()).collect();
        assert_eq!(groups, [GROUP as i64, 5, 3]);
        for (number, rows) in [(0, group), (1, 5), (2, 3)] {
            let rows_of = reader.get_row_group(number).unwrap();
            let last = rows_of.get_row_iter(None).unwrap().last().unwrap().unwrap();
            let first = if number == 1 { group } else { 0 };
            let text = format!("{{file: \"main.c\", line: {}, count: 7}}", first + rows - 1);
            assert_eq!(last.to_string(), text);
        }
    }

    #[test]
    #[cfg(target_endian = "big")]
    fn big_endian_machines_are_refused() {
        let refused = TableSchemas::of(&[Table::Lines]).err().unwrap();
        assert!(refused.to_string().contains("big-endian"));
    }

    #[test]
    #[cfg_attr(target_endian = "big", ignore = "refused there")]
    fn numbers_that_do_not_fit_are_the_largest() {
        let schemas = TableSchemas::of(&[Table::Lines, Table::Gaps]).unwrap();
        let mut sheets = Sheets::new(&schemas);
        let most = Value::Number(u64::MAX);
        sheets.put(Table::Lines, &[Value::None, most, Value::Number(1)]);
        let none = [Value::None; 9];
        let address = [Value::Address(u64::MAX)];
        sheets.put(Table::Gaps, &[&none[..], &address].concat());
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &schemas, vec![sheets]).unwrap();
        let row = |name: &str| {
            let file = File::open(directory.path().join(name)).unwrap();
            let reader = SerializedFileReader::new(file).unwrap();
            let mut rows = reader.get_row_iter(None).unwrap();
            rows.next().unwrap().unwrap().to_string()
        };
        let lines = row("lines.parquet");
        assert_eq!(
            lines,
            format!("{{file: null, line: {}, count: 1}}", i64::MAX)
        );
        let gaps = row("gaps.parquet");
        assert!(
            gaps.ends_with(&format!("resumes_at: {}}}", u64::MAX)),
            "{gaps}"
        );
    }
}
