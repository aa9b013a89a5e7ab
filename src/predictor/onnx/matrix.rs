//! One input matrix of all features: as they are, categories as codes, or standardised and one-hot.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use ort::session::SessionInputValue;
use ort::value::{Outlet, Tensor, TensorElementType};

use super::convert::{self, Code, CodesByText, TensorReal};
use super::inputs::{Failed, Named, shape_of};
use crate::document::nearest;
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::{Feature, FeatureKind};
use crate::job::{OnnxInputs, Standardise};
use crate::predictor::PredictorColumns;

/// What an unseen category's code is, as in pandas and in scikit-learn's `OrdinalEncoder`.
pub(super) const UNSEEN: f64 = -1.0;

/// How the features of a table become a matrix.
#[derive(Debug)]
pub(super) struct MatrixForm {
    /// The input's name in the model.
    pub(super) name: String,
    pub(super) double: bool,
    pub(super) width: usize,
    pub(super) blocks: Vec<FeatureBlock>,
}

/// The cells that one feature fills in every row.
#[derive(Debug)]
pub(super) struct FeatureBlock {
    /// Position in the batch.
    pub(super) column: usize,
    /// First cell in the row.
    pub(super) at: usize,
    pub(super) cells: BlockCells,
}

/// What those cells are.
#[derive(Debug)]
pub(super) enum BlockCells {
    /// The number itself; NaN for a null.
    Number,
    /// The number less its mean in standard deviations; NaN for a null.
    Standard(Standardise),
    /// The category's code; [`UNSEEN`] for an unseen one and NaN for a null.
    Code(CodesByText),
    /// A cell for each category: one at the row's own, zero elsewhere. All zero for an unseen category
    /// and for a null.
    OneHot(CodesByText),
}

impl BlockCells {
    fn width(&self) -> usize {
        match self {
            BlockCells::OneHot(codes) => codes.len(),
            BlockCells::Number | BlockCells::Standard(_) | BlockCells::Code(_) => 1,
        }
    }

    /// Whether a column of that type can fill them.
    fn take(&self, column: &DataType) -> bool {
        match self {
            BlockCells::Number | BlockCells::Standard(_) => convert::has_numbers(column),
            BlockCells::Code(_) | BlockCells::OneHot(_) => convert::has_text(column),
        }
    }
}

impl MatrixForm {
    /// Lays out the matrix and holds it against the model's one input.
    ///
    /// # Errors
    /// When the model takes another shape or type, or a column does not fit the encoding.
    pub(super) fn plan(
        model: Named<'_>,
        encoding: &OnnxInputs,
        columns: &PredictorColumns,
        null_text: &str,
    ) -> Result<MatrixForm> {
        if let OnnxInputs::Standardised { standardise } = encoding {
            Error::from_faults(Kind::Spec, statistics_faults(standardise, columns))?;
        }
        let outlet = sole_input(model)?;
        let double = is_double(model.name, outlet)?;
        let blocks = lay_out(encoding, columns, null_text);
        Error::from_faults(Kind::Predictor, column_faults(model.name, &blocks, columns))?;
        let width = blocks.iter().map(|block| block.cells.width()).sum();
        check_width(model.name, outlet, width)?;
        Ok(MatrixForm { name: outlet.name().to_string(), double, width, blocks })
    }

    /// The tensor of a batch.
    pub(super) fn tensor(&self, batch: &RecordBatch) -> Result<SessionInputValue<'static>, Failed> {
        let shape = [batch.num_rows(), self.width];
        Ok(if self.double {
            Tensor::from_array((shape, self.fill::<f64>(batch)?))?.into()
        } else {
            Tensor::from_array((shape, self.fill::<f32>(batch)?))?.into()
        })
    }

    fn fill<T: TensorReal>(&self, batch: &RecordBatch) -> Result<Vec<T>, ArrowError> {
        let mut matrix = vec![T::nearest(0.0); batch.num_rows() * self.width];
        for block in &self.blocks {
            let rows = matrix.chunks_exact_mut(self.width).map(|row| &mut row[block.at..]);
            block.fill(rows, batch.column(block.column))?;
        }
        Ok(matrix)
    }
}

impl FeatureBlock {
    fn fill<'m, T: TensorReal>(
        &self,
        rows: impl Iterator<Item = &'m mut [T]>,
        column: &ArrayRef,
    ) -> Result<(), ArrowError> {
        match &self.cells {
            BlockCells::Number => {
                let numbers = convert::reals::<T>(column)?;
                rows.zip(numbers.values()).for_each(|(row, number)| row[0] = *number);
            }
            BlockCells::Standard(Standardise { mean, std }) => {
                let numbers = convert::reals::<f64>(column)?;
                let standard = numbers.values().iter().map(|number| (number - mean) / std);
                rows.zip(standard).for_each(|(row, number)| row[0] = T::nearest(number));
            }
            BlockCells::Code(codes) => {
                let codes = codes.of(column)?.into_iter().map(|code| match code {
                    Code::Known(code) => T::nearest(f64::from(code)),
                    Code::Unseen => T::nearest(UNSEEN),
                    Code::Null => T::NULL,
                });
                rows.zip(codes).for_each(|(row, code)| row[0] = code);
            }
            BlockCells::OneHot(codes) => {
                for (row, code) in rows.zip(codes.of(column)?) {
                    if let Code::Known(code) = code {
                        row[code as usize] = T::nearest(1.0);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The features' places in the row.
fn lay_out(
    encoding: &OnnxInputs,
    columns: &PredictorColumns,
    null_text: &str,
) -> Vec<FeatureBlock> {
    let features = &columns.features.features;
    let mut order: Vec<usize> = (0..features.len()).collect();
    if matches!(encoding, OnnxInputs::Standardised { .. }) {
        // Stable, so that the schema's order holds within each half.
        order.sort_by_key(|column| features[*column].numeric().is_none());
    }
    let mut at = 0;
    let mut blocks = Vec::with_capacity(order.len());
    for column in order {
        let cells = cells(encoding, &features[column], null_text);
        let width = cells.width();
        blocks.push(FeatureBlock { column, at, cells });
        at += width;
    }
    blocks
}

fn cells(encoding: &OnnxInputs, feature: &Feature, null_text: &str) -> BlockCells {
    match (encoding, &feature.kind) {
        (OnnxInputs::Standardised { standardise }, FeatureKind::Numeric(_)) => {
            let known = standardise.get(&feature.name).copied();
            known.map_or(BlockCells::Number, BlockCells::Standard)
        }
        (OnnxInputs::Standardised { .. }, FeatureKind::Categorical(categorical)) => {
            BlockCells::OneHot(CodesByText::new(categorical, null_text))
        }
        (OnnxInputs::Codes, FeatureKind::Categorical(categorical)) => {
            BlockCells::Code(CodesByText::new(categorical, null_text))
        }
        _ => BlockCells::Number,
    }
}

/// Numeric features without statistics, and statistics without a numeric feature.
fn statistics_faults(
    standardise: &BTreeMap<String, Standardise>,
    columns: &PredictorColumns,
) -> Vec<Fault> {
    let features = &columns.features.features;
    let numeric: Vec<&str> =
        features.iter().filter(|f| f.numeric().is_some()).map(|f| f.name.as_str()).collect();
    let missing = numeric.iter().filter(|name| !standardise.contains_key(**name)).map(|name| {
        let problem =
            format!("has no `{name}`, expected the mean and std of every numeric feature");
        Fault::new("predictor.standardise", problem)
    });
    let strange = standardise.keys().filter(|name| !numeric.contains(&name.as_str())).map(|name| {
        let problem = format!("names `{name}`, which is not a numeric feature of the schema");
        let fault = Fault::new("predictor.standardise", problem);
        match nearest(name, numeric.iter().copied()) {
            Some(near) => fault.hint(format!("did you mean `{near}`?")),
            None => fault,
        }
    });
    missing.chain(strange).collect()
}

fn sole_input(model: Named<'_>) -> Result<&Outlet> {
    match model.outlets {
        [outlet] => Ok(outlet),
        outlets => {
            let problem = format!("takes {} inputs, expected one matrix", outlets.len());
            Err(Error::predictor(model.name, problem)
                .hint("if it takes an input per feature, set `predictor.inputs = \"columns\"`"))
        }
    }
}

fn is_double(model: &str, outlet: &Outlet) -> Result<bool> {
    match outlet.dtype().tensor_type() {
        Some(TensorElementType::Float32) => Ok(false),
        Some(TensorElementType::Float64) => Ok(true),
        _ => {
            let (name, found) = (outlet.name(), outlet.dtype());
            let problem =
                format!("input `{name}` takes {found}, expected a float or double matrix");
            Err(Error::predictor(model, problem)
                .hint("if it takes an input per feature, set `predictor.inputs = \"columns\"`"))
        }
    }
}

/// Columns whose types do not fit. Categories that would need an encoding are one fault together.
fn column_faults(model: &str, blocks: &[FeatureBlock], columns: &PredictorColumns) -> Vec<Fault> {
    let unfit =
        |block: &&FeatureBlock| !block.cells.take(columns.schema.field(block.column).data_type());
    let numbers =
        |block: &FeatureBlock| matches!(block.cells, BlockCells::Number | BlockCells::Standard(_));
    let encodable = |block: &&FeatureBlock| {
        numbers(block) && columns.features.features[block.column].categorical().is_some()
    };
    let (categories, others): (Vec<&FeatureBlock>, Vec<&FeatureBlock>) =
        blocks.iter().filter(unfit).partition(encodable);
    let shown = |block: &FeatureBlock| {
        let field = columns.schema.field(block.column);
        format!("`{}` is {}", field.name(), field.data_type())
    };
    let other = |block: &FeatureBlock| {
        let expected = if numbers(block) { "numbers" } else { "text, whole numbers or booleans" };
        let found = shown(block);
        Fault::new(model, format!("takes a matrix, for which column {found}, expected {expected}"))
    };
    let mut faults: Vec<Fault> = others.into_iter().map(other).collect();
    if !categories.is_empty() {
        let found: Vec<String> = categories.into_iter().map(shown).collect();
        let problem = format!(
            "takes a matrix, for which column {}, expected numbers",
            found.join(", column ")
        );
        faults.push(Fault::new(model, problem).hint(
            "set `predictor.encoding` to `codes` or `standardised`, as the model was trained",
        ));
    }
    faults
}

fn check_width(model: &str, outlet: &Outlet, width: usize) -> Result<()> {
    let (name, shape) = (outlet.name(), shape_of(outlet));
    let declared = match shape {
        [] => return Ok(()),
        [_, declared] => *declared,
        _ => {
            let problem = format!("input `{name}` has the shape {shape:?}, expected [-1, {width}]");
            return Err(Error::predictor(model, problem));
        }
    };
    if declared < 0 || declared == width as i64 {
        return Ok(());
    }
    let problem = format!(
        "input `{name}` has the wrong width: the model expects {declared}, the feature schema gives \
         {width}"
    );
    Err(Error::predictor(model, problem)
        .hint("see that `predictor.encoding` and the schema's features are those of training"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;
    use crate::feature::FeatureSchema;

    fn batch() -> RecordBatch {
        let jobs = StringArray::from(vec![Some("nurse"), Some("poet"), None]);
        let ages = Int64Array::from(vec![Some(30), Some(50), None]);
        let columns: [(&str, ArrayRef); 2] = [("job", Arc::new(jobs)), ("age", Arc::new(ages))];
        RecordBatch::try_from_iter(columns).expect("a batch")
    }

    fn filled(encoding: &OnnxInputs) -> Vec<f64> {
        let text = "
            [[feature]]
            name = 'job'
            kind = 'categorical'
            values = ['clerk', 'nurse']
            [[feature]]
            name = 'age'
            kind = 'numeric'
            ";
        let features = FeatureSchema::parse(text, Path::new("f.toml")).expect("a schema");
        let columns = PredictorColumns { features: Arc::new(features), schema: batch().schema() };
        let blocks = lay_out(encoding, &columns, "");
        let width = blocks.iter().map(|block| block.cells.width()).sum();
        let matrix = MatrixForm { name: "X".to_string(), double: true, width, blocks };
        matrix.fill(&batch()).expect("numbers")
    }

    fn assert_same(found: &[f64], expected: &[f64]) {
        let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(same),
            "{found:?}, expected {expected:?}"
        );
    }

    #[test]
    fn codes_keep_the_order_of_features_and_mark_the_unknown() {
        let gap = f64::NAN;
        assert_same(&filled(&OnnxInputs::Codes), &[1.0, 30.0, -1.0, 50.0, gap, gap]);
    }

    #[test]
    fn standardised_numbers_come_before_one_hot_blocks() {
        let age = Standardise { mean: 40.0, std: 10.0 };
        let standardise = BTreeMap::from([("age".to_string(), age)]);
        let found = filled(&OnnxInputs::Standardised { standardise });
        assert_same(&found, &[-1.0, 0.0, 1.0, 1.0, 0.0, 0.0, f64::NAN, 0.0, 0.0]);
    }
}
