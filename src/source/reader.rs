//! Reads a blocking input on a thread of its own, into a bounded channel of batches.

use std::io::{BufReader, ErrorKind, Read};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::frame::{Framer, Framing};
use super::{BATCH, Input, Preamble, Source, SourceError, SourceItem};
use crate::codec::avro::Plan;
use crate::codec::avro::container::{ContainerError, ContainerReader};
use crate::codec::csv::CsvHeader;
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
    pub(super) async fn open(read: impl Read + Send + 'static, input: Input) -> Result<(Self, Preamble), SourceError> {
        let (announce, announced) = tokio::sync::oneshot::channel();
        let (sender, batches) = mpsc::channel(WAITING);
        let work = move || {
            let mut reader = match BatchReader::open(read, input) {
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

/// Reads a blocking input in batches of events.
pub(super) struct BatchReader<R> {
    pub(super) preamble: Preamble,
    records: RecordReader<R>,
    next_offset: i64,
}

enum RecordReader<R> {
    Text { read: R, framer: Framer, chunk: Vec<u8>, ended: bool },
    Container { reader: ContainerReader<BufReader<R>>, plan: Plan, block: Bytes, left: usize, max: usize },
}

impl<R: Read> BatchReader<R> {
    /// Reads the header or schema.
    pub(super) fn open(read: R, input: Input) -> Result<Self, SourceError> {
        let text = |read, framing| RecordReader::Text {
            read,
            framer: Framer::new(framing, input.max_record_bytes),
            chunk: vec![0; READ_BYTES],
            ended: false,
        };
        match input.format {
            Format::Json => Ok(Self { preamble: Preamble::Json, records: text(read, Framing::Lines), next_offset: 0 }),
            Format::Csv => {
                // The delimiter is unknown until the header is read; a comma serves to find the end of its line.
                let mut records = text(read, Framing::Csv { delimiter: input.delimiter.unwrap_or(b',') });
                let line = records.next_record(0)?.ok_or(CodecError::BadHeader("empty"))?;
                let header = CsvHeader::parse(&line, input.delimiter)?;
                if let RecordReader::Text { framer, .. } = &mut records {
                    framer.set_framing(Framing::Csv { delimiter: header.delimiter() });
                }
                Ok(Self { preamble: Preamble::Csv(header), records, next_offset: 0 })
            }
            Format::Avro => {
                let failed = |source| SourceError::Container { records: 0, source };
                let reader = ContainerReader::open(BufReader::new(read)).map_err(failed)?;
                // A plan without fields only measures.
                let plan = Plan::new(&Schema::new([]), reader.schema())?;
                let preamble = Preamble::Avro(reader.schema().clone());
                let max = input.max_record_bytes;
                let records = RecordReader::Container { reader, plan, block: Bytes::new(), left: 0, max };
                Ok(Self { preamble, records, next_offset: 0 })
            }
        }
    }

    /// The next events: at least one, and no more than are there without waiting. `None` at the end.
    pub(super) fn next_batch(&mut self) -> Result<Option<Vec<Event>>, SourceError> {
        let Some(first) = self.records.next_record(self.next_offset)? else { return Ok(None) };
        let mut events = Vec::with_capacity(BATCH);
        let mut record = Some(first);
        while let Some(payload) = record {
            let position = Position::new(0, self.next_offset);
            self.next_offset += 1;
            events.push(Event { position, timestamp: None, key: None, payload: Some(payload) });
            record = if events.len() < BATCH { self.records.ready_record() } else { None };
        }
        Ok(Some(events))
    }
}

impl<R: Read> RecordReader<R> {
    /// A record that is in memory already.
    fn ready_record(&mut self) -> Option<Bytes> {
        match self {
            Self::Text { framer, .. } => framer.next_record(),
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
                Self::Text { ended: true, .. } => return Ok(None),
                Self::Text { read, framer, chunk, ended } => match read.read(chunk) {
                    Ok(0) => {
                        *ended = true;
                        return Ok(framer.finish());
                    }
                    Ok(size) => framer.push(&chunk[..size]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(source) => return Err(SourceError::Read { records, source }),
                },
                Self::Container { reader, block, left, .. } => {
                    let failed = |source: ContainerError| SourceError::Container { records, source };
                    let Some(next) = reader.next_block().map_err(failed)? else { return Ok(None) };
                    (*block, *left) = (next.bytes, next.count);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::sync::mpsc as std_mpsc;

    use super::*;
    use crate::codec::avro::{AvroEncoder, OutputSchema};
    use crate::codec::{Encode as _, PublishedRow};
    use crate::model::event::RejectCode;
    use crate::model::record::Value;
    use crate::model::schema::Role;

    fn input(format: Format) -> Input {
        Input { format, delimiter: None, max_record_bytes: 1000 }
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
        let (mut source, _) = ReaderSource::open(read, input(Format::Json)).await.unwrap();
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
        let (mut source, preamble) = ReaderSource::open(io::Cursor::new(bytes), input(Format::Csv)).await.unwrap();
        let mut decoder = preamble.decoder(&schema, 1000).unwrap();
        let events = drain(&mut source).await;
        assert_eq!(events.iter().map(|e| e.position.offset.0).collect::<Vec<_>>(), [0, 1]);
        let ages = events.iter().map(|e| decoder.decode(e.payload.as_deref().unwrap()).unwrap().values[0].clone());
        assert!(ages.eq([Value::Text("7".into()), Value::Text("8".into())]));
        let empty = ReaderSource::open(io::empty(), input(Format::Csv)).await;
        assert!(matches!(empty, Err(SourceError::Codec(CodecError::BadHeader("empty")))));
    }

    #[tokio::test]
    async fn overlong_lines_become_rejections() {
        let mut bytes = vec![b'x'; 1_000_000];
        bytes.extend_from_slice(b"\n{}\n");
        let (mut source, preamble) = ReaderSource::open(io::Cursor::new(bytes), input(Format::Json)).await.unwrap();
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
        encoder.finish(&mut bytes);
        (schema, bytes)
    }

    #[tokio::test]
    async fn container_data_come_one_by_one() {
        let (schema, bytes) = container(20_000);
        let (mut source, preamble) = ReaderSource::open(io::Cursor::new(bytes), input(Format::Avro)).await.unwrap();
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
        let (mut source, preamble) = ReaderSource::open(io::Cursor::new(bytes), input(Format::Avro)).await.unwrap();
        let mut decoder = preamble.decoder(&schema, 1000).unwrap();
        let events = drain(&mut source).await;
        let outcomes: Vec<_> =
            events.iter().map(|e| decoder.decode(e.payload.as_deref().unwrap()).err().map(|r| r.code)).collect();
        assert_eq!(outcomes, [None, Some(RejectCode::Malformed), Some(RejectCode::Malformed)]);
    }
}
