//! Which rows of a batch can be used, under the schema's policies for nulls, unseen categories and
//! numbers outside their range. A row that cannot is set aside with its reason; none is ever dropped.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, RecordBatch, UInt32Array};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{is_null, take_record_batch};
use arrow::datatypes::DataType;

use super::column::{CategoryIndex, NULL_CODE, UNSEEN_CODE, from_numbers, from_texts, numbers};
use super::rows::RowReader;
use super::rule::BrokenPolicy;
use super::schema::{Categorical, Feature, FeatureKind, FeatureSchema, Numeric};
use super::spec::{NullPolicy, OutsidePolicy, UnseenPolicy};
use super::stats::texts_of;
use crate::error::{Error, Result};

/// Why a row was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A null or NaN where the policy rejects it.
    Null,
    /// An infinite number.
    Infinite,
    /// A number outside its declared range, where the policy rejects it.
    Outside,
    /// A category that is not listed, where the policy rejects it.
    Unseen,
    /// The model gave no prediction for the row.
    Predictor,
    /// A rule between features that the row breaks, where its policy rejects that.
    Rule,
    /// The column that says the target of the row says nothing that can be had.
    Target,
}

impl Reason {
    /// As written to the rejects table.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Null => "null",
            Reason::Infinite => "infinite",
            Reason::Outside => "outside_range",
            Reason::Unseen => "unseen_category",
            Reason::Rule => "broken_rule",
            Reason::Predictor => "predictor_failed",
            Reason::Target => "no_target",
        }
    }
}

/// A row that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Position in the batch that was looked at.
    pub row: u32,
    /// Why.
    pub reason: Reason,
    /// Which column, and what was found there.
    pub detail: String,
}

/// The valid rows of a batch.
#[derive(Debug)]
pub struct ValidatedRows {
    /// The rows that can be used, with stand-ins filled in.
    pub features: RecordBatch,
    /// Their positions in the batch that was looked at; `None` if all were valid.
    pub rows: Option<UInt32Array>,
    /// The others, by position.
    pub rejects: Vec<Reject>,
}

/// The policies of a schema, ready to be applied to batches.
#[derive(Debug)]
pub struct RowValidator {
    rules: Vec<ColumnPolicy>,
    between: Option<RowRules>,
}

/// Rules between features that rows must keep.
#[derive(Debug)]
struct RowRules {
    rules: Vec<super::rule::Rule>,
    reader: RowReader,
}

impl RowRules {
    fn new(schema: &FeatureSchema) -> Option<RowRules> {
        let reject = schema.rules.iter().filter(|rule| rule.broken == BrokenPolicy::Reject);
        let rules: Vec<super::rule::Rule> = reject.cloned().collect();
        (!rules.is_empty()).then(|| RowRules { rules, reader: RowReader::new(schema) })
    }

    /// The rows of a batch that break a rule.
    fn rejects(&self, batch: &RecordBatch) -> Result<Vec<Reject>> {
        let rows = self.reader.read(batch)?;
        let broken = |row: usize| {
            let cell = |feature: usize| rows.cell(feature, row);
            let rule = self.rules.iter().find(|rule| rule.truth.holds(&cell) == Some(false))?;
            let detail = format!("`{}` does not hold", rule.text);
            Some(Reject { row: row as u32, reason: Reason::Rule, detail })
        };
        Ok((0..rows.len).filter_map(broken).collect())
    }
}

#[derive(Debug)]
struct ColumnPolicy {
    feature: Feature,
    index: Option<CategoryIndex>,
}

/// What one column does to the rows.
struct ColumnOutcome {
    rejects: Vec<Reject>,
    filled: Option<ArrayRef>,
}

impl RowValidator {
    /// The policies of a schema.
    pub fn new(schema: &FeatureSchema) -> RowValidator {
        let rule = |feature: &Feature| ColumnPolicy {
            index: feature.categorical().map(|categorical| CategoryIndex::new(&categorical.values)),
            feature: feature.clone(),
        };
        let rules = schema.features.iter().map(rule).collect();
        RowValidator { rules, between: RowRules::new(schema) }
    }

    /// Applies them to a batch whose columns are the schema's features, in order. A row with several
    /// faults is reported with the first.
    pub fn validate_rows(&self, batch: &RecordBatch) -> Result<ValidatedRows> {
        let mut rejects: Vec<Reject> = Vec::new();
        let mut columns = batch.columns().to_vec();
        for (rule, column) in self.rules.iter().zip(&mut columns) {
            let verdict = rule.check(column)?;
            rejects.extend(verdict.rejects);
            if let Some(filled) = verdict.filled {
                *column = filled;
            }
        }
        if let Some(between) = &self.between {
            let filled =
                RecordBatch::try_new(batch.schema(), columns.clone()).map_err(|error| {
                    Error::internal("row validation", "columns do not fit").source(error)
                })?;
            rejects.extend(between.rejects(&filled)?);
        }
        // Stable, so that of a row's faults the first in the schema's order stays first.
        rejects.sort_by_key(|reject| reject.row);
        rejects.dedup_by_key(|reject| reject.row);
        let features = RecordBatch::try_new(batch.schema(), columns).map_err(|error| {
            Error::internal("row validation", "columns do not fit").source(error)
        })?;
        keep(features, rejects)
    }
}

fn keep(features: RecordBatch, rejects: Vec<Reject>) -> Result<ValidatedRows> {
    if rejects.is_empty() {
        return Ok(ValidatedRows { features, rows: None, rejects });
    }
    let mut rejected = rejects.iter().map(|reject| reject.row).peekable();
    let rows = (0..features.num_rows() as u32).filter(|row| rejected.next_if_eq(row).is_none());
    let rows = UInt32Array::from_iter_values(rows);
    let features = take_record_batch(&features, &rows)
        .map_err(|error| Error::internal("row validation", "rows cannot be taken").source(error))?;
    Ok(ValidatedRows { features, rows: Some(rows), rejects })
}

impl ColumnPolicy {
    fn check(&self, column: &ArrayRef) -> Result<ColumnOutcome> {
        match &self.feature.kind {
            FeatureKind::Numeric(numeric) => self.check_numbers(column, numeric),
            FeatureKind::Categorical(categorical) => self.check_categories(column, categorical),
        }
    }

    fn check_numbers(&self, column: &ArrayRef, numeric: &Numeric) -> Result<ColumnOutcome> {
        let bounds = numeric.range.filter(|_| numeric.outside == OutsidePolicy::Reject);
        let float =
            matches!(column.data_type(), DataType::Float16 | DataType::Float32 | DataType::Float64);
        if !float && bounds.is_none() && column.null_count() == 0 {
            return Ok(ColumnOutcome { rejects: Vec::new(), filled: None });
        }
        let values = numbers(column)?;
        let mut rejects = Vec::new();
        let mut missing = false;
        for (row, value) in values.iter().enumerate() {
            let value = value.unwrap_or(f64::NAN);
            missing |= value.is_nan();
            if let Some((reason, detail)) = self.number_fault(value, bounds) {
                rejects.push(Reject { row: row as u32, reason, detail });
            }
        }
        let fill = numeric.fill.filter(|_| missing && self.feature.nulls == NullPolicy::Fill);
        let filled = fill.map(|fill| fill_numbers(column, &values, fill)).transpose()?;
        Ok(ColumnOutcome { rejects, filled })
    }

    fn number_fault(&self, value: f64, bounds: Option<(f64, f64)>) -> Option<(Reason, String)> {
        let name = &self.feature.name;
        if value.is_nan() {
            let rejected = self.feature.nulls == NullPolicy::Reject;
            return rejected.then(|| (Reason::Null, format!("`{name}` is null")));
        }
        if value.is_infinite() {
            return Some((Reason::Infinite, format!("`{name}` is {value}")));
        }
        let (low, high) = bounds?;
        let outside = !(low..=high).contains(&value);
        outside.then(|| (Reason::Outside, format!("`{name}` is {value}, outside {low} to {high}")))
    }

    fn check_categories(
        &self,
        column: &ArrayRef,
        categorical: &Categorical,
    ) -> Result<ColumnOutcome> {
        let index = self.index.as_ref().ok_or_else(|| {
            Error::internal("row validation", "a categorical feature has no index")
        })?;
        let codes = index.codes(column)?;
        let mut rejects = Vec::new();
        let mut unseen = Vec::new();
        for (row, code) in codes.iter().enumerate() {
            match (*code, self.feature.nulls, categorical.unseen) {
                (NULL_CODE, NullPolicy::Reject, _) => {
                    let detail = format!("`{}` is null", self.feature.name);
                    rejects.push(Reject { row: row as u32, reason: Reason::Null, detail });
                }
                (UNSEEN_CODE, _, UnseenPolicy::Reject) => unseen.push(row as u32),
                _ => {}
            }
        }
        for (row, text) in unseen.iter().zip(texts_of(column, unseen.clone())?) {
            let detail =
                format!("`{}` is \"{text}\", which is not one of its values", self.feature.name);
            rejects.push(Reject { row: *row, reason: Reason::Unseen, detail });
        }
        Ok(ColumnOutcome { rejects, filled: self.fill_categories(column, categorical, &codes)? })
    }

    fn fill_categories(
        &self,
        column: &ArrayRef,
        categorical: &Categorical,
        codes: &[u32],
    ) -> Result<Option<ArrayRef>> {
        let fills = |code: &u32| match *code {
            NULL_CODE => self.feature.nulls == NullPolicy::Fill,
            UNSEEN_CODE => categorical.unseen == UnseenPolicy::Fill,
            _ => false,
        };
        let Some(fill) = categorical.fill.filter(|_| codes.iter().any(fills)) else {
            return Ok(None);
        };
        let text = categorical.values[fill as usize].as_str();
        let stand_in = from_texts([Some(text)].into_iter(), column.data_type())?;
        let mask = codes.iter().map(|code| Some(fills(code))).collect();
        put_in(column, &mask, &stand_in).map(Some)
    }
}

fn fill_numbers(column: &ArrayRef, values: &Float64Array, fill: f64) -> Result<ArrayRef> {
    let stand_in = from_numbers(&Float64Array::from(vec![fill]), column.data_type())?;
    let nulls = is_null(column)
        .map_err(|error| Error::internal("row validation", "nulls").source(error))?;
    let mask = values
        .iter()
        .zip(nulls.values())
        .map(|(value, null)| Some(null || value.is_some_and(f64::is_nan)));
    put_in(column, &mask.collect(), &stand_in)
}

/// The column with a stand-in where the mask is true.
fn put_in(
    column: &ArrayRef,
    mask: &arrow::array::BooleanArray,
    stand_in: &ArrayRef,
) -> Result<ArrayRef> {
    let scalar = arrow::array::Scalar::new(Arc::clone(stand_in));
    zip(mask, &scalar, column)
        .map_err(|error| Error::internal("row validation", "a stand-in does not fit").source(error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow::array::{AsArray, Int32Array, StringArray};
    use arrow::datatypes::{Field, Float64Type, Schema};

    use super::*;

    fn validate(policies: &str, ages: Vec<Option<f64>>, jobs: Vec<Option<&str>>) -> ValidatedRows {
        let [age, job] = policies.split('|').collect::<Vec<_>>()[..] else {
            panic!("two policies")
        };
        let text = format!(
            "[[feature]]\nname = \"age\"\nkind = \"numeric\"\nrange = [0, 100]\n{age}\n\
             [[feature]]\nname = \"job\"\nkind = \"categorical\"\nvalues = [\"a\", \"b\"]\n{job}\n"
        );
        let schema = FeatureSchema::parse(&text, Path::new("f.toml")).expect("a good schema");
        let fields = vec![
            Field::new("age", DataType::Float64, true),
            Field::new("job", DataType::Utf8, true),
        ];
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Float64Array::from(ages)), Arc::new(StringArray::from(jobs))];
        let batch =
            RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a good batch");
        RowValidator::new(&schema).validate_rows(&batch).expect("valid rows")
    }

    fn ages() -> Vec<Option<f64>> {
        vec![
            Some(1.0),
            None,
            Some(f64::NAN),
            Some(f64::INFINITY),
            Some(200.0),
            Some(5.0),
            Some(6.0),
        ]
    }

    fn jobs() -> Vec<Option<&'static str>> {
        vec![Some("a"), Some("b"), Some("a"), Some("a"), Some("b"), None, Some("z")]
    }

    #[test]
    fn rows_are_rejected_with_their_reasons_and_none_is_lost() {
        let validated = validate("outside = \"reject\"|", ages(), jobs());
        let reasons: Vec<_> =
            validated.rejects.iter().map(|reject| (reject.row, reject.reason)).collect();
        use Reason::*;
        assert_eq!(
            reasons,
            [(1, Null), (2, Null), (3, Infinite), (4, Outside), (5, Null), (6, Unseen)]
        );
        assert_eq!(validated.rejects[5].detail, "`job` is \"z\", which is not one of its values");
        assert_eq!(validated.rows.expect("some rejected").values(), &[0]);
    }

    #[test]
    fn carried_states_stay_as_they_are() {
        let validated =
            validate("nulls = \"carry\"|nulls = \"carry\"\nunseen = \"carry\"", ages(), jobs());
        assert_eq!(validated.rejects.len(), 1, "only the infinity");
        assert_eq!(validated.features.num_rows(), 6);
        assert!(validated.features.column(0).is_null(1));
        assert_eq!(validated.features.column(1).as_string::<i32>().value(5), "z");
    }

    #[test]
    fn filled_states_become_their_stand_ins() {
        let validated = validate(
            "nulls = \"fill\"\nfill = 40|nulls = \"fill\"\nunseen = \"fill\"\nfill = \"b\"",
            ages(),
            jobs(),
        );
        let ages = validated.features.column(0).as_primitive::<Float64Type>();
        assert_eq!(ages.values(), &[1.0, 40.0, 40.0, 200.0, 5.0, 6.0]);
        let jobs: Vec<_> =
            validated.features.column(1).as_string::<i32>().iter().flatten().collect();
        assert_eq!(jobs, ["a", "b", "a", "b", "b", "b"]);
    }

    #[test]
    fn whole_numbers_without_nulls_pass_untouched() {
        let text = "[[feature]]\nname = \"n\"\nkind = \"numeric\"\n";
        let schema = FeatureSchema::parse(text, Path::new("f.toml")).expect("a good schema");
        let arrow = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, false)]));
        let batch = RecordBatch::try_new(arrow, vec![Arc::new(Int32Array::from(vec![1, 2]))])
            .expect("batch");
        let validated = RowValidator::new(&schema).validate_rows(&batch).expect("valid rows");
        assert!(validated.rows.is_none() && validated.rejects.is_empty());
    }
}
