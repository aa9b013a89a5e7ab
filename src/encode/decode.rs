//! The way back: encoded rows to columns in the table's own Arrow types.

use arrow::array::{ArrayRef, BooleanArray, Float64Array, RecordBatch};
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::DataType;

use super::{CategoricalSlots, Dense, Encoder, NumericSlots, Slots};
use crate::error::{Error, Result};
use crate::feature::{Feature, FeatureKind, from_numbers, from_texts};

impl Encoder {
    /// Decodes rows into the types of `originals`, the batch they were made from: a carried unseen
    /// category has no code and is taken from there. A categorical value is the largest of its block.
    pub fn decode(&self, dense: &Dense, originals: &RecordBatch) -> Result<RecordBatch> {
        if dense.layout != self.layout || dense.rows != originals.num_rows() {
            return Err(Error::internal("decoding", "rows and originals do not belong together"));
        }
        let features = self.schema.features.iter().zip(&self.layout.slots).zip(originals.columns());
        let columns = features.map(|((feature, slots), original)| match slots {
            Slots::Numeric(slots) => decode_numbers(dense, feature, slots, original.data_type()),
            Slots::Categorical(slots) => decode_categories(dense, feature, slots, original),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new(originals.schema(), columns)
            .map_err(|error| Error::internal("decoding", "columns do not fit").source(error))
    }
}

fn decode_numbers(
    dense: &Dense,
    feature: &Feature,
    slots: &NumericSlots,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let integer = feature.numeric().is_some_and(|numeric| numeric.integer == Some(true));
    let numbers: Float64Array = dense
        .values
        .chunks_exact(dense.width)
        .map(|row| {
            let null = slots.null.is_some_and(|slot| row[slot] > 0.5);
            let number = f64::from(row[slots.value]) * slots.std + slots.mean;
            (!null).then(|| if integer { number.round_ties_even() } else { number })
        })
        .collect();
    from_numbers(&numbers, data_type)
}

fn decode_categories(
    dense: &Dense,
    feature: &Feature,
    slots: &CategoricalSlots,
    original: &ArrayRef,
) -> Result<ArrayRef> {
    let FeatureKind::Categorical(categorical) = &feature.kind else {
        return Err(Error::internal("decoding", "a numeric feature has a block"));
    };
    let chosen: Vec<usize> =
        dense.values.chunks_exact(dense.width).map(|row| largest(row, slots)).collect();
    // Only listed values have an entry: null and unseen places lie beyond them.
    let texts =
        chosen.iter().map(|slot| Some(categorical.values.get(slot - slots.first)?.as_str()));
    let decoded = from_texts(texts, original.data_type())?;
    let Some(unseen) = slots.unseen else { return Ok(decoded) };
    let mask: BooleanArray = chosen.iter().map(|slot| Some(*slot == unseen)).collect();
    zip(&mask, original, &decoded)
        .map_err(|error| Error::internal("decoding", "unseen values do not fit").source(error))
}

/// The first of the largest numbers of a block; NaN never wins.
fn largest(row: &[f32], slots: &CategoricalSlots) -> usize {
    let mut best = slots.first;
    for slot in slots.block() {
        if row[slot] > row[best] || row[best].is_nan() {
            best = slot;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use arrow::array::{Array, BooleanArray, Date32Array, Int64Array, StringArray};
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Schema};
    use proptest::prelude::*;

    use super::*;
    use crate::feature::{FeatureSchema, StatsAccumulator};

    fn shared<A: Array + 'static>(array: A) -> ArrayRef {
        Arc::new(array)
    }

    const SCHEMA: &str = r#"
        [[feature]]
        name = "amount"
        kind = "numeric"
        nulls = "carry"
        [[feature]]
        name = "job"
        kind = "categorical"
        values = ["clerk", "smith", "judge"]
        nulls = "carry"
        unseen = "carry"
        [[feature]]
        name = "age"
        kind = "numeric"
        [[feature]]
        name = "member"
        kind = "categorical"
        values = [false, true]
        [[feature]]
        name = "since"
        kind = "numeric"
    "#;

    type Row<'t> = (Option<f64>, Option<&'t str>, i64, bool, i32);

    fn batch(rows: &[Row<'_>], job_type: &DataType) -> RecordBatch {
        let jobs = StringArray::from_iter(rows.iter().map(|row| row.1));
        let columns: Vec<ArrayRef> = vec![
            shared(Float64Array::from_iter(rows.iter().map(|row| row.0))),
            cast(&jobs, job_type).expect("text types convert"),
            shared(Int64Array::from_iter_values(rows.iter().map(|row| row.2))),
            shared(BooleanArray::from_iter(rows.iter().map(|row| Some(row.3)))),
            shared(Date32Array::from_iter_values(rows.iter().map(|row| row.4))),
        ];
        let names = ["amount", "job", "age", "member", "since"];
        let fields: Vec<Field> = names
            .iter()
            .zip(&columns)
            .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
            .collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a good batch")
    }

    fn encoder(batch: &RecordBatch) -> Encoder {
        let schema =
            Arc::new(FeatureSchema::parse(SCHEMA, Path::new("f.toml")).expect("a good schema"));
        let mut stats = StatsAccumulator::new(&schema);
        stats.update(batch).expect("counted");
        Encoder::new(schema, &stats.finish())
    }

    #[test]
    fn rows_are_laid_out_numerics_first() {
        let batch = batch(
            &[
                (Some(1.0), Some("smith"), 30, true, 10),
                (Some(3.0), None, 50, false, 30),
                (None, Some("x"), 40, true, 20),
            ],
            &DataType::Utf8,
        );
        let dense = encoder(&batch).encode(&batch).expect("encoded");
        assert_eq!(dense.width, 3 + 1 + 5 + 2);
        let high = 10.0 / (200f32 / 3.0).sqrt();
        let expected: [[f32; 11]; 3] = [
            [-1.0, -high, -high, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
            [1.0, high, high, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0],
            [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0],
        ];
        for (row, expected) in expected.iter().enumerate() {
            for (found, expected) in dense.row(row).iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "row {row}: {:?}", dense.row(row));
            }
        }
    }

    #[test]
    fn a_block_without_a_number_decodes_to_its_first_value() {
        let batch = batch(&[(Some(1.0), Some("smith"), 30, true, 10)], &DataType::Utf8);
        let encoder = encoder(&batch);
        let mut dense = encoder.encode(&batch).expect("encoded");
        dense.values.iter_mut().skip(4).for_each(|value| *value = f32::NAN);
        let decoded = encoder.decode(&dense, &batch).expect("decoded");
        assert_eq!(decoded.num_rows(), 1);
    }

    fn job_type() -> impl Strategy<Value = DataType> {
        prop_oneof![
            Just(DataType::Utf8),
            Just(DataType::LargeUtf8),
            Just(DataType::Utf8View),
            Just(DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8))),
        ]
    }

    fn row() -> impl Strategy<Value = Row<'static>> {
        let job = prop_oneof![Just("clerk"), Just("smith"), Just("judge"), Just("unheard-of")];
        (
            prop::option::weighted(0.9, -1e6f64..1e6),
            prop::option::weighted(0.9, job),
            0i64..120,
            any::<bool>(),
            -10_000i32..30_000,
        )
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(rows in prop::collection::vec(row(), 1..50), job_type in job_type()) {
            let batch = batch(&rows, &job_type);
            let encoder = encoder(&batch);
            let decoded = encoder.decode(&encoder.encode(&batch).expect("encoded"), &batch).expect("decoded");
            prop_assert_eq!(decoded.schema(), batch.schema());
            for column in 1..5 {
                prop_assert_eq!(decoded.column(column), batch.column(column));
            }
            let numbers = |batch: &RecordBatch| crate::feature::numbers(batch.column(0)).expect("numbers");
            for (found, expected) in numbers(&decoded).iter().zip(numbers(&batch).iter()) {
                match (found, expected) {
                    (Some(found), Some(expected)) => prop_assert!((found - expected).abs() < 1.0),
                    (found, expected) => prop_assert_eq!(found, expected),
                }
            }
        }
    }
}
