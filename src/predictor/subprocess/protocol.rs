//! What goes to the program: the stream's schema, the batch of zero rows that asks for an answer, and
//! the batches themselves as bytes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::{
    DictionaryTracker, IpcDataGenerator, IpcWriteOptions, StreamWriter, write_message,
};

use super::failure::Failure;
use crate::job::TaskSpec;

/// The version of the protocol that is spoken here.
pub(super) const VERSION: &str = "1";

/// Schema metadata, both ways: the protocol's version.
pub(super) const PROTOCOL_KEY: &str = "overturn.protocol";

/// Schema metadata to the program: what it is asked for.
pub(super) const TASK_KEY: &str = "overturn.task";

/// Schema metadata from the program: the class labels as a JSON list, in the order of the probabilities.
pub(super) const CLASSES_KEY: &str = "overturn.classes";

/// The outgoing side of every copy's stream.
///
/// Only plain types go out, so a batch's bytes do not depend on the batches before it and any copy can
/// be sent them. Dictionaries would be cheaper to send but make the stream stateful (deltas and
/// replacements, which not every reader knows), and views are too new for many readers.
pub(super) struct Outgoing {
    schema: SchemaRef,
}

impl Outgoing {
    /// A stream of batches of `schema`.
    pub(super) fn new(schema: &Schema, task: TaskSpec) -> Self {
        let fields = schema.fields().iter();
        let fields: Vec<_> = fields
            .map(|field| Field::new(field.name(), plain(field.data_type()), field.is_nullable()))
            .collect();
        let task = match task {
            TaskSpec::Classification => "classification",
            TaskSpec::Regression => "regression",
        };
        let metadata = [(PROTOCOL_KEY, VERSION), (TASK_KEY, task)];
        let metadata: HashMap<_, _> =
            metadata.map(|(key, value)| (key.to_string(), value.to_string())).into();
        Outgoing { schema: Arc::new(Schema::new_with_metadata(fields, metadata)) }
    }

    /// The beginning of the stream: its schema and a batch of zero rows.
    pub(super) fn hello(&self) -> Result<Vec<u8>, Failure> {
        let write = || {
            let mut writer = StreamWriter::try_new(Vec::new(), &self.schema)?;
            writer.write(&RecordBatch::new_empty(Arc::clone(&self.schema)))?;
            writer.flush()?;
            Ok(std::mem::take(writer.get_mut()))
        };
        write().map_err(|error| unsendable(&error))
    }

    /// One batch as a message of the stream.
    pub(super) fn message(&self, batch: &RecordBatch) -> Result<Vec<u8>, Failure> {
        let write = || {
            let batch = self.plain_batch(batch)?;
            let (mut dictionaries, options) =
                (DictionaryTracker::new(false), IpcWriteOptions::default());
            let generator = IpcDataGenerator::default();
            let (_, encoded) =
                generator.encode(&batch, &mut dictionaries, &options, &mut Default::default())?;
            let mut message = Vec::with_capacity(encoded.arrow_data.len() + (4 << 10));
            write_message(&mut message, encoded, &options)?;
            Ok(message)
        };
        write().map_err(|error| unsendable(&error))
    }

    fn plain_batch(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let pairs = batch.columns().iter().zip(self.schema.fields());
        let columns: Result<Vec<ArrayRef>, ArrowError> = pairs
            .map(|(column, field)| {
                if column.data_type() == field.data_type() {
                    return Ok(Arc::clone(column));
                }
                cast(column, field.data_type())
            })
            .collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns?)
    }
}

fn unsendable(error: &ArrowError) -> Failure {
    Failure::refused(format!("cannot be sent a batch as an Arrow stream: {error}"))
        .hint("if the columns hold very long texts, smaller batches may help")
}

/// The type a column is sent in.
fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain(values),
        DataType::RunEndEncoded(_, values) => plain(values.data_type()),
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use arrow::array::{Array, AsArray, DictionaryArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int32Type;
    use arrow::ipc::reader::StreamReader;

    use super::*;

    #[test]
    fn texts_arrive_as_utf8_whatever_their_type() {
        let dictionary: DictionaryArray<Int32Type> =
            [Some("a"), None, Some("b")].into_iter().collect();
        let views = StringViewArray::from(vec![Some("x"), Some("a rather long text"), None]);
        let batch = RecordBatch::try_from_iter([
            ("dictionary", Arc::new(dictionary) as ArrayRef),
            ("view", Arc::new(views) as ArrayRef),
            ("number", Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef),
        ])
        .unwrap();
        let outgoing = Outgoing::new(&batch.schema(), TaskSpec::Classification);
        let mut stream = outgoing.hello().unwrap();
        stream.extend(outgoing.message(&batch.slice(1, 2)).unwrap());
        let reader = StreamReader::try_new(Cursor::new(stream), None).unwrap();
        assert_eq!(reader.schema().metadata()[PROTOCOL_KEY], "1");
        assert_eq!(reader.schema().metadata()[TASK_KEY], "classification");
        let batches: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!((batches.len(), batches[0].num_rows()), (2, 0));
        let texts = batches[1].column(1).as_string::<i32>();
        assert_eq!((texts.value(0), texts.is_null(1)), ("a rather long text", true));
        assert_eq!(batches[1].column(0).as_string::<i32>().value(1), "b");
        assert_eq!(batches[1].column(2).as_primitive::<arrow::datatypes::Int64Type>().value(0), 2);
    }
}
