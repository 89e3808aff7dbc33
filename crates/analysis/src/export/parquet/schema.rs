//! How a table's columns are stored.

use super::super::columns::{Column, ColumnType, Table};
use super::chunk::Chunk;
use ::parquet::basic::{
    Compression, Encoding, GzipLevel, LogicalType, Repetition, Type as Physical,
};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::SortingColumn;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{ColumnPath, SchemaDescPtr, SchemaDescriptor, Type};
use std::fs::File;
use std::sync::Arc;

/// The schema of a table, and the encodings of its columns.
#[derive(Clone, Debug)]
pub struct TableSchema {
    schema: SchemaDescPtr,
    properties: WriterPropertiesPtr,
}

impl TableSchema {
    /// Describes a table.
    ///
    /// # Errors
    ///
    /// None known.
    pub fn of(table: Table) -> Result<Self, ParquetError> {
        let fields = table
            .columns()
            .iter()
            .map(|column| Ok(Arc::new(field(column)?)));
        let fields = fields.collect::<Result<_, ParquetError>>()?;
        let root = Type::group_type_builder(table.name());
        let root = root.with_fields(fields).build()?;
        Ok(Self {
            schema: Arc::new(SchemaDescriptor::new(Arc::new(root))),
            properties: Arc::new(properties(table)),
        })
    }

    /// Starts the columns of a row group.
    pub fn chunks(&self) -> Vec<Chunk> {
        let columns = self.schema.columns().iter();
        columns
            .map(|column| Chunk::new(Arc::clone(column), Arc::clone(&self.properties)))
            .collect()
    }

    /// Starts a file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn file(&self, file: File) -> Result<SerializedFileWriter<File>, ParquetError> {
        let properties = Arc::clone(&self.properties);
        SerializedFileWriter::new(file, self.schema.root_schema_ptr(), properties)
    }
}

/// The type of a column. Unknown values are null.
fn field(column: &Column) -> Result<Type, ParquetError> {
    let unsigned = LogicalType::integer(64, false);
    let (physical, logical) = match column.kind {
        ColumnType::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnType::Flag => (Physical::BOOLEAN, None),
        ColumnType::Count | ColumnType::Signed | ColumnType::Clock => (Physical::INT64, None),
        ColumnType::Number | ColumnType::Address | ColumnType::Time => {
            (Physical::INT64, Some(unsigned))
        }
    };
    Type::primitive_type_builder(column.name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::OPTIONAL)
        .build()
}

/// Numbers are delta-coded: mostly increasing ones always, others when a column has too many
/// different values for a dictionary.
fn properties(table: Table) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("armsnap version {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for column in table.columns() {
        let path = ColumnPath::from(column.name);
        if !matches!(column.kind, ColumnType::Text | ColumnType::Flag) {
            properties =
                properties.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
        }
        if matches!(column.kind, ColumnType::Clock | ColumnType::Time) {
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    if table == Table::Exec {
        // A row group contains rows of one track, in order of execution.
        let names = table.columns().iter();
        let sequence = names
            .map(|column| column.name)
            .position(|name| name == "sequence");
        let sequence = sequence.map(|index| SortingColumn {
            column_idx: index as i32,
            descending: false,
            nulls_first: false,
        });
        properties = properties.set_sorting_columns(sequence.map(|column| vec![column]));
    }
    properties.build()
}
