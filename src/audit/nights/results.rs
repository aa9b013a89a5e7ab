//! A run's first counterfactuals by key, compact enough for tens of millions of rows: a slice of all keys at a time.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type, Schema, SchemaRef};
use hashbrown::HashMap;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::feature::{FeatureSchema, RowReader, Rows, key_hashes, numbers};
use crate::metrics::Status;
use crate::output::{METHOD, ROW_HASH};
use crate::report::{column, read, written_of_method, written_statuses};

/// Seed of the hashes of keys: any will do, as long as it is one.
const SEED: u64 = 0;
/// Bytes that the counterfactuals of both runs may take in one pass …
const MOST_BYTES: u64 = 1 << 30;
/// … of which a row takes so many, beside its features.
const ROW_BYTES: u64 = 160;
/// No entry.
const NONE: u32 = u32::MAX;

/// Columns that are read beside the key and the features.
const READ: [&str; 8] =
    ["sample", "target", "original_class", "status", "valid", "cost", ROW_HASH, "changes"];

/// Passes over two tables with so many rows together.
pub fn passes(rows: u64, features: usize) -> u64 {
    (rows * (ROW_BYTES + 8 * features as u64)).div_ceil(MOST_BYTES).max(1)
}

/// Every so-manieth of all keys, by hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Which.
    pub number: u64,
    /// Of so many.
    pub of: u64,
}

impl Slice {
    /// Whether a key is in it.
    pub fn has(self, hash: u128) -> bool {
        (hash % u128::from(self.of)) as u64 == self.number
    }
}

/// What has to be known of a run to read its counterfactuals.
#[derive(Debug, Clone)]
pub struct ResultSetup {
    /// The counterfactual table.
    pub table: SchemaRef,
    /// Its key columns.
    pub key: Vec<String>,
    /// The features.
    pub schema: Arc<FeatureSchema>,
    /// What targets are called, in the order of their numbers.
    pub targets: Vec<String>,
    /// The published method, where the run has several.
    pub method: Option<String>,
}

/// A run's first counterfactual for every key and target.
#[derive(Debug)]
pub struct RecordedResults {
    index: HashMap<u128, u32>,
    /// What is known of every key and target.
    pub entries: Vec<RecordedResult>,
    /// Values of the counterfactuals.
    pub rows: Rows,
    /// Of each, the features that change …
    changed: Vec<u64>,
    /// … and those of them whose number goes up.
    rises: Vec<u64>,
    words: usize,
}

/// What a run says of a key and target.
#[derive(Debug, Clone)]
pub struct RecordedResult {
    /// Hash of the key.
    pub key: u128,
    /// Number of the target.
    pub target: u32,
    /// Hash of the row.
    pub row: i64,
    /// Hash of the model's decision about the row.
    pub decision: u64,
    /// What became of it.
    pub status: Status,
    /// What the changes cost; NaN if there are none.
    pub cost: f64,
    /// The valid counterfactual that was needed.
    pub counterfactual: Option<u32>,
    sample: i32,
    /// The next of the same key.
    next: u32,
}

impl RecordedResult {
    /// Whether the row needed a counterfactual.
    pub fn needed(&self) -> bool {
        self.status != Status::AlreadyTarget
    }
}

impl ResultSetup {
    /// Hashes of keys, by which both runs find each other.
    ///
    /// # Errors
    /// When a column cannot be compared.
    pub fn hashes(&self, key: &RecordBatch) -> Result<Vec<u128>> {
        key_hashes(key, SEED)
    }

    /// The same of another run of this kind, by the method that it has published.
    #[must_use]
    pub fn of(&self, method: Option<&str>) -> ResultSetup {
        ResultSetup { method: method.map(String::from), ..self.clone() }
    }

    /// The columns that are read.
    pub(super) fn columns(&self) -> SchemaRef {
        let features = self.schema.names().map(|name| format!("cf_{name}"));
        let method = self.method.is_some().then_some(METHOD);
        let names = self.key.iter().map(String::as_str).chain(method).chain(READ);
        let names = names.map(String::from);
        let fields = names
            .chain(features)
            .filter_map(|name| Some(Arc::new(self.table.field_with_name(&name).ok()?.clone())));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn words(&self) -> usize {
        self.schema.features.len().div_ceil(64)
    }

    fn no_rows(&self) -> Rows {
        let cells = self.schema.features.iter().map(|feature| match feature.numeric() {
            Some(_) => crate::feature::Cells::Numbers(Vec::new()),
            None => crate::feature::Cells::Codes(Vec::new()),
        });
        Rows { len: 0, cells: cells.collect() }
    }
}

impl RecordedResults {
    /// Reads a slice of the counterfactuals in some files of a run's folder.
    ///
    /// # Errors
    /// When a file cannot be read, or is not of such a run.
    pub fn read(
        setup: &ResultSetup,
        folder: &Path,
        files: &[String],
        slice: Slice,
    ) -> Result<RecordedResults> {
        let of_file = |name: &String| ResultBlock::of_file(setup, (folder, name), slice);
        let mut results = RecordedResults {
            index: HashMap::new(),
            entries: Vec::new(),
            rows: setup.no_rows(),
            changed: Vec::new(),
            rises: Vec::new(),
            words: setup.words(),
        };
        // A few files at a time: what is read of them stands beside what is kept.
        for files in files.chunks(rayon::current_num_threads().max(1)) {
            let blocks: Vec<ResultBlock> = files.par_iter().map(of_file).collect::<Result<_>>()?;
            blocks.into_iter().for_each(|block| results.add(block));
        }
        Ok(results)
    }

    fn add(&mut self, block: ResultBlock) {
        let first = self.rows.len as u32;
        self.rows.append(block.rows);
        self.changed.extend(block.changed);
        self.rises.extend(block.rises);
        for mut entry in block.entries {
            entry.counterfactual =
                entry.counterfactual.map(|counterfactual| counterfactual + first);
            self.insert(entry);
        }
    }

    /// Of several counterfactuals for a key and target, the first counts.
    fn insert(&mut self, mut entry: RecordedResult) {
        let head = self.index.get(&entry.key).copied().unwrap_or(NONE);
        let mut at = head;
        while at != NONE {
            let known = &mut self.entries[at as usize];
            if known.target == entry.target {
                if entry.sample < known.sample {
                    entry.next = known.next;
                    *known = entry;
                }
                return;
            }
            at = known.next;
        }
        entry.next = head;
        self.index.insert(entry.key, self.entries.len() as u32);
        self.entries.push(entry);
    }

    /// Whether a key is known.
    pub fn knows(&self, key: u128) -> bool {
        self.index.contains_key(&key)
    }

    /// What is known of a key, target by target.
    pub fn of(&self, key: u128) -> impl Iterator<Item = &RecordedResult> {
        let first = self.index.get(&key).map(|at| &self.entries[*at as usize]);
        std::iter::successors(first, |entry| self.entries.get(entry.next as usize))
    }

    /// The features that a counterfactual changes, a bit each.
    pub fn changed(&self, counterfactual: u32) -> &[u64] {
        &self.changed[counterfactual as usize * self.words..][..self.words]
    }

    /// The features that a counterfactual changes.
    pub fn features(&self, counterfactual: u32) -> impl Iterator<Item = usize> + '_ {
        let words = self.changed(counterfactual).iter().enumerate();
        words.flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        })
    }

    /// Whether a changed number goes up.
    pub fn rises(&self, counterfactual: u32, feature: usize) -> bool {
        self.rises[counterfactual as usize * self.words + feature / 64] >> (feature % 64) & 1 == 1
    }
}

/// What is read of a file.
struct ResultBlock {
    entries: Vec<RecordedResult>,
    rows: Rows,
    changed: Vec<u64>,
    rises: Vec<u64>,
}

impl ResultBlock {
    fn of_file(
        setup: &ResultSetup,
        (folder, name): (&Path, &String),
        slice: Slice,
    ) -> Result<ResultBlock> {
        let (columns, reader) = (setup.columns(), RowReader::new(&setup.schema));
        let rows = setup.no_rows();
        let mut block =
            ResultBlock { entries: Vec::new(), rows, changed: Vec::new(), rises: Vec::new() };
        for batch in read(folder, name, &columns)? {
            let batch = written_of_method(batch?, setup.method.as_deref())?;
            block.add(setup, &batch, (&reader, slice))?;
        }
        Ok(block)
    }

    fn add(
        &mut self,
        setup: &ResultSetup,
        batch: &RecordBatch,
        (reader, slice): (&RowReader, Slice),
    ) -> Result<()> {
        let hashes = setup.hashes(&only(batch, setup.key.iter().map(String::as_str), "")?)?;
        let kept = hashes.iter().map(|hash| Some(slice.has(*hash)));
        let batch = filtered(batch, kept)?;
        let hashes: Vec<u128> = hashes.into_iter().filter(|hash| slice.has(*hash)).collect();
        let statuses = written_statuses(&batch)?;
        let valid = column(&batch, "valid")?.as_boolean();
        let answered: Vec<bool> = (0..hashes.len())
            .map(|row| statuses[row] != Status::AlreadyTarget && valid.value(row))
            .collect();
        self.entries.extend(entries(setup, &batch, (hashes, statuses), &answered)?);
        let solved = filtered(&batch, answered.iter().map(|answered| Some(*answered)))?;
        let before = self.rows.len as u32;
        let mut next = before;
        for entry in self.entries.iter_mut().rev().take(answered.len()).rev() {
            if entry.counterfactual.is_some() {
                entry.counterfactual = Some(next);
                next += 1;
            }
        }
        let counterfactuals = only(&solved, setup.schema.names(), "cf_")?;
        let rows = reader.read(&counterfactuals)?;
        self.add_changes(setup, (&solved, &counterfactuals), &rows)?;
        self.rows.append(rows);
        Ok(())
    }

    /// Which features change, and which way.
    fn add_changes(
        &mut self,
        setup: &ResultSetup,
        (batch, counterfactuals): (&RecordBatch, &RecordBatch),
        rows: &Rows,
    ) -> Result<()> {
        let words = setup.words();
        let first = self.changed.len();
        self.changed.resize(first + rows.len * words, 0);
        self.rises.resize(first + rows.len * words, 0);
        let lists = column(batch, "changes")?.as_list::<i32>();
        let items = lists.values().as_struct();
        let (names, from) =
            (items.column(0).as_string::<i32>(), items.column(1).as_string::<i32>());
        let numbers_of: HashMap<&str, usize> = setup.schema.names().zip(0..).collect();
        // By feature: rows in which it changes, and the texts of what it changes from.
        let mut moved: Vec<(Vec<usize>, Vec<Option<&str>>)> =
            vec![<_>::default(); rows.cells.len()];
        for (row, ends) in lists.value_offsets().windows(2).enumerate() {
            for item in ends[0] as usize..ends[1] as usize {
                let name = names.value(item);
                let feature = *numbers_of.get(name).ok_or_else(|| unknown(name))?;
                self.changed[first + row * words + feature / 64] |= 1 << (feature % 64);
                moved[feature].0.push(row);
                moved[feature].1.push(from.is_valid(item).then(|| from.value(item)));
            }
        }
        for (feature, (at, texts)) in moved.into_iter().enumerate() {
            let Some(new) = rows.cells[feature].numbers().filter(|_| !at.is_empty()) else {
                continue;
            };
            let before = parsed_numbers(texts, counterfactuals.column(feature).data_type())?;
            for (row, before) in at.into_iter().zip(before) {
                if before.is_some_and(|before| new[row] > before) {
                    self.rises[first + row * words + feature / 64] |= 1 << (feature % 64);
                }
            }
        }
        Ok(())
    }
}

/// What is said of rows, beside their counterfactuals: those are numbered later.
fn entries(
    setup: &ResultSetup,
    batch: &RecordBatch,
    (hashes, statuses): (Vec<u128>, Vec<Status>),
    answered: &[bool],
) -> Result<Vec<RecordedResult>> {
    let targets = column(batch, "target")?.as_string::<i32>();
    let decisions = batch.column_by_name("original_class").map(AsArray::as_string::<i32>);
    let samples = column(batch, "sample")?.as_primitive::<Int32Type>();
    let costs = column(batch, "cost")?.as_primitive::<Float64Type>();
    let row_hashes = column(batch, ROW_HASH)?.as_primitive::<Int64Type>();
    let entry = |(row, (key, status)): (usize, (u128, Status))| {
        // Of a regression all that counts is whether the value is the wanted one.
        let decision = match decisions {
            Some(decisions) => xxh3_64(decisions.value(row).as_bytes()),
            None => u64::from(status == Status::AlreadyTarget),
        };
        Ok(RecordedResult {
            key,
            target: target_of(&setup.targets, targets.value(row))?,
            row: row_hashes.value(row),
            decision,
            status,
            cost: if costs.is_valid(row) { costs.value(row) } else { f64::NAN },
            counterfactual: answered[row].then_some(0),
            sample: samples.value(row),
            next: NONE,
        })
    };
    hashes.into_iter().zip(statuses).enumerate().map(entry).collect()
}

/// The number of a target. A regression has one, though each row may have a range of its own.
fn target_of(targets: &[String], name: &str) -> Result<u32> {
    if targets.len() == 1 {
        return Ok(0);
    }
    let found = targets.iter().position(|target| target == name);
    found.map(|index| index as u32).ok_or_else(|| {
        let problem = format!("is `{name}` in a written table, expected one of {targets:?}");
        Error::input("target", problem)
    })
}

/// What texts of a column say, as numbers.
fn parsed_numbers(texts: Vec<Option<&str>>, data_type: &DataType) -> Result<Vec<Option<f64>>> {
    let texts: ArrayRef = Arc::new(StringArray::from(texts));
    let values = cast(&texts, data_type)
        .map_err(|error| Error::internal("changes", "cannot be read back").source(error))?;
    Ok(numbers(&values)?.iter().collect())
}

fn unknown(name: &str) -> Error {
    Error::input("counterfactuals", format!("change `{name}`, which is no feature"))
}

fn filtered(batch: &RecordBatch, kept: impl Iterator<Item = Option<bool>>) -> Result<RecordBatch> {
    filter_record_batch(batch, &kept.collect())
        .map_err(|error| Error::internal("audit", "rows do not fit").source(error))
}

/// The columns of these names after a beginning, without that.
fn only<'a>(
    batch: &RecordBatch,
    names: impl Iterator<Item = &'a str>,
    prefix: &str,
) -> Result<RecordBatch> {
    let named =
        |name: &'a str| Ok((name, column(batch, &format!("{prefix}{name}"))?.clone(), true));
    let columns = names.map(named).collect::<Result<Vec<_>>>()?;
    RecordBatch::try_from_iter_with_nullable(columns)
        .map_err(|error| Error::internal("audit", "columns do not fit").source(error))
}
