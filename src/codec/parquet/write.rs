//! Writes published rows as a Parquet file, compressed with zstd: labels as text, other fields with the types of the input, lists,
//! maps and structs included. Each of these is taken apart into one column for each value inside, with levels beside the values that
//! say how much of the path is there and which list goes on; a map is a list of pairs.
//!
//! A field of an input without types (CSV, JSON) is text. The file is complete only with its footer, which
//! [`Encode::finish`] writes: a Parquet file cannot be continued. Memory: one row group.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use apache_avro::Schema as AvroSchema;
use parquet::basic::{Compression, Repetition, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::guarded;
use super::types::{field_type, leaf_type};
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
    columns: Vec<FieldColumns>,
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
        let labels = schema.quasi.iter().map(|slot| FieldColumns::label(schema.name(*slot)));
        let values = value_kinds(schema, writers).into_iter().map(|(name, kind)| FieldColumns::value(&name, kind));
        let columns = labels.chain(values).collect();
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

    /// The members of a struct, or of the whole row. Structs that paths lead through are never null and have no levels.
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
            let written = write_value(&column.kind, value, &mut self.value);
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

/// The label of a quasi-identifier, which is never null, or a sensitive or kept field: a column, or several if it has an inside.
struct FieldColumns {
    name: Arc<str>,
    kind: Kind,
    /// None of a label.
    columns: Option<Columns>,
    labels: Values,
}

impl FieldColumns {
    fn label(name: &Arc<str>) -> Self {
        Self { name: Arc::clone(name), kind: Kind::String, columns: None, labels: Values::Bytes(Vec::new()) }
    }

    fn value(name: &Arc<str>, kind: Kind) -> Self {
        let kind = with_nulls(kind);
        let columns = Some(Columns::new(&kind, false));
        Self { columns, kind, ..Self::label(name) }
    }

    /// The field in the file's schema.
    fn field(&self, name: &str) -> ParquetResult<Type> {
        match self.columns {
            Some(_) => field_type(name, &self.kind),
            None => leaf_type(name, &self.kind, Repetition::REQUIRED),
        }
    }

    /// Takes the field from the front of an Avro datum; returns the rest of it.
    fn push<'a>(&mut self, datum: &'a [u8]) -> Option<&'a [u8]> {
        match &mut self.columns {
            Some(columns) => columns.push(&self.kind, datum, 0, 0, 0),
            None => self.labels.push_bytes(datum),
        }
    }

    /// Writes the column chunks and forgets their values.
    fn write(&mut self, group: &mut SerializedRowGroupWriter<'_, Sink>) -> ParquetResult<()> {
        match &mut self.columns {
            Some(columns) => columns.write(group),
            None => self.labels.write(group, None, None),
        }
    }
}

/// The type with nulls allowed in all its lists and maps: a Parquet file has the same levels for all of them.
fn with_nulls(kind: Kind) -> Kind {
    match kind.inside(&with_nulls) {
        Kind::List { of, .. } => of.listed(true),
        Kind::Map { of, .. } => of.mapped(true),
        kind => kind,
    }
}

/// The columns of one type, in the order of the file.
enum Columns {
    Leaf(Leaf),
    /// Of the elements.
    List(Box<Self>),
    /// Of the keys and the values.
    Map(Leaf, Box<Self>),
    /// Of the members.
    Record(Vec<Self>),
}

/// One column in the row group that is being gathered.
struct Leaf {
    values: Values,
    /// Per place of a value how much of its path is there.
    defined: Vec<i16>,
    /// Per place of a value which list goes on with it; none outside of lists.
    repeated: Option<Vec<i16>>,
}

impl Columns {
    fn new(kind: &Kind, in_list: bool) -> Self {
        let values = match kind {
            Kind::List { of, .. } => return Self::List(Box::new(Self::new(of, true))),
            Kind::Map { of, .. } => {
                return Self::Map(Leaf::new(Values::Bytes(Vec::new()), true), Box::new(Self::new(of, true)));
            }
            Kind::Record(members) => {
                return Self::Record(members.iter().map(|(_, kind)| Self::new(kind, in_list)).collect());
            }
            Kind::Boolean => Values::Bool(Vec::new()),
            Kind::Int(_) => Values::Int(Vec::new()),
            Kind::Long(_) => Values::Long(Vec::new()),
            Kind::Float => Values::Float(Vec::new()),
            Kind::Double => Values::Double(Vec::new()),
            _ => Values::Bytes(Vec::new()),
        };
        Self::Leaf(Leaf::new(values, in_list))
    }

    /// Takes a value from the front of an Avro datum. `defined` levels around it are there, it goes on with the list `repeated`
    /// and `lists` are around it.
    fn push<'a>(&mut self, kind: &Kind, datum: &'a [u8], defined: i16, repeated: i16, lists: i16) -> Option<&'a [u8]> {
        let (variant, mut rest) = take_long(datum)?;
        if variant == 0 {
            self.absent(defined, repeated);
            return Some(rest);
        }
        match (self, kind) {
            (Self::Leaf(leaf), kind) => {
                leaf.place(defined + 1, repeated);
                leaf.values.push(kind, variant, rest)
            }
            (Self::Record(columns), Kind::Record(members)) => {
                for (column, (_, kind)) in columns.iter_mut().zip(members) {
                    rest = column.push(kind, rest, defined + 1, repeated, lists)?;
                }
                Some(rest)
            }
            (columns @ (Self::List(_) | Self::Map(..)), Kind::List { of, .. } | Kind::Map { of, .. }) => {
                let (count, mut rest) = take_long(rest)?;
                if count == 0 {
                    columns.absent(defined + 1, repeated);
                    return Some(rest);
                }
                for element in 0..count {
                    let list = if element == 0 { repeated } else { lists + 1 };
                    let values = match columns {
                        Self::Map(keys, values) => {
                            keys.place(defined + 2, list);
                            rest = keys.values.push_bytes(rest)?;
                            values
                        }
                        Self::List(column) => column,
                        Self::Leaf(_) | Self::Record(_) => return None,
                    };
                    rest = values.push(of, rest, defined + 2, list, lists + 1)?;
                }
                take_long(rest).map(|(_, rest)| rest)
            }
            _ => None,
        }
    }

    fn absent(&mut self, defined: i16, repeated: i16) {
        match self {
            Self::Leaf(leaf) => leaf.place(defined, repeated),
            Self::List(column) => column.absent(defined, repeated),
            Self::Map(keys, values) => {
                keys.place(defined, repeated);
                values.absent(defined, repeated);
            }
            Self::Record(columns) => columns.iter_mut().for_each(|column| column.absent(defined, repeated)),
        }
    }

    fn write(&mut self, group: &mut SerializedRowGroupWriter<'_, Sink>) -> ParquetResult<()> {
        match self {
            Self::List(column) => column.write(group),
            Self::Map(keys, values) => keys.write(group).and_then(|()| values.write(group)),
            Self::Record(columns) => columns.iter_mut().try_for_each(|column| column.write(group)),
            Self::Leaf(leaf) => leaf.write(group),
        }
    }
}

impl Leaf {
    fn new(values: Values, in_list: bool) -> Self {
        Self { values, defined: Vec::new(), repeated: in_list.then(Vec::new) }
    }

    fn place(&mut self, defined: i16, repeated: i16) {
        self.defined.push(defined);
        self.repeated.iter_mut().for_each(|levels| levels.push(repeated));
    }

    fn write(&mut self, group: &mut SerializedRowGroupWriter<'_, Sink>) -> ParquetResult<()> {
        self.values.write(group, Some(&self.defined), self.repeated.as_deref())?;
        self.defined.clear();
        self.repeated.iter_mut().for_each(Vec::clear);
        Ok(())
    }
}

enum Values {
    Bool(Vec<bool>),
    Int(Vec<i32>),
    Long(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

impl Values {
    /// Takes a value of a union, whose variant was read, from the front of a datum.
    fn push<'a>(&mut self, kind: &Kind, variant: i64, datum: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(_) if *kind == Kind::Any => self.push_any(variant, datum),
            Self::Bytes(_) => self.push_bytes(datum),
            Self::Bool(values) => {
                let (value, rest) = datum.split_first()?;
                values.push(*value != 0);
                Some(rest)
            }
            Self::Int(values) => {
                let (value, rest) = take_long(datum)?;
                values.push(i32::try_from(value).ok()?);
                Some(rest)
            }
            Self::Long(values) => {
                let (value, rest) = take_long(datum)?;
                values.push(value);
                Some(rest)
            }
            Self::Float(values) => {
                let (value, rest) = datum.split_first_chunk()?;
                values.push(f32::from_le_bytes(*value));
                Some(rest)
            }
            Self::Double(values) => {
                let (value, rest) = datum.split_first_chunk()?;
                values.push(f64::from_le_bytes(*value));
                Some(rest)
            }
        }
    }

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

    /// Writes a column chunk and forgets its values.
    fn write(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, Sink>,
        defined: Option<&[i16]>,
        repeated: Option<&[i16]>,
    ) -> ParquetResult<()> {
        let Some(mut column) = group.next_column()? else { return Ok(()) };
        match self {
            Self::Bool(values) => write_batch::<BoolType>(&mut column, values, defined, repeated)?,
            Self::Int(values) => write_batch::<Int32Type>(&mut column, values, defined, repeated)?,
            Self::Long(values) => write_batch::<Int64Type>(&mut column, values, defined, repeated)?,
            Self::Float(values) => write_batch::<FloatType>(&mut column, values, defined, repeated)?,
            Self::Double(values) => write_batch::<DoubleType>(&mut column, values, defined, repeated)?,
            Self::Bytes(values) => write_batch::<ByteArrayType>(&mut column, values, defined, repeated)?,
        }
        column.close()
    }
}

fn write_batch<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    defined: Option<&[i16]>,
    repeated: Option<&[i16]>,
) -> ParquetResult<()> {
    column.typed::<T>().write_batch(values, defined, repeated)?;
    values.clear();
    Ok(())
}
