//! The types of a writer schema as reading needs them: a table in which types name one another by index.

/// An index into the plan's types.
pub(super) type TypeId = usize;

/// The unit of a timestamp.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Millis,
    Micros,
    Nanos,
}

/// One type of the writer schema, as far as reading needs it.
pub(super) enum Type {
    /// Stands for a type that is still being compiled.
    Pending,
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Date,
    Timestamp {
        unit: Unit,
        local: bool,
    },
    /// An unscaled two's complement number, in `size` bytes or length-prefixed.
    Decimal {
        size: Option<usize>,
        scale: usize,
    },
    BigDecimal,
    Uuid {
        size: Option<usize>,
    },
    Fixed(usize),
    Duration,
    Enum(Vec<String>),
    Array(TypeId),
    Map(TypeId),
    Union(Vec<TypeId>),
    Record(Vec<(String, TypeId)>),
}
