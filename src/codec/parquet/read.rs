//! Reads the rows of a Parquet file, one row group after the other. Memory: a page of each column, and the footer.

use std::fs::File;
use std::sync::Arc;

use apache_avro::Schema as AvroSchema;
use bytes::Bytes;
use parquet::basic::Compression;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Row;
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

use super::column::{ParquetColumn, record};
use super::{ParquetFileError, guarded};

/// Values of a column that are decoded at once. Larger: more memory per column. Smaller: more calls.
const BATCH_VALUES: usize = 1024;

/// Reads the rows of a file as Avro data.
pub struct ParquetReader {
    file: SerializedFileReader<File>,
    /// The columns that can be read.
    projection: SchemaDescPtr,
    columns: Vec<ParquetColumn>,
    schema: Arc<AvroSchema>,
    next_group: usize,
    rows: Option<ReaderIter>,
}

impl ParquetReader {
    /// Reads the footer.
    pub fn open(file: File) -> Result<Self, ParquetFileError> {
        let file = guarded(|| SerializedFileReader::new(file))?;
        check_codecs(&file)?;
        let root = file.metadata().file_metadata().schema_descr().root_schema_ptr();
        let read = guarded(|| {
            let read: Vec<_> =
                root.get_fields().iter().filter_map(|f| Some((f.clone(), ParquetColumn::of(f, 0)?))).collect();
            Ok(read)
        })?;
        let (types, columns): (Vec<_>, Vec<_>) = read.into_iter().unzip();
        let projection = guarded(|| {
            let message = Type::group_type_builder(root.name()).with_fields(types).build()?;
            Ok(Arc::new(SchemaDescriptor::new(Arc::new(message))))
        })?;
        let schema = Arc::new(record(&columns, &mut 0)?);
        Ok(Self { file, projection, columns, schema, next_group: 0, rows: None })
    }

    /// The Avro schema of its rows.
    pub fn schema(&self) -> &Arc<AvroSchema> {
        &self.schema
    }

    /// The next row as an Avro datum; `None` at the end.
    pub fn next_row(&mut self) -> Result<Option<Bytes>, ParquetFileError> {
        loop {
            if let Some(rows) = &mut self.rows
                && let Some(row) = guarded(|| rows.next().transpose())?
            {
                return self.datum(&row).map(Some).ok_or(ParquetFileError::Corrupt);
            }
            if self.next_group == self.file.num_row_groups() {
                return Ok(None);
            }
            let group = self.next_group;
            self.next_group += 1;
            self.rows = Some(guarded(|| {
                let group = self.file.get_row_group(group)?;
                TreeBuilder::new().with_batch_size(BATCH_VALUES).as_iter(Arc::clone(&self.projection), &*group)
            })?);
        }
    }

    fn datum(&self, row: &Row) -> Option<Bytes> {
        let mut datum = Vec::new();
        let mut values = row.get_column_iter().map(|(_, value)| value);
        self.columns.iter().try_for_each(|column| column.write(values.next()?, &mut datum))?;
        Some(datum.into())
    }
}

/// Refuses a compression that this build does not read, before anything is read.
fn check_codecs(file: &SerializedFileReader<File>) -> Result<(), ParquetFileError> {
    let mut columns = file.metadata().row_groups().iter().flat_map(|group| group.columns());
    let unread = columns.find_map(|column| match column.compression() {
        Compression::BROTLI(_) => Some("brotli"),
        Compression::LZO => Some("lzo"),
        _ => None,
    });
    unread.map_or(Ok(()), |codec| Err(ParquetFileError::Codec(codec)))
}
