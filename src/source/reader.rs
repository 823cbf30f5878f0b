//! Reads a blocking input on a thread of its own, into a bounded channel of batches.
//!
//! The format is the given one, or the one that the first bytes belong to.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek as _};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::frame::{Framer, Framing};
use super::recognise::{ByteReader, NotReadable, check_name, format, peeked, unreadable};
use super::{BATCH, Input, Preamble, Source, SourceError, SourceItem};
use crate::codec::avro::Plan;
use crate::codec::avro::container::{ContainerError, ContainerReader};
use crate::codec::compress::Compression;
use crate::codec::csv::CsvHeader;
use crate::codec::parquet::ParquetReader;
use crate::codec::{CodecError, Format};
use crate::model::event::{Event, Position};
use crate::model::schema::Schema;

/// How many bytes are asked for at once. Larger: more memory per input. Smaller: batches of fewer events. A pipe never
/// gives more than 64 KiB at once.
const READ_BYTES: usize = 256 << 10;

/// How many batches may wait. Larger: more memory behind a slow window. Smaller: reading and decoding take turns.
const WAITING: usize = 4;

/// The events of one input, in order: partition 0, offsets from 0.
pub struct ReaderSource {
    batches: mpsc::Receiver<Result<Vec<Event>, SourceError>>,
}

impl ReaderSource {
    /// Starts to read `input` and waits for its header or schema.
    pub(super) async fn open(from: InputBytes, input: Input) -> Result<(Self, Preamble), SourceError> {
        let (announce, announced) = tokio::sync::oneshot::channel();
        let (sender, batches) = mpsc::channel(WAITING);
        let work = move || {
            let mut reader = match BatchReader::open(from, input) {
                Ok(reader) => reader,
                Err(error) => return drop(announce.send(Err(error))),
            };
            if announce.send(Ok(reader.preamble.clone())).is_err() {
                return;
            }
            loop {
                match reader.next_batch() {
                    Ok(None) => return,
                    Ok(Some(events)) => {
                        if sender.blocking_send(Ok(events)).is_err() {
                            return;
                        }
                    }
                    Err(error) => return drop(sender.blocking_send(Err(error))),
                }
            }
        };
        // Not joined: a read from a terminal or an idle pipe ends only with the process.
        std::thread::Builder::new().name("input".into()).spawn(work).map_err(|_| SourceError::Thread)?;
        let preamble = announced.await.map_err(|_| SourceError::Thread)??;
        Ok((Self { batches }, preamble))
    }
}

impl Source for ReaderSource {
    async fn next(&mut self) -> Result<SourceItem, SourceError> {
        match self.batches.recv().await {
            Some(events) => events.map(SourceItem::Events),
            None => Ok(SourceItem::End),
        }
    }
}

/// Where the bytes of an input come from.
pub enum InputBytes {
    /// A file, or whatever its name leads to, and who is told of the bytes that were read.
    File(File, Option<Watch>),
    /// A pipe or standard input.
    Stream(Box<dyn Read + Send>),
}

/// Is told how many more bytes were read.
type Watch = Box<dyn FnMut(u64) + Send>;

struct Watched<R>(R, Watch);

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let size = self.0.read(into)?;
        (self.1)(size as u64);
        Ok(size)
    }
}

impl InputBytes {
    /// Tells `watch` of the bytes that are read, compressed or not; of a Parquet file, which is read here and there, nothing.
    pub(crate) fn watched(self, watch: impl FnMut(u64) + Send + 'static) -> Self {
        match self {
            Self::File(file, _) => Self::File(file, Some(Box::new(watch))),
            Self::Stream(read) => Self::Stream(Box::new(Watched(read, Box::new(watch)))),
        }
    }

    fn read(self) -> Box<dyn Read + Send> {
        match self {
            Self::File(file, None) => Box::new(file),
            Self::File(file, Some(watch)) => Box::new(Watched(file, watch)),
            Self::Stream(read) => read,
        }
    }

    /// Its first bytes, unpacked, and the bytes from the first one on.
    fn sniffed(self) -> io::Result<(Vec<u8>, Self)> {
        match self {
            Self::File(mut file, watch) if file.metadata()?.is_file() => {
                let (first, _) = peeked(Box::new(file.try_clone()?))?;
                file.rewind()?;
                Ok((first, Self::File(file, watch)))
            }
            other => {
                let (first, read) = peeked(other.read())?;
                Ok((first, Self::Stream(Box::new(read))))
            }
        }
    }

    /// The file that a Parquet reader can go to and fro in.
    fn seekable(self) -> io::Result<File> {
        match self {
            Self::File(mut file, _) if file.metadata()?.is_file() => {
                let mut first = Vec::new();
                Read::by_ref(&mut file).take(4).read_to_end(&mut first)?;
                file.rewind()?;
                match Compression::of_bytes(&first) {
                    None => Ok(file),
                    Some(_) => Err(unreadable(NotReadable {
                        what: "a compressed Parquet file",
                        remedy: "unpack it first: Parquet compresses by itself",
                    })),
                }
            }
            _ => Err(unreadable(NotReadable {
                what: "a Parquet file through a pipe",
                remedy: "it is read from its end on, so give it by its name",
            })),
        }
    }
}

/// Reads a blocking input in batches of events.
pub(super) struct BatchReader {
    pub(super) preamble: Preamble,
    records: RecordReader,
    next_offset: i64,
}

enum RecordReader {
    Text {
        read: ByteReader,
        framer: Framer,
        chunk: Vec<u8>,
    },
    Container {
        reader: Box<ContainerReader<BufReader<ByteReader>>>,
        plan: Plan,
        block: Bytes,
        left: usize,
        max: usize,
    },
    Columns {
        reader: Box<ParquetReader>,
        ready: VecDeque<Bytes>,
        /// A failure behind the rows that are ready.
        failed: Option<SourceError>,
    },
}

impl BatchReader {
    /// Reads the header or schema.
    pub(super) fn open(from: InputBytes, input: Input) -> Result<Self, SourceError> {
        let (format, from) = match (input.format, input.likely) {
            (Some(format), _) => (format, from),
            (None, likely) => {
                let (first, from) = from.sniffed().map_err(|error| failed(0, error))?;
                let sniffed = format(&first);
                let announced = likely.filter(|_| matches!(sniffed, Format::Json | Format::Csv));
                check_name(&first, announced).map_err(SourceError::NotReadable)?;
                (announced.unwrap_or(sniffed), from)
            }
        };
        let text = |from: InputBytes, framing| RecordReader::Text {
            read: ByteReader::text(from.read(), input.encoding),
            framer: Framer::new(framing, input.max_record_bytes),
            chunk: vec![0; READ_BYTES],
        };
        let (preamble, records) = match format {
            Format::Json => (Preamble::Json, text(from, Framing::Json)),
            Format::Csv => {
                // The delimiter is unknown until the header is read; a comma serves to find the end of its line.
                let mut records =
                    text(from, Framing::Csv { delimiter: input.delimiter.unwrap_or(b','), columns: None });
                let mut line = records.next_record(0)?.ok_or(CodecError::BadHeader("empty"))?;
                let told = CsvHeader::told(&line);
                if told.is_some() {
                    line = records.next_record(0)?.ok_or(CodecError::BadHeader("empty"))?;
                }
                let header = CsvHeader::parse(&line, input.delimiter.or(told))?;
                if let RecordReader::Text { framer, .. } = &mut records {
                    let (delimiter, columns) = (header.delimiter(), Some(header.columns()));
                    framer.set_framing(Framing::Csv { delimiter, columns });
                }
                (Preamble::Csv(header), records)
            }
            Format::Avro => {
                let read = BufReader::new(ByteReader::binary(from.read()));
                let reader = Box::new(ContainerReader::open(read).map_err(|source| broken(0, source))?);
                // A plan without fields only measures.
                let plan = Plan::new(&Schema::new([]), reader.schema())?;
                let preamble = Preamble::Avro(reader.schema().clone());
                let max = input.max_record_bytes;
                (preamble, RecordReader::Container { reader, plan, block: Bytes::new(), left: 0, max })
            }
            Format::Parquet => {
                let file = from.seekable().map_err(|error| failed(0, error))?;
                let corrupt = |source| SourceError::Parquet { records: 0, source };
                let reader = Box::new(ParquetReader::open(file).map_err(corrupt)?);
                let preamble = Preamble::Parquet(reader.schema().clone());
                (preamble, RecordReader::Columns { reader, ready: VecDeque::new(), failed: None })
            }
        };
        Ok(Self { preamble, records, next_offset: 0 })
    }

    /// The next events: at least one, and no more than are there without waiting. `None` at the end.
    pub(super) fn next_batch(&mut self) -> Result<Option<Vec<Event>>, SourceError> {
        let Some(first) = self.records.next_record(self.next_offset)? else { return Ok(None) };
        let mut events = Vec::with_capacity(BATCH);
        let mut record = Some(first);
        while let Some(payload) = record {
            let position = Position::new(0, self.next_offset);
            self.next_offset += 1;
            events.push(Event { position, placement: 0, timestamp: None, key: None, payload: Some(payload) });
            record = if events.len() < BATCH { self.records.ready_record() } else { None };
        }
        Ok(Some(events))
    }
}

impl RecordReader {
    /// A record that is in memory already.
    fn ready_record(&mut self) -> Option<Bytes> {
        match self {
            Self::Text { framer, .. } => framer.next_record(),
            Self::Columns { ready, .. } => ready.pop_front(),
            Self::Container { plan, block, left, max, .. } => {
                *left = left.checked_sub(1)?;
                // The length of an unreadable datum is unknown. It and the data after it become the same unreadable rest of
                // the block, so that each of them is rejected and counted.
                let size = plan.measure(block).unwrap_or(0);
                let datum = if size == 0 { block.clone() } else { block.split_to(size) };
                Some(if datum.len() > *max { datum.slice(..*max + 1) } else { datum })
            }
        }
    }

    /// The next record; reads if necessary. `None` at the end.
    fn next_record(&mut self, records: i64) -> Result<Option<Bytes>, SourceError> {
        loop {
            if let Some(record) = self.ready_record() {
                return Ok(Some(record));
            }
            match self {
                Self::Text { framer, .. } if framer.is_over() => {
                    return framer.damage().map_or(Ok(None), |damage| Err(SourceError::Array { records, damage }));
                }
                Self::Text { read, framer, chunk } => match read.read(chunk) {
                    Ok(0) => framer.finish(),
                    Ok(size) => framer.push(&chunk[..size]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(source) => return Err(failed(records, source)),
                },
                Self::Container { reader, block, left, .. } => {
                    let Some(next) = reader.next_block().map_err(|source| broken(records, source))? else {
                        return Ok(None);
                    };
                    (*block, *left) = (next.bytes, next.count);
                }
                Self::Columns { reader, ready, failed } => {
                    if let Some(failed) = failed.take() {
                        return Err(failed);
                    }
                    while ready.len() < BATCH && failed.is_none() {
                        match reader.next_row() {
                            Ok(Some(row)) => ready.push_back(row),
                            Ok(None) if ready.is_empty() => return Ok(None),
                            Ok(None) => break,
                            Err(source) => {
                                let records = records + ready.len() as i64;
                                *failed = Some(SourceError::Parquet { records, source });
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A failed read; it may be that the input is not what it should be.
fn failed(records: i64, error: io::Error) -> SourceError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<NotReadable>()) {
        Some(what) => SourceError::NotReadable(*what),
        None => SourceError::Read { records, source: error },
    }
}

/// A container file that cannot be read on.
fn broken(records: i64, source: ContainerError) -> SourceError {
    match source {
        ContainerError::Io(error) => failed(records, error),
        source => SourceError::Container { records, source },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use super::*;
    use crate::codec::avro::{AvroEncoder, OutputSchema};
    use crate::codec::{Encode as _, PublishedRow};
    use crate::model::event::RejectCode;
    use crate::model::record::Value;
    use crate::model::schema::Role;

    fn input(format: Format) -> Input {
        Input { format: Some(format), likely: None, delimiter: None, encoding: None, max_record_bytes: 1000 }
    }

    fn bytes_of(bytes: Vec<u8>) -> InputBytes {
        InputBytes::Stream(Box::new(io::Cursor::new(bytes)))
    }

    /// Gives one piece per read, then waits for more until its sender is gone: like a pipe.
    struct Pipe(std_mpsc::Receiver<Vec<u8>>, VecDeque<u8>);

    impl Read for Pipe {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.1.is_empty() {
                self.1.extend(self.0.recv().unwrap_or_default());
            }
            self.1.read(buf)
        }
    }

    fn pipe() -> (std_mpsc::Sender<Vec<u8>>, Pipe) {
        let (sender, receiver) = std_mpsc::channel();
        (sender, Pipe(receiver, VecDeque::new()))
    }

    async fn drain(source: &mut ReaderSource) -> Vec<Event> {
        let mut all = Vec::new();
        while let SourceItem::Events(events) = source.next().await.unwrap() {
            assert!(!events.is_empty() && events.len() <= BATCH);
            all.extend(events);
        }
        all
    }

    #[tokio::test]
    async fn lines_are_seen_as_they_come_and_a_wait_can_be_dropped() {
        let (sender, read) = pipe();
        let (mut source, _) =
            ReaderSource::open(InputBytes::Stream(Box::new(read)), input(Format::Json)).await.unwrap();
        sender.send(b"{\"a\":1}\n{\"a\":2}\n{\"a\"".to_vec()).unwrap();
        let SourceItem::Events(first) = source.next().await.unwrap() else { panic!("no events") };
        assert_eq!(first.len(), 2);
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(1), source.next()).await;
        assert!(waiting.is_err(), "nothing more came");
        sender.send(b":3}".to_vec()).unwrap();
        drop(sender);
        let rest = drain(&mut source).await;
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].position, Position::new(0, 2));
        assert_eq!(rest[0].payload.as_deref(), Some(&b"{\"a\":3}"[..]));
        assert!(matches!(source.next().await.unwrap(), SourceItem::End));
    }

    #[tokio::test]
    async fn csv_header_comes_first_and_is_no_record() {
        let schema = Schema::new([("age", Role::Quasi)]);
        let bytes = b"\xef\xbb\xbfname;age\r\n\"a\r\nb\";7\r\n\r\nx;8".to_vec();
        let (mut source, preamble) = ReaderSource::open(bytes_of(bytes), input(Format::Csv)).await.unwrap();
        let mut decoder = preamble.decoder(&schema, 1000).unwrap();
        let events = drain(&mut source).await;
        assert_eq!(events.iter().map(|e| e.position.offset.0).collect::<Vec<_>>(), [0, 1]);
        let ages = events.iter().map(|e| decoder.decode(e.payload.as_deref().unwrap()).unwrap().values[0].clone());
        assert!(ages.eq([Value::Text("7".into()), Value::Text("8".into())]));
        let empty = ReaderSource::open(bytes_of(Vec::new()), input(Format::Csv)).await;
        assert!(matches!(empty, Err(SourceError::Codec(CodecError::BadHeader("empty")))));
    }

    #[tokio::test]
    async fn overlong_lines_become_rejections() {
        let mut bytes = vec![b'x'; 1_000_000];
        bytes.extend_from_slice(b"\n{}\n");
        let (mut source, preamble) = ReaderSource::open(bytes_of(bytes), input(Format::Json)).await.unwrap();
        let mut decoder = preamble.decoder(&Schema::new([]), 1000).unwrap();
        let events = drain(&mut source).await;
        assert_eq!(events.len(), 2);
        let first = events[0].payload.as_deref().unwrap();
        assert_eq!((first.len(), decoder.decode(first).unwrap_err().code), (1001, RejectCode::TooLarge));
        assert!(decoder.decode(events[1].payload.as_deref().unwrap()).is_ok());
    }

    fn container(rows: usize) -> (Schema, Vec<u8>) {
        let schema = Schema::new([("age", Role::Quasi)]);
        let mut encoder = AvroEncoder::new(OutputSchema::derive(&schema, &[]).unwrap());
        let mut bytes = Vec::new();
        encoder.header(&mut bytes);
        for i in 0..rows {
            encoder.row(&PublishedRow { quasi: &[&i.to_string()], values: &[] }, &mut bytes).unwrap();
        }
        encoder.finish(&mut bytes).unwrap();
        (schema, bytes)
    }

    #[tokio::test]
    async fn container_data_come_one_by_one() {
        let (schema, bytes) = container(20_000);
        let (mut source, preamble) = ReaderSource::open(bytes_of(bytes), input(Format::Avro)).await.unwrap();
        let mut decoder = preamble.decoder(&schema, 1000).unwrap();
        let events = drain(&mut source).await;
        assert_eq!(events.len(), 20_000);
        for (i, event) in events.iter().enumerate() {
            assert_eq!(event.position, Position::new(0, i as i64));
            let record = decoder.decode(event.payload.as_deref().unwrap()).unwrap();
            assert!(record.values[0] == Value::Text(i.to_string().into()));
        }
    }

    #[tokio::test]
    async fn a_damaged_datum_costs_its_block_and_no_count() {
        let (schema, mut bytes) = container(3);
        // The second datum, "1", claims to be longer than its block.
        let at = bytes.windows(2).rposition(|pair| pair == [2, b'1']).unwrap();
        bytes[at] = 100;
        let (mut source, preamble) = ReaderSource::open(bytes_of(bytes), input(Format::Avro)).await.unwrap();
        let mut decoder = preamble.decoder(&schema, 1000).unwrap();
        let events = drain(&mut source).await;
        let outcomes: Vec<_> =
            events.iter().map(|e| decoder.decode(e.payload.as_deref().unwrap()).err().map(|r| r.code)).collect();
        assert_eq!(outcomes, [None, Some(RejectCode::Malformed), Some(RejectCode::Malformed)]);
    }
}
