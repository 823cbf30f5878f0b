//! Writes published rows as a Parquet file, compressed with zstd: labels as text, other fields with the types of the input.
//!
//! A field of an input without types (CSV, JSON) is text. The file is complete only with its footer, which
//! [`Encode::finish`] writes: a Parquet file cannot be continued. Memory: one row group.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use apache_avro::Schema as AvroSchema;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::guarded;
use crate::codec::avro::container::{take_bytes, take_long, write_bytes};
use crate::codec::avro::{value_kinds, write_value};
use crate::codec::schemas::kind::Kind;
use crate::codec::{Encode, EncodeError};
use crate::model::schema::{PathTree, Schema};

/// Rows of a row group. Larger: more memory here and in readers. Smaller: readers that skip row groups read more of them.
const GROUP_ROWS: usize = 64 << 10;
/// Bytes of a row group in memory, about. Larger: more memory. Smaller: groups of few rows where rows are long.
const GROUP_BYTES: usize = 32 << 20;

/// Writes published rows as a Parquet file.
pub(crate) struct ParquetEncoder {
    /// The labels, and then the other fields.
    columns: Vec<ColumnBuffer>,
    /// Where they lie in the file: paths are structs.
    tree: PathTree,
    writer: Option<SerializedFileWriter<Sink>>,
    written: Sink,
    value: Vec<u8>,
    rows: usize,
    bytes: usize,
}

impl ParquetEncoder {
    /// An encoder of the published fields of `schema`, with their types in `writers`.
    pub(crate) fn new(schema: &Schema, writers: &[&AvroSchema]) -> Self {
        let labels = schema.quasi.iter().map(|slot| ColumnBuffer::new(schema.name(*slot), None));
        let values = value_kinds(schema, writers);
        let columns =
            labels.chain(values.into_iter().map(|(name, kind)| ColumnBuffer::new(&name, Some(kind)))).collect();
        Self {
            columns,
            tree: schema.output(),
            writer: None,
            written: Sink::default(),
            value: Vec::new(),
            rows: 0,
            bytes: 0,
        }
    }

    fn start(&self) -> ParquetResult<SerializedFileWriter<Sink>> {
        let schema = Type::group_type_builder("published").with_fields(self.members(&self.tree)?).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by("veilstream".into())
            .build();
        SerializedFileWriter::new(self.written.clone(), Arc::new(schema), Arc::new(properties))
    }

    /// The members of a struct, or of the whole row. Structs are never null, so that only leaves have levels.
    fn members(&self, tree: &PathTree) -> ParquetResult<Vec<TypePtr>> {
        let member = |(name, inner): &(Arc<str>, PathTree)| match inner {
            PathTree::Leaf(number) => self.columns[*number].field(name),
            PathTree::Object(_) => {
                let group = Type::group_type_builder(name).with_repetition(Repetition::REQUIRED);
                group.with_fields(self.members(inner)?).build()
            }
        };
        tree.members().iter().map(|inner| member(inner).map(Arc::new)).collect()
    }

    /// Writes the row group that was gathered.
    fn write_group(&mut self) -> ParquetResult<()> {
        (self.rows, self.bytes) = (0, 0);
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut group = writer.next_row_group()?;
        for number in self.tree.leaves() {
            self.columns[number].write(&mut group)?;
        }
        group.close().map(|_| ())
    }
}

/// An error of the library, where only memory can be short.
fn failed(_: super::ParquetFileError) -> EncodeError {
    EncodeError::Broken("the parquet file")
}

impl Encode for ParquetEncoder {
    fn header(&mut self, _out: &mut Vec<u8>) {
        // An error shows with the first row, or at the end.
        self.writer = guarded(|| self.start()).ok();
    }

    fn labels(&self, quasi: &[&str], out: &mut Vec<u8>) {
        quasi.iter().for_each(|label| write_bytes(label.as_bytes(), out));
    }

    fn labelled(&mut self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        // The whole row is tried first: a row that does not fit must not leave half of itself behind.
        self.value.clear();
        let labelled = self.columns.len().saturating_sub(values.len());
        let (label_columns, value_columns) = self.columns.split_at_mut(labelled);
        for (column, value) in value_columns.iter().zip(values) {
            let written = column.kind.as_ref().and_then(|kind| write_value(kind, value, &mut self.value));
            written.ok_or_else(|| EncodeError::Misfit { field: Arc::clone(&column.name) })?;
        }
        let broken = || EncodeError::Broken("the parquet file");
        let (mut rest, mut row) = (labels, self.value.as_slice());
        for column in label_columns {
            rest = column.push(rest).ok_or_else(broken)?;
        }
        for column in value_columns {
            row = column.push(row).ok_or_else(broken)?;
        }
        self.rows += 1;
        self.bytes += labels.len() + self.value.len();
        if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            guarded(|| self.write_group()).map_err(failed)?;
            self.written.drain(out);
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.rows > 0 {
            guarded(|| self.write_group()).map_err(failed)?;
        }
        let writer = self.writer.take().ok_or(EncodeError::Broken("the parquet file"))?;
        guarded(|| writer.close()).map_err(failed)?;
        self.written.drain(out);
        Ok(())
    }

    fn continues(&mut self, _first: &[u8]) -> bool {
        false
    }
}

/// Bytes on their way from the library to `out`.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn drain(&self, out: &mut Vec<u8>) {
        out.append(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The values of one column in the row group that is being gathered.
struct ColumnBuffer {
    name: Arc<str>,
    /// The type of a sensitive or kept field; none for labels, which are text and never null.
    kind: Option<Kind>,
    values: Values,
    /// Per row whether there is a value; empty for labels.
    present: Vec<i16>,
}

enum Values {
    Bool(Vec<bool>),
    Int(Vec<i32>),
    Long(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

impl ColumnBuffer {
    fn new(name: &Arc<str>, kind: Option<Kind>) -> Self {
        let values = match &kind {
            Some(Kind::Boolean) => Values::Bool(Vec::new()),
            Some(Kind::Int(_)) => Values::Int(Vec::new()),
            Some(Kind::Long(_)) => Values::Long(Vec::new()),
            Some(Kind::Float) => Values::Float(Vec::new()),
            Some(Kind::Double) => Values::Double(Vec::new()),
            None | Some(_) => Values::Bytes(Vec::new()),
        };
        Self { name: Arc::clone(name), kind, values, present: Vec::new() }
    }

    /// The column in the file's schema.
    fn field(&self, name: &str) -> ParquetResult<Type> {
        let physical = match self.values {
            Values::Bool(_) => Physical::BOOLEAN,
            Values::Int(_) => Physical::INT32,
            Values::Long(_) => Physical::INT64,
            Values::Float(_) => Physical::FLOAT,
            Values::Double(_) => Physical::DOUBLE,
            Values::Bytes(_) => Physical::BYTE_ARRAY,
        };
        let logical = match &self.kind {
            None | Some(Kind::Any | Kind::String) => Some(LogicalType::String),
            Some(Kind::Int(Some("date"))) => Some(LogicalType::Date),
            Some(Kind::Int(Some(_))) => Some(LogicalType::time(false, TimeUnit::MILLIS)),
            Some(Kind::Long(Some("time-micros"))) => Some(LogicalType::time(false, TimeUnit::MICROS)),
            Some(Kind::Long(Some(name))) => {
                let unit = match *name {
                    _ if name.ends_with("millis") => TimeUnit::MILLIS,
                    _ if name.ends_with("micros") => TimeUnit::MICROS,
                    _ => TimeUnit::NANOS,
                };
                Some(LogicalType::timestamp(!name.starts_with("local"), unit))
            }
            Some(Kind::Decimal { precision, scale }) => Some(LogicalType::decimal(*scale as i32, *precision as i32)),
            _ => None,
        };
        let mut column = Type::primitive_type_builder(name, physical)
            .with_repetition(if self.kind.is_some() { Repetition::OPTIONAL } else { Repetition::REQUIRED })
            .with_logical_type(logical);
        if let Some(Kind::Decimal { precision, scale }) = &self.kind {
            column = column.with_precision(*precision as i32).with_scale(*scale as i32);
        }
        column.build()
    }

    /// Takes the column's value from the front of an Avro datum; returns the rest of it.
    fn push<'a>(&mut self, datum: &'a [u8]) -> Option<&'a [u8]> {
        let Some(kind) = &self.kind else {
            return self.values.push_bytes(datum);
        };
        let (variant, rest) = take_long(datum)?;
        self.present.push(i16::from(variant != 0));
        if variant == 0 {
            return Some(rest);
        }
        if *kind == Kind::Any {
            return self.values.push_any(variant, rest);
        }
        match &mut self.values {
            Values::Bool(values) => {
                let (value, rest) = rest.split_first()?;
                values.push(*value != 0);
                Some(rest)
            }
            Values::Int(values) => {
                let (value, rest) = take_long(rest)?;
                values.push(i32::try_from(value).ok()?);
                Some(rest)
            }
            Values::Long(values) => {
                let (value, rest) = take_long(rest)?;
                values.push(value);
                Some(rest)
            }
            Values::Float(values) => {
                let (value, rest) = rest.split_first_chunk()?;
                values.push(f32::from_le_bytes(*value));
                Some(rest)
            }
            Values::Double(values) => {
                let (value, rest) = rest.split_first_chunk()?;
                values.push(f64::from_le_bytes(*value));
                Some(rest)
            }
            Values::Bytes(_) => self.values.push_bytes(rest),
        }
    }

    /// Writes the column chunk and forgets its values.
    fn write(&mut self, group: &mut SerializedRowGroupWriter<'_, Sink>) -> ParquetResult<()> {
        let Some(mut column) = group.next_column()? else { return Ok(()) };
        let present = self.kind.is_some().then_some(self.present.as_slice());
        match &mut self.values {
            Values::Bool(values) => drop(column.typed::<BoolType>().write_batch(values, present, None)?),
            Values::Int(values) => drop(column.typed::<Int32Type>().write_batch(values, present, None)?),
            Values::Long(values) => drop(column.typed::<Int64Type>().write_batch(values, present, None)?),
            Values::Float(values) => drop(column.typed::<FloatType>().write_batch(values, present, None)?),
            Values::Double(values) => drop(column.typed::<DoubleType>().write_batch(values, present, None)?),
            Values::Bytes(values) => drop(column.typed::<ByteArrayType>().write_batch(values, present, None)?),
        }
        self.values.clear();
        self.present.clear();
        column.close()
    }
}

impl Values {
    fn push_bytes<'a>(&mut self, datum: &'a [u8]) -> Option<&'a [u8]> {
        let (bytes, rest) = take_bytes(datum)?;
        let Self::Bytes(values) = self else { return None };
        values.push(ByteArray::from(bytes.to_vec()));
        Some(rest)
    }

    /// A value of the union of null, boolean, long, double and string, as text.
    fn push_any<'a>(&mut self, variant: i64, datum: &'a [u8]) -> Option<&'a [u8]> {
        let (text, rest) = match variant {
            1 => {
                let (value, rest) = datum.split_first()?;
                ((*value != 0).to_string(), rest)
            }
            2 => take_long(datum).map(|(value, rest)| (value.to_string(), rest))?,
            3 => {
                let (value, rest) = datum.split_first_chunk()?;
                (f64::from_le_bytes(*value).to_string(), rest)
            }
            _ => return self.push_bytes(datum),
        };
        let Self::Bytes(values) = self else { return None };
        values.push(ByteArray::from(text.into_bytes()));
        Some(rest)
    }

    fn clear(&mut self) {
        match self {
            Self::Bool(values) => values.clear(),
            Self::Int(values) => values.clear(),
            Self::Long(values) => values.clear(),
            Self::Float(values) => values.clear(),
            Self::Double(values) => values.clear(),
            Self::Bytes(values) => values.clear(),
        }
    }
}
