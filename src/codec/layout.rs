//! Where the labels and the values of a row stand among the fixed bytes around them, for outputs that nest.
//!
//! Rows of one class share their labels, so an encoder renders these once and completes them with the values of each row
//! ([`Encode::labels`](super::Encode::labels), [`Encode::labelled`](super::Encode::labelled)). In a nested output a label may
//! stand after a value, in an object that has both. What is rendered once is therefore a list of pieces, each with its length
//! before it: one per run of labels that no value interrupts. A flat output has one piece.

/// A part of a row.
pub(super) enum RowPart {
    /// Bytes that every row has.
    Fixed(Vec<u8>),
    /// The label of a quasi-identifier, by its number.
    Label(usize),
    /// A sensitive or kept value, by its number among these.
    Value(usize),
    /// Parts behind the number of their bytes, as Protobuf has a message inside another.
    Measured(Vec<Self>),
}

/// The parts of a row, labels in runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowLayout {
    runs: Vec<Run>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Run {
    Fixed(Vec<u8>),
    /// Labels, each after the fixed bytes before it.
    Labels(Vec<(Vec<u8>, usize)>),
    Value(usize),
    Measured(RowLayout),
}

impl RowLayout {
    /// The layout of rows with these parts.
    pub(super) fn new(parts: impl IntoIterator<Item = RowPart>) -> Self {
        let mut runs = Vec::new();
        let mut fixed = Vec::new();
        for part in parts {
            match part {
                RowPart::Fixed(bytes) => fixed.extend(bytes),
                RowPart::Label(label) => {
                    let label = (std::mem::take(&mut fixed), label);
                    match runs.last_mut() {
                        Some(Run::Labels(labels)) => labels.push(label),
                        _ => runs.push(Run::Labels(vec![label])),
                    }
                }
                RowPart::Value(value) => {
                    runs.extend([Run::Fixed(std::mem::take(&mut fixed)), Run::Value(value)]);
                }
                RowPart::Measured(parts) => {
                    runs.extend([Run::Fixed(std::mem::take(&mut fixed)), Run::Measured(Self::new(parts))]);
                }
            }
        }
        runs.push(Run::Fixed(fixed));
        runs.retain(|run| !matches!(run, Run::Fixed(bytes) if bytes.is_empty()));
        Self { runs }
    }

    /// Appends what rows with these labels share; `write` renders one.
    pub(super) fn labels(&self, quasi: &[&str], out: &mut Vec<u8>, mut write: impl FnMut(&str, &mut Vec<u8>)) {
        self.write_labels(quasi, out, &mut write);
    }

    fn write_labels(&self, quasi: &[&str], out: &mut Vec<u8>, write: &mut impl FnMut(&str, &mut Vec<u8>)) {
        for run in &self.runs {
            let labels = match run {
                Run::Labels(labels) => labels,
                Run::Measured(inner) => {
                    inner.write_labels(quasi, out, write);
                    continue;
                }
                Run::Fixed(_) | Run::Value(_) => continue,
            };
            let start = out.len();
            out.extend_from_slice(&[0; 4]);
            for (before, label) in labels {
                out.extend_from_slice(before);
                write(quasi.get(*label).copied().unwrap_or_default(), out);
            }
            let length = (out.len() - start - 4) as u32;
            out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Appends a row: what [`RowLayout::labels`] made, and its values; `write` renders one, by its number.
    pub(super) fn row<E>(
        &self,
        mut labels: &[u8],
        out: &mut Vec<u8>,
        mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.write_row(&mut labels, out, &mut write)
    }

    fn write_row<E>(
        &self,
        labels: &mut &[u8],
        out: &mut Vec<u8>,
        write: &mut impl FnMut(usize, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        for run in &self.runs {
            match run {
                Run::Fixed(bytes) => out.extend_from_slice(bytes),
                Run::Value(value) => write(*value, out)?,
                Run::Labels(_) => {
                    let Some((length, rest)) = labels.split_first_chunk::<4>() else { continue };
                    let (piece, rest) = rest.split_at((u32::from_le_bytes(*length) as usize).min(rest.len()));
                    out.extend_from_slice(piece);
                    *labels = rest;
                }
                Run::Measured(inner) => {
                    let start = out.len();
                    inner.write_row(labels, out, write)?;
                    let mut length = Vec::with_capacity(5);
                    write_varint((out.len() - start) as u64, &mut length);
                    out.splice(start..start, length);
                }
            }
        }
        Ok(())
    }
}

/// Appends a number in as few groups of seven bits as it takes, the lowest first.
pub(super) fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
