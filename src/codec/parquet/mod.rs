//! Parquet files: rows to Avro data, and published rows to columns.
//!
//! A row group is read row by row and each row becomes an Avro datum of a schema that is derived from the file's, so that names,
//! nesting, logical types and rejections are those of Avro. Published rows go the other way: each is an Avro datum first and is
//! then taken apart into columns. The library reads pages and column chunks; it panics on some corrupt files, so every call of
//! it runs in [`guarded`], which turns a panic into an error.

mod column;
mod read;
mod types;
mod write;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use read::ParquetReader;
pub(crate) use write::ParquetEncoder;

/// A Parquet file that cannot be read. Nothing in it comes from the file: the library's messages quote values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParquetFileError {
    /// The footer or a page is not what it should be.
    #[error("the parquet file is corrupt or cut short")]
    Corrupt,
    /// The compression of some column is not built in.
    #[error("the parquet file is compressed with {0}, which is not read: write it with snappy, zstd, gzip or lz4")]
    Codec(&'static str),
    /// Two columns cannot be told apart.
    #[error("the parquet file has two columns of one name: rename one of them")]
    Ambiguous,
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// True while this thread runs the library on bytes from outside, where a panic is a broken file and no defect of ours.
pub fn is_guarded() -> bool {
    GUARDED.get()
}

/// Runs the library; its errors and panics are a corrupt file.
fn guarded<T>(call: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T, ParquetFileError> {
    let before = GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(before);
    match done {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) | Err(_) => Err(ParquetFileError::Corrupt),
    }
}

#[cfg(test)]
mod tests;
