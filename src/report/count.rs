//! From written counterfactuals and the rows they were made from to counts and a sample: every figure of every report
//! is counted here, for `run` and `report` alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{Float64Type, Int32Type, SchemaRef};
use hashbrown::HashMap;

use super::compare::ComparedFigures;
use super::input::{InputRows, Segments};
use super::pieces::Piece;
use super::sample::{Keep, MmdSample};
use super::written::{column, named, only, sources, statuses};
use crate::encode::Encoder;
use crate::error::{Error, Result};
use crate::feature::{FeatureSchema, RowReader, RowValidator, Rows, key_hashes};
use crate::metrics::{
    AgreementCounts, Distances, NeededCounterfactuals, RowOutcomes, Status, Tally,
};
use crate::output::METHOD;

/// Examples kept of every split.
const EXAMPLES: usize = 3;

/// Columns of the counterfactual table that are counted, beside the key and the features.
const COUNTED: [&str; 14] = [
    "sample",
    "target",
    "status",
    "source",
    "valid",
    "queries",
    "certified",
    "margin",
    "robust",
    "robustness_cost",
    "cost",
    "l0",
    "l1",
    "n_changed",
];

/// What has to be known of a run to count its tables.
pub struct CounterSetup {
    /// The features.
    pub schema: Arc<FeatureSchema>,
    /// Turns rows into numbers.
    pub encoder: Encoder,
    /// The counterfactual table.
    pub table: SchemaRef,
    /// Its key columns.
    pub key: Vec<String>,
    /// The methods whose rows it has, the published one first.
    pub methods: Vec<String>,
    /// What targets are called, in the order of their numbers.
    pub targets: Vec<String>,
    /// Whether a row has a target for every other class.
    pub every: bool,
    /// Seed of the hashes of keys.
    pub seed: u64,
    /// Which counterfactuals are compared as distributions.
    pub keep: Keep,
}

/// Counts written counterfactuals.
pub struct Counter {
    setup: CounterSetup,
    /// The columns that are read.
    pub(super) columns: SchemaRef,
    validator: RowValidator,
    reader: RowReader,
}

/// Counts more of the same rows, in the same order, in the same pass.
pub trait FurtherCounts: Send {
    /// Hears what became of rows; `rows` are the rows of the input batch that they belong to.
    ///
    /// # Errors
    /// When a row cannot be counted.
    fn outcomes(&mut self, rows: &[u32], outcomes: &RowOutcomes<'_>) -> Result<()>;

    /// Hears how those of them that needed a counterfactual differ from the originals. `first` says which are the
    /// first for their row and target.
    ///
    /// # Errors
    /// When a row cannot be counted.
    fn changes(
        &mut self,
        rows: &[u32],
        first: &[bool],
        changes: &NeededCounterfactuals<'_>,
    ) -> Result<()>;
}

/// What a split of the table comes to.
pub struct SplitFigures {
    /// Counts by target and segment.
    pub tally: Tally,
    /// Rows for the comparison of distributions.
    pub sample: MmdSample,
    /// Rows set aside, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// The first solved rows: file, and index of the row in it.
    pub examples: Vec<(String, usize)>,
    /// What the other methods come to, if there are any.
    pub compared: Option<Box<ComparedFigures>>,
    pub(super) segments: Segments,
}

/// Where the counts of a split go.
pub struct CountSinks<'a> {
    /// The figures of the reports.
    pub figures: &'a mut SplitFigures,
    /// Whatever else is counted.
    pub further: Option<&'a mut dyn FurtherCounts>,
}

/// Columns of a piece that say what became of its rows.
struct OutcomeColumns {
    targets: Vec<u32>,
    segments: Vec<u32>,
    status: Vec<Status>,
    samples: Vec<i32>,
}

impl Counter {
    /// A counter for the tables of a run.
    pub fn new(setup: CounterSetup) -> Counter {
        let features: Vec<String> = setup.schema.names().map(|name| format!("cf_{name}")).collect();
        let method = (setup.methods.len() > 1).then_some(METHOD);
        let names = setup
            .key
            .iter()
            .map(String::as_str)
            .chain(method)
            .chain(COUNTED)
            .chain(["plausibility"]);
        let columns = only(&setup.table, names.chain(features.iter().map(String::as_str)));
        let validator = RowValidator::new(&setup.schema);
        let reader = RowReader::new(&setup.schema);
        Counter { setup, columns, validator, reader }
    }

    /// The same, reading further columns of the table, where it has them.
    #[must_use]
    pub fn reading(mut self, more: &[&str]) -> Counter {
        let read = self.columns.fields().iter().map(|field| field.name().as_str());
        self.columns = only(&self.setup.table, read.chain(more.iter().copied()));
        self
    }

    /// Nothing yet.
    pub fn nothing(&self) -> SplitFigures {
        let others = self.setup.methods.len().saturating_sub(1);
        let compared = || {
            let others = (0..others).map(|_| self.nothing_of_one()).collect();
            Box::new(ComparedFigures { others, agreement: self.no_agreement() })
        };
        SplitFigures { compared: (others > 0).then(compared), ..self.nothing_of_one() }
    }

    /// No agreement counted yet.
    pub fn no_agreement(&self) -> AgreementCounts {
        let schema = &self.setup.schema;
        let derived = |feature| schema.derived.iter().any(|of| of.feature == feature);
        let compared = (0..schema.features.len()).map(|feature| !derived(feature)).collect();
        AgreementCounts::new(self.setup.methods.len(), compared)
    }

    fn nothing_of_one(&self) -> SplitFigures {
        SplitFigures {
            tally: Tally::default(),
            sample: MmdSample::new(self.setup.encoder.layout().width),
            rejected: BTreeMap::new(),
            examples: Vec::new(),
            compared: None,
            segments: Segments::default(),
        }
    }

    /// The counterfactual table.
    pub fn table(&self) -> &SchemaRef {
        &self.setup.table
    }

    /// The methods, the published one first.
    pub(super) fn methods(&self) -> &[String] {
        &self.setup.methods
    }

    /// How many counterfactuals of a target are compared, if not all are.
    pub fn most(&self) -> Option<usize> {
        if let Keep::Most(most) = self.setup.keep { Some(most) } else { None }
    }

    /// Hashes of the keys of written rows.
    pub(super) fn hashes(&self, batch: &RecordBatch) -> Result<Vec<u128>> {
        let key = named(batch, self.setup.key.iter().map(String::as_str), "")?;
        key_hashes(&key, self.setup.seed)
    }

    /// Rows of the input, to be found by their keys.
    ///
    /// # Errors
    /// When a key or a segment column has a type that cannot be compared.
    pub fn input(
        &self,
        key: &RecordBatch,
        features: RecordBatch,
        segments: RecordBatch,
    ) -> Result<InputRows> {
        InputRows::new(key_hashes(key, self.setup.seed)?, features, segments)
    }

    /// Counts the counterfactuals about some rows of the input: all there are.
    ///
    /// # Errors
    /// When the table is not one of this run.
    pub(super) fn count(
        &self,
        input: &InputRows,
        pieces: &[Piece],
        counts: &mut CountSinks<'_>,
    ) -> Result<()> {
        let found = &mut *counts.figures;
        let outcomes = pieces.iter().map(|piece| self.outcomes(input, piece, found));
        let outcomes = outcomes.collect::<Result<Vec<_>>>()?;
        let first_samples =
            if self.setup.every { first_samples(pieces, &outcomes) } else { FirstSamples::new() };
        for (piece, outcomes) in pieces.iter().zip(&outcomes) {
            let first = |index: usize| {
                let (row, sample) = (piece.rows[index], outcomes.samples[index]);
                let first = first_samples.get(&(row, outcomes.targets[index]));
                first.map_or(sample == 0, |first| *first == sample)
            };
            let first: Vec<bool> = (0..piece.rows.len()).map(first).collect();
            counts.figures.examples.extend(examples(piece, outcomes));
            counts.figures.examples.truncate(EXAMPLES);
            self.count_outcomes(piece, (outcomes, &first), counts)?;
            self.count_changes(input, piece, (outcomes, &first), counts)?;
        }
        Ok(())
    }

    fn outcomes(
        &self,
        input: &InputRows,
        piece: &Piece,
        found: &mut SplitFigures,
    ) -> Result<OutcomeColumns> {
        let SplitFigures { tally, segments, .. } = found;
        Ok(OutcomeColumns {
            targets: self.targets(&piece.batch)?,
            segments: segments.of(input, &piece.rows, tally)?,
            status: statuses(&piece.batch)?,
            samples: integers(&piece.batch, "sample")?,
        })
    }

    fn count_outcomes(
        &self,
        piece: &Piece,
        (outcomes, first): (&OutcomeColumns, &[bool]),
        counts: &mut CountSinks<'_>,
    ) -> Result<()> {
        let batch = &piece.batch;
        let queries = integers(batch, "queries")?;
        let queries: Vec<u32> = queries.into_iter().map(|queries| queries as u32).collect();
        let OutcomeColumns { targets, segments, status, samples } = outcomes;
        let outcomes = RowOutcomes {
            targets,
            segments,
            status,
            source: &sources(batch)?,
            first,
            samples,
            queries: &queries,
            certified: &flags(batch, "certified")?,
        };
        counts.figures.tally.count_outcomes(&outcomes, self.setup.schema.features.len());
        match &mut counts.further {
            Some(further) => further.outcomes(&piece.rows, &outcomes),
            None => Ok(()),
        }
    }

    /// Counts what had to change, row by row.
    fn count_changes(
        &self,
        input: &InputRows,
        piece: &Piece,
        (outcomes, first): (&OutcomeColumns, &[bool]),
        counts: &mut CountSinks<'_>,
    ) -> Result<()> {
        let needed = |index: &u32| outcomes.status[*index as usize] != Status::AlreadyTarget;
        let needed: Vec<u32> = (0..piece.rows.len() as u32).filter(needed).collect();
        if needed.is_empty() {
            return Ok(());
        }
        let at = |values: &[u32]| -> Vec<u32> {
            needed.iter().map(|index| values[*index as usize]).collect()
        };
        let (targets, segments) = (at(&outcomes.targets), at(&outcomes.segments));
        let batch = taken(&piece.batch, &needed)?;
        let counterfactuals = named(&batch, self.setup.schema.names(), "cf_")?;
        let counterfactuals = self.reader.read(&counterfactuals)?;
        let rows = at(&piece.rows);
        let originals = self.originals(input, &rows)?;
        let valid = flags(&batch, "valid")?;
        let changed = integers(&batch, "n_changed")?.into_iter();
        let distances = Distances {
            l0: numbers(&batch, "l0")?,
            l1: numbers(&batch, "l1")?,
            changed: changed.map(|changed| changed as u32).collect(),
        };
        let changes = NeededCounterfactuals {
            targets: &targets,
            segments: &segments,
            valid: &valid,
            margins: &numbers(&batch, "margin")?,
            distances: &distances,
            costs: &numbers(&batch, "cost")?,
            robust: &maybe_integers(&batch, "robust")?,
            robustness_costs: &numbers(&batch, "robustness_cost")?,
            plausibility: &numbers(&batch, "plausibility")?,
            counterfactuals: &counterfactuals,
            originals: &originals,
        };
        counts.figures.tally.count_changes(&changes);
        let hashes = piece.hashes_of(&needed);
        self.sample(&changes, &hashes, &mut counts.figures.sample);
        let Some(further) = &mut counts.further else { return Ok(()) };
        let first: Vec<bool> = needed.iter().map(|index| first[*index as usize]).collect();
        further.changes(&rows, &first, &changes)
    }

    /// Rows of the input as they were explained, with stand-ins filled in.
    fn originals(&self, input: &InputRows, rows: &[u32]) -> Result<Rows> {
        let validated = self.validator.validate_rows(&taken(&input.features, rows)?)?;
        if let Some(reject) = validated.rejects.first() {
            let problem = format!("has rows that the run has explained, but {}", reject.detail);
            return Err(Error::input("features", problem).hint("run the job again"));
        }
        self.reader.read(&validated.features)
    }

    /// Keeps some of them for the comparison of distributions.
    fn sample(&self, changes: &NeededCounterfactuals<'_>, hashes: &[u128], sample: &mut MmdSample) {
        if self.setup.keep == Keep::None {
            return;
        }
        let sampled = |index: &u32| {
            let index = *index as usize;
            sample.may_keep(changes.targets[index], hashes[index])
        };
        let sampled: Vec<u32> = (0..hashes.len() as u32).filter(sampled).collect();
        if sampled.is_empty() {
            return;
        }
        let at = |values: &[u32]| sampled.iter().map(|index| values[*index as usize]).collect();
        let encoded = |rows: &Rows| self.setup.encoder.encode_rows(&rows.take(&sampled)).values;
        sample.append(MmdSample {
            hashes: sampled.iter().map(|index| hashes[*index as usize]).collect(),
            targets: at(changes.targets),
            segments: at(changes.segments),
            valid: sampled.iter().map(|index| changes.valid[*index as usize]).collect(),
            counterfactuals: encoded(changes.counterfactuals),
            originals: encoded(changes.originals),
            ..MmdSample::default()
        });
        if let Keep::Most(most) = self.setup.keep {
            sample.prune_if_long(most);
        }
    }

    /// Numbers of the targets.
    fn targets(&self, batch: &RecordBatch) -> Result<Vec<u32>> {
        let names = &self.setup.targets;
        if names.len() == 1 {
            // All rows of a regression have one, though each may have a range of its own.
            return Ok(vec![0; batch.num_rows()]);
        }
        let number = |text: Option<&str>| {
            let found = names.iter().position(|name| Some(name.as_str()) == text);
            found.map(|index| index as u32).ok_or_else(|| {
                let text = text.unwrap_or("null");
                let problem = format!("is `{text}` in a written table, expected one of {names:?}");
                Error::input("target", problem)
            })
        };
        column(batch, "target")?.as_string::<i32>().iter().map(number).collect()
    }
}

/// Row and target → first sample.
type FirstSamples = HashMap<(u32, u32), i32>;

/// Where a row has several targets: the first sample of each, whatever folders they are in.
fn first_samples(pieces: &[Piece], outcomes: &[OutcomeColumns]) -> FirstSamples {
    let mut first_samples = FirstSamples::new();
    for (piece, outcomes) in pieces.iter().zip(outcomes) {
        let pairs = piece.rows.iter().copied().zip(outcomes.targets.iter().copied());
        for (pair, sample) in pairs.zip(&outcomes.samples) {
            let first = first_samples.entry(pair).or_insert(*sample);
            *first = (*first).min(*sample);
        }
    }
    first_samples
}

/// Where the first solved rows of a piece stand.
fn examples(piece: &Piece, outcomes: &OutcomeColumns) -> Vec<(String, usize)> {
    let shown =
        |index: &usize| outcomes.status[*index] == Status::Solved && outcomes.samples[*index] == 0;
    let shown = (0..piece.rows.len()).filter(shown).take(EXAMPLES);
    shown.map(|index| (piece.file.to_string(), piece.indexes[index])).collect()
}

pub(super) fn taken(batch: &RecordBatch, rows: &[u32]) -> Result<RecordBatch> {
    let whole =
        rows.len() == batch.num_rows() && (0u32..).zip(rows).all(|(index, row)| index == *row);
    if whole {
        return Ok(batch.clone());
    }
    take_record_batch(batch, &UInt32Array::from(rows.to_vec()))
        .map_err(|error| Error::internal("reports", "rows cannot be taken").source(error))
}

fn integers(batch: &RecordBatch, name: &str) -> Result<Vec<i32>> {
    Ok(column(batch, name)?.as_primitive::<Int32Type>().values().to_vec())
}

fn maybe_integers(batch: &RecordBatch, name: &str) -> Result<Vec<Option<u32>>> {
    let integers = column(batch, name)?.as_primitive::<Int32Type>();
    Ok(integers.iter().map(|integer| integer.map(|integer| integer as u32)).collect())
}

fn flags(batch: &RecordBatch, name: &str) -> Result<Vec<bool>> {
    let flags: &BooleanArray = column(batch, name)?.as_boolean();
    Ok(flags.values().iter().collect())
}

/// Numbers, with NaN for null.
fn numbers(batch: &RecordBatch, name: &str) -> Result<Vec<f64>> {
    let numbers = column(batch, name)?.as_primitive::<Float64Type>();
    Ok(match numbers.null_count() {
        0 => numbers.values().to_vec(),
        _ => numbers.iter().map(|number| number.unwrap_or(f64::NAN)).collect(),
    })
}
