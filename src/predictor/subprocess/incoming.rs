//! The program's answers as they trickle in: cuts the bytes of an Arrow IPC stream into messages and
//! decodes them.
//!
//! Arrow's own readers do not serve here. The blocking one cannot be held to a time limit and takes
//! printed text for the length of a message; the push decoder does not deliver a batch without buffers
//! (the handshake's batch of zero rows) before the bytes after it have come.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{read_dictionary, read_record_batch};
use arrow::ipc::{Message, MessageHeader, root_as_message};

/// What every message of a stream begins with.
const CONTINUATION: [u8; 4] = [0xFF; 4];

/// Continuation marker and length of the metadata.
const PREFIX: usize = 8;

/// Far above the metadata of any answer, far below what printed text would be as a length.
const LONGEST_METADATA: usize = 16 << 20;

/// Dictionaries that a stream may hold, far above the labels of any classifier.
const DICTIONARY_BYTES: usize = 256 << 20;

/// Messages that may come before an answer: its schema and dictionaries.
const MOST_MESSAGES: usize = 1000;

/// Memory set aside for a body before it has come; more is taken as it arrives.
const BODY_RESERVED: usize = 64 << 20;

/// Printed text shown in the message.
const TEXT_SHOWN: usize = 40;

/// Printed text read at all.
const TEXT_READ: usize = 1000;

/// How long we wait for the rest of a printed text.
const TEXT_PATIENCE: Duration = Duration::from_millis(50);

/// The state of one incoming stream.
#[derive(Default)]
pub(super) struct Incoming {
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// The part that is being received.
    part: StreamPart,
    bytes: Vec<u8>,
    /// What has been received since the last batch, the part that is announced included.
    received: usize,
    /// Messages since the last batch.
    messages: usize,
}

#[derive(Default)]
enum StreamPart {
    #[default]
    Prefix,
    Metadata {
        length: usize,
    },
    Body {
        metadata: Vec<u8>,
        length: usize,
    },
}

/// Why a stream cannot be read on.
#[derive(Debug)]
pub(super) enum Interruption {
    /// The pipe is closed.
    Closed,
    /// The program ended its stream, though perhaps not itself.
    Ended,
    /// Something other than a message came.
    Text(Vec<u8>),
    /// A message came that Arrow cannot read.
    Broken(String),
}

impl Incoming {
    /// The stream's schema, once it has come.
    pub(super) fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Reads what is there, up to the end of the next batch: never beyond it, so that whatever is
    /// readable before the next batch is sent is one answer too many. `None` when more has to come.
    pub(super) fn receive(
        &mut self,
        pipe: &mut impl Read,
        most_bytes: usize,
    ) -> Result<Option<RecordBatch>, Interruption> {
        loop {
            let complete = self.fill(pipe)?;
            self.check_prefix(pipe)?;
            if !complete {
                return Ok(None);
            }
            if let Some(batch) = self.advance()? {
                (self.received, self.messages) = (0, 0);
                return Ok(Some(batch));
            }
            self.refuse_surfeit(most_bytes)?;
        }
    }

    /// Refuses what was announced, before it is received, if the answer becomes too large with it. A
    /// program's word for a length is never reason enough to set memory aside.
    fn refuse_surfeit(&mut self, most_bytes: usize) -> Result<(), Interruption> {
        let announced = match &self.part {
            StreamPart::Prefix => {
                self.messages += 1;
                0
            }
            StreamPart::Metadata { length } | StreamPart::Body { length, .. } => *length,
        };
        self.received = self.received.saturating_add(announced);
        let (received, held) = (self.received, self.dictionary_bytes());
        let problem = if received > most_bytes {
            format!("its answer is {received} bytes long, expected at most {most_bytes}")
        } else if held > DICTIONARY_BYTES {
            format!("its dictionaries hold {held} bytes, expected at most {DICTIONARY_BYTES}")
        } else if self.messages > MOST_MESSAGES {
            format!("{} messages came before an answer", self.messages)
        } else {
            return Ok(());
        };
        Err(Interruption::Broken(problem))
    }

    fn dictionary_bytes(&self) -> usize {
        self.dictionaries.values().map(Array::get_array_memory_size).sum()
    }

    /// Whether the current part has come in full.
    fn fill(&mut self, pipe: &mut impl Read) -> Result<bool, Interruption> {
        let missing = self.part.length() - self.bytes.len();
        if missing == 0 {
            return Ok(true);
        }
        self.bytes.reserve(missing.min(BODY_RESERVED));
        match pipe.by_ref().take(missing as u64).read_to_end(&mut self.bytes) {
            Ok(read) if read == missing => Ok(true),
            Ok(_) => Err(Interruption::Closed),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Ok(self.bytes.len() == self.part.length())
            }
            Err(_) => Err(Interruption::Closed),
        }
    }

    fn check_prefix(&self, pipe: &mut impl Read) -> Result<(), Interruption> {
        let begun = self.bytes.len().min(CONTINUATION.len());
        let is_prefix = matches!(self.part, StreamPart::Prefix);
        if is_prefix && self.bytes[..begun] != CONTINUATION[..begun] {
            return Err(Interruption::Text(printed_text(pipe, self.bytes.clone())));
        }
        Ok(())
    }

    /// Takes the part that has just come in full.
    fn advance(&mut self) -> Result<Option<RecordBatch>, Interruption> {
        let bytes = std::mem::take(&mut self.bytes);
        match std::mem::take(&mut self.part) {
            StreamPart::Prefix => {
                self.part = StreamPart::Metadata { length: metadata_length(&bytes)? }
            }
            StreamPart::Metadata { .. } => {
                let length = guarded(|| message(&bytes)?.bodyLength().try_into().map_err(broken))?;
                self.part = StreamPart::Body { metadata: bytes, length };
            }
            StreamPart::Body { metadata, .. } => {
                return guarded(|| self.decode(&message(&metadata)?, &Buffer::from_vec(bytes)));
            }
        }
        Ok(None)
    }

    fn decode(
        &mut self,
        message: &Message<'_>,
        body: &Buffer,
    ) -> Result<Option<RecordBatch>, ArrowError> {
        let version = message.version();
        if let Some(schema) = message.header_as_schema() {
            if self.schema.is_some() {
                return Err(broken("a second schema"));
            }
            self.schema = Some(Arc::new(fb_to_schema(schema)));
            return Ok(None);
        }
        let schema = self.schema.as_ref().ok_or_else(|| broken("a batch before the schema"))?;
        if let Some(batch) = message.header_as_dictionary_batch() {
            refuse_compressed(batch.data())?;
            read_dictionary(body, batch, schema, &mut self.dictionaries, &version)?;
            return Ok(None);
        }
        let Some(batch) = message.header_as_record_batch() else {
            let found = message.header_type();
            let known =
                if found == MessageHeader::NONE { "no header" } else { "an unknown header" };
            return Err(broken(known));
        };
        refuse_compressed(Some(batch))?;
        read_record_batch(body, batch, Arc::clone(schema), &self.dictionaries, None, &version)
            .map(Some)
    }
}

impl StreamPart {
    fn length(&self) -> usize {
        match self {
            StreamPart::Prefix => PREFIX,
            StreamPart::Metadata { length } | StreamPart::Body { length, .. } => *length,
        }
    }
}

fn metadata_length(prefix: &[u8]) -> Result<usize, Interruption> {
    let mut length = [0; 4];
    length.copy_from_slice(&prefix[CONTINUATION.len()..PREFIX]);
    match u32::from_le_bytes(length) as usize {
        0 => Err(Interruption::Ended),
        length if length > LONGEST_METADATA => {
            Err(Interruption::Broken(format!("its metadata is {length} bytes long")))
        }
        length => Ok(length),
    }
}

fn message(metadata: &[u8]) -> Result<Message<'_>, ArrowError> {
    root_as_message(metadata).map_err(broken)
}

fn broken(reason: impl std::fmt::Display) -> ArrowError {
    ArrowError::IpcError(reason.to_string())
}

/// Arrow panics on some malformed schemas; to us that is one more broken message.
fn guarded<T>(decode: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, Interruption> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Interruption::Broken(error.to_string())),
        Err(_) => Err(Interruption::Broken("it has a malformed or unsupported type".to_string())),
    }
}

/// A compressed buffer names the length that it will have, which nothing bounds.
fn refuse_compressed(batch: Option<arrow::ipc::RecordBatch<'_>>) -> Result<(), ArrowError> {
    if batch.is_some_and(|batch| batch.compression().is_some()) {
        return Err(broken("its buffers are compressed"));
    }
    Ok(())
}

/// What a non-blocking pipe holds right now, up to a length worth showing. Returns whether more may come.
pub(super) fn read_available(pipe: &mut impl Read, text: &mut Vec<u8>) -> bool {
    // Ends with `WouldBlock`; what was read until then is kept.
    pipe.by_ref().take(TEXT_READ as u64).read_to_end(text).is_err()
}

/// The text of which the beginning was read where a message was expected. A line is often written in
/// pieces, so the rest is given a moment to come.
pub(super) fn printed_text(pipe: &mut impl Read, mut text: Vec<u8>) -> Vec<u8> {
    if read_available(pipe, &mut text) {
        thread::sleep(TEXT_PATIENCE);
        read_available(pipe, &mut text);
    }
    text
}

/// The beginning of a text, quoted. It ends where a message begins.
pub(super) fn excerpt(text: &[u8]) -> String {
    let end = text.windows(CONTINUATION.len()).position(|bytes| bytes == CONTINUATION);
    let text = String::from_utf8_lossy(&text[..end.unwrap_or(text.len())]);
    let shown: String = text.chars().take(TEXT_SHOWN).collect();
    let rest = if shown.len() < text.len() { "…" } else { "" };
    format!("\"{}{rest}\"", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use std::io;

    use arrow::array::Int32Array;
    use arrow::ipc::writer::StreamWriter;

    use super::*;

    /// A pipe that holds so many bytes at a time.
    struct Trickle<'a> {
        bytes: &'a [u8],
        available: usize,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.available == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = into.len().min(self.available).min(self.bytes.len());
            into[..count].copy_from_slice(&self.bytes[..count]);
            self.bytes = &self.bytes[count..];
            self.available -= count;
            Ok(count)
        }
    }

    fn stream() -> Vec<u8> {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("value", column)]).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&RecordBatch::new_empty(batch.schema())).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn batches_are_found_however_the_bytes_arrive() {
        let stream = stream();
        for step in [1, 3, 8, 64, 1 << 20] {
            let mut pipe = Trickle { bytes: &stream, available: 0 };
            let (mut incoming, mut batches) = (Incoming::default(), Vec::new());
            let ended = loop {
                pipe.available = step;
                match incoming.receive(&mut pipe, 1 << 20) {
                    Ok(batch) => batches.extend(batch),
                    Err(interruption) => break interruption,
                }
            };
            assert!(matches!(ended, Interruption::Ended), "{ended:?}");
            assert_eq!(batches.len(), 2);
            assert_eq!(batches[0].num_rows(), 0);
            assert_eq!(batches[1].column(0).as_ref(), &Int32Array::from(vec![1, 2, 3]));
        }
    }

    #[test]
    fn printed_text_is_recognised_from_its_first_byte() {
        let mut pipe = Trickle { bytes: b"hi\n", available: 3 };
        let interruption =
            Incoming::default().receive(&mut pipe, 100).expect_err("text is no stream");
        assert!(matches!(interruption, Interruption::Text(text) if excerpt(&text) == "\"hi\\n\""));
    }

    #[test]
    fn damaged_streams_are_an_error_not_a_panic() {
        let stream = stream();
        for position in 0..stream.len() {
            let mut damaged = stream.clone();
            damaged[position] ^= 0x41;
            let mut pipe = Trickle { bytes: &damaged, available: damaged.len() };
            let mut incoming = Incoming::default();
            while let Ok(Some(_)) = incoming.receive(&mut pipe, 1 << 20) {}
        }
    }
}
